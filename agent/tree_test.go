package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// A worker dies while its delegating call is open: as soon as the call is in the
// log, or as soon as the child's genesis is. There is one child, and both turns
// end.
func TestCrashInsideADelegation(t *testing.T) {
	t.Parallel()
	points := map[string]func(session.State) bool{
		"with the call in the log":    func(s session.State) bool { return s.Open != nil && len(s.Open.Calls) > 0 },
		"with the genesis in the log": func(s session.State) bool { return len(s.Children) > 0 },
	}
	for name, point := range points {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first := w.work("w1", 1)
			id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, label: child, prompt: p}}]
    - text: done
  child:
    - {text: the answer, wait_for: %q}
`, w.path("go")))
			w.until(id, name, point)
			first.die(t)
			w.letGo()
			w.work("w2", 1)
			s := w.idle(id)
			events := w.open(id).Events()
			onceEach(t, events)
			if ids := children(events); len(ids) != 1 {
				t.Errorf("children %v, want one", ids)
			}
			if r := resultOf(t, events, "1.1.0"); r.IsError || r.Worker != "w2" || !strings.Contains(r.Content, "the answer") {
				t.Errorf("the delegating call's result is %+v, want the child's answer, written by w2", r)
			}
			if s.LastEnd.Reason.Kind != session.EndCompleted {
				t.Errorf("the turn ended %q", s.LastEnd.Reason.Kind)
			}
		})
	}
}

// A forked child knows what its parent knew up to its last ended turn, and starts
// at the first item of its own script.
func TestForkKnowsThePrefix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - text: I know a secret
    - calls: [{id: c, tool: delegate, args: {kind: fork, label: child, prompt: tell}}]
    - text: done
  child:
    - text: first of the child
`)
	w.idle(id)
	w.send(id, "second turn")
	w.until(id, "the second turn's end", func(s session.State) bool { return s.Turn == 2 && s.Open == nil })
	events := w.open(id).Events()
	if r := resultOf(t, events, "2.1.0"); !strings.Contains(r.Content, "first of the child") {
		t.Errorf("the child said %q, want the first item of its script", r.Content)
	}
	child := w.open(children(events)[0]).Events()
	told := spoken(child)
	if i := slices.Index(told, "assistant: I know a secret"); i < 0 || slices.Contains(told, "user: second turn") {
		t.Errorf("the child's conversation is %q, want the first turn in it and not the open one", told)
	}
	for i, e := range child {
		if e.Seq != session.Seq(i) {
			t.Fatalf("event %d of the child has seq %d", i, e.Seq)
		}
	}
}

// A model that nobody offers ends the turn with an error that names it; a child
// whose turn ended so has failed, and its parent is told.
func TestModelThatNobodyOffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root("", func(in *client.CreateRequest) { in.Model = client.Model{Provider: "openai", Model: "gpt-none"} })
	s := w.idle(id)
	if r := s.LastEnd.Reason; r.Kind != session.EndError || !strings.Contains(r.Message, "openai:gpt-none") {
		t.Errorf("the turn ended %+v, want an error that names the model", r)
	}
}

// An interrupt ends a model request that would never be answered.
func TestInterruptOfAModelRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(fmt.Sprintf("sessions: {root: [{text: never, wait_for: %q}]}", w.path("go")))
	w.until(id, "asking the model", func(s session.State) bool { return s.Open != nil && s.Open.StepOpen })
	w.interrupt(id)
	s := w.idle(id)
	if s.LastEnd.Reason.Kind != session.EndAborted || s.Steps != 0 {
		t.Errorf("the turn ended %q after %d answers, want aborted after none", s.LastEnd.Reason.Kind, s.Steps)
	}
}

// A worker that is stopped hands its open turn over at once: nobody waits for a
// lease to run out.
func TestStoppingWorkerHandsOver(t *testing.T) {
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
	first.stop()
	if err := <-first.done; err != nil {
		t.Fatalf("stop: %v", err)
	}
	live, err := w.log.Liveness().All(t.Context())
	w.must(err)
	if len(live) != 0 {
		t.Errorf("still alive: %v", live)
	}
	w.work("w2", 1)
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.0"); r.Code != session.CodeToolOutcomeUnknown || w.ran() != 1 {
		t.Errorf("result %+v after %d runs, want an unknown outcome after 1", r, w.ran())
	}
}

// What a worker writes that the log does not allow is void, alarmed, and changes
// nothing; the session goes on (SPEC 1.4, 3.1).
func TestPlantedRecordIsAlarmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.root("sessions: {root: [{text: done}]}")
	w.plant(id)
	var alarms []session.Alarm
	r, err := agent.OpenReplica(t.Context(), w.log, id, "", func(a session.Alarm) { alarms = append(alarms, a) })
	w.must(err)
	if len(alarms) != 1 || alarms[0].Session != id {
		t.Errorf("alarms %v, want one", alarms)
	}
	if s, _ := r.State(); s.Knobs.Sandbox.Set() {
		t.Error("the planted switch counts")
	}
	w.work("w1", 1)
	if s := w.idle(id); s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the turn ended %q", s.LastEnd.Reason.Kind)
	}
}

// A session that an invalid record of class inbox stopped is set aside, its hints
// are acknowledged, and others go on (SPEC 1.4).
func TestStoppedSessionIsSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad, good := w.root("sessions: {root: [{text: done}]}"), w.root("sessions: {root: [{text: done}]}")
	w.publish(w.broker.Conn(t, broker.Coordinator, "coordinator"), session.Address{Session: bad, Class: session.ClassInbox}, nil, []byte("half a rec"))
	w.work("w1", 1)
	w.idle(good)
	w.drained()
	if _, err := agent.OpenReplica(t.Context(), w.log, bad, "", nil); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("open the stopped session: %v, want that it is stopped", err)
	}
}
