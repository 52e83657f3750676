package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// lineage finds events and delegations in logs in memory.
type lineage map[session.ID]*log

func newLineage(logs ...*log) lineage {
	l := lineage{}
	for _, s := range logs {
		l[s.State.Header.ID] = s
	}
	return l
}

func (l lineage) Delegation(id session.ID) (session.ID, session.ToolDecision, session.Seq, error) {
	parent := l[id].State.Header.ParentSession
	for _, e := range l[parent].Events {
		if d, ok := e.Payload.(*session.ToolDecision); ok && d.Child == id {
			return parent, *d, e.Seq, nil
		}
	}
	return "", session.ToolDecision{}, 0, fmt.Errorf("nobody delegated to %s", id)
}

func (l lineage) Event(id session.ID, seq session.Seq) (session.Event, error) {
	if s, ok := l[id]; ok && int(seq) < len(s.Events) {
		return s.Events[seq], nil
	}
	return session.Event{}, fmt.Errorf("session %s has no event %d", id, seq)
}

// explained is one line a knob: its value, then where it came from, nearest
// first. Sessions are numbered in the order given.
func explained(t *testing.T, d policy.Deployment, of *log, tree ...*log) []string {
	t.Helper()
	all, err := policy.Explain(of.State, d, newLineage(tree...))
	if err != nil {
		t.Fatalf("Explain: %v", err)
	}
	var out []string
	for _, k := range all {
		var line strings.Builder
		fmt.Fprintf(&line, "%s %s:", k.Knob, k.Value)
		for _, o := range k.Origins {
			at := slices.IndexFunc(tree, func(l *log) bool { return l.State.Header.ID == o.Session })
			fmt.Fprintf(&line, " [%d %s", at, o.From)
			if o.Value != k.Value {
				fmt.Fprintf(&line, " %s", o.Value)
			}
			if o.Seq != nil {
				fmt.Fprintf(&line, " @%d", *o.Seq)
			}
			if o.By != nil {
				fmt.Fprintf(&line, " by %s", o.By.ID)
			}
			if o.At != nil {
				fmt.Fprintf(&line, " at %d", *o.At)
			}
			line.WriteString("]")
		}
		out = append(out, line.String())
	}
	return out
}

// decidedAt is the seq of the decision that started a child.
func decidedAt(t *testing.T, parent, child *log) session.Seq {
	t.Helper()
	_, _, at, err := newLineage(parent, child).Delegation(child.State.Header.ID)
	if err != nil {
		t.Fatalf("find the delegation: %v", err)
	}
	return at
}

func TestExplainRoot(t *testing.T) {
	t.Parallel()
	d := deploy(t, reviewed)
	l := newRoot(t)
	same(t, "defaults", explained(t, d, l, l), []string{
		"sandbox read-only: [0 default]", "approval ask: [0 default]", "preset read-only: [0 derived]",
	})
	l.Sandbox(session.WorkspaceWrite)
	same(t, "a switch", explained(t, d, l, l), []string{
		"sandbox workspace-write: [0 switch @1 by alice]", "approval ask: [0 default]", "preset workspace-write: [0 derived]",
	})
	choose(t, l, d, session.PresetAuto)
	same(t, "a preset", explained(t, d, l, l), []string{
		"sandbox danger-full-access: [0 switch @3 by alice]", "approval never: [0 switch @4 by alice]", "preset auto: [0 switch @2 by alice]",
	})
	l.Sandbox(session.ReadOnly)
	same(t, "a preset that is not current any more", explained(t, d, l, l)[2:], []string{"preset custom: [0 derived]"})
}

// TestExplainThreeGenerations follows values up the tree: to the switch, to the
// delegation that narrowed, to the default.
func TestExplainThreeGenerations(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	root := newRoot(t).Sandbox(session.WorkspaceWrite)
	c := root.MustDelegate(d, child{Kind: session.Fork})
	g := c.MustDelegate(d, child{})
	rc, cg := decidedAt(t, root, c), decidedAt(t, c, g)
	same(t, "inherited twice", explained(t, d, g, root, c, g), []string{
		fmt.Sprintf("sandbox workspace-write: [2 inherited @0 at %d] [1 inherited @0 at %d] [0 switch @1 by alice]", cg, rc),
		fmt.Sprintf("approval never: [2 inherited @1 at %d]", cg),
		"preset custom: [2 derived]",
	})

	n := c.MustDelegate(d, child{Wish: policy.Wish{Sandbox: session.ReadOnly}})
	gn := n.MustDelegate(d, child{})
	same(t, "narrowed in between", explained(t, d, gn, root, c, n, gn)[:1], []string{
		fmt.Sprintf("sandbox read-only: [3 inherited @0 at %d] [2 inherited @0 at %d]", decidedAt(t, n, gn), decidedAt(t, c, n)),
	})

	n.Sandbox(session.DangerFullAccess)
	same(t, "a person's switch in a child", explained(t, d, n, root, c, n)[:1], []string{
		fmt.Sprintf("sandbox danger-full-access: [2 switch @%d by alice]", n.State.Knobs.Sandbox.Seq),
	})

	plain := newRoot(t)
	pc := plain.MustDelegate(d, child{})
	same(t, "a default is live in a child", explained(t, d, pc, plain, pc)[:1], []string{"sandbox read-only: [1 default]"})
}

func TestExplainPreset(t *testing.T) {
	t.Parallel()
	d := deploy(t, reviewed)
	root := newRoot(t)
	choose(t, root, d, session.PresetAuto)
	c := root.MustDelegate(d, child{})
	g := c.MustDelegate(d, child{})
	same(t, "recorded above", explained(t, d, g, root, c, g)[2:], []string{
		fmt.Sprintf("preset auto: [2 inherited @2 at %d] [1 inherited @2 at %d] [0 switch @1 by alice]", decidedAt(t, c, g), decidedAt(t, root, c)),
	})

	root = newRoot(t, knobs(session.DangerFullAccess, session.Never)...)
	c = root.MustDelegate(d, child{})
	same(t, "derived above", explained(t, d, c, root, c)[2:], []string{
		fmt.Sprintf("preset danger-full-access: [1 inherited @2 at %d] [0 derived]", decidedAt(t, root, c)),
	})
}

// TestExplainFork: what stands in a fork's prefix was set in the session that the
// prefix is of.
func TestExplainFork(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	root := newRoot(t).Sandbox(session.WorkspaceWrite)
	c := root.MustDelegate(d, child{})
	f := c.Fork()
	same(t, "a person's fork of a child", explained(t, d, f, root, c, f)[:2], []string{
		fmt.Sprintf("sandbox workspace-write: [1 inherited @0 at %d] [0 switch @1 by alice]", decidedAt(t, root, c)),
		fmt.Sprintf("approval never: [1 inherited @1 at %d]", decidedAt(t, root, c)),
	})
}

func TestExplainMissingLog(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	root := newRoot(t).Sandbox(session.WorkspaceWrite)
	c := root.MustDelegate(d, child{})
	_, err := policy.Explain(c.State, d, lineage{})
	if err == nil || !strings.Contains(err.Error(), string(c.State.Header.ID)) {
		t.Errorf("Explain without the log = %v, want an error that names it", err)
	}
}
