package agent_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// switches changes the sandbox mode of a session as a person does.
func (w *world) switches(id session.ID, m session.SandboxMode) {
	w.t.Helper()
	var reply client.PolicyReply
	w.must(w.api.Call(w.t.Context(), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: id, Sandbox: m}, &reply))
	if reply.Events != 1 {
		w.t.Fatalf("the switch to %s is %d events, want 1", m, reply.Events)
	}
}

// wantNarrated wants each switch of a session's own log to be told once, with the
// values before and after it, in their order, after it and before the next request to
// the model; and nothing else to be told as a switch. It returns how many there were.
func wantNarrated(t *testing.T, events []session.Event, first session.Seq, before session.SandboxMode) int {
	t.Helper()
	var owed, got []string
	mode, n := before, 0
	for _, e := range events {
		switch p := e.Payload.(type) {
		case *session.SandboxSwitch:
			if e.Seq >= first && e.Class == session.ClassPolicy && p.Source == "" {
				owed = append(owed, fmt.Sprintf("[entail] The sandbox mode changed from %q to %q (changed by a person).", mode, p.Mode))
				n++
			}
			mode = p.Mode
		case *session.UserMessage:
			if e.Seq >= first && p.Source.Kind == session.FromPlugin && p.Source.Form == "notice" {
				got = append(got, strings.Split(p.Content, "\n")...)
			}
		case *session.RequestHeader:
			if e.Seq < first {
				continue
			}
			if !slices.Equal(owed, got) {
				t.Errorf("before the request at %d the model was told %q, want %q", e.Seq, got, owed)
			}
			owed, got = nil, nil
		}
	}
	if len(got) != 0 {
		t.Errorf("at the end the model was told %q that no request followed", got)
	}
	return n
}

// A session lives long: a person switches it between turns, while the model is asked,
// while it is parked, while nobody drives it, and again and again; workers are killed
// and others go on. Each switch is told once, before the next request to the model
// (SPEC 2.5). A delegation tells of none, to parent or child, and a fork tells none of
// its source's again.
func TestSPEC2_5_EachSwitchIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.work("w1", 2)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - text: one
    - text: two
    - {text: three, wait_for: %q}
    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: child, prompt: look}}]
    - text: four
    - calls: [{id: l, tool: list, args: {path: .}}, {id: b, tool: bash, args: {command: "true"}}]
    - text: five
    - text: six
    - text: forked
    - text: forked again
  child:
    - {text: looked, wait_for: %q}
`, w.path("asked"), w.path("parked")))
	turn := func(n int) {
		t.Helper()
		w.until(id, fmt.Sprintf("turn %d", n), func(s session.State) bool { return s.Open == nil && s.LastEnd != nil && s.LastEnd.Turn == n })
	}
	turn(1)
	// Between turns, there and back and on.
	w.switches(id, session.ReadOnly)
	w.switches(id, session.WorkspaceWrite)
	w.switches(id, session.ReadOnly)
	w.send(id, "two")
	turn(2)
	// While the model is asked, and its worker dies before it answers: the request is
	// made again, and what was switched comes before it.
	w.send(id, "three")
	w.until(id, "the third request", func(s session.State) bool { return s.Open != nil && s.Open.StepOpen })
	eventually(t, "the third request is in the log", func() bool { return len(payloads[*session.RequestHeader](w.open(id).Events())) == 3 })
	w.switches(id, session.WorkspaceWrite)
	k.die(t)
	w.switches(id, session.ReadOnly)
	k = w.work("w2", 2)
	w.until(id, "a takeover", func(s session.State) bool { return s.Open != nil && s.Open.Attempts > 1 })
	eventually(t, "the request is made again", func() bool { return len(payloads[*session.RequestHeader](w.open(id).Events())) == 4 })
	w.must(os.WriteFile(w.path("asked"), nil, 0o600))
	turn(3)
	// While it is parked, and the worker is another one when it wakes.
	w.send(id, "four")
	w.until(id, "parked", func(s session.State) bool { return s.Open != nil && s.Open.Parked })
	w.switches(id, session.WorkspaceWrite)
	w.switches(id, session.DangerFullAccess)
	k.die(t)
	w.switches(id, session.ReadOnly)
	k = w.work("w1", 2)
	w.must(os.WriteFile(w.path("parked"), nil, 0o600))
	turn(4)
	// While nobody drives it, with a step of calls to come.
	k.die(t)
	w.switches(id, session.WorkspaceWrite)
	w.send(id, "five")
	w.work("w2", 2)
	turn(5)
	// A last one is a fork's as well: its context says what is in force, and no notice
	// tells of what its source was told or is to be told.
	w.switches(id, session.ReadOnly)
	w.send(id, "six")
	turn(6)
	w.switches(id, session.WorkspaceWrite)
	fork := session.ID(string(id) + "-" + strings.ToLower(ulid.Make().String()))
	w.must(w.api.Call(t.Context(), client.MethodFork, client.ForkRequest{Head: head, ID: fork, Source: id, Prompt: "seven"}, nil))
	w.until(fork, "its first turn", func(s session.State) bool { return s.Open == nil && s.LastEnd != nil && s.LastEnd.Turn == 7 })
	w.switches(fork, session.ReadOnly)
	w.send(fork, "eight")
	w.until(fork, "its second turn", func(s session.State) bool { return s.Open == nil && s.LastEnd.Turn == 8 })

	events := w.open(id).Events()
	if n := wantNarrated(t, events[:len(events)-1], 0, session.WorkspaceWrite); n != 10 { // the last switch is not told yet
		t.Errorf("%d switches were seen, want 10", n)
	}
	s, _ := w.open(fork).State()
	if n := wantNarrated(t, w.open(fork).Events(), s.Header.FirstLiveSeq, session.WorkspaceWrite); n != 1 {
		t.Errorf("%d switches of the fork's own were seen, want 1", n)
	}
	child := children(events)[0]
	if n := wantNarrated(t, w.open(child).Events(), 0, session.WorkspaceWrite); n != 0 {
		t.Errorf("the child was told of %d switches, want none", n)
	}
	var told int
	for _, m := range payloads[*session.UserMessage](w.open(fork).Events()) {
		if m.Source.Form == "snapshot" && strings.Contains(m.Content, `mode "workspace-write"`) {
			told++
		}
	}
	if told == 0 {
		t.Error("the fork's context does not say what is in force")
	}
}
