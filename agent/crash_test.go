package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// hold is a shell command that notes that it runs, one line each time, and runs
// until the file go exists.
const hold = `echo ran >> ledger; while [ ! -e go ]; do sleep 0.02; done; echo done`

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) ran() int {
	b, err := os.ReadFile(w.path("ledger"))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "ran")
}

func (w *world) letGo() { w.touch("go") }

func (w *world) interrupt(id session.ID) {
	w.t.Helper()
	w.must(w.api.Call(w.t.Context(), client.MethodInterrupt, client.StopRequest{Head: head, ID: id, RequestID: ulid.Make().String()}, nil))
}

// E1: a worker dies in the middle of an effect. The effect is not run again, the
// log says that its outcome is unknown, and the turn goes on.
func TestE1_CrashInsideAnEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.work("w1", 1)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls:
        - {id: a, tool: bash, args: {command: "echo one >> before"}}
        - {id: b, tool: bash, args: {command: %q}}
        - {id: c, tool: bash, args: {command: "echo three >> after"}}
    - text: done
`, hold))
	eventually(t, "the call runs", func() bool { return w.ran() == 1 })
	first.die(t)
	w.work("w2", 1)
	s := w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.1"); !r.IsError || r.Code != session.CodeToolOutcomeUnknown || r.Worker != "w2" {
		t.Errorf("the open call's result is %+v, want an unknown outcome written by w2", r)
	}
	if r := resultOf(t, events, "1.1.0"); r.IsError || r.Worker != "w1" {
		t.Errorf("the finished call's result is %+v, want the one that w1 wrote", r)
	}
	if got := w.ran(); got != 1 {
		t.Errorf("the call ran %d times, want 1", got)
	}
	if !exists(w.path("after")) || s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the call after it did not run, or the turn ended %q", s.LastEnd.Reason.Kind)
	}
	claims := payloads[*session.Claim](events)
	if len(claims) != 2 || claims[1].Cause != session.CauseTakeover {
		t.Errorf("claims %+v, want a start and a takeover", claims)
	}
}

// A worker dies while its model request is open, and another one goes on from
// the log: the answer stands there once.
func TestTakeoverOfAModelRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.work("w1", 1)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - {text: done, wait_for: %q}
`, w.path("go")))
	w.until(id, "asking the model", func(s session.State) bool { return s.Open != nil && s.Open.StepOpen })
	first.die(t)
	w.letGo()
	w.work("w2", 1)
	s := w.idle(id)
	if s.Steps != 1 || s.LastEnd.Reason.Kind != session.EndCompleted || s.Epoch != 2 {
		t.Errorf("%d steps, ended %q in epoch %d; want 1 step, completed in epoch 2", s.Steps, s.LastEnd.Reason.Kind, s.Epoch)
	}
}

// E4: an interrupt in the middle of a call leaves a log that goes on: every call
// has its one result, and the next turn is an ordinary one.
func TestE4_InterruptInsideACall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls:
        - {id: a, tool: bash, args: {command: %q}}
        - {id: b, tool: write, args: {path: never, content: x}}
    - text: went on
