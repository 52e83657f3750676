package policytest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Forest is trees of sessions whose records stand in one stream, one tree behind
// the other.
type Forest struct {
	// Reached counts what the trees reached.
	Reached map[string]int

	trees int
	last  uint64 // stream sequence
}

// Coin is a fair coin; what says what it decides.
type Coin func(what string) bool

// Grow lets chance grow a tree with everything that people and agents may do to
// its policy, and holds every step to I1, I12 and the law that a cached policy
// equals a fold from zero.
func (f *Forest) Grow(t T, coin Coin) *Tree {
	t.Helper()
	if f.Reached == nil {
		f.Reached = map[string]int{}
	}
	g := &grove{t: t, coin: coin, reached: f.Reached, tree: NewTree(t, f.trees, f.last)}
	g.plant()
	for range 8 + g.below("steps", 17) {
		g.grow()
	}
	g.rest()
	g.tree.Deployment = g.deployment()
	f.trees++
	f.last += uint64(len(g.tree.Records))
	return g.tree
}

// grove is a tree that grows.
type grove struct {
	t           T
	coin        Coin
	reached     map[string]int
	tree        *Tree
	deployments []policy.Deployment // every revision, the one in force last
	nodes       []*node
}

// node is a session of the tree and what the laws need to know of its origin.
type node struct {
	log      *Log
	parent   *node // who delegated to it; nil for a root and a person's fork
	born     int   // which deployment was in force
	switched bool  // a person changed its policy
	children int
	// tools are those that no filter on the way down takes away.
	tools map[string]bool
	// What the parent's log was at N.
	parentAtN    session.State
	parentEvents []session.Event
}

const maxSessions = 9

func (g *grove) deployment() policy.Deployment { return g.deployments[len(g.deployments)-1] }

func (g *grove) hit(what string, when bool) {
	if when {
		g.reached[what]++
	}
}

func pick[V any](g *grove, what string, from ...V) V { return from[g.below(what, len(from))] }

func (g *grove) chance(what string, percent int) bool { return g.below(what, 100) < percent }

// below draws from 0 to n-1, each as likely as the others.
func (g *grove) below(what string, n int) int {
	v := 0
	for range 7 {
		v *= 2
		if g.coin(what) {
			v++
		}
	}
	return v * n >> 7
}

// plant starts a deployment and a root whose log may hold events of capabilities
// that are left out: it may be older than that.
func (g *grove) plant() {
	c := policy.Composition{Sandbox: true, Approvals: true, Presets: true}
	if g.chance("left out", 40) {
		c = policy.Composition{Sandbox: g.chance("sandbox", 50), Approvals: g.chance("approvals", 50), Presets: g.chance("presets", 50)}
	}
	g.hit(fmt.Sprintf("composed %+v", c), true)
	g.settle(c)
	var flags []session.Payload
	if g.chance("preset flag", 30) {
		flags = append(flags, &session.PresetSwitch{Preset: g.name(), By: &Alice})
	}
	if g.chance("sandbox flag", 30) {
		flags = append(flags, &session.SandboxSwitch{Mode: g.mode(), By: &Alice})
	}
	if g.chance("approval flag", 30) {
		flags = append(flags, &session.ApprovalSwitch{Policy: pick(g, "policy", session.Ask, session.Never), By: &Alice})
	}
	all := map[string]bool{}
	for _, tool := range Tools() {
		all[tool] = true
	}
	g.nodes = []*node{{log: g.tree.Root(session.SurfaceAny, flags...), tools: all}}
}

func (g *grove) mode() session.SandboxMode { return pick(g, "mode", session.SandboxModes()...) }

// name is a preset: mostly one of the two that share a bundle.
func (g *grove) name() session.Preset {
	return pick(g, "preset", session.PresetAuto, session.PresetAuto, session.PresetFullAccess, session.PresetFullAccess,
		session.PresetReadOnly, session.PresetWorkspaceWrite, "mine")
}

// settle puts new defaults, another reviewer or another table in force.
func (g *grove) settle(c policy.Composition) {
	g.deployments = append(g.deployments, Deploy(g.t, func(s *policy.Settings) {
		s.Composition = c
		s.Defaults = session.Defaults{Sandbox: g.mode(), Approval: pick(g, "policy", session.Ask, session.Never)}
		s.Reviewer = pick(g, "reviewer", policy.DelegateOnly, policy.DelegateOnly, policy.DelegateOnly, policy.NoReviewer)
		s.Caps.Depth, s.Caps.Live = 3, 3
		if g.chance("own row", 30) {
			Row("mine", g.mode(), pick(g, "policy", session.Ask, session.Never), 1)(s)
		}
	}))
}

