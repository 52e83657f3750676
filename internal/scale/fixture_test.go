package scale_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// inFlight is how many records are on their way to the broker at once.
const inFlight = 4096

// patience bounds every wait: a quarter of an hour, and less when the run is over
// before that, so that it is the wait that fails and says for what.
func patience(t testing.TB) time.Duration {
	t.Helper()
	const most, rest = 15 * time.Minute, 30 * time.Second
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := d.Deadline(); ok {
			return min(most, time.Until(end)-rest)
		}
	}
	return most
}

// fixture writes sessions in bulk, as their only writer: it knows the tail of each
// before the broker has said it, and holds the broker to that when it does.
type fixture struct {
	t          testing.TB
	js         jetstream.JetStream
	partitions int
	settings   policy.Deployment
	dir        string // the workspace
	// born is when the first session was, and each is a millisecond younger than the
	// one before it. It is not long ago: questions expire.
	born    int64
	last    []uint64 // stream sequence, by partition
	way     []sent
	records int
	events  int
	roots   int
}

// sent is a record on its way.
type sent struct {
	seq uint64
	ack jetstream.PubAckFuture
}

func newFixture(t testing.TB, nc *nats.Conn, partitions int, settings policy.Settings, dir string) *fixture {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2*inFlight))
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{
		t: t, js: js, dir: dir, born: time.Now().UnixMilli(), partitions: partitions, last: make([]uint64, partitions),
		settings: policy.Deployment{Settings: settings, Revision: 1, Hash: "0123456789abcdef"},
	}
}

// workspaceID marks the workspace of every session of a fixture.
const workspaceID = "w"

// publish sends a record with the headers of the one append and returns where it
// will stand.
func (f *fixture) publish(space session.ID, tail uint64, r session.Record) uint64 {
	f.t.Helper()
	r.Writer = session.Writer{Component: "coordinator", Instance: "c", Incarnation: "1"}
	if r.Address.Class == session.ClassTurn {
		r.Writer = session.Writer{Component: "worker", Instance: "w1", Incarnation: "1"}
	}
	m := nats.NewMsg(stream.Subject(r.Address))
	body, err := r.Encode(func(name, value string) { m.Header[name] = []string{value} })
	f.must(err)
	m.Data = body
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(tail, 10)}
	m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{stream.TailFilter(space)}
	if len(f.way) >= inFlight {
		f.arrive(inFlight / 2)
	}
	ack, err := f.js.PublishMsgAsync(m, jetstream.WithStallWait(patience(f.t)))
	f.must(err)
	p := space.Partition()
	f.last[p]++
	f.records++
	f.way = append(f.way, sent{f.last[p], ack})
	return f.last[p]
}

// arrive waits until so many of the records on their way are where they must be.
func (f *fixture) arrive(n int) {
	f.t.Helper()
	late := time.NewTimer(patience(f.t))
	defer late.Stop()
	for _, s := range f.way[:n] {
		select {
		case ack := <-s.ack.Ok():
			if ack.Sequence != s.seq {
				f.t.Fatalf("a record stands at %d, want %d", ack.Sequence, s.seq)
			}
		case err := <-s.ack.Err():
			f.t.Fatalf("publish: %v", err)
		case <-late.C:
			f.t.Fatal("a record is not acknowledged")
		}
	}
	f.way = append(f.way[:0], f.way[n:]...)
}

// done waits for all records.
func (f *fixture) done() {
	f.t.Helper()
	f.arrive(len(f.way))
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("fixture: %v", err)
	}
}

// log is a session that the fixture writes.
type log struct {
	f       *fixture
	state   session.State
	tail    uint64 // of its own space
	creator session.ID
}

func (l *log) id() session.ID { return l.state.Header.ID }

// root starts a session. Its genesis has an event for the model, one for each
// changed field of flags, and one for the prompt if there is one.
func (f *fixture) root(partition int, change func(*delegation.Root)) *log {
	f.t.Helper()
	var id session.ID
	for {
		f.roots++
		var err error
		id, err = session.RootID(fmt.Sprintf("01J%023d", f.roots), f.partitions)
		f.must(err)
		if partition < 0 || id.Partition() == partition {
			break
		}
	}
	in := delegation.Root{
		ID: id, Tenant: "default", By: session.Party{Kind: session.Person, ID: "ada"}, Time: f.born + int64(f.roots),
		Cwd: f.dir, Label: "root", Provider: "scripted", Model: "test", Script: "sessions: {}",
		Workspace: session.Workspace{Kind: session.WorkspaceShared, Label: "default", Path: f.dir, ID: workspaceID},
	}
	if change != nil {
		change(&in)
	}
	r, err := in.Genesis(f.settings)
	f.must(err)
	s, err := session.Begin(*r.Birth, session.Prefix{})
	f.must(err)
	f.events += len(r.Birth.First.Events)
	return &log{f: f, state: s, tail: f.publish(id, 0, r)}
}

// add appends one record.
func (l *log) add(class session.Class, payloads ...session.Payload) {
	l.f.t.Helper()
	own, err := session.Compose(l.id(), class, l.state.Next, l.state.Link, l.drafts(payloads)...)
	l.f.must(err)
	epoch := l.state.Epoch
	if claim, ok := payloads[0].(*session.Claim); ok {
		epoch = claim.Epoch
	}
	l.state, err = session.FoldSection(l.state, own)
	l.f.must(err)
	l.f.events += len(own.Events)
	l.tail = l.f.publish(l.id(), l.tail, session.Record{
		Address: session.Address{Session: l.id(), Class: class}, Format: l.state.Format, Epoch: epoch, Creator: l.creator, Own: &own,
	})
}

