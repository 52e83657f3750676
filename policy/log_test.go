package policy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// tools are the names that a filter may speak of in these tests. Read alone has
// no effect.
var tools = []string{"bash", "delegate", "edit", "read", "write"}

var alice = session.Party{Kind: session.Person, ID: "alice"}

// failer is what a fixture needs of a test; *testing.T, *testing.B and *rapid.T
// have it.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// log is a session's log in memory: every event from seq 0 on, prefix included,
// and what they fold to. Events are made by the codec and accepted by the fold,
// as they are everywhere else.
type log struct {
	t      failer
	events []session.Event
	state  session.State
	forks  int
}

const ulid = "01J00000000000000000000000"

func header(t failer, id session.ID) session.Header {
	t.Helper()
	sum := sha256.Sum256([]byte(id))
	return session.Header{
		Type: "session", ID: id, Tenant: "default", Root: id.Root(), Origin: session.OriginUser, Cwd: "/work",
		Workspace: session.Workspace{Kind: session.WorkspaceHost, Label: "w", Path: "/work", ID: "w1"},
		CreatedBy: alice, Request: hex.EncodeToString(sum[:]), Surface: session.SurfaceAny,
		FormatVersion: session.FormatVersion,
	}
}

// newRoot starts a root whose creation flags are the given policy events.
func newRoot(t failer, flags ...session.Payload) *log {
	t.Helper()
	return newSurface(t, session.SurfaceAny, flags...)
}

func newSurface(t failer, s session.Surface, flags ...session.Payload) *log {
	t.Helper()
	id, err := session.RootID(ulid, 1)
	if err != nil {
		t.Fatalf("root id: %v", err)
	}
	h := header(t, id)
	h.Surface = s
	return begin(t, h, session.Prefix{}, nil, append(flags, model())...)
}

func model() session.Payload { return &session.ModelSelected{Provider: "scripted", Model: "m"} }

func begin(t failer, h session.Header, p session.Prefix, prefix []session.Event, first ...session.Payload) *log {
	t.Helper()
	h.InheritedEventCount, h.FirstLiveSeq = p.Count, p.Count
	if p.Count > 0 {
		first = append([]session.Payload{&session.EndSeed{Inherited: true}}, first...)
	}
	b, err := session.ComposeBirth(h, p.Link, drafts(first)...)
	if err != nil {
		t.Fatalf("compose birth of %s: %v", h.ID, err)
	}
	s, err := session.Begin(b, p)
	if err != nil {
		t.Fatalf("begin %s: %v", h.ID, err)
	}
	return &log{t: t, state: s, events: append(prefix[:p.Count:p.Count], b.First.Events...)}
}

func drafts(ps []session.Payload) []session.Draft {
	out := make([]session.Draft, 0, len(ps))
	for _, p := range ps {
		out = append(out, session.Draft{Time: 1, Payload: p})
	}
	return out
}

// add appends one record.
func (l *log) add(c session.Class, ps ...session.Payload) {
	l.t.Helper()
	if len(ps) == 0 {
		return
	}
	sec, err := session.Compose(l.state.Header.ID, c, l.state.Next, l.state.Link, drafts(ps)...)
	if err != nil {
		l.t.Fatalf("compose: %v", err)
	}
	if l.state, err = session.FoldSection(l.state, sec); err != nil {
		l.t.Fatalf("fold: %v", err)
	}
	l.events = append(l.events, sec.Events...)
}

// sandbox switches as a person does.
func (l *log) sandbox(m session.SandboxMode) *log {
	l.t.Helper()
	l.add(session.ClassPolicy, sandbox(m))
	return l
}

func sandbox(m session.SandboxMode) session.Payload {
	return &session.SandboxSwitch{Mode: m, By: &alice}
}

func approval(p session.ApprovalPolicy) session.Payload {
	return &session.ApprovalSwitch{Policy: p, By: &alice}
}

func preset(p session.Preset) session.Payload {
	return &session.PresetSwitch{Preset: p, By: &alice}
}

// open starts a turn with one step of one call.
func (l *log) open(tool string) session.CallID {
	l.t.Helper()
	turn := l.state.Turn + 1
	id := session.MakeCallID(turn, 1, 0)
	l.add(session.ClassTurn,
		&session.Claim{Epoch: l.state.Epoch + 1, Worker: "w", Incarnation: "i", Cause: session.CauseStart},
		&session.TurnStart{Turn: turn}, &session.StepStart{Turn: turn, Step: 1},
		&session.AssistantMessage{Turn: turn, Step: 1, Calls: []int{0}},
		&session.ToolCall{Turn: turn, Step: 1, CallID: id, Name: tool, Arguments: "{}"})
	return id
}

// finish ends the open turn. A call without an allowing decision never started.
func (l *log) finish() {
	l.t.Helper()
	turn := l.state.Turn
	for _, c := range l.state.Open.Calls {
		r := &session.ToolResult{Turn: turn, Step: 1, CallID: c.ID, Child: c.Child}
		if c.State != session.CallAllowed {
			r.IsError, r.Code = true, session.CodeToolNotStarted
		}
		l.add(session.ClassTurn, r)
	}
	l.add(session.ClassTurn, &session.StepEnd{Turn: turn, Step: 1},
		&session.TurnEnd{Turn: turn, Reason: session.EndReason{Kind: session.EndCompleted}})
}

// child is what a test says of a delegation.
type child struct {
	kind session.Kind // Spawn unless set
	mode session.Mode // OneShot unless set
	wish policy.Wish
}