// grow takes one step and checks the sessions that it touched.
func (g *grove) grow() {
	n := pick(g, "session", g.nodes...)
	switch op := g.below("step", 100); {
	case op < 12:
		g.person(n, "switched sandbox", func() (policy.Wished, error) {
			return policy.SwitchSandbox(n.log.State, g.deployment(), g.mode(), Alice)
		})
	case op < 20:
		g.person(n, "switched approval", func() (policy.Wished, error) {
			return policy.SwitchApproval(n.log.State, g.deployment(), pick(g, "policy", session.Ask, session.Never), Alice)
		})
	case op < 38:
		g.person(n, "selected a preset", func() (policy.Wished, error) {
			return policy.Select(n.log.State, g.deployment(), g.name(), Alice)
		})
	case op < 44:
		g.settle(g.deployment().Composition)
		g.rest()
		g.hit("new defaults", true)
	case op < 46:
		n.log.Release()
		n.switched = true
		g.hit("released", true)
	case op < 56:
		n.log.Open("read")
		n.log.Finish()
		g.hit("a turn", true)
	case op < 62:
		g.fork(n)
	case op < 66:
		g.waver(n)
	default:
		g.delegate(n)
	}
	for _, touched := range []*node{n, g.nodes[len(g.nodes)-1]} {
		g.lawFold(touched)
		g.lawLater(touched)
	}
}

// rest holds every session to the laws that bind at all times.
func (g *grove) rest() {
	for _, n := range g.nodes {
		g.lawFold(n)
		g.lawLater(n)
		g.lawAsks(n)
		g.lawTools(n)
	}
}

// person appends what a person's wish comes to.
func (g *grove) person(n *node, what string, wish func() (policy.Wished, error)) {
	g.t.Helper()
	w, err := wish()
	if err != nil {
		if policy.CodeOf(err) == "" {
			g.t.Fatalf("%s: %v", what, err)
		}
		g.hit("refused a person: "+string(policy.CodeOf(err)), true)
		return
	}
	pinned := n.log.State.Knobs.Approval.Source == session.SourceDelegation
	n.log.Add(session.ClassPolicy, w.Events...)
	if got := policy.Current(n.log.State.Knobs, g.deployment()); got != w.Current {
		g.t.Fatalf("%s: the answer says %q, current is %q", what, w.Current, got)
	}
	n.switched = n.switched || len(w.Events) > 0
	g.hit(what, len(w.Events) > 0)
	child := n.log.State.Header.IsChild()
	g.hit("switched a child", child && len(w.Events) > 0)
	g.hit("lifted a pin in a person's fork", !child && pinned && n.log.State.Knobs.Approval.Value == session.Ask)
}

// waver selects one of the two presets that share a bundle, lets a turn end, and
// selects the other: what a fork finds in its prefix is the sibling.
func (g *grove) waver(n *node) {
	g.t.Helper()
	siblings := [2]session.Preset{session.PresetAuto, session.PresetFullAccess}
	first := g.below("sibling", 2)
	for i := range 2 {
		g.person(n, "selected a preset", func() (policy.Wished, error) {
			return policy.Select(n.log.State, g.deployment(), siblings[(first+i)%2], Alice)
		})
		if i == 0 {
			n.log.Open("read")
			n.log.Finish()
		}
	}
	g.delegate(n)
}

func (g *grove) fork(n *node) {
	if len(g.nodes) == maxSessions {
		return
	}
	f := &node{log: n.log.Fork(), tools: maps.Clone(n.tools), born: len(g.deployments) - 1}
	if got, want := read(f.log.Events), read(n.log.Events); got != want {
		g.t.Fatalf("1.8: a person's fork is under %+v, its source under %+v", got, want)
	}
	g.lawTools(f)
	g.nodes = append(g.nodes, f)
	g.hit("a person's fork", true)
	g.hit("a person's fork of a fork", n.log.State.Header.FirstLiveSeq > 0)
	g.hit("a person's fork of a pinned child", n.log.State.Header.IsChild())
}

