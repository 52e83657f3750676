package agent_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// resize gives the partition's stream so much room, as an operator does.
func (w *world) resize(room int64) {
	w.t.Helper()
	log, err := stream.New(w.broker.Conn(w.t, broker.Provisioner, "provisioner"), stream.Config{MaxBytes: room})
	w.must(err)
	w.must(log.Provision(w.t.Context(), stream.ProvisionConfig{AckWait: lease}))
}

// fill fills the stream to a part of its room, in per cent, with turn records that
// are void: what a worker's key can do at worst.
func (w *world) fill(percent uint64) {
	w.t.Helper()
	nc := w.broker.Conn(w.t, broker.Worker, "w2")
	id, err := session.RootID(ulid.Make().String(), 1)
	w.must(err)
	m := nats.NewMsg(stream.Subject(session.Address{Session: id, Class: session.ClassTurn}))
	for {
		info, err := w.log.Info(w.t.Context(), 0)
		w.must(err)
		left := int64(info.MaxBytes*percent/100) - int64(info.Bytes)
		if left < 256 { // a message takes some on top
			return
		}
		m.Data = make([]byte, min(left-200, 64<<10))
		_, err = nc.RequestMsg(m, patience)
		w.must(err)
	}
}

// A store that is filled to 85 % takes no new sessions, of people, forks or
// children, and says how it will; what runs goes on and ends, its notices too. A
// request whose session exists is confirmed. Filled to the last byte it takes
// nothing and says so, a worker's answer included; the signs of life have room of
// their own. When there is room again, what was stopped goes on from where the
// log stands (ARCHITECTURE 2).
func TestFullStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unswept)
	const room = 1 << 20
	w.resize(room)
	w.work("w1", 4)
	first := client.CreateRequest{}
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, label: early, prompt: p}}]
    - {text: filled, wait_for: %q, calls: [{id: b, tool: delegate, args: {kind: spawn, label: late, prompt: p}}]}
    - text: done
    - {text: again, wait_for: %q}
  early: [{text: the answer, wait_for: %q}]
  late: [{text: never}]
`, w.path("filled"), w.path("again"), w.path("early")), func(in *client.CreateRequest) { first = *in })
	quiet := w.root("sessions:\n  root:\n    - text: done\n")
	w.idle(quiet)
	s := w.until(id, "parked", func(s session.State) bool { return s.Open != nil && s.Open.Parked })
	early := s.Children[0].ID

	create := func(in client.CreateRequest) (out client.CreatedReply, err error) {
		return out, w.api.Call(t.Context(), client.MethodCreate, in, &out)
	}
	fresh := func() client.CreateRequest {
		in := first
		var err error
		in.ID, err = session.RootID(ulid.Make().String(), 1)
		w.must(err)
		return in
	}
	fork := func() error {
		in := client.ForkRequest{Head: head, Source: quiet}
		var err error
		in.ID, err = session.ForkID(quiet, ulid.Make().String())
		w.must(err)
		return w.api.Call(t.Context(), client.MethodFork, in, nil)
	}
	w.fill(84)
	asked := time.Now()
	eventually(t, "what the coordinator knew of the empty store is too old to be believed", func() bool { return time.Since(asked) > time.Second })
	if _, err := create(fresh()); err != nil {
		t.Errorf("at 84 %%: %v, want a new session", err)
	}
	w.must(fork())
	w.fill(86)
	_, err := create(fresh())
	if client.CodeOf(err) != client.CodeFull || !strings.Contains(err.Error(), "raise its max_bytes") {
		t.Errorf("at 86 %%: %v, want %s and the way out", err, client.CodeFull)
	}
	if err := fork(); client.CodeOf(err) != client.CodeFull {
		t.Errorf("a fork at 86 %%: %v, want %s", err, client.CodeFull)
	}
	if out, err := create(first); err != nil || !out.Existing {
		t.Errorf("the first request again: %+v, %v; want it confirmed", out, err)
	}

	// What runs ends: the child, with its notice, the turn that waits for it, and
	// the call that would start another one is refused in words.
	w.touch("early")
	w.until(early, "ended", func(s session.State) bool { return s.Ended != nil })
	w.touch("filled")
	s = w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if got := children(events); len(got) != 1 || s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("children %v, turn ended %q; want the early one only, and completed", got, s.LastEnd.Reason.Kind)
	}
	if r := resultOf(t, events, "1.2.0"); r.Code != session.CodeToolNotStarted || !strings.Contains(r.Content, "nearly full") {
		t.Errorf("the late delegation's result is %+v, want that it was not started, and why", r)
	}

	// The last byte. The answer to the message has no room.
	w.send(id, "again")
	w.until(id, "asking again", func(s session.State) bool { return s.Turn == 2 && s.Open != nil && s.Open.StepOpen })
	w.fill(100)
	for name, err := range map[string]error{
		"a new session": func() error { _, err := create(fresh()); return err }(),
		"a message":     w.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: id, MessageID: "late", Content: strings.Repeat("x", 4096)}, nil),
		"a switch":      w.fillUp(id),
	} {
		if client.CodeOf(err) != client.CodeFull {
			t.Errorf("%s into the full store: %v, want %s", name, err, client.CodeFull)
		}
	}
	before, _ := w.open(id).State()
	full, err := w.log.Info(t.Context(), 0)
	w.must(err)
	w.touch("again")
	eventually(t, "the worker says that the store is full", func() bool {
		var out client.Summary
		w.must(w.api.Call(t.Context(), client.MethodShow, client.SessionRequest{Head: head, ID: id}, &out))
		return strings.Contains(out.Why, stream.ErrFull.Error())
	})
	w.must(w.log2().Liveness().Put(t.Context(), "w2", []byte("{}"))) // it has room of its own
	now, err := w.log.Info(t.Context(), 0)
	w.must(err)
	if after, _ := w.open(id).State(); after.Next != before.Next || now.LastSeq != full.LastSeq {
		t.Errorf("the log went from %d to %d, the stream from %d to %d: want nothing written", before.Next, after.Next, full.LastSeq, now.LastSeq)
	}

	w.resize(4 * room)
	s = w.until(id, "a second turn's end", func(s session.State) bool { return s.Turn == 2 && s.Open == nil })
	if s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("with room again the turn ended %q, want completed", s.LastEnd.Reason.Kind)
	}
	onceEach(t, w.open(id).Events())
	eventually(t, "there are new sessions again", func() bool { _, err := create(fresh()); return err == nil })
}

func (w *world) touch(name string) {
	w.t.Helper()
	w.must(os.WriteFile(w.path(name), nil, 0o600))
}

// log2 is the worker w2's.
func (w *world) log2() *stream.Log {
	w.t.Helper()
	log, err := stream.New(w.broker.Conn(w.t, broker.Worker, "w2"), stream.Config{})
	w.must(err)
	return log
}

// fillUp switches a session to and fro until the last bytes are gone, and returns
// what it was refused with.
func (w *world) fillUp(id session.ID) error {
	w.t.Helper()
	for i := range 64 {
		mode := []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite}[i%2]
		if err := w.api.Call(w.t.Context(), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: id, Sandbox: mode}, nil); err != nil {
			return err
		}
	}
	return errors.New("the store never gets full")
}
