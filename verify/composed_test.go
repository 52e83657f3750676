package verify_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

// composedTrees is how many trees TestComposedTreesAreClean grows.
const composedTrees = "500"

// grove grows trees with the rules that the deployment itself uses.
type grove struct {
	*rapid.T
	stream
	states  map[session.ID]session.State
	d       policy.Deployment
	reached map[string]int
}

var toolNames = []string{"read", "write", "bash", session.ToolDelegate}

// TestComposedTreesAreClean lets the deployment's own capture, decisions and
// composer write trees under any composition, and wants what verify derives from
// SPEC to agree with them.
func TestComposedTreesAreClean(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set(composedTrees); err != nil {
			t.Fatal(err)
		}
	}
	reached := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		g := &grove{T: rt, states: map[session.ID]session.State{}, reached: reached}
		g.plant()
		for range rapid.IntRange(2, 25).Draw(rt, "acts") {
			g.act(rapid.SampledFrom(g.ids).Draw(rt, "session"))
		}
		r, err := verify.Run(t.Context(), g.stream, verify.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		for _, f := range r.Findings {
			rt.Errorf("finding: %v", f)
		}
		if r.Sessions != len(g.ids) || r.Void > 0 {
			rt.Errorf("got %d sessions and %d void records, want %d and 0", r.Sessions, r.Void, len(g.ids))
		}
	})
	for _, what := range []string{"spawn", "fork", "seeded", "narrowed", "filtered", "identity auto", "identity danger-full-access", "person's fork", "depth 3", "denied"} {
		if reached[what] < 10 {
			t.Errorf("the trees reached %q %d times: %v", what, reached[what], reached)
		}
	}
}

func (g *grove) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatalf("grow: %v", err)
	}
}

func (g *grove) plant() {
	s := policy.DefaultSettings()
	s.Reviewer = policy.DelegateOnly
	s.Composition = policy.Composition{
		Sandbox:   rapid.IntRange(0, 3).Draw(g.T, "sandbox") > 0,
		Approvals: rapid.IntRange(0, 3).Draw(g.T, "approvals") > 0,
		Presets:   rapid.IntRange(0, 3).Draw(g.T, "presets") > 0,
	}
	g.d = policy.Deployment{Settings: s, Revision: 1}
	id, err := session.RootID(ulid, 1)
	g.must(err)
	r, err := delegation.Root{
		ID: id, Tenant: "default", Workspace: session.Workspace{Kind: session.WorkspaceHost, Label: "host", Path: "/work/repo", ID: "w1"},
		By: *ada(), Cwd: "/work/repo", Provider: "scripted", Model: "m", Prompt: "go",
	}.Genesis(g.d)
	g.must(err)
	g.put(r, session.Prefix{})
}

// put writes a record and folds it.
func (g *grove) put(r session.Record, p session.Prefix) {
	g.Helper()
	h, body, err := session.EncodeRecord(r)
	g.must(err)
	g.raws = append(g.raws, session.Raw{StreamSeq: uint64(len(g.raws) + 1), Address: r.Address, Headers: h, Body: body})
	if r.Own != nil {
		s, err := session.FoldSection(g.states[r.Own.Session], *r.Own)
		g.must(err)
		g.states[r.Own.Session] = s
	}
	if r.Birth != nil {
		s, err := session.Begin(*r.Birth, p)
		g.must(err)
		g.states[s.Header.ID] = s
		g.ids = append(g.ids, s.Header.ID)
	}
}

func (g *grove) write(id session.ID, class session.Class, events ...session.Payload) {
	g.Helper()
	s := g.states[id]
	own, err := session.Compose(id, class, s.Next, s.Link, drafts(events)...)
	g.must(err)
	epoch := s.Epoch
	if c, ok := events[0].(*session.Claim); ok {
		epoch = c.Epoch
	}
	g.put(session.Record{Address: session.Address{Session: id, Class: class}, Format: s.Format, Epoch: epoch, Own: &own}, session.Prefix{})
}

func (g *grove) act(id session.ID) {
	switch n := rapid.IntRange(0, 9).Draw(g.T, "act"); {
	case n == 0:
		g.d.Revision++
		g.d.Defaults.Sandbox = rapid.SampledFrom(session.SandboxModes()).Draw(g.T, "default")
		g.d.Defaults.Approval = rapid.SampledFrom([]session.ApprovalPolicy{session.Ask, session.Never}).Draw(g.T, "default")
	case n == 1:
		ulid := fmt.Sprintf("%026d", len(g.ids))
		fork, err := session.ForkID(id, ulid)
		g.must(err)
		s := g.states[id]
		r, err := delegation.Fork{ID: fork, By: *ada(), Source: id}.Genesis(s)
		g.must(err)
		g.put(r, s.InheritAll())
		g.reached["person's fork"]++
	case n < 5:
		g.switches(id)
	default:
		g.turn(id)
	}
}