// delegate opens a delegating call, decides it, captures, commits the decision
// with the child's genesis and ends the turn. A delegation that is not allowed is
// returned as the decision; the child is nil then and nothing was written.
func (l *log) delegate(d policy.Deployment, c child) (*log, policy.Decision) {
	l.t.Helper()
	id := l.open(session.ToolDelegate)
	defer l.finish()
	return l.beget(d, id, c)
}

func (l *log) beget(d policy.Deployment, id session.CallID, c child) (*log, policy.Decision) {
	l.t.Helper()
	dec, err := policy.Decide(l.state, d, policy.Call{ID: id, Tool: session.ToolDelegate, Effect: true, Wish: &c.wish}, tools)
	if err != nil {
		l.t.Fatalf("decide: %v", err)
	}
	permit, ok := dec.(policy.Permit)
	if !ok {
		return nil, dec
	}
	got, err := policy.Capture(l.state, d, c.wish, tools)
	if err != nil {
		l.t.Fatalf("capture what was permitted: %v", err)
	}
	born := l.compose(id, c, got)
	rec := permit.Record()
	link := born.state.Link
	rec.Child, rec.ChildLink = born.state.Header.ID, &link
	l.add(session.ClassTurn, &rec)
	return born, dec
}

// compose makes the child's first batch in the order of SPEC 4.3.
func (l *log) compose(id session.CallID, c child, got policy.Captured) *log {
	l.t.Helper()
	if c.kind == "" {
		c.kind = session.Spawn
	}
	if c.mode == "" {
		c.mode = session.OneShot
	}
	var p session.Prefix
	if c.kind == session.Fork {
		p = l.state.Cut
	}
	h := header(l.t, session.ChildID(l.state.Header.ID, id))
	h.Origin, h.ParentSession = session.OriginSubagent, l.state.Header.ID
	h.DelegationDepth, h.Surface = l.state.Header.DelegationDepth+1, l.state.Header.Surface
	first := append(got.Events(),
		&session.Descriptor{Version: session.DescriptorVersion, Mode: c.mode, Provider: c.kind, Label: "c", ToolFilter: got.Filter},
		model(),
		&session.UserMessage{ID: "p", Role: "user", Content: "go", Source: session.MessageSource{
			Kind: session.FromAgent, SenderSessionID: l.state.Header.ID,
		}, By: &session.Party{Kind: session.SessionParty, ID: string(l.state.Header.ID)}})
	return begin(l.t, h, p, l.events, first...)
}

// mustDelegate is delegate for a delegation that has to be allowed.
func (l *log) mustDelegate(d policy.Deployment, c child) *log {
	l.t.Helper()
	born, dec := l.delegate(d, c)
	if born == nil {
		l.t.Fatalf("delegation refused: %+v", dec)
	}
	return born
}

// personFork forks the session as a person does (SPEC 1.8).
func (l *log) personFork() *log {
	l.t.Helper()
	l.forks++
	// A ULID of the source and the count: forks of different sources differ.
	sum := sha256.Sum256(fmt.Append([]byte(l.state.Header.ID), l.forks))
	id, err := session.ForkID(l.state.Header.Root, ulid[:10]+strings.ToUpper(hex.EncodeToString(sum[:8])))
	if err != nil {
		l.t.Fatalf("fork id: %v", err)
	}
	h := header(l.t, id)
	h.ParentSession, h.DelegationDepth, h.Surface = l.state.Header.ID, l.state.Header.DelegationDepth, l.state.Header.Surface
	var first []session.Payload
	if l.state.Filter() != nil {
		first = append(first, l.state.Descriptor)
	}
	return begin(l.t, h, l.state.InheritAll(), l.events, append(first, model())...)
}

// deploy makes a deployment of the default settings as changed.
func deploy(t failer, change ...func(*policy.Settings)) policy.Deployment {
	t.Helper()
	s := policy.DefaultSettings()
	for _, c := range change {
		c(&s)
	}
	b, err := s.Encode()
	if err != nil {
		t.Fatalf("encode settings: %v", err)
	}
	d, err := policy.NewDeployment(b, 1)
	if err != nil {
		t.Fatalf("read settings: %v", err)
	}
	return d
}

func defaults(m session.SandboxMode, p session.ApprovalPolicy) func(*policy.Settings) {
	return func(s *policy.Settings) { s.Defaults = session.Defaults{Sandbox: m, Approval: p} }
}

// reviewed is a deployment in which auto can be selected.
func reviewed(s *policy.Settings) { s.Reviewer = policy.DelegateOnly }

func compose(sandbox, approvals, presets bool) func(*policy.Settings) {
	return func(s *policy.Settings) {
		s.Composition = policy.Composition{Sandbox: sandbox, Approvals: approvals, Presets: presets}
	}
}

// own lists a log's own policy events in order, as text.
func (l *log) own() []string {
	var out []string
	for _, e := range l.events[l.state.Header.FirstLiveSeq:] {
		switch p := e.Payload.(type) {
		case *session.SandboxSwitch:
			out = append(out, said(e, string(p.Mode), p.Source))
		case *session.ApprovalSwitch:
			out = append(out, said(e, string(p.Policy), p.Source))
		case *session.PresetSwitch:
			out = append(out, said(e, string(p.Preset), ""))
		}
	}
	return out
}

// said is one policy event as these tests write it: "3 sandbox/mode read-only
// delegation".
func said(e session.Event, value string, s session.Source) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s %s", e.Seq, e.Type, value, s))
}
