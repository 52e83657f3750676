package agent_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// ledger builds a log event by event, by the fold's own rules.
type ledger struct {
	t *testing.T
	f agent.Facts
}

var ada = &session.Party{Kind: session.Person, ID: "ada"}

const rootULID = "01k9z3x5q8r7m6n4p2v0w1y3z5"

func newLedger(t *testing.T) *ledger {
	t.Helper()
	id, err := session.RootID(rootULID, 1)
	if err != nil {
		t.Fatal(err)
	}
	return beginLedger(t, session.Header{
		ID: id, Tenant: "default", Root: id, Origin: session.OriginUser, Cwd: "/w", CreatedBy: *ada,
		Workspace: session.Workspace{Kind: session.WorkspaceHost, Label: "w", Path: "/w", ID: "w1"},
		Request:   strings.Repeat("0", 64), Surface: session.SurfaceNone, FormatVersion: 1,
	}, &session.ModelSelected{Provider: "scripted", Model: "m"}, prompt("p1"))
}

// newChild is the log of a one-shot child.
func newChild(t *testing.T) *ledger {
	t.Helper()
	root := newLedger(t).f.State.Header
	h := root
	h.ID, h.ParentSession, h.Origin, h.DelegationDepth = session.ChildID(root.ID, "1.1.0"), root.ID, session.OriginSubagent, 1
	return beginLedger(t, h,
		&session.ApprovalSwitch{Policy: session.Never, Source: session.SourceDelegation},
		&session.Descriptor{Version: session.DescriptorVersion, Mode: session.OneShot, Provider: session.Spawn, Label: "child"},
		&session.ModelSelected{Provider: "scripted", Model: "m"}, prompt("p1"))
}

func prompt(id string) *session.UserMessage {
	return &session.UserMessage{ID: id, Role: "user", Content: id, Source: session.MessageSource{Kind: session.FromUser}, By: ada}
}

