package delegation_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

var tools = []string{"read", "write", "delegate"}

func deployed() policy.Deployment {
	return policy.Deployment{Settings: policy.DefaultSettings(), Revision: 7, Hash: "h"}
}

func request() delegation.Request {
	return delegation.Request{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"}
}

// parent is a session in the middle of a step with one delegating call.
type parent struct {
	*sessiontest.Stream
	id session.ID
}

func newParent(t *testing.T) *parent {
	t.Helper()
	s := sessiontest.NewStream(t)
	p := &parent{Stream: s, id: s.Root()}
	p.turn(1)
	return p
}

// turn opens a turn with a step of one call of delegate.
func (p *parent) turn(n int) {
	s := p.State(p.id)
	p.Write(p.id, session.ClassTurn,
		&session.Claim{Epoch: s.Epoch + 1, Worker: "w", Incarnation: "i", Cause: session.CauseStart},
		&session.TurnStart{Turn: n}, &session.StepStart{Turn: n, Step: 1},
		&session.AssistantMessage{Turn: n, Step: 1, Calls: []int{0}},
		&session.ToolCall{Turn: n, Step: 1, CallID: session.MakeCallID(n, 1, 0), Name: "delegate", Arguments: "{}"})
}

// order is the call as its driver decides it now.
func (p *parent) order(t *testing.T, r delegation.Request) delegation.Order {
	t.Helper()
	s := p.State(p.id)
	wish := r.Wish()
	call := session.MakeCallID(s.Turn, 1, 0)
	d, err := policy.Decide(s, deployed(), policy.Call{ID: call, Tool: "delegate", Effect: true, Wish: &wish}, tools)
	if err != nil {
		t.Fatal(err)
	}
	return delegation.Order{CallID: call, Request: r, Decision: d.Record(), Epoch: s.Epoch, Time: 9, Tools: tools}
}

func (p *parent) view() session.View { return session.View{State: p.State(p.id), Tail: 1} }

// Every fact of SPEC 4.4's precondition, missed one at a time.
func TestSPEC4_4_PreconditionOfADelegation(t *testing.T) {
	t.Parallel()
	by := sessiontest.By()
	for name, c := range map[string]struct {
		change func(p *parent, o *delegation.Order)
		want   error
	}{
		"nothing missed":  {func(*parent, *delegation.Order) {}, nil},
		"another epoch":   {func(_ *parent, o *delegation.Order) { o.Epoch++ }, delegation.ErrPrecondition},
		"another call":    {func(_ *parent, o *delegation.Order) { o.CallID = "1.1.5" }, delegation.ErrPrecondition},
		"another basis":   {func(_ *parent, o *delegation.Order) { o.Decision.Mode = session.DangerFullAccess }, delegation.ErrPrecondition},
		"an old revision": {func(_ *parent, o *delegation.Order) { o.Decision.Revision-- }, delegation.ErrPrecondition},
		"a switch slipped in": {func(p *parent, _ *delegation.Order) {
			p.Write(p.id, session.ClassPolicy, &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: by})
		}, delegation.ErrPrecondition},
		"an interrupt waits": {func(p *parent, _ *delegation.Order) {
			p.Write(p.id, session.ClassInbox, &session.Interrupt{ID: "i", Turn: 1, By: by})
		}, delegation.ErrPrecondition},
		"a cancel waits": {func(p *parent, _ *delegation.Order) {
			p.Write(p.id, session.ClassInbox, &session.Cancel{ID: "c", By: by})
		}, delegation.ErrPrecondition},
		"the call is decided": {func(p *parent, o *delegation.Order) {
			d := o.Decision
			d.Verdict = session.Deny
			p.Write(p.id, session.ClassTurn, &d)
		}, delegation.ErrPrecondition},
		"no label":        {func(_ *parent, o *delegation.Order) { o.Request.Label = "" }, delegation.ErrInvalid},
		"no prompt":       {func(_ *parent, o *delegation.Order) { o.Request.Prompt = " " }, delegation.ErrInvalid},
		"long prompt":     {func(_ *parent, o *delegation.Order) { o.Request.Prompt = strings.Repeat("x", session.MaxPrompt+1) }, delegation.ErrInvalid},
		"unknown kind":    {func(_ *parent, o *delegation.Order) { o.Request.Kind = "clone" }, delegation.ErrInvalid},
		"unknown mode":    {func(_ *parent, o *delegation.Order) { o.Request.Mode = "forever" }, delegation.ErrInvalid},
		"an empty filter": {func(_ *parent, o *delegation.Order) { o.Request.Tools = &session.ToolFilter{} }, delegation.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParent(t)
			o := p.order(t, request())
			c.change(p, &o)
			_, err := o.Child(p.view(), deployed())
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// What policy refuses at the tail is a denial, ready to be logged.
func TestSPEC4_11_AWiderWishIsDenied(t *testing.T) {
	t.Parallel()
	p := newParent(t)
	r := request()
	r.Sandbox = session.DangerFullAccess
	o := p.order(t, r)
	o.Decision.Verdict = session.Allow // a worker that lies
	_, err := o.Child(p.view(), deployed())
	denied, ok := errors.AsType[*delegation.DeniedError](err)
	if !ok || denied.Record.Verdict != session.Deny || denied.Text == "" {
		t.Errorf("got %v, want a denial with its record", err)
	}
}

// The first batch of each kind, in SPEC 4.3's order.
func TestSPEC4_3_OrderOfTheFirstBatch(t *testing.T) {
	t.Parallel()
	seeded := []session.Type{session.TypeEndSeed, session.TypeSandboxMode, session.TypeApprovalPolicy, session.TypeDescriptor, session.TypeModelSelected, session.TypeUserMessage}
	for name, c := range map[string]struct {
		kind   session.Kind
		turned bool
		want   []session.Type
	}{
		"spawn":                {session.Spawn, true, seeded[1:]},
		"fork":                 {session.Fork, true, seeded},
		"fork without a seed":  {session.Fork, false, seeded[1:]},
		"spawn without a turn": {session.Spawn, false, seeded[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sessiontest.NewStream(t)
			p := &parent{Stream: s, id: s.Root()}
			p.Write(p.id, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: sessiontest.By()})
			turn := 1
			if c.turned {
				p.Write(p.id, session.ClassTurn, &session.Claim{Epoch: 1, Worker: "w", Incarnation: "i", Cause: session.CauseStart},
					&session.TurnStart{Turn: 1}, &session.TurnEnd{Turn: 1, Reason: session.EndReason{Kind: session.EndCompleted}})
				turn = 2
			}
			p.turn(turn)
			r := request()
			r.Kind = c.kind
			record, err := p.order(t, r).Child(p.view(), deployed())
			if err != nil {
				t.Fatal(err)
			}
			var got []session.Type
			for _, e := range record.Birth.First.Events {
				got = append(got, e.Type)
				if e.Seq < record.Birth.Header.FirstLiveSeq {
					t.Errorf("event %d stands below firstLiveSeq %d", e.Seq, record.Birth.Header.FirstLiveSeq)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("first batch (-want +got):\n%s", diff)
			}
		})
	}
}

// A digest is of what was asked, not of how it was written down; the id and the
// token are no part of it (SPEC 1.10).
func TestSPEC1_10_DigestIsOfTheRequest(t *testing.T) {
	t.Parallel()
	digest := func(v any) string {
		d, err := delegation.Digest(v)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	base := request()
	if got, want := digest(base), digest(map[string]any{"prompt": "work", "label": "child", "mode": "one-shot", "kind": "spawn"}); got != want {
		t.Errorf("the order of members changes the digest: %s, %s", got, want)
	}
	// printf '%s' '{"label":"<é>\n","n":[1,1e+21,true,null],"z":{}}' | sha256sum
	if got, want := digest(map[string]any{"z": struct{}{}, "n": []any{1.0, 1e21, true, nil}, "label": "<é>\n"}), "a8e6c4a4413ac996fc634660c421e05f64f37b9f401b39c4982c10f4808cbaac"; got != want {
		t.Errorf("the digest is %s, that of the RFC 8785 JSON %s", got, want)
	}
	other := base
	other.Prompt = "work "
	if digest(other) == digest(base) {
		t.Error("another prompt has the same digest")
	}
	a, b := delegation.Root{Cwd: "/w", ID: "a", Traceparent: "x"}, delegation.Root{Cwd: "/w", ID: "b"}
	if digest(a) != digest(b) {
		t.Error("id or traceparent is in a root's digest")
	}
}

// A person's fork is refused inside an open turn; outside, its boundary is the
// last event and it writes no policy (SPEC 1.8).
func TestSPEC1_8_PersonsFork(t *testing.T) {
	t.Parallel()
	p := newParent(t)
	id, err := session.ForkID(p.id, p.ULID())
	if err != nil {
		t.Fatal(err)
	}
	f := delegation.Fork{ID: id, Source: p.id, By: sessiontest.Ann}
	if _, err := f.Genesis(p.State(p.id)); !errors.Is(err, delegation.ErrOpenTurn) {
		t.Errorf("inside an open turn: %v", err)
	}
	s := sessiontest.NewStream(t)
	root := s.Root()
	s.Write(root, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: sessiontest.By()})
	state := s.State(root)
	f.Source = root
	if f.ID, err = session.ForkID(root, s.ULID()); err != nil {
		t.Fatal(err)
	}
	record, err := f.Genesis(state)
	if err != nil {
		t.Fatal(err)
	}
	fork, err := session.Begin(*record.Birth, state.InheritAll())
	if err != nil {
		t.Fatal(err)
	}
	if fork.Header.InheritedEventCount != state.Next || fork.Knobs.Sandbox.Value != session.ReadOnly || fork.Header.IsChild() {
		t.Errorf("cut %d of %d, sandbox %q, child %v", fork.Header.InheritedEventCount, state.Next, fork.Knobs.Sandbox.Value, fork.Header.IsChild())
	}
	for _, e := range record.Birth.First.Events {
		if e.Type == session.TypeSandboxMode || e.Type == session.TypeApprovalPolicy || e.Type == session.TypePreset {
			t.Errorf("a person's fork writes %s", e.Type)
		}
	}
}

// One notice for each turn that was not told, under a derived id; a closing once
// the child has ended; nothing for a child that holds no slot (SPEC 7.3).
func TestSPEC7_3_NoticesThatAreOwed(t *testing.T) {
	t.Parallel()
	child := session.State{Header: session.Header{ID: "c", Label: "child"}}
	ends := []delegation.Settled{
		{Turn: 1, Seq: 5, Reason: session.EndReason{Kind: session.EndCompleted}, Closing: "one"},
		{Turn: 2, Seq: 9, Reason: session.EndReason{Kind: session.EndCompleted}, Denials: true},
	}
	slot := session.State{Children: []session.Child{{ID: "c", Noticed: 1}}}
	got := delegation.Notices(slot, child, ends)
	if len(got) != 1 {
		t.Fatalf("%d events are owed, want the second turn's notice", len(got))
	}
	m, ok := got[0].(*session.UserMessage)
	if !ok || m.ID != session.NoticeID("c", 2, 9) || m.Source.Outcome != string(session.OutcomeDenials) {
		t.Errorf("owed is %+v", got[0])
	}
	child.Ended = &session.End{Outcome: session.OutcomeDenials}
	if got := delegation.Notices(slot, child, ends); len(got) != 2 || got[1].Type() != session.TypeClosed {
		t.Errorf("an ended child owes %d events", len(got))
	}
	if got := delegation.Notices(session.State{}, child, ends); got != nil {
		t.Errorf("a child without a slot owes %v", got)
	}
}
