package races_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/races"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// operation is one that was run, before it is known what it wrote.
type operation struct {
	input      races.Input
	person     int // who switched; -1 for a worker
	client     int
	call, back int64 // by a monotonic clock
	ending     races.Ending
	begin      races.State // of the first one
	failed     error       // what no race explains
}

// recorder times operations.
type recorder struct {
	epoch time.Time

	mu      sync.Mutex
	ops     []*operation  // guarded by mu
	clients int           // guarded by mu
	done    int           // of ops, acknowledged; guarded by mu
	news    chan struct{} // closed when one more is; guarded by mu
}

func newRecorder() *recorder {
	return &recorder{epoch: time.Now(), news: make(chan struct{})}
}

func (r *recorder) now() int64 { return time.Since(r.epoch).Nanoseconds() }

// client is a new number for somebody who runs one operation after the other.
func (r *recorder) client() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients++
	return r.clients - 1
}

// run times one operation. One that is not known to have ended has no end.
func (r *recorder) run(op *operation, do func() error) *operation {
	op.call = r.now()
	err := do()
	op.back = r.now()
	op.ending, op.failed = endingOf(err)
	if op.ending == races.Unknown {
		op.back = math.MaxInt64
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
	if op.ending == races.Done {
		r.done++
		close(r.news)
		r.news = make(chan struct{})
	}
	return op
}

// reach waits until so many operations were acknowledged, or over is closed. It
// reports whether they were.
func (r *recorder) reach(n int, over <-chan struct{}) bool {
	for {
		r.mu.Lock()
		done, news := r.done, r.news
		r.mu.Unlock()
		if done >= n {
			return true
		}
		select {
		case <-news:
		case <-over:
			return false
		}
	}
}

// more is reach for so many from now on.
func (r *recorder) more(n int, over <-chan struct{}) bool {
	r.mu.Lock()
	n += r.done
	r.mu.Unlock()
	return r.reach(n, over)
}

// endingOf says what a caller knows after an error. One that is neither a conflict
// nor a doubt is none of the race's; what is not known to be a refusal is a doubt.
func endingOf(err error) (races.Ending, error) {
	if e, ok := errors.AsType[*client.Error](err); ok {
		switch e.Code {
		case client.CodeConflict:
			return races.Refused, nil
		case client.CodeUnknown, client.CodeUnavailable:
			return races.Unknown, nil
		case client.CodeDenied, client.CodePrecondition:
			return races.Refused, err
		default:
			return races.Unknown, err
		}
	}
	switch {
	case err == nil:
		return races.Done, nil
	case errors.Is(err, session.ErrConflict):
		return races.Refused, nil
	case errors.Is(err, stream.ErrUnknown):
		return races.Unknown, nil
	}
	return races.Unknown, err
}

// race is one session with everybody who races in it.
type race struct {
	*world
	rec   *recorder
	id    session.ID
	calls chan int // of the step, each to be decided by one worker
	turns chan int // of the people, each for another person
	ready []func(context.Context)
}

// prepare makes a session, and callers who have folded it and wait.
func (w *world) prepare(rec *recorder, r *rand.Rand) *race {
	w.t.Helper()
	id, tail := w.root(calls)
	x := &race{world: w, rec: rec, id: id, calls: make(chan int, calls), turns: make(chan int, persons)}
	for i := range calls {
		x.calls <- i
	}
	for i := range persons {
		x.turns <- i
	}
	close(x.calls)
	close(x.turns)
	for i, wk := range w.workers {
		rep, err := agent.OpenReplica(w.t.Context(), wk.log, x.id, "", nil)
		w.must(err)
		// A copy of the stream that answers may be behind the leader.
		w.must(rep.Refresh(w.t.Context(), tail))
		if i == 0 {
			s, _ := rep.State()
			rec.run(&operation{
				input: races.Input{Session: x.id, Kind: races.Begin}, person: -1, client: rec.client(), begin: stateOf(s),
			}, func() error { return nil })
		}
		own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		x.ready = append(x.ready, func(ctx context.Context) { x.work(ctx, wk, rep, own) })
	}
	for range people {
		own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		x.ready = append(x.ready, func(ctx context.Context) { x.switches(ctx, own) })
	}
	return x
}

// switches is the life of somebody who switches this and that, back and forth.
func (x *race) switches(ctx context.Context, r *rand.Rand) {
	me := x.rec.client()
	for i := range x.turns {
		wish := wishes[r.IntN(len(wishes))]
		in := client.PolicySetRequest{Head: head, ID: x.id}
		switch wish.Knob {
		case races.Sandbox:
			in.Sandbox = session.SandboxMode(wish.Value)
		case races.Approval:
			in.Approvals = session.ApprovalPolicy(wish.Value)
		case races.Preset:
			in.Preset = session.Preset(wish.Value)
		}
		waits, leave := x.waits(ctx, r)
		op := x.rec.run(&operation{
			input: races.Input{Session: x.id, Kind: races.Switch, Switch: wish}, person: i, client: me,
		}, func() error { return x.as(i).Call(waits, client.MethodPolicySet, in, nil) })
		leave()
		switch {
		case op.failed != nil:
			return
		case op.ending == races.Unknown:
			me = x.rec.client()
		}
	}
}

// waits is how long a caller waits for an answer: one in eight for so short a time
// that it is hardly ever there.
func (x *race) waits(ctx context.Context, r *rand.Rand) (context.Context, context.CancelFunc) {
	if r.IntN(8) > 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Duration(1+r.IntN(3000))*time.Microsecond)
}

