package verify_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

// deployment builds raw records as coordinators and workers would write them, and
// as nobody should.
type deployment struct {
	t    *testing.T
	seq  uint64
	raws []session.Raw
	logs map[session.ID]*log
	// defaults are named by delegating decisions.
	defaults session.Defaults
	needs    *session.Needs // of roots
}

var (
	_ verify.Source = (*deployment)(nil)
	_ verify.Mirror = rows(nil)
)

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	return &deployment{t: t, logs: map[session.ID]*log{}, defaults: session.Defaults{Sandbox: session.WorkspaceWrite, Approval: session.Ask}}
}

// Sessions implements verify.Source.
func (d *deployment) Sessions(context.Context) ([]session.ID, error) {
	return slices.Collect(maps.Keys(d.logs)), nil
}

// Records implements verify.Source.
func (d *deployment) Records(_ context.Context, id session.ID, fn func(session.Raw) error) error {
	for _, raw := range d.raws {
		own := raw.Address.Class == session.ClassGenesis && raw.Address.Session == id
		if raw.Address.Space() != id && !own {
			continue
		}
		if err := fn(raw); err != nil {
			return err
		}
	}
	return nil
}

// log is one session's end as its writers see it.
type log struct {
	d      *deployment
	header session.Header
	next   session.Seq
	link   session.Link
	epoch  uint64
	turnNo int
	basis  session.Basis
	links  []session.Link
	knobs  []session.Basis // before each event
	filter *session.ToolFilter
}

const ulid = "01arz3ndektsv4rrffq69g5fav"