// wish is what a delegation asks for: often nothing, else a mode, a filter, both.
func (g *grove) wish() policy.Wish {
	var w policy.Wish
	if g.chance("narrow", 35) {
		w.Sandbox = g.mode()
	}
	if g.chance("filter", 30) {
		w.Filter = &session.ToolFilter{}
		if g.chance("deny", 60) {
			w.Filter.Deny = slices.DeleteFunc(g.some("denied"), func(t string) bool { return t == session.ToolDelegate && g.chance("spare", 60) })
		}
		if g.chance("allow", 60) {
			allow := g.some("allowed")
			if !slices.Contains(allow, session.ToolDelegate) {
				allow = append(allow, session.ToolDelegate)
			}
			w.Filter.Allow = &allow
		}
	}
	return w
}

// some draws a set of tools.
func (g *grove) some(what string) []string {
	return slices.DeleteFunc(Tools(), func(string) bool { return g.coin(what) })
}

func (g *grove) delegate(n *node) {
	g.t.Helper()
	if len(g.nodes) == maxSessions {
		return
	}
	c := Child{
		Kind: pick(g, "kind", session.Spawn, session.Fork, session.Fork),
		Mode: pick(g, "life", session.OneShot, session.Continuable), Wish: g.wish(),
	}
	d, id := g.deployment(), n.log.Open(session.ToolDelegate)
	defer n.log.Finish()
	before := len(n.log.Events)
	o := derive(n.log.Events, d, c.Wish.Sandbox)
	want := n.refusal(d, o)
	atN := n.log.State
	born, dec := n.log.beget(d, id, c)
	if (born == nil) != (want != "") {
		g.t.Fatalf("4.11: decided %+v, SPEC says refusal %q", dec.Record(), want)
	}
	if born == nil {
		g.hit("refused a delegation: "+want, true)
		return
	}
	if rec := dec.Record(); rec.Defaults == nil || *rec.Defaults != d.Defaults || rec.Revision != d.Revision {
		g.t.Fatalf("4.4: the decision names the defaults %v of revision %d", rec.Defaults, rec.Revision)
	}
	if grew := len(n.log.Events) - before; grew != 1 {
		g.t.Fatalf("4.4: the parent's log grew by %d events at the delegation", grew)
	}
	n.children++
	b := &node{
		log: born, parent: n, born: len(g.deployments) - 1, tools: maps.Clone(n.tools),
		parentAtN: atN, parentEvents: n.log.Events[:before:before],
	}
	b.filter(c.Wish.Filter)
	g.nodes = append(g.nodes, b)
	g.lawBorn(b, o)
	g.lawBound(b)
	g.count(b, c, o)
}

func (n *node) filter(f *session.ToolFilter) {
	if f == nil {
		return
	}
	for tool := range n.tools {
		if slices.Contains(f.Deny, tool) || (f.Allow != nil && !slices.Contains(*f.Allow, tool)) {
			n.tools[tool] = false
		}
	}
}

// count says what kind of delegation was reached.
func (g *grove) count(n *node, c Child, o owed) {
	h := n.log.State.Header
	g.hit(string(c.Kind), true)
	g.hit(string(c.Mode), true)
	g.hit(fmt.Sprintf("depth %d", h.DelegationDepth), true)
	g.hit("narrowed", o.narrow)
	g.hit("filtered", c.Wish.Filter != nil)
	g.hit("filtered twice", c.Wish.Filter != nil && n.parent.log.State.Filter() != nil)
	g.hit("handed down auto", o.preset == session.PresetAuto)
	g.hit("handed down Full access", o.preset == session.PresetFullAccess)
	g.hit("handed down a derived identity", o.preset != "" && read(n.parentEvents).preset != o.preset)
	g.hit("handed down no mode", read(n.log.Events[h.FirstLiveSeq:]).sandbox == "")
	g.hit("delegated by a switched child", n.parent.switched && n.parent.parent != nil)
	if c.Kind != session.Fork {
		return
	}
	g.hit("a seed that ends", h.FirstLiveSeq > 0)
	g.hit("a fork without a seed", h.FirstLiveSeq == 0)
	g.hit("a fork of a fork", h.FirstLiveSeq > 0 && n.parent.log.State.Header.FirstLiveSeq > 0)
	prefix, own := read(n.log.Events[:h.FirstLiveSeq]), read(n.log.Events[h.FirstLiveSeq:])
	g.hit("a stale mode in the prefix", prefix.sandbox != "" && own.sandbox != "" && prefix.sandbox != own.sandbox)
	shared := func(p session.Preset) bool { return p == session.PresetAuto || p == session.PresetFullAccess }
	g.hit("the sibling identity in the prefix", shared(prefix.preset) && shared(own.preset) && prefix.preset != own.preset)
}
