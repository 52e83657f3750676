package policytest

import (
	"fmt"
	"strings"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Log is a session's log in memory.
type Log struct {
	// State is what the events fold to, record by record.
	State session.State
	// Events is every event from seq 0 on, prefix included.
	Events []session.Event
	// Birth is what the session began with, behind the prefix.
	Birth session.Birth
	// Source is the parent of a child and what a person's fork comes from; nil
	// for a root.
	Source *Log

	tree  *Tree
	forks int
}

// NewLog starts the root of a tree of its own, with somebody to ask.
func NewLog(t T, flags ...session.Payload) *Log {
	t.Helper()
	return NewTree(t, 0, 0).Root(session.SurfaceAny, flags...)
}

// Add appends one record.
func (l *Log) Add(c session.Class, ps ...session.Payload) {
	l.tree.t.Helper()
	if len(ps) == 0 {
		return
	}
	r := session.Record{
		Address: session.Address{Session: l.State.Header.ID, Class: c},
		Format:  l.State.Format, Epoch: l.State.Epoch, Creator: l.creator(), Own: l.fold(c, ps...),
	}
	if claim, ok := ps[0].(*session.Claim); ok {
		r.Epoch = claim.Epoch
	}
	l.tree.write(r)
}

// fold composes the next section and folds it.
func (l *Log) fold(c session.Class, ps ...session.Payload) *session.Section {
	l.tree.t.Helper()
	sec, err := session.Compose(l.State.Header.ID, c, l.State.Next, l.State.Link, drafts(ps)...)
	if err != nil {
		l.tree.t.Fatalf("compose: %v", err)
	}
	if l.State, err = session.FoldSection(l.State, sec); err != nil {
		l.tree.t.Fatalf("fold: %v", err)
	}
	l.Events = append(l.Events, sec.Events...)
	return &sec
}

// creator is the hint of a child's own records: where its genesis stands.
func (l *Log) creator() session.ID {
	if l.State.Header.IsChild() {
		return l.State.Header.ParentSession
	}
	return ""
}

// Sandbox switches as a person does.
func (l *Log) Sandbox(m session.SandboxMode) *Log {
	l.tree.t.Helper()
	l.Add(session.ClassPolicy, &session.SandboxSwitch{Mode: m, By: &Alice})
	return l
}

// Open starts a turn with one step of one call.
func (l *Log) Open(tool string) session.CallID {
	l.tree.t.Helper()
	turn := l.State.Turn + 1
	id := session.MakeCallID(turn, 1, 0)
	l.Add(session.ClassTurn,
		&session.Claim{Epoch: l.State.Epoch + 1, Worker: "w", Incarnation: "i", Cause: session.CauseStart},
		&session.TurnStart{Turn: turn}, &session.StepStart{Turn: turn, Step: 1},
		&session.AssistantMessage{Turn: turn, Step: 1, Calls: []int{0}},
		&session.ToolCall{Turn: turn, Step: 1, CallID: id, Name: tool, Arguments: "{}"})
	return id
}

// Finish ends the open turn. A call without an allowing decision never started.
func (l *Log) Finish() {
	l.tree.t.Helper()
	turn := l.State.Turn
	var last []session.Payload
	for _, c := range l.State.Open.Calls {
		r := &session.ToolResult{Turn: turn, Step: 1, CallID: c.ID, Child: c.Child}
		if c.State != session.CallAllowed {
			r.IsError, r.Code = true, session.CodeToolNotStarted
		}
		last = append(last, r)
	}
	l.Add(session.ClassTurn, append(last, &session.StepEnd{Turn: turn, Step: 1},
		&session.TurnEnd{Turn: turn, Reason: session.EndReason{Kind: session.EndCompleted}})...)
}

// Release stops the session by a record of class policy that nobody can read, and
// releases it as a person does (SPEC 1.7).
func (l *Log) Release() {
	l.tree.t.Helper()
	s := l.State
	bad := l.tree.put(session.Raw{
		Address: session.Address{Session: s.Header.ID, Class: session.ClassPolicy}, Body: []byte("not a record"),
	})
	l.Add(session.ClassPolicy, &session.Release{Skip: []uint64{bad}, Seq: s.Next, Link: s.Link, Reason: "unreadable", By: &Alice})
}

// Child is what a test says of a delegation.
type Child struct {
	Kind session.Kind // Spawn unless set
	Mode session.Mode // OneShot unless set
	Wish policy.Wish
}

// Delegate opens a delegating call, decides it, captures, commits the decision
// with the child's genesis and ends the turn. A delegation that is not allowed is
// returned as the decision; the child is nil then and nothing of it was written.
func (l *Log) Delegate(d policy.Deployment, c Child) (*Log, policy.Decision) {
	l.tree.t.Helper()
	id := l.Open(session.ToolDelegate)
	defer l.Finish()
	return l.beget(d, id, c)
}

// MustDelegate is Delegate for a delegation that has to be allowed.
func (l *Log) MustDelegate(d policy.Deployment, c Child) *Log {
	l.tree.t.Helper()
	born, dec := l.Delegate(d, c)
	if born == nil {
		l.tree.t.Fatalf("delegation refused: %+v", dec)
	}
	return born
}

func (l *Log) beget(d policy.Deployment, id session.CallID, c Child) (*Log, policy.Decision) {
	t := l.tree.t
	t.Helper()
	dec, err := policy.Decide(l.State, d, policy.Call{ID: id, Tool: session.ToolDelegate, Effect: true, Wish: &c.Wish}, Tools())
	if err != nil {
		t.Fatalf("decide: %v", err)
	}
	permit, ok := dec.(policy.Permit)
	if !ok {
		return nil, dec
	}
	got, err := policy.Capture(l.State, d, c.Wish, Tools())
	if err != nil {
		t.Fatalf("capture what was permitted: %v", err)
	}
	born, birth := l.compose(id, c, got)
	rec := permit.Record()
	rec.Child, rec.ChildLink = born.State.Header.ID, &birth.First.After
	l.tree.write(session.Record{
		Address: session.Address{Session: rec.Child, Class: session.ClassGenesis, Creator: l.State.Header.ID},
		Format:  l.State.Format, Epoch: l.State.Epoch, Creator: l.creator(),
		Own: l.fold(session.ClassTurn, &rec), Birth: &birth,
	})
	return born, dec
}

// compose makes the child's first batch in the order of SPEC 4.3.
func (l *Log) compose(id session.CallID, c Child, got policy.Captured) (*Log, session.Birth) {
	l.tree.t.Helper()
	if c.Kind == "" {
		c.Kind = session.Spawn
	}
	if c.Mode == "" {
		c.Mode = session.OneShot
	}
	var p session.Prefix
	if c.Kind == session.Fork {
		p = l.State.Cut
	}
	parent := l.State.Header
	h := header(session.ChildID(parent.ID, id))
	h.Origin, h.ParentSession = session.OriginSubagent, parent.ID
	h.DelegationDepth, h.Surface = parent.DelegationDepth+1, parent.Surface
	first := append(got.Events(),
		&session.Descriptor{Version: session.DescriptorVersion, Mode: c.Mode, Provider: c.Kind, Label: "c", ToolFilter: got.Filter},
		model(),
		&session.UserMessage{ID: "p", Role: "user", Content: "go", Source: session.MessageSource{
			Kind: session.FromAgent, SenderSessionID: parent.ID,
		}, By: &session.Party{Kind: session.SessionParty, ID: string(parent.ID)}})
	return l.tree.begin(h, l, p, first...)
}

// Fork forks the session as a person does (SPEC 1.8).
func (l *Log) Fork() *Log {
	tr, from := l.tree, l.State.Header
	tr.t.Helper()
	l.forks++
	id, err := session.ForkID(from.Root, tr.ulid(fmt.Sprint(from.ID, l.forks)))
	if err != nil {
		tr.t.Fatalf("fork id: %v", err)
	}
	h := header(id)
	h.ParentSession, h.DelegationDepth, h.Surface = from.ID, from.DelegationDepth, from.Surface
	var first []session.Payload
	if l.State.Filter() != nil {
		first = append(first, l.State.Descriptor)
	}
	f, b := tr.begin(h, l, l.State.InheritAll(), append(first, model())...)
	tr.bear(f, b)
	return f
}

// Own lists a log's own policy events in order, as text: "3 sandbox/mode read-only
// delegation".
func (l *Log) Own() []string {
	var out []string
	said := func(e session.Event, value string, s session.Source) {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", e.Seq, e.Type, value, s)))
	}
	for _, e := range l.Events[l.State.Header.FirstLiveSeq:] {
		switch p := e.Payload.(type) {
		case *session.SandboxSwitch:
			said(e, string(p.Mode), p.Source)
		case *session.ApprovalSwitch:
			said(e, string(p.Policy), p.Source)
		case *session.PresetSwitch:
			said(e, string(p.Preset), "")
		}
	}
	return out
}