func (l *log) drafts(payloads []session.Payload) []session.Draft {
	out := make([]session.Draft, len(payloads))
	for i, p := range payloads {
		out[i] = session.Draft{Time: l.f.born + int64(l.f.records), Payload: p}
	}
	return out
}

// open claims the session and starts a turn and a step that answers with calls.
func (l *log) open(tool string, calls int) {
	l.f.t.Helper()
	turn := l.state.Turn + 1
	var seqs []session.Seq
	for _, m := range l.state.Pending {
		seqs = append(seqs, m.Seq)
	}
	answer := &session.AssistantMessage{Turn: turn, Step: 1, Content: "so it goes"}
	out := []session.Payload{
		&session.Claim{Epoch: l.state.Epoch + 1, Worker: "w1", Incarnation: "0", Cause: session.CauseStart}, &session.TurnStart{Turn: turn},
	}
	if len(seqs) > 0 {
		out = append(out, &session.Consumed{Turn: turn, Seqs: seqs})
	}
	out = append(out, &session.StepStart{Turn: turn, Step: 1}, answer)
	for i := range calls {
		answer.Calls = append(answer.Calls, i)
		out = append(out, &session.ToolCall{
			Turn: turn, Step: 1, Index: i, CallID: session.MakeCallID(turn, 1, i), Name: tool, Arguments: "{}",
		})
	}
	l.add(session.ClassTurn, out...)
}

// delegate starts a child by a call of the open step.
func (l *log) delegate(call int) *log {
	l.f.t.Helper()
	req := delegation.Request{Kind: session.Spawn, Mode: session.Continuable, Label: "child", Prompt: "work"}
	wish := req.Wish()
	id := session.MakeCallID(l.state.Turn, 1, call)
	dec, err := policy.Decide(l.state, l.f.settings, policy.Call{ID: id, Tool: session.ToolDelegate, Effect: true, Wish: &wish}, agent.Tools())
	l.f.must(err)
	o := delegation.Order{
		CallID: id, Request: req, Decision: dec.Record(), Epoch: l.state.Epoch, Time: l.f.born + int64(l.f.records), Tools: agent.Tools(),
	}
	r, err := o.Child(session.View{State: l.state, Tail: l.tail}, l.f.settings)
	l.f.must(err)
	r.Creator = l.creator
	child, err := session.Begin(*r.Birth, session.Prefix{})
	l.f.must(err)
	l.state, err = session.FoldSection(l.state, *r.Own)
	l.f.must(err)
	l.f.events += len(r.Own.Events) + len(r.Birth.First.Events)
	l.tail = l.f.publish(l.id(), l.tail, r)
	return &log{f: l.f, state: child, creator: l.id()}
}

// finish ends the open step and the turn.
func (l *log) finish() {
	l.f.t.Helper()
	turn, step := l.state.Turn, l.state.Open.Step
	var out []session.Payload
	for _, c := range l.state.Open.Calls {
		out = append(out, &session.ToolResult{Turn: turn, Step: step, CallID: c.ID, Content: "started", Child: c.Child})
	}
	l.add(session.ClassTurn, append(out, &session.StepEnd{Turn: turn, Step: step},
		&session.TurnEnd{Turn: turn, Reason: session.EndReason{Kind: session.EndCompleted}})...)
}

// park parks the open turn, which has one call, until a person has answered.
func (l *log) park() {
	l.f.t.Helper()
	turn := l.state.Turn
	c := l.state.Open.Calls[0]
	q := fmt.Sprintf("q-%s", c.ID)
	dec, err := policy.Decide(l.state, l.f.settings, policy.Call{ID: c.ID, Tool: c.Name, Effect: true}, agent.Tools())
	l.f.must(err)
	d := dec.Record()
	d.Verdict, d.Final, d.Network = session.AskPerson, false, ""
	l.add(session.ClassTurn, &d,
		&session.ApprovalAsked{ID: q, CallID: c.ID, ToolName: c.Name, Digest: "0", Mode: d.Mode, Basis: d.Basis, Reason: "may it?"},
		&session.TurnPark{Turn: turn, WaitsFor: []session.Wait{{Kind: session.WaitApproval, ID: q}}})
}

// settledRoot writes a session that has nothing to do: of 3 events, which never ran,
// or of 11 and some threes more, up to events.
func (f *fixture) settledRoot(partition, events int) *log {
	f.t.Helper()
	l := f.root(partition, func(r *delegation.Root) {
		r.Sandbox, r.Approvals = session.WorkspaceWrite, session.Never
		if events > 3 {
			r.Prompt = "go"
		}
	})
	if events <= 3 {
		return l
	}
	l.open("", 0)
	steps := max(1, (events-int(l.state.Next)+1)/3)
	for step := range steps {
		turn := l.state.Turn
		out := []session.Payload{&session.StepEnd{Turn: turn, Step: step + 1}}
		if step+1 < steps {
			out = append(out, &session.StepStart{Turn: turn, Step: step + 2}, &session.AssistantMessage{Turn: turn, Step: step + 2, Content: "so it goes"})
		} else {
			out = append(out, &session.TurnEnd{Turn: turn, Reason: session.EndReason{Kind: session.EndCompleted}})
		}
		l.add(session.ClassTurn, out...)
	}
	return l
}
