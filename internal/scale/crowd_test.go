package scale_test

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// crowd is how many delegations and how many settlements a parent has at once.
const crowd = 200

// TestCrowdedParent has a parent decide 200 delegating calls while 200 children that
// have ended a turn have it told, all at once, and interrupts it in the middle. An
// append sends no more than three records, the interrupt overtakes most of the
// delegations, and every child is told of, once.
func TestCrowdedParent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	parent, children := w.crowdedParent()
	other, others := w.crowdedParent()
	c := w.coordinate()
	before, published := w.stored(), c.figures().Published

	var g errgroup.Group
	began, err := w.log.Tail(t.Context(), parent)
	w.must(err)
	for _, d := range []*decider{{w: w, rep: w.open(parent)}, {w: w, rep: w.open(other)}} {
		g.Go(d.run)
	}
	for _, child := range append(children, others...) {
		g.Go(func() error {
			return w.worker.Call(t.Context(), client.MethodSettled, client.SettledRequest{Head: head, Session: child}, nil)
		})
	}
	var last session.Raw
	for last.StreamSeq <= began || last.Address.Class != session.ClassGenesis { // until it has started a child
		last, err = w.log.Last(t.Context(), parent)
		w.must(err)
	}
	timed(t, "interrupt", func() {
		w.call(client.MethodInterrupt, client.StopRequest{Head: head, ID: parent, RequestID: "i1", Reason: "enough"}, nil)
	})
	w.must(g.Wait())
	q := w.queued(parent, began, last.StreamSeq)
	t.Logf("of %d delegations %d stood when it was sent, %d passed it, %d came after it", crowd, q.before, q.passed, q.after)
	if left := crowd - q.before; left < crowd/4 || q.passed > left/2 || q.after > 0 {
		t.Errorf("of %d delegations that were left %d passed the interrupt, want half of at least %d at most; %d came after it, want none", left, q.passed, crowd/4, q.after)
	}
	end := count(w.open(parent))
	if end.notices != crowd || end.told != crowd {
		t.Errorf("%d notices of %d children stand, want one for each of %d", end.notices, end.told, crowd)
	}
	if n := count(w.open(other)); n.delegations != crowd || n.notices != crowd {
		t.Errorf("of the parent that was not interrupted %d delegations and %d notices stand, want %d each", n.delegations, n.notices, crowd)
	}
	records, publishes := w.stored()-before, c.figures().Published-published
	t.Logf("%d records were sent to append %d", publishes, records)
	if records < crowd || publishes < records || publishes > 3*records {
		t.Errorf("%d records were sent to append %d, want three each at most", publishes, records)
	}
}

// crowdedParent writes a parent with 200 children that have ended a turn without its
// log saying so, and with an open step of 200 delegating calls.
func (w *world) crowdedParent() (parent session.ID, children []session.ID) {
	l := w.fixture.settledRoot(0, 11)
	l.open(session.ToolDelegate, crowd)
	var ended []*log
	for i := range crowd {
		ended = append(ended, l.delegate(i))
	}
	l.finish()
	for _, child := range ended {
		child.open("", 0)
		child.finish()
		children = append(children, child.id())
	}
	l.open(session.ToolDelegate, crowd)
	w.fixture.done()
	return l.id(), children
}

// open reads a session's log as a worker does.
func (w *world) open(id session.ID) *agent.Replica {
	w.t.Helper()
	log, err := stream.New(w.conn("w1"), stream.Config{Witness: agent.Witness{Client: w.worker}})
	w.must(err)
	r, err := agent.OpenReplica(w.t.Context(), log, id, "", nil)
	w.must(err)
	return r
}

// queue is where delegations stand, seen from an interrupt.
type queue struct{ before, passed, after int }

// queued reads where the delegations after a tail stand: up to the tail at which an
// interrupt was sent, before the interrupt, and after it.
func (w *world) queued(parent session.ID, from, sent uint64) (q queue) {
	w.t.Helper()
	interrupted := false
	_, err := w.log.Read(w.t.Context(), parent, from, func(raw session.Raw) error {
		r, err := session.DecodeRecord(raw)
		if err != nil {
			return err
		}
		for _, e := range r.Own.Events {
			_, is := e.Payload.(*session.Interrupt)
			interrupted = interrupted || is
		}
		switch {
		case raw.Address.Class != session.ClassGenesis:
		case raw.StreamSeq <= sent:
			q.before++
		case interrupted:
			q.after++
		default:
			q.passed++
		}
		return nil
	})
	w.must(err)
	if !interrupted {
		w.t.Fatal("the interrupt does not stand")
	}
	return q
}

// counts is what stands in a parent's log.
type counts struct {
	delegations int // in the third turn
	notices     int
	told        int // children that notices speak of
}

func count(r *agent.Replica) (n counts) {
	told := map[session.ID]bool{}
	for _, e := range r.Events() {
		switch p := e.Payload.(type) {
		case *session.ToolDecision:
			if turn, _, _, _ := p.CallID.Parts(); turn == 3 && p.Child != "" {
				n.delegations++
			}
		case *session.UserMessage:
			if p.Source.Kind == session.FromSettled {
				n.notices++
				told[p.Source.SenderSessionID] = true
			}
		}
	}
	n.told = len(told)
	return n
}

// decider decides the calls of an open step as a driver does: all that are left at
// the tail it has folded, and again when something slipped in.
type decider struct {
	w   *world
	rep *agent.Replica
}

func (d *decider) run() error {
	ctx, cancel := context.WithTimeoutCause(d.w.t.Context(), patience(d.w.t), errors.New("the calls are never decided"))
	defer cancel()
	for ctx.Err() == nil {
		if err := d.rep.Refresh(ctx, 0); err != nil {
			return err
		}
		s, tail := d.rep.State()
		if s.Stopping() || s.Open.Interrupt != nil {
			return nil
		}
		in, err := d.request(s, tail)
		if err != nil || len(in.Calls) == 0 {
			return err
		}
		var out client.DelegateReply
		if err := d.w.worker.Call(ctx, client.MethodDelegate, in, &out); err != nil {
			return err
		}
		for _, o := range out.Outcomes {
			if o.Error != nil && o.Error.Code != client.CodeConflict && o.Error.Code != client.CodePrecondition {
				return o.Error
			}
		}
	}
	return context.Cause(ctx)
}

// request asks for all calls that are not decided.
func (d *decider) request(s session.State, tail uint64) (client.DelegateRequest, error) {
	stored, revision, err := d.w.log.Settings().Load(d.w.t.Context())
	if err != nil {
		return client.DelegateRequest{}, err
	}
	dep, err := policy.NewDeployment(stored, revision)
	if err != nil {
		return client.DelegateRequest{}, err
	}
	in := client.DelegateRequest{Head: head, Session: s.Header.ID, Tail: tail, Epoch: s.Epoch}
	for _, c := range s.Open.Calls {
		if c.State != session.CallUndecided {
			continue
		}
		dec, err := policy.Decide(s, dep, policy.Call{ID: c.ID, Tool: c.Name, Effect: true, Wish: &policy.Wish{}}, agent.Tools())
		if err != nil {
			return in, err
		}
		in.Calls = append(in.Calls, client.Delegation{
			CallID: c.ID, Decision: dec.Record(),
			Spec: client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"},
		})
	}
	return in, nil
}