`, hold))
	eventually(t, "the call runs", func() bool { return w.ran() == 1 })
	began := time.Now()
	w.interrupt(id)
	s := w.idle(id)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the interrupt took %v", took)
	}
	if r := s.LastEnd.Reason; r.Kind != session.EndAborted || r.By != "person:ada" {
		t.Errorf("the turn ended %+v, want aborted by person:ada", r)
	}
	events := w.open(id).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.0"); !r.IsError || !strings.Contains(r.Content, "Interrupted") {
		t.Errorf("the running call's result is %+v, want that it was interrupted", r)
	}
	if r := resultOf(t, events, "1.1.1"); r.Code != session.CodeToolNotStarted {
		t.Errorf("the next call's result is %+v, want %s", r, session.CodeToolNotStarted)
	}
	w.send(id, "go on")
	s = w.until(id, "a second turn's end", func(s session.State) bool { return s.Turn == 2 && s.Open == nil })
	if s.LastEnd.Reason.Kind != session.EndCompleted || exists(w.path("never")) {
		t.Errorf("the second turn ended %q, want completed", s.LastEnd.Reason.Kind)
	}
}

// F5: a call outlives AckWait several times over. Its hint comes again and is put
// back without work, the call runs once, and when all is done nothing is left in
// the queue.
func TestF5_CallOutlivesAckWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 2)
	w.work("w2", 2)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: a, tool: bash, args: {command: %q}}]
    - text: done
`, hold))
	js, err := jetstream.New(w.broker.Conn(t, broker.Provisioner, "provisioner"))
	w.must(err)
	info := func() *jetstream.ConsumerInfo {
		c, err := js.Consumer(t.Context(), stream.StreamName(0), "work")
		w.must(err)
		return c.CachedInfo()
	}
	eventually(t, "the hint has come again", func() bool { return info().Delivered.Consumer >= 4 })
	w.letGo()
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if n := len(payloads[*session.Claim](events)); n != 1 || w.ran() != 1 {
		t.Errorf("%d claims and %d runs, want 1 and 1", n, w.ran())
	}
	w.drained()
}

// A4: a switch that stands in the log before a call's decision binds it, also in
// the middle of a batch: the call that waited is decided after the switch.
func TestA4_SwitchInsideABatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls:
        - {id: a, tool: bash, args: {command: %q}}
        - {id: b, tool: write, args: {path: second, content: x}}
        - {id: c, tool: bash, args: {command: "echo x > third"}}
    - text: done
`, hold))
	eventually(t, "the first call runs", func() bool { return w.ran() == 1 })
	w.must(w.api.Call(t.Context(), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: id, Sandbox: session.ReadOnly}, nil))
	w.letGo()
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.0"); r.IsError {
		t.Errorf("the call that had started before the switch failed: %+v", r)
	}
	for _, call := range []session.CallID{"1.1.1", "1.1.2"} {
		if r := resultOf(t, events, call); !r.Denied {
			t.Errorf("call %s after the switch has result %+v, want a denial", call, r)
		}
	}
	if exists(w.path("second")) || exists(w.path("third")) {
		t.Error("a call after the switch had its effect")
	}
	notes := 0
	for _, m := range payloads[*session.UserMessage](events) {
		if m.Source.Kind == session.FromPlugin && m.Source.Form == "notice" {
			notes++
			if want := `sandbox mode changed from "workspace-write" to "read-only"`; !strings.Contains(m.Content, want) {
				t.Errorf("the switch was told as %q, want %q in it", m.Content, want)
			}
		}
	}
	if notes != 1 {
		t.Errorf("the switch was told %d times, want once", notes)
	}
}

// A tree is cancelled from its root: children first, one terminal event each, and
// what was pending is named.
func TestCancelEndsATree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 2)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, label: child, prompt: work}}]
  child:
    - calls: [{id: a, tool: bash, args: {command: %q}}]
`, hold))
	eventually(t, "the child's call runs", func() bool { return w.ran() == 1 })
	w.must(w.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: id, RequestID: ulid.Make().String()}, nil))
	ended := func(s session.State) bool { return s.Ended != nil }
	s := w.until(id, "ended", ended)
	events := w.open(id).Events()
	child := w.until(children(events)[0], "ended", ended)
	for _, s := range []session.State{s, child} {
		if s.Ended.Outcome != session.OutcomeCancelled {
			t.Errorf("%s ended %q, want cancelled", s.Header.ID, s.Ended.Outcome)
		}
	}
	onceEach(t, events)
	if len(s.Children) != 0 {
		t.Errorf("the root ended while %v held a slot", s.Children)
	}
}

// A message that arrives while the turn is parked is consumed, and the turn parks
// again; the model sees it at the next step.
func TestMessageToAParkedTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 2)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, label: child, prompt: work}}]
    - text: done
  child:
    - {text: "the answer", wait_for: %q}