func beginLedger(t *testing.T, h session.Header, first ...session.Payload) *ledger {
	t.Helper()
	drafts := make([]session.Draft, len(first))
	for i, p := range first {
		drafts[i].Payload = p
	}
	birth, err := session.ComposeBirth(h, session.Link{}, drafts...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.Begin(birth, session.Prefix{})
	if err != nil {
		t.Fatal(err)
	}
	stored, err := policy.DefaultSettings().Encode()
	if err != nil {
		t.Fatal(err)
	}
	dep, err := policy.NewDeployment(stored, 1)
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{t: t}
	l.f = agent.Facts{
		State: s, Events: birth.First.Events, Deployment: dep,
		Self: agent.Self{Worker: "w1", Incarnation: "i1", Now: 1000},
	}
	return l
}

// add writes events of a class.
func (l *ledger) add(class session.Class, events ...session.Payload) *ledger {
	l.t.Helper()
	for _, p := range events {
		sec, err := session.Compose(l.f.State.Header.ID, class, l.f.State.Next, l.f.State.Link, session.Draft{Time: 1000, Payload: p})
		if err != nil {
			l.t.Fatalf("compose %s: %v", p.Type(), err)
		}
		if l.f.State, err = session.Fold(l.f.State, sec.Events[0]); err != nil {
			l.t.Fatalf("fold %s: %v", p.Type(), err)
		}
		l.f.Events = append(l.f.Events, sec.Events...)
	}
	return l
}

func (l *ledger) turn(events ...session.Payload) *ledger {
	l.t.Helper()
	return l.add(session.ClassTurn, events...)
}

func (l *ledger) inbox(events ...session.Payload) *ledger {
	l.t.Helper()
	return l.add(session.ClassInbox, events...)
}

// claimed makes this loop the driver.
func (l *ledger) claimed(cause session.Cause) *ledger {
	l.t.Helper()
	l.turn(&session.Claim{Epoch: l.f.State.Epoch + 1, Worker: "w1", Incarnation: "i1", Cause: cause})
	l.f.Self.Epoch = l.f.State.Epoch
	return l
}

// opened opens turn 1 and its first step.
func (l *ledger) opened() *ledger {
	l.t.Helper()
	return l.claimed(session.CauseStart).turn(&session.TurnStart{Turn: 1},
		&session.Consumed{Turn: 1, Seqs: []session.Seq{l.f.State.Next - 2}},
		&session.StepStart{Turn: 1, Step: 1})
}

// answered gives step 1 an answer that calls tools.
func (l *ledger) answered(names ...string) *ledger {
	l.t.Helper()
	l.opened()
	a := &session.AssistantMessage{Turn: 1, Step: 1, Content: "text"}
	events := []session.Payload{a}
	for i, name := range names {
		a.Calls = append(a.Calls, i)
		events = append(events, &session.ToolCall{
			Turn: 1, Step: 1, Index: i, CallID: session.MakeCallID(1, 1, i), Name: name,
			Arguments: `{"kind":"spawn","label":"l","prompt":"p"}`,
		})
	}
	return l.turn(events...)
}

// allowed decides a call; a delegating call gets its child, as a genesis does.
func (l *ledger) allowed(call session.CallID) *ledger {
	l.t.Helper()
	c, _ := l.f.State.Call(call)
	d := &session.ToolDecision{
		CallID: call, Verdict: session.Allow, Mode: session.ReadOnly, By: session.StagePolicy,
		Basis: policy.EffectiveOf(l.f.State.Knobs, l.f.Deployment).Basis,
	}
	if c.Name == session.ToolDelegate {
		d.Child, d.ChildLink = session.ChildID(l.f.State.Header.ID, call), &session.Link{}
	}
	return l.turn(d)
}

func (l *ledger) result(call session.CallID) *ledger {
	l.t.Helper()
	turn, step, _, _ := call.Parts()
	return l.turn(&session.ToolResult{Turn: turn, Step: step, CallID: call, Content: "ok"})
}

func (l *ledger) notice(call session.CallID) *ledger {
	l.t.Helper()
	child := session.ChildID(l.f.State.Header.ID, call)
	return l.inbox(&session.UserMessage{
		ID: "n" + string(call), Role: "user", Content: "said", By: ada,
		Source: session.MessageSource{Kind: session.FromSettled, SenderSessionID: child, Turn: 1, Outcome: "completed"},
	})
}

// foreign makes another loop the driver, which is alive or not.
func (l *ledger) foreign(live bool) *ledger {
	l.f.Self.Epoch, l.f.Self.Live = 0, live
	return l
}

func (l *ledger) park(call session.CallID) *ledger {
	l.t.Helper()
	return l.turn(&session.TurnPark{Turn: 1, WaitsFor: []session.Wait{
		{Kind: session.WaitChild, ID: string(session.ChildID(l.f.State.Header.ID, call))},
	}})
}

func interrupt() session.Payload { return &session.Interrupt{ID: "i", Turn: 1, By: ada} }
func cancel() session.Payload    { return &session.Cancel{ID: "c", By: ada} }

// endTurn ends turn 1.
func endTurn(k session.EndKind) session.Payload {
	return &session.TurnEnd{Turn: 1, Reason: session.EndReason{Kind: k}}
}

// logRow is a kind of log that a driver can find: how it came to be, the record
// that is written first, by its types, and what is done then.
type logRow struct {
	name   string
	build  func(*ledger) *ledger
	record string
	then   agent.Kind
}

// finish is how a turn ends whose step is open.
const finish = "step/end turn/end"

func untouched(l *ledger) *ledger { return l }

func (r logRow) check(l *ledger) {
	l.t.Helper()
	record, next, err := agent.Plan(r.build(l).f)
	if err != nil {
		l.t.Fatal(err)
	}
	var got []string
	for _, p := range record {
		got = append(got, string(p.Type()))
	}
	if s := strings.Join(got, " "); s != r.record || next.Kind != r.then {
		l.t.Errorf("record %q, then action %d; want %q, then %d", s, next.Kind, r.record, r.then)
	}
}

// Every kind of log has a next action.
func TestNext(t *testing.T) {
	t.Parallel()
	const start = "turn/claim turn/start agent/inbox/consumed step/start user/message request/header"
	tests := []logRow{
		{"a prompt waits", untouched, start, agent.RequestModel},
		{"nothing waits", func(l *ledger) *ledger {
			return l.opened().turn(&session.StepEnd{Turn: 1, Step: 1}, endTurn(session.EndCompleted)).foreign(false)
		}, "", agent.Idle},
		{"another driver is alive", func(l *ledger) *ledger { return l.opened().foreign(true) }, "", agent.Busy},
		{"another driver is dead before its answer", func(l *ledger) *ledger {
			return l.opened().foreign(false)
		}, "turn/claim user/message request/header", agent.RequestModel},
		{"the claim is lost", func(l *ledger) *ledger {
			l.opened()
			l.f.Self.Epoch = 7
			return l
		}, "", agent.Lost},
		{"reads are decided together", func(l *ledger) *ledger { return l.answered("read", "grep", "write") }, "", agent.DecideCalls},
		{"the turn is done", func(l *ledger) *ledger { return l.answered() }, finish, agent.Idle},
		{"a message joins the next step", func(l *ledger) *ledger {
			return l.answered().inbox(prompt("p2"))
		}, "step/end agent/inbox/consumed step/start request/header", agent.RequestModel},
		{"a dead driver left an effect open", func(l *ledger) *ledger {
			return l.answered("bash", "write").allowed("1.1.0").foreign(false)
		}, "turn/claim tool/result", agent.DecideCalls},
		{"a dead driver left a read open", func(l *ledger) *ledger {
			return l.answered("read").allowed("1.1.0").foreign(false)
		}, "turn/claim", agent.RunCalls},
		{"a dead driver left a delegation open", func(l *ledger) *ledger {
			return l.answered("delegate").allowed("1.1.0").foreign(false)
		}, "turn/claim turn/park", agent.Idle},
		{"a child is waited for", func(l *ledger) *ledger { return l.answered("delegate").allowed("1.1.0") }, "turn/park", agent.Idle},
		{"what came meanwhile is consumed before the park", func(l *ledger) *ledger {
			return l.answered("delegate").allowed("1.1.0").inbox(prompt("p2"))
		}, "agent/inbox/consumed turn/park", agent.Idle},
		{"a parked turn waits", func(l *ledger) *ledger {
			return l.answered("delegate").allowed("1.1.0").park("1.1.0").foreign(false)
		}, "", agent.Idle},
		{"the child has answered", func(l *ledger) *ledger {
			return l.answered("delegate").allowed("1.1.0").park("1.1.0").notice("1.1.0").foreign(false)
		}, "turn/claim turn/wake agent/inbox/consumed tool/result step/end step/start request/header", agent.RequestModel},
		{"the child has answered before the park", func(l *ledger) *ledger {
			return l.answered("delegate").allowed("1.1.0").notice("1.1.0")
		}, "agent/inbox/consumed tool/result step/end step/start request/header", agent.RequestModel},
		{"one child of two has answered", func(l *ledger) *ledger {
			return l.answered("delegate", "delegate").allowed("1.1.0").allowed("1.1.1").notice("1.1.0")
		}, "agent/inbox/consumed tool/result turn/park", agent.Idle},
		{"the child was closed without a word", func(l *ledger) *ledger {
			l.answered("delegate").allowed("1.1.0").park("1.1.0")
			return l.inbox(&session.Closed{ID: "x", Child: session.ChildID(l.f.State.Header.ID, "1.1.0"), By: ada}).foreign(false)
		}, "turn/claim turn/wake tool/result step/end step/start request/header", agent.RequestModel},
		{"a message comes to a parked turn", func(l *ledger) *ledger {
			return l.answered("delegate").allowed("1.1.0").park("1.1.0").inbox(prompt("p2")).foreign(false)
		}, "turn/claim turn/wake agent/inbox/consumed turn/park", agent.Idle},
		{"an own parked turn is claimed anew", func(l *ledger) *ledger {
			return l.answered("delegate").allowed("1.1.0").park("1.1.0").inbox(prompt("p2"))
		}, "turn/claim turn/wake agent/inbox/consumed turn/park", agent.Idle},
		{"an interrupt before the answer", func(l *ledger) *ledger { return l.opened().inbox(interrupt()) }, finish, agent.Idle},
		{"an interrupt among calls", func(l *ledger) *ledger {
			return l.answered("bash", "write").allowed("1.1.0").inbox(interrupt())
		}, "tool/result tool/result " + finish, agent.Idle},
		{"an interrupt of a parked turn", func(l *ledger) *ledger {
			return l.answered("delegate").allowed("1.1.0").park("1.1.0").inbox(interrupt()).foreign(false)
		}, "turn/claim turn/wake tool/result " + finish, agent.Idle},
		{"an interrupt keeps the inbox", func(l *ledger) *ledger {
			return l.opened().inbox(prompt("p2"), interrupt())
		}, finish + " turn/start agent/inbox/consumed step/start user/message request/header", agent.RequestModel},
		{"a cancel of an idle session", func(l *ledger) *ledger { return l.inbox(cancel()) }, "turn/claim session/end", agent.Idle},
		{"a cancel in a turn", func(l *ledger) *ledger { return l.opened().inbox(cancel()) }, finish + " session/end", agent.Idle},
		{"a cancel while a child lives", func(l *ledger) *ledger {
			return l.answered("delegate").allowed("1.1.0").inbox(cancel())
		}, "tool/result " + finish, agent.Idle},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(newLedger(t))
		})
	}
}

