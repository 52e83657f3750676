package policytest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// refusal says why SPEC refuses to let a session delegate, or "".
func (n *node) refusal(d policy.Deployment, o owed) string {
	switch {
	case !n.tools[session.ToolDelegate]:
		return "filter"
	case read(n.log.Events).under(d).current == session.PresetAuto && d.Reviewer == policy.NoReviewer:
		return "no reviewer"
	case n.log.State.Header.DelegationDepth+1 > d.Caps.Depth:
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
	if got := ungrounded(n.log.Own()); !slices.Equal(got, o.events) {
		g.t.Fatalf("I1: the first policy of %s is %v, SPEC 4.2 and 4.11 give %v", n.log.State.Header.ID, got, o.events)
	}
	if n.log.Own() != nil {
		first := n.log.Events[n.log.State.Header.FirstLiveSeq]
		if n.log.State.Header.FirstLiveSeq > 0 && first.Type != session.TypeEndSeed {
			g.t.Fatalf("I1: the first own event of a seeded child is %s", first.Type)
		}
	}
	g.lawTools(n)
}

func (g *grove) lawTools(n *node) {
	g.t.Helper()
	for _, tool := range Tools() {
		if got := !policy.Filtered(n.log.State.Filter(), tool); got != n.tools[tool] {
			g.t.Fatalf("%s: tool %s is allowed: %v, the filters above say %v", n.log.State.Header.ID, tool, got, n.tools[tool])
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
		for _, w := range Wider(g.t, n.log.State, d, a.parentAtN, d) {
			g.t.Fatalf("I12: %s may, %s at its N may not: %s", n.log.State.Header.ID, a.parent.log.State.Header.ID, w)
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
	if got := policy.EffectiveOf(n.log.State.Knobs, g.deployment()).Sandbox; width(got) > bound {
		g.t.Fatalf("I12: %s is under %s, its parent's log at N allows %v at most", n.log.State.Header.ID, got, session.SandboxModes()[bound])
	}
}

// lawFold is that the cached policy equals a fold from zero.
func (g *grove) lawFold(n *node) {
	g.t.Helper()
	k, d := n.log.State.Knobs, g.deployment()
	r := read(n.log.Events)
	if got := (reading{k.Sandbox.Value, k.Approval.Value, k.Preset.Value}); got != r {
		g.t.Fatalf("%s folds to %+v, its events say %+v", n.log.State.Header.ID, got, r)
	}
	e := policy.EffectiveOf(k, d)
	if got, want := (come{e.Sandbox, e.Approval, policy.Current(k, d)}), r.under(d); got != want {
		g.t.Fatalf("%s comes to %+v, SPEC 2 gives %+v (%+v under %+v)", n.log.State.Header.ID, got, want, r, d.Settings)
	}
	if err := grounded(n.log.Events, e.Basis); err != nil {
		g.t.Fatalf("%s: %v", n.log.State.Header.ID, err)
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
	if !n.log.State.Header.IsChild() {
		return
	}
	for _, c := range calls() {
		dec, err := policy.Decide(n.log.State, g.deployment(), c, Tools())
		if err != nil {
			g.t.Fatalf("decide: %v", err)
		}
		if _, asks := dec.(policy.Question); asks {
			g.t.Fatalf("4.10: the child %s asks a person for %s", n.log.State.Header.ID, c.Escalate)
		}
	}
}

// ungrounded takes the seqs off policy events as text.
func ungrounded(events []string) []string {
	var out []string
	for _, e := range events {
		_, text, _ := strings.Cut(e, " ")
		out = append(out, text)
	}
	return out
}