// wishes are what people switch to.
var wishes = []races.Event{
	{Knob: races.Sandbox, Value: string(session.ReadOnly)},
	{Knob: races.Sandbox, Value: string(session.WorkspaceWrite)},
	{Knob: races.Sandbox, Value: string(session.DangerFullAccess)},
	{Knob: races.Approval, Value: string(session.Ask)},
	{Knob: races.Approval, Value: string(session.Never)},
	{Knob: races.Preset, Value: string(session.PresetReadOnly)},
	{Knob: races.Preset, Value: string(session.PresetWorkspaceWrite)},
	{Knob: races.Preset, Value: string(session.PresetFullAccess)},
}

// work is the life of a worker in a session: it takes one undecided call after the
// other and decides it on its own fold until the decision stands.
func (x *race) work(ctx context.Context, w *worker, rep *agent.Replica, r *rand.Rand) {
	me := x.rec.client()
	for i := range x.calls {
		// Every second delegation asks for a mode, and most of those for one that is
		// wider than most parents have.
		narrow := session.SandboxMode("")
		if r.IntN(2) == 0 {
			narrow = []session.SandboxMode{
				session.ReadOnly, session.WorkspaceWrite, session.DangerFullAccess, session.DangerFullAccess,
			}[r.IntN(4)]
		}
		for {
			waits, leave := x.waits(ctx, r)
			op := x.decide(ctx, waits, w, rep, me, i, narrow)
			leave()
			if op.failed != nil {
				return
			}
			if op.ending == races.Unknown {
				me = x.rec.client()
			}
			if op.ending != races.Refused {
				break
			}
		}
	}
}

// decide decides one call once, and has a coordinator start the child that it
// allows, for which it waits as long as told.
func (x *race) decide(ctx, waits context.Context, w *worker, rep *agent.Replica, me, i int, narrow session.SandboxMode) *operation {
	id := session.MakeCallID(1, 1, i)
	op := &operation{input: races.Input{Session: x.id, Kind: races.Decide, Call: id}, person: -1, client: me}
	call := policy.Call{ID: id, Tool: toolOf(i), Effect: true}
	if call.Tool == session.ToolDelegate {
		op.input.Kind, op.input.Narrow = races.Delegate, narrow
		call.Wish = &policy.Wish{Sandbox: narrow}
	}
	return x.rec.run(op, func() error {
		if err := rep.Refresh(ctx, 0); err != nil {
			return err
		}
		s, tail := rep.State()
		d, err := policy.Decide(s, x.policy, call, agent.Tools())
		if err != nil {
			return err
		}
		rec := d.Record()
		record := []session.Payload{&rec}
		switch {
		case rec.Verdict == session.Deny:
			record = append(record, &session.ToolResult{Turn: 1, Step: 1, CallID: id, Content: "denied", IsError: true, Denied: true})
		case call.Wish != nil:
			return x.delegate(waits, w, tail, rec, narrow)
		}
		c := turnRecord("decide", record)
		c.Check = func(v session.View) error {
			if v.Tail != tail {
				return &session.ConflictError{Session: x.id, Want: tail, Tail: v.Tail}
			}
			return nil
		}
		_, err = w.log.Append(ctx, rep, x.id, c)
		return err
	})
}

// delegate asks for a child at exactly the tail that its call was decided at.
func (x *race) delegate(ctx context.Context, w *worker, tail uint64, d session.ToolDecision, narrow session.SandboxMode) error {
	in := client.DelegateRequest{Head: head, Session: x.id, Tail: tail, Epoch: 1, Calls: []client.Delegation{{
		CallID: d.CallID, Decision: d,
		Spec: client.DelegateSpec{Kind: session.Spawn, Mode: session.Continuable, Label: "child", Prompt: "work", Sandbox: narrow},
	}}}
	var out client.DelegateReply
	if err := w.api.Call(ctx, client.MethodDelegate, in, &out); err != nil {
		return err
	}
	if e := out.Outcomes[0].Error; e != nil {
		return e
	}
	return nil
}

// stateOf is what a log folds to, as far as it is raced.
func stateOf(s session.State) races.State {
	return races.State{
		Next: s.Next, Sandbox: knobOf(s.Knobs.Sandbox), Approval: knobOf(s.Knobs.Approval), Preset: knobOf(s.Knobs.Preset),
		Children: len(s.Children),
	}
}

func knobOf[V ~string](k session.Knob[V]) races.Knob {
	return races.Knob{Value: string(k.Value), Set: k.Set(), Seq: k.Seq}
}

// history is what porcupine judges.
func history(ops []*operation, wrote func(*operation) *races.Record) []porcupine.Operation {
	var out []porcupine.Operation
	for _, op := range ops {
		out = append(out, porcupine.Operation{
			ClientId: op.client, Input: op.input, Call: op.call, Return: op.back,
			Output: races.Output{Ending: op.ending, Start: op.begin, Record: wrote(op)},
		})
	}
	return out
}