// A one-shot child ends by itself, and its parent is told.
func TestNextOfAChild(t *testing.T) {
	t.Parallel()
	tests := []logRow{
		{"a one-shot child is done", func(l *ledger) *ledger { return l.answered() }, finish + " session/end", agent.Settle},
		{"a one-shot child has a message left", func(l *ledger) *ledger {
			return l.opened().turn(&session.StepEnd{Turn: 1, Step: 1}, endTurn(session.EndCompleted)).inbox(prompt("p2")).foreign(false)
		}, "turn/claim turn/start agent/inbox/consumed step/start user/message request/header", agent.RequestModel},
		{"a one-shot child's turn ended and nothing more", func(l *ledger) *ledger {
			return l.opened().turn(&session.StepEnd{Turn: 1, Step: 1}, endTurn(session.EndCompleted)).foreign(false)
		}, "turn/claim session/end", agent.Settle},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(newChild(t))
		})
	}
}

// A batch of calls is what may be launched at once.
func TestNextBatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		calls []string
		want  []session.CallID
	}{
		{"reads together", []string{"read", "grep", "write", "read"}, []session.CallID{"1.1.0", "1.1.1"}},
		{"effects alone", []string{"write", "write"}, []session.CallID{"1.1.0"}},
		{"delegations together", []string{"delegate", "delegate", "bash"}, []session.CallID{"1.1.0", "1.1.1"}},
		{"an unknown tool alone", []string{"sing", "read"}, []session.CallID{"1.1.0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := agent.Next(newLedger(t).answered(tt.calls...).f); got.Kind != agent.DecideCalls || !slices.Equal(got.Calls, tt.want) {
				t.Errorf("action %d of %v, want to decide %v", got.Kind, got.Calls, tt.want)
			}
		})
	}
}

