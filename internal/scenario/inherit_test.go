package scenario_test

import (
	"testing"

	"github.com/entail-fleet/entail/session"
)

const delegateOneWrite = `
sessions:
  root:
    - calls: [{tool: delegate, args: {kind: spawn, label: c, prompt: write it}}]
    - text: over
  c:
    - calls: [{tool: write, args: {path: out.txt, content: hello}}]
    - text: I could not write it
`

// A read-only child's write is refused by the fence, and its turn ends as any.
func TestINH20_ReadOnlyChildWritesNothing(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(delegateOneWrite, readOnly)
	s := w.turns(root, 1)
	child := w.child(root, "1.1.0")
	w.absent(w.at("out.txt"))
	events := w.events(child)
	denied(t, events, "1.1.0", session.ReadOnly)
	if r := result(t, events, "1.1.0"); r.Code != session.CodeSandboxDenied {
		t.Errorf("the result's code is %q, want %q", r.Code, session.CodeSandboxDenied)
	}
	c := w.ended(child)
	if c.LastEnd.Reason.Kind != session.EndCompleted || s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the child's turn ended %q, the root's %q, want both completed", c.LastEnd.Reason.Kind, s.LastEnd.Reason.Kind)
	}
	if c.Ended.Outcome != session.OutcomeDenials {
		t.Errorf("the child ended %q, want %q: a denied run is no success", c.Ended.Outcome, session.OutcomeDenials)
	}
}