`, w.path("go")))
	parked := func(s session.State) bool { return s.Open != nil && s.Open.Parked }
	w.until(id, "parked", parked)
	w.send(id, "by the way")
	w.until(id, "parked again", func(s session.State) bool { return parked(s) && len(s.Pending) == 0 && s.Epoch == 2 })
	w.letGo()
	s := w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.0"); r.IsError || !strings.Contains(r.Content, "the answer") {
		t.Errorf("the delegating call's result is %+v, want the child's closing message", r)
	}
	if s.Steps != 2 || s.Turn != 1 {
		t.Errorf("%d steps in turn %d, want 2 in turn 1", s.Steps, s.Turn)
	}
	var texts []string
	for _, m := range agent.Messages(events) {
		if strings.Contains(m.Text, "the answer") || strings.Contains(m.Text, "by the way") {
			texts = append(texts, string(m.Role))
		}
	}
	if got := strings.Join(texts, " "); got != "tool user" {
		t.Errorf("the model sees answer and message as %q, want the result and then the message, once each", got)
	}
}

// Two workers find one dead driver's open effect at the same moment: its outcome
// is recorded as unknown once, and one of them goes on.
func TestE4_TwoTakeoversAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.work("w1", 1)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: a, tool: bash, args: {command: %q}}]
    - text: done
`, hold))
	eventually(t, "the call runs", func() bool { return w.ran() == 1 })
	first.die(t)
	w.work("w1", 2)
	w.work("w2", 2)
	w.must(w.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: id, MessageID: "second-hint", Content: "hello"}, nil))
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.0"); r.Code != session.CodeToolOutcomeUnknown || w.ran() != 1 {
		t.Errorf("result %+v after %d runs, want an unknown outcome after 1", r, w.ran())
	}
}

// E1: a worker dies after the turn's end and before it acknowledged the hint. The
// hint comes again and is acknowledged without work.
func TestE1_CrashBeforeTheAck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: bash, args: {command: "echo ran >> ledger"}}]
    - text: done
`)
	w.idle(id)
	first.die(t)
	tail := w.open(id)
	w.work("w2", 1)
	w.drained()
	before, _ := tail.State()
	after, _ := w.open(id).State()
	if before.Next != after.Next || w.ran() != 1 {
		t.Errorf("the log went from %d to %d and the call ran %d times, want no change and 1", before.Next, after.Next, w.ran())
	}
}

// A worker that is told to stop while it starts has stopped in order.
func TestStopDuringTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 10 {
		k := w.work("w1", 1)
		k.stop()
		if err := <-k.done; err != nil {
			t.Errorf("it says %v", err)
		}
	}
}

// SPEC 7.8: a worker that is cut off cannot renew its lease, so what it runs ends,
// and another one takes the session over.
func TestLeaseEndsTheEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: bash, args: {command: "while true; do echo ran >> ledger; sleep 0.02; done"}}]
    - text: done
`)
	eventually(t, "the call runs", func() bool { return w.ran() > 0 })
	first.nc.Close() // the worker itself goes on
	w.work("w2", 1)
	w.until(id, "taken over", func(s session.State) bool { return s.Epoch == 2 })
	ran := w.ran() // a claim that is not alive any more has no effect either
	s := w.idle(id)
	if got := w.ran(); got != ran {
		t.Errorf("the call ran on after its session was claimed: %d, then %d", ran, got)
	}
	if s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the turn ended %q", s.LastEnd.Reason.Kind)
	}
	if r := resultOf(t, w.open(id).Events(), "1.1.0"); r.Code != session.CodeToolOutcomeUnknown {
		t.Errorf("result %+v, want an unknown outcome", r)
	}
}

// file makes an empty file in the workspace.
func (w *world) file(name string) {
	w.t.Helper()
	w.must(os.WriteFile(w.path(name), nil, 0o600))
}