func (d *deployment) check(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func header(id, parent session.ID, origin session.Origin) session.Header {
	return session.Header{
		ID: id, Tenant: "default", Root: id.Root(), ParentSession: parent, Origin: origin, Cwd: "/work/repo",
		Workspace: session.Workspace{Kind: session.WorkspaceHost, Label: "host", Path: "/work/repo", ID: "w1"},
		CreatedAt: 1, CreatedBy: session.Party{Kind: session.Person, ID: "ada"}, Request: strings.Repeat("0a", 32),
		Surface: session.SurfaceNone, FormatVersion: 1,
	}
}

func ada() *session.Party { return &session.Party{Kind: session.Person, ID: "ada"} }

func prompt() *session.UserMessage {
	return &session.UserMessage{ID: "m1", Role: "user", Content: "go on", Source: session.MessageSource{Kind: session.FromUser}, By: ada()}
}

func model() *session.ModelSelected {
	return &session.ModelSelected{Provider: "scripted", Model: "s"}
}

func drafts(events []session.Payload) []session.Draft {
	out := make([]session.Draft, 0, len(events))
	for _, p := range events {
		out = append(out, session.Draft{Time: 5, Payload: p})
	}
	return out
}

// root starts a root with the policy events of its creation flags.
func (d *deployment) root(policy ...session.Payload) *log {
	d.t.Helper()
	id, err := session.RootID(ulid, 1)
	d.check(err)
	h := header(id, "", session.OriginUser)
	if h.Needs = d.needs; h.Needs != nil {
		h.FormatVersion = session.FormatNeeds
	}
	return d.born(h, session.Link{}, nil, append(policy, model(), prompt())...)
}

// born writes the genesis of a root or of a person's fork.
func (d *deployment) born(h session.Header, prev session.Link, source *log, events ...session.Payload) *log {
	d.t.Helper()
	b, err := session.ComposeBirth(h, prev, drafts(events)...)
	d.check(err)
	d.put(session.Record{Address: session.Address{Session: h.ID, Class: session.ClassGenesis, Creator: h.ID}, Format: h.FormatVersion, Birth: &b})
	return d.log(b, source)
}

// log follows a birth that was written.
func (d *deployment) log(b session.Birth, source *log) *log {
	l := &log{d: d, header: b.Header, next: b.Header.FirstLiveSeq}
	l.basis = session.Basis{
		Sandbox: session.Ground{Value: string(d.defaults.Sandbox)}, Approval: session.Ground{Value: string(d.defaults.Approval)},
	}
	if n := b.Header.InheritedEventCount; n > 0 && source != nil {
		l.basis, l.links, l.turnNo = source.knobs[n], slices.Clone(source.links[:n]), source.turnNo
		l.knobs = slices.Clone(source.knobs[:n])
	}
	l.knobs = append(l.knobs, l.basis)
	l.take(b.First)
	d.logs[b.Header.ID] = l
	return l
}

// put appends a record to the stream.
func (d *deployment) put(r session.Record) *session.Raw {
	d.t.Helper()
	r.Writer = session.Writer{Component: "worker", Instance: "w1", Incarnation: "i1"}
	h, body, err := session.EncodeRecord(r)
	d.check(err)
	d.seq++
	d.raws = append(d.raws, session.Raw{StreamSeq: d.seq, Address: r.Address, Headers: h, Body: body})
	return &d.raws[len(d.raws)-1]
}

// take moves the log's end over a section.
func (l *log) take(s session.Section) {
	for _, e := range s.Events {
		at := e.Seq
		switch p := e.Payload.(type) {
		case *session.SandboxSwitch:
			l.basis.Sandbox = session.Ground{Value: string(p.Mode), Seq: &at}
		case *session.ApprovalSwitch:
			l.basis.Approval = session.Ground{Value: string(p.Policy), Seq: &at}
		case *session.PresetSwitch:
			l.basis.Preset = session.Ground{Value: string(p.Preset), Seq: &at}
		case *session.Claim:
			l.epoch = p.Epoch
		case *session.Descriptor:
			l.filter = p.ToolFilter
		}
		l.links = append(l.links, e.Link)
		l.knobs = append(l.knobs, l.basis)
	}
	l.next, l.link = s.Next(), s.After
}

// orphan writes a record that the log does not go on from.
func (l *log) orphan(class session.Class, events ...session.Payload) *session.Raw {
	l.d.t.Helper()
	defer func(saved log) { *l = saved }(*l)
	return l.write(class, events...)
}

// write appends a record of the class and goes on from it.
func (l *log) write(class session.Class, events ...session.Payload) *session.Raw {
	l.d.t.Helper()
	s, err := session.Compose(l.header.ID, class, l.next, l.link, drafts(events)...)
	l.d.check(err)
	l.take(s)
	return l.d.put(session.Record{
		Address: session.Address{Session: l.header.ID, Class: class}, Format: l.header.FormatVersion, Epoch: l.epoch, Creator: l.header.ID, Own: &s,
	})
}

func (l *log) turn(events ...session.Payload) *session.Raw {
	l.d.t.Helper()
	return l.write(session.ClassTurn, events...)
}

// smuggle writes a policy event into a record of class turn, with the right seq,
// epoch and link: the attack of SPEC 3.1. The log does not go on from it.
func (l *log) smuggle(p session.Payload) *session.Raw {
	l.d.t.Helper()
	line, err := session.Encode(l.next, 5, p)
	l.d.check(err)
	raw := l.orphan(session.ClassTurn, &session.StepEnd{Turn: 1, Step: 1})
	raw.Body = fmt.Appendf(nil, "%s\n", line)
	raw.Headers[session.HeaderLinkName] = l.link.String() + " " + session.EventLink(l.link, l.header.ID, session.ClassTurn, line).String()
	return raw
}

// want is a tool call of the next step.
type want struct{ tool, args string }

// open claims the session and starts a turn whose first step makes the calls.
func (l *log) open(calls ...want) {
	l.d.t.Helper()
	l.turnNo++
	l.turn(
		&session.Claim{Epoch: l.epoch + 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart},
		&session.TurnStart{Turn: l.turnNo}, &session.StepStart{Turn: l.turnNo, Step: 1},
	)
	msg := &session.AssistantMessage{Turn: l.turnNo, Step: 1, Content: "x"}
	events := []session.Payload{msg}
	for i, c := range calls {
		msg.Calls = append(msg.Calls, i)
		events = append(events, &session.ToolCall{
			Turn: l.turnNo, Step: 1, Index: i, CallID: l.call(i), Name: c.tool, Arguments: c.args,
		})
	}
	l.turn(events...)
}

func (l *log) call(i int) session.CallID { return session.MakeCallID(l.turnNo, 1, i) }

// close ends the step and the turn.
func (l *log) close() {
	l.d.t.Helper()
	l.turn(&session.StepEnd{Turn: l.turnNo, Step: 1},
		&session.TurnEnd{Turn: l.turnNo, Reason: session.EndReason{Kind: session.EndCompleted}})
}

func (l *log) decision(i int, v session.Verdict) *session.ToolDecision {
	return &session.ToolDecision{
		CallID: l.call(i), Verdict: v, Mode: session.SandboxMode(l.basis.Sandbox.Value), Basis: l.basis, By: session.StagePolicy, Revision: 1,
	}
}

func (l *log) result(i int) *session.ToolResult {
	return &session.ToolResult{Turn: l.turnNo, Step: 1, CallID: l.call(i), Content: "ok"}
}

// run decides a call and gives its result.
func (l *log) run(i int) {
	l.d.t.Helper()
	l.turn(l.decision(i, session.Allow))
	l.turn(l.result(i))
}

// birth is how a child is made. The zero value is a spawn.
type birth struct {
	policy []session.Payload
	filter *session.ToolFilter
	cut    session.Seq
	id     session.ID
	change func(*session.ToolDecision)
	events func([]session.Payload) []session.Payload
	header func(*session.Header)
	prev   func(*session.Link)
}

// delegate writes the one record with the parent's decision and the child's
// first batch.
func (l *log) delegate(i int, b birth) *log {
	l.d.t.Helper()
	d := l.decision(i, session.Allow)
	d.Child = session.ChildID(l.header.ID, d.CallID)
	if b.id != "" {
		d.Child = b.id
	}
	d.Defaults = &l.d.defaults
	h := header(d.Child, l.header.ID, session.OriginSubagent)
	h.DelegationDepth, h.FormatVersion, h.Needs = l.header.DelegationDepth+1, l.header.FormatVersion, l.header.Needs
	h.InheritedEventCount, h.FirstLiveSeq = b.cut, b.cut
	kind, prev, source := session.Spawn, session.Link{}, (*log)(nil)
	var events []session.Payload
	if b.cut > 0 {
		kind, prev, source = session.Fork, l.links[b.cut-1], l
		events = append(events, &session.EndSeed{Inherited: true})
	}
	events = append(events, b.policy...)
	events = append(events, &session.Descriptor{Version: session.DescriptorVersion, Mode: session.OneShot, Provider: kind, Label: "child", ToolFilter: b.filter},
		model(), prompt())
	if b.events != nil {
		events = b.events(events)
	}
	if b.header != nil {
		b.header(&h)
	}
	if b.prev != nil {
		b.prev(&prev)
	}
	child, err := session.ComposeBirth(h, prev, drafts(events)...)
	l.d.check(err)
	d.ChildLink = &child.First.After
	if b.change != nil {
		b.change(d)
	}
	own, err := session.Compose(l.header.ID, session.ClassTurn, l.next, l.link, drafts([]session.Payload{d})...)
	l.d.check(err)
	l.take(own)
	l.d.put(session.Record{
		Address: session.Address{Session: h.ID, Class: session.ClassGenesis, Creator: l.header.ID},
		Format:  l.header.FormatVersion, Epoch: l.epoch, Own: &own, Birth: &child,
	})
	return l.d.log(child, source)
}

func mode(m session.SandboxMode) session.Payload {
	return &session.SandboxSwitch{Mode: m, Source: session.SourceDelegation}
}

func pin() session.Payload {
	return &session.ApprovalSwitch{Policy: session.Never, Source: session.SourceDelegation}
}

func identity(p session.Preset) session.Payload { return &session.PresetSwitch{Preset: p} }

// Switches of a person.
func toMode(m session.SandboxMode) session.Payload {
	return &session.SandboxSwitch{Mode: m, By: ada()}
}

func toApproval(p session.ApprovalPolicy) session.Payload {
	return &session.ApprovalSwitch{Policy: p, By: ada()}
}

func toPreset(p session.Preset) session.Payload { return &session.PresetSwitch{Preset: p, By: ada()} }

// spawn and fork are the arguments of delegating calls.
func spawn(more string) want {
	return want{"delegate", `{"kind":"spawn","mode":"one-shot","label":"child","prompt":"p"` + more + `}`}
}

func fork(more string) want {
	return want{"delegate", `{"kind":"fork","mode":"one-shot","label":"child","prompt":"p"` + more + `}`}
}

// rows is a mirror.
type rows []verify.Row

// Rows implements verify.Mirror.
func (m rows) Rows(_ context.Context, fn func(verify.Row) error) error {
	for _, r := range m {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// mirror gives the rows that a faithful mirror would hold.
func (d *deployment) mirror() rows {
	var out rows
	for _, id := range slices.Sorted(maps.Keys(d.logs)) {
		l := d.logs[id]
		row := verify.Row{ID: id, Next: l.next, Link: l.link}
		if l.basis.Sandbox.Seq != nil {
			row.Sandbox = session.SandboxMode(l.basis.Sandbox.Value)
		}
		if l.basis.Approval.Seq != nil {
			row.Approval = session.ApprovalPolicy(l.basis.Approval.Value)
		}
		if l.basis.Preset.Seq != nil {
			row.Preset = session.Preset(l.basis.Preset.Value)
		}
		out = append(out, row)
	}
	return out
}
