package agent_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// E6: a role that does nothing but delegate itself, more than it may, in its first turn
// and in every later one that a follow-up or a notice starts, with its workers killed in
// between. Depth and places are read from the log on every way: the tree is as large as
// the caps let it be, each refusal is an ordinary error that names limit and value, and
// nothing starts once the root has ended (SPEC 4.6).
func TestE6_EveryWayToStartIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *policy.Settings) { s.Caps = policy.Caps{Depth: 2, Live: 2, Tree: 256, Inbox: 256} })
	first := w.work("w1", 4)
	var script strings.Builder
	script.WriteString("sessions:\n")
	for _, label := range []string{"root", "a0", "a1", "a0b0", "a0b1", "a1b0", "a1b1"} {
		below := label + "c"
		switch {
		case label == "root":
			below = "a"
		case len(label) == len("a0"):
			below = label + "b"
		}
		n := 0
		again := func() string {
			n++
			return fmt.Sprintf("{tool: delegate, args: {kind: spawn, mode: continuable, label: %s%d, prompt: again, background: true}}", below, n-1)
		}
		fmt.Fprintf(&script, "  %s:\n    - calls: [%s, %s, %s]\n    - text: enough\n", label, again(), again(), again())
		for range 8 {
			fmt.Fprintf(&script, "    - calls: [%s]\n    - text: enough\n", again())
		}
	}
	root := w.root(script.String())
	tree := func() []client.Summary {
		var out client.ListReply
		w.must(w.api.Call(t.Context(), client.MethodTree, client.SessionRequest{Head: head, ID: root}, &out))
		return out.Sessions
	}
	quiet := func() bool {
		for _, s := range tree() {
			if s.Open || s.Pending > 0 || s.Turn == 0 {
				return false
			}
		}
		return len(tree()) >= 7
	}
	w.until(root, "the first children are there", func(s session.State) bool { return len(s.Children) == 2 })
	first.die(t)
	w.work("w2", 4)
	eventually(t, "the tree is quiet", quiet)
	for _, s := range tree() {
		w.send(s.Header.ID, "again")
	}
	eventually(t, "the tree is quiet again", quiet)
	const most = 1 + 2 + 4
	refused := map[session.ID]int{}
	for _, s := range tree() {
		id, events := s.Header.ID, w.open(s.Header.ID).Events()
		onceEach(t, events)
		wants := "at most 2 may"
		if s.Header.DelegationDepth == 2 {
			wants = "would have depth 3, at most 2"
		}
		for _, d := range payloads[*session.ToolDecision](events) {
			if d.Verdict != session.Deny {
				continue
			}
			refused[id]++
			if r := resultOf(t, events, d.CallID); d.By != session.StageDepth || !strings.Contains(r.Content, wants) || !r.IsError {
				t.Errorf("call %s at depth %d was refused by %s: %q, want %q", d.CallID, s.Header.DelegationDepth, d.By, r.Content, wants)
			}
		}
		if refused[id] < 2 {
			t.Errorf("%s at depth %d was refused %d times, want it in its first turn and after the follow-up", id, s.Header.DelegationDepth, refused[id])
		}
	}
	if n := len(tree()); n != most || len(refused) != most {
		t.Errorf("the tree has %d sessions, %d were refused some, want %d", n, len(refused), most)
	}
	w.cancel(root)
	w.until(root, "ended", func(s session.State) bool { return s.Ended != nil })
	for _, s := range tree() {
		if log, _ := w.open(s.Header.ID).State(); log.Ended == nil {
			t.Errorf("%s lives on behind its root", s.Header.ID)
		}
		in := client.SendRequest{Head: head, ID: s.Header.ID, MessageID: "late", Content: "again"}
		if err := w.api.Call(t.Context(), client.MethodSend, in, nil); client.CodeOf(err) != client.CodeEnded {
			t.Errorf("a message to %s, which has ended: %v", s.Header.ID, err)
		}
	}
	if n := len(tree()); n != most {
		t.Errorf("the tree has %d sessions behind its end, want %d", n, most)
	}
}

// E7: a cancel reaches a child in the middle of a command and a grandchild that nobody has
// begun. All end, and nothing of a driver stands behind an end (SPEC 7.4).
func TestE7_ACancelReachesTheQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	root := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{tool: delegate, args: {kind: spawn, label: child, prompt: p}}]
  child:
    - calls: [{tool: delegate, args: {kind: spawn, label: queued, prompt: p, background: true}}, {tool: bash, args: {command: %q}}]
`, hold))
	child := w.child(root, "1.1.0")
	queued := w.child(child, "1.1.0")
	eventually(t, "the command runs", func() bool { return w.ran() == 1 })
	if s, _ := w.open(queued).State(); s.Epoch != 0 {
		t.Fatalf("the grandchild is driven, in epoch %d: the test is void", s.Epoch)
	}
	w.cancel(root)
	for _, id := range []session.ID{queued, child, root} {
		s := w.until(id, "ended", func(s session.State) bool { return s.Ended != nil })
		if s.Ended.Outcome != session.OutcomeCancelled {
			t.Errorf("%s ended %+v", id, s.Ended)
		}
		behind := false
		for _, e := range w.open(id).Events() {
			if behind && e.Class == session.ClassTurn {
				t.Errorf("%s of %s stands behind its end", e.Type, id)
			}
			_, ended := e.Payload.(*session.End)
			behind = behind || ended
		}
	}
	if s, _ := w.open(queued).State(); s.Turn != 0 || len(s.Ended.Cancelled) != 1 {
		t.Errorf("the grandchild made %d turns and cancelled %v, want none, and its prompt", s.Turn, s.Ended.Cancelled)
	}
}

// E5: a child whose worker died is finished by another; its parent is told once, of what
// became of it, and its place is free for the next (SPEC 7.1, 7.3, 4.6).
func TestE5_ADeadWorkersChildGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *policy.Settings) { s.Caps.Live = 1 })
	first := w.work("w1", 2)
	root := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{tool: delegate, args: {kind: spawn, label: child, prompt: p}}]
    - calls: [{tool: delegate, args: {kind: spawn, label: next, prompt: p}}]
    - text: done
  child:
    - calls: [{tool: bash, args: {command: %q}}]
    - text: who knows
  next:
    - text: I have the place
`, hold))
	child := w.child(root, "1.1.0")
	eventually(t, "the command runs", func() bool { return w.ran() == 1 })
	first.die(t)
	w.work("w2", 2)
	s := w.idle(root)
	events := w.open(root).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.0"); r.IsError || !strings.Contains(r.Content, "who knows") {
		t.Errorf("the first delegation ended %+v", r)
	}
	if r := resultOf(t, events, "1.2.0"); r.IsError || !strings.Contains(r.Content, "I have the place") {
		t.Errorf("the second delegation ended %+v", r)
	}
	notices := 0
	for _, m := range payloads[*session.UserMessage](events) {
		if m.Source.Kind == session.FromSettled && m.Source.SenderSessionID == child {
			notices++
		}
	}
	log := w.open(child).Events()
	if r := resultOf(t, log, "1.1.0"); notices != 1 || r.Code != session.CodeToolOutcomeUnknown || w.ran() != 1 || len(s.Children) != 0 {
		t.Errorf("%d notices; the call ended %q after %d runs; places held: %+v", notices, r.Code, w.ran(), s.Children)
	}
}