// switches is a person's; a refused one leaves the log as it was.
func (g *grove) switches(id session.ID) {
	s := g.states[id]
	var w policy.Wished
	var err error
	switch rapid.IntRange(0, 2).Draw(g.T, "knob") {
	case 0:
		w, err = policy.SwitchSandbox(s, g.d, rapid.SampledFrom(session.SandboxModes()).Draw(g.T, "mode"), *ada())
	case 1:
		w, err = policy.SwitchApproval(s, g.d, rapid.SampledFrom([]session.ApprovalPolicy{session.Ask, session.Never}).Draw(g.T, "approval"), *ada())
	default:
		w, err = policy.Select(s, g.d, rapid.SampledFrom([]session.Preset{session.PresetAuto, session.PresetFullAccess, session.PresetReadOnly}).Draw(g.T, "preset"), *ada())
	}
	var refused *policy.RefusalError
	if errors.As(err, &refused) || err == nil && len(w.Events) == 0 {
		return
	}
	g.must(err)
	g.write(id, session.ClassPolicy, w.Events...)
}

// turn is a whole turn of one step with a delegating call and a write.
func (g *grove) turn(id session.ID) {
	s := g.states[id]
	n := s.Turn + 1
	request := g.request()
	args, err := json.Marshal(request)
	g.must(err)
	g.write(id, session.ClassTurn,
		&session.Claim{Epoch: s.Epoch + 1, Worker: "w", Incarnation: "i", Cause: session.CauseStart},
		&session.TurnStart{Turn: n}, &session.StepStart{Turn: n, Step: 1},
		&session.AssistantMessage{Turn: n, Step: 1, Calls: []int{0, 1}},
		&session.ToolCall{Turn: n, Step: 1, Index: 0, CallID: session.MakeCallID(n, 1, 0), Name: session.ToolDelegate, Arguments: string(args)},
		&session.ToolCall{Turn: n, Step: 1, Index: 1, CallID: session.MakeCallID(n, 1, 1), Name: "write", Arguments: "{}"},
	)
	wish := request.Wish()
	g.decide(id, policy.Call{ID: session.MakeCallID(n, 1, 0), Tool: session.ToolDelegate, Effect: true, Wish: &wish}, request)
	g.decide(id, policy.Call{ID: session.MakeCallID(n, 1, 1), Tool: "write", Effect: true}, request)
	g.write(id, session.ClassTurn, &session.StepEnd{Turn: n, Step: 1},
		&session.TurnEnd{Turn: n, Reason: session.EndReason{Kind: session.EndCompleted}})
}

func (g *grove) request() delegation.Request {
	r := delegation.Request{
		Kind: rapid.SampledFrom([]session.Kind{session.Spawn, session.Fork}).Draw(g.T, "kind"),
		Mode: session.OneShot, Label: "child", Prompt: "p",
	}
	if rapid.IntRange(0, 2).Draw(g.T, "narrow") == 0 {
		r.Sandbox = rapid.SampledFrom(session.SandboxModes()).Draw(g.T, "to")
	}
	some := func(name string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(toolNames), 1, 3, rapid.ID).Draw(g.T, name)
	}
	switch rapid.IntRange(0, 4).Draw(g.T, "filter") {
	case 0:
		allow := some("allow")
		r.Tools = &session.ToolFilter{Allow: &allow}
	case 1:
		r.Tools = &session.ToolFilter{Deny: some("deny")}
	}
	return r
}

// decide decides a call and ends it; an allowed delegation is committed as one
// record.
func (g *grove) decide(id session.ID, c policy.Call, request delegation.Request) {
	s := g.states[id]
	turn, step, _, _ := c.ID.Parts()
	result := &session.ToolResult{Turn: turn, Step: step, CallID: c.ID}
	decision, err := policy.Decide(s, g.d, c, toolNames)
	g.must(err)
	permit, allowed := decision.(policy.Permit)
	if !allowed {
		denied := decision.(policy.Denial).Record()
		result.IsError, result.Denied = true, true
		g.write(id, session.ClassTurn, &denied, result)
		g.reached["denied"]++
		return
	}
	record := permit.Record()
	if c.Wish == nil {
		g.write(id, session.ClassTurn, &record)
		g.write(id, session.ClassTurn, result)
		return
	}
	order := delegation.Order{CallID: c.ID, Request: request, Decision: record, Epoch: s.Epoch, Tools: toolNames}
	r, err := order.Child(session.View{State: s}, g.d)
	g.must(err)
	p := session.Prefix{}
	if r.Birth.Header.InheritedEventCount > 0 {
		p = s.Cut
	}
	g.put(r, p)
	g.count(r, request)
	g.write(id, session.ClassTurn, result)
}

// count says what the trees reached.
func (g *grove) count(r session.Record, request delegation.Request) {
	g.reached[string(request.Kind)]++
	if r.Birth.Header.Seeded() {
		g.reached["seeded"]++
	}
	g.reached[fmt.Sprintf("depth %d", r.Birth.Header.DelegationDepth)]++
	for _, e := range r.Birth.First.Events {
		switch p := e.Payload.(type) {
		case *session.PresetSwitch:
			g.reached["identity "+string(p.Preset)]++
		case *session.SandboxSwitch:
			if request.Sandbox == p.Mode {
				g.reached["narrowed"]++
			}
		case *session.Descriptor:
			if p.ToolFilter != nil {
				g.reached["filtered"]++
			}
		}
	}
}
