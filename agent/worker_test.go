package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/entail-fleet/entail/session"
)

// A tree of depth 3 ends with one worker that can drive one session at a time:
// a parent that waits for a child holds no worker (SPEC 7.3, 7.4).
func TestOneWorkerEndsADeepTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.root(`
sessions:
  root:
    - text: handing this over
      calls: [{id: c1, tool: delegate, args: {kind: spawn, label: a, prompt: "go on"}}]
    - text: root done
  a:
    - calls: [{id: c1, tool: delegate, args: {kind: spawn, label: b, prompt: "go on"}}]
    - text: a done
  b:
    - calls: [{id: c1, tool: delegate, args: {kind: fork, label: c, prompt: "write it"}}]
    - text: b done
  c:
    - calls: [{id: w1, tool: write, args: {path: out.txt, content: hello}}]
    - text: c done
`)
	w.work("w1", 1)
	s := w.idle(id)
	if s.LastEnd.Reason.Kind != session.EndCompleted || s.Turn != 1 {
		t.Errorf("the root's turn %d ended %q, want turn 1 completed", s.Turn, s.LastEnd.Reason.Kind)
	}
	if got, err := os.ReadFile(filepath.Join(w.dir, "out.txt")); err != nil || string(got) != "hello" {
		t.Errorf("the leaf wrote %q, %v; want hello", got, err)
	}
	for _, want := range []string{"a", "b", "c"} {
		events := w.open(id).Events()
		onceEach(t, events)
		ids := children(events)
		if len(ids) != 1 {
			t.Fatalf("%s has %d children, want 1:\n%s", id, len(ids), list(events))
		}
		if r := resultOf(t, events, "1.1.0"); r.IsError || r.Child != ids[0] {
			t.Errorf("the delegating call's result is %+v, want the child's answer", r)
		}
		id = ids[0]
		s := w.until(id, "ended", func(s session.State) bool { return s.Ended != nil })
		if s.Ended.Outcome != session.OutcomeCompleted || s.Descriptor.Label != want {
			t.Errorf("child %q ended %q, want %q completed", s.Descriptor.Label, s.Ended.Outcome, want)
		}
	}
}