// How a one-shot child ends follows from how its turn ended.
func TestOutcomeOfAChild(t *testing.T) {
	t.Parallel()
	tests := map[session.EndKind]session.EndOutcome{
		session.EndCompleted: session.OutcomeCompleted,
		session.EndAborted:   session.OutcomeInterrupted,
		session.EndBlocked:   session.OutcomeDenials,
		session.EndError:     session.OutcomeFailed,
		session.EndRefusal:   session.OutcomeRefused,
		session.EndMaxTokens: session.OutcomeOutOfRoom,
	}
	for kind, want := range tests {
		l := newChild(t).opened().turn(&session.StepEnd{Turn: 1, Step: 1}, endTurn(kind))
		record, _, err := agent.Plan(l.f)
		if err != nil {
			t.Fatal(err)
		}
		if end, ok := record[len(record)-1].(*session.End); !ok || end.Outcome != want {
			t.Errorf("after a turn that ended %q: %+v, want %q", kind, record[len(record)-1], want)
		}
	}
}

// A decision is committed on exactly the log it was made on: whatever slipped in
// makes it a conflict, and the calls are decided anew (SPEC 5.1, A4).
func TestDecisionOnAMovedLogIsAConflict(t *testing.T) {
	t.Parallel()
	l := newLedger(t).answered("write")
	decided := l.f
	change := agent.Exactly(decided, nil)
	if !change.Once {
		t.Error("the change is tried again by itself: it must be decided again")
	}
	if err := change.Check(session.View{State: decided.State}); err != nil {
		t.Errorf("on the log it was made on: %v", err)
	}
	// To and fro: the values are the same, the log is not.
	l.add(session.ClassPolicy, &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: ada},
		&session.SandboxSwitch{Mode: session.ReadOnly, By: ada})
	if err := change.Check(session.View{State: l.f.State}); !errors.Is(err, session.ErrConflict) {
		t.Errorf("after a switch to and fro: %v, want a conflict", err)
	}
}
