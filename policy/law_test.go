package policy_test

import (
	"fmt"
	"slices"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// What stands here reads SPEC on raw events once more, without package policy and
// without session's fold: the property test compares the two.

// reading is what the knob events of a log say: the last one of each (SPEC 2.1).
type reading struct {
	sandbox  session.SandboxMode
	approval session.ApprovalPolicy
	preset   session.Preset
}

func read(events []session.Event) reading {
	var r reading
	for _, e := range events {
		switch p := e.Payload.(type) {
		case *session.SandboxSwitch:
			r.sandbox = p.Mode
		case *session.ApprovalSwitch:
			r.approval = p.Policy
		case *session.PresetSwitch:
			r.preset = p.Preset
		case *session.Release:
			r.sandbox = session.ReadOnly // SPEC 1.7
		}
	}
	return r
}

// come is what the three knobs of a session come to.
type come struct {
	sandbox  session.SandboxMode
	approval session.ApprovalPolicy
	current  session.Preset
}

// under puts the defaults under a reading and names the preset: SPEC 2.3, and 2.6
// as docs/adr/0002 reads it.
func (r reading) under(d policy.Deployment) come {
	c := come{sandbox: r.sandbox, approval: r.approval}
	if c.sandbox == "" {
		c.sandbox = d.Defaults.Sandbox
	}
	if c.approval == "" {
		c.approval = d.Defaults.Approval
	}
	var derived session.Preset
	for _, b := range d.Presets {
		if b.Sandbox != c.sandbox || (b.Approval != c.approval && d.Composition.Approvals) {
			continue
		}
		if b.Name == r.preset {
			c.current = b.Name
			return c
		}
		if derived == "" && b.Name != session.PresetAuto && d.Composition.Presets {
			derived = b.Name
		}
	}
	c.current = derived
	if derived == "" {
		c.current = session.PresetCustom
	}
	return c
}

func width(m session.SandboxMode) int { return slices.Index(session.SandboxModes(), m) }

// owed is what SPEC 4.2, 4.3 and 4.11 say a child starts with, on the events of
// its parent at N; not allowed says why there is no child.
type owed struct {
	refused string
	events  []string // without seqs
	preset  session.Preset
	narrow  bool
}

func derive(parent []session.Event, d policy.Deployment, wish session.SandboxMode) owed {
	r := read(parent)
	c := r.under(d)
	mode, id := r.sandbox, session.Preset("")
	if c.current == session.PresetAuto || c.current == session.PresetFullAccess {
		id = c.current
	}
	var o owed
	if wish != "" && wish != c.sandbox {
		switch {
		case width(wish) > width(c.sandbox):
			return owed{refused: "wider"}
		case !d.Composition.Sandbox:
			return owed{refused: "sandbox left out"}
		case c.current == session.PresetAuto:
			return owed{refused: "narrowed under auto"}
		}
		mode, id, o.narrow = wish, "", true
	}
	if mode != "" {
		o.events = append(o.events, "sandbox/mode "+string(mode)+" delegation")
	}
	if d.Composition.Approvals {
		o.events = append(o.events, "approval/policy never delegation")
	}
	if id != "" {
		o.events = append(o.events, "permission/preset "+string(id))
	}
	o.preset = id
	return o
}

// refusal says why SPEC refuses to let a session delegate, or "".
func (n *node) refusal(d policy.Deployment, o owed) string {
	switch {
	case !n.tools[session.ToolDelegate]:
		return "filter"
	case read(n.log.events).under(d).current == session.PresetAuto && d.Reviewer == policy.NoReviewer:
		return "no reviewer"
	case n.log.state.Header.DelegationDepth+1 > d.Caps.Depth:
		return "depth"
	case n.children >= d.Caps.Live:
		return "live children"
	}
	return o.refused
}

// lawBorn is I1 on a child's own raw events, and that its descriptor allows what
// all filters above it allow.
func (g *grove) lawBorn(n *node, o owed) {
	g.t.Helper()
	if got := ungrounded(n.log.own()); !slices.Equal(got, o.events) {
		g.t.Fatalf("I1: the first policy of %s is %v, SPEC 4.2 and 4.11 give %v", n.log.state.Header.ID, got, o.events)
	}
	if n.log.own() != nil {
		first := n.log.events[n.log.state.Header.FirstLiveSeq]
		if n.log.state.Header.FirstLiveSeq > 0 && first.Type != session.TypeEndSeed {
			g.t.Fatalf("I1: the first own event of a seeded child is %s", first.Type)
		}
	}
	g.lawTools(n)
}

func (g *grove) lawTools(n *node) {
	g.t.Helper()
	for _, tool := range tools {
		if got := !policy.Filtered(n.log.state.Filter(), tool); got != n.tools[tool] {
			g.t.Fatalf("%s: tool %s is allowed: %v, the filters above say %v", n.log.state.Header.ID, tool, got, n.tools[tool])
		}
	}
}

// lawBound is I12 at a birth: whatever an adversary in the child could have
// permitted, its parent at N could have had permitted, under the same settings.
// So could every ancestor at its own N, up to the first session that a person
// switched in between, and as long as the settings are the ones of that N.
func (g *grove) lawBound(n *node) {
	g.t.Helper()
	d := g.deployment()
	for a := n; a.parent != nil && a.born == n.born; a = a.parent {
		for _, w := range wider(g.t, n.log.state, d, a.parentAtN, d) {
			g.t.Fatalf("I12: %s may, %s at its N may not: %s", n.log.state.Header.ID, a.parent.log.state.Header.ID, w)
		}
		if a.parent.switched {
			return
		}
	}
}

// lawLater is what is left of I12 when defaults changed: a child that nobody
// switched is under no wider mode than its parent's log at N gives now or gave
// then.
func (g *grove) lawLater(n *node) {
	g.t.Helper()
	if n.parent == nil || n.switched {
		return
	}
	at := read(n.parentEvents)
	bound := max(width(at.under(g.deployment()).sandbox), width(at.under(g.deployments[n.born]).sandbox))
	if got := policy.EffectiveOf(n.log.state.Knobs, g.deployment()).Sandbox; width(got) > bound {
		g.t.Fatalf("I12: %s is under %s, its parent's log at N allows %v at most", n.log.state.Header.ID, got, session.SandboxModes()[bound])
	}
}

// lawFold is that the cached policy equals a fold from zero.
func (g *grove) lawFold(n *node) {
	g.t.Helper()
	k, d := n.log.state.Knobs, g.deployment()
	r := read(n.log.events)
	if got := (reading{k.Sandbox.Value, k.Approval.Value, k.Preset.Value}); got != r {
		g.t.Fatalf("%s folds to %+v, its events say %+v", n.log.state.Header.ID, got, r)
	}
	e := policy.EffectiveOf(k, d)
	if got, want := (come{e.Sandbox, e.Approval, policy.Current(k, d)}), r.under(d); got != want {
		g.t.Fatalf("%s comes to %+v, SPEC 2 gives %+v (%+v under %+v)", n.log.state.Header.ID, got, want, r, d.Settings)
	}
	if err := grounded(n.log.events, e.Basis); err != nil {
		g.t.Fatalf("%s: %v", n.log.state.Header.ID, err)
	}
}

// grounded checks that a basis names events that say what it says (SPEC 5.2).
func grounded(events []session.Event, b session.Basis) error {
	for _, g := range []session.Ground{b.Sandbox, b.Approval, b.Preset} {
		if g.Seq == nil {
			continue
		}
		r := read(events[*g.Seq : *g.Seq+1])
		if g.Value != string(r.sandbox)+string(r.approval)+string(r.preset) {
			return fmt.Errorf("basis names event %d for %s, which is %s", *g.Seq, g.Value, events[*g.Seq].Type)
		}
	}
	return nil
}

// lawAsks is the pin: no child can make anybody be asked, whatever was switched.
func (g *grove) lawAsks(n *node) {
	g.t.Helper()
	if !n.log.state.Header.IsChild() {
		return
	}
	for _, c := range calls() {
		dec, err := policy.Decide(n.log.state, g.deployment(), c, tools)
		if err != nil {
			g.t.Fatalf("decide: %v", err)
		}
		if _, asks := dec.(policy.Question); asks {
			g.t.Fatalf("4.10: the child %s asks a person for %s", n.log.state.Header.ID, c.Escalate)
		}
	}
}
