package sessionstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
)

// tape writes the records of one partition as coordinators and workers would,
// and folds them on the way, from zero and without the store.
type tape struct {
	t      testing.TB
	raws   []session.Raw
	ids    []session.ID
	states map[session.ID]session.State
	lines  map[session.ID][]session.Event // own events
	births map[session.ID]int             // index of the genesis
	names  int
	still  bool // the clock stands
}

func newTape(t testing.TB) *tape {
	t.Helper()
	return &tape{
		t: t, states: make(map[session.ID]session.State), lines: make(map[session.ID][]session.Event),
		births: make(map[session.ID]int),
	}
}

func (tp *tape) must(err error) {
	tp.t.Helper()
	if err != nil {
		tp.t.Fatalf("tape: %v", err)
	}
}

func (tp *tape) name(kind string) string {
	tp.names++
	return fmt.Sprintf("%s%d", kind, tp.names)
}

func person() *session.Party { return &session.Party{Kind: session.Person, ID: "ada"} }

func coordinator() session.Writer {
	return session.Writer{Component: "coordinator", Instance: "c1", Incarnation: "i1"}
}

func ulidOf(n int) string { return fmt.Sprintf("01H%023d", n) }

// now is a time that no two records share, but for a clock that stands.
func (tp *tape) now() int64 {
	const start = 1_700_000_000_000
	if tp.still {
		return start
	}
	return start + int64(len(tp.raws))
}

func (tp *tape) header(id, parent session.ID, origin session.Origin, cut session.Seq, depth int) session.Header {
	return session.Header{
		ID: id, Tenant: "default", Root: id.Root(), ParentSession: parent, Origin: origin, Cwd: "/work",
		Workspace:       session.Workspace{Kind: session.WorkspaceHost, Label: "here", Path: "/work", ID: "w1"},
		DelegationDepth: depth, InheritedEventCount: cut, FirstLiveSeq: cut, CreatedAt: tp.now(),
		CreatedBy: *person(), Request: strings.Repeat("0", 64), Surface: session.SurfaceNone, FormatVersion: 1,
	}
}

func (tp *tape) message(kind session.MessageKind) *session.UserMessage {
	return &session.UserMessage{
		ID: tp.name("m"), Role: "user", Content: "do it", Source: session.MessageSource{Kind: kind}, By: person(),
	}
}

func (tp *tape) drafts(payloads []session.Payload) []session.Draft {
	var out []session.Draft
	for _, p := range payloads {
		out = append(out, session.Draft{Time: tp.now(), Payload: p})
	}
	return out
}

// put appends a record as it is.
func (tp *tape) put(at session.Address, headers map[string]string, body []byte) session.Raw {
	raw := session.Raw{StreamSeq: uint64(len(tp.raws) + 1), Address: at, Headers: headers, Body: body}
	tp.raws = append(tp.raws, raw)
	return raw
}

// record composes a record behind a session's last event, without folding it.
func (tp *tape) record(id session.ID, class session.Class, payloads ...session.Payload) session.Record {
	tp.t.Helper()
	st := tp.states[id]
	own, err := session.Compose(id, class, st.Next, st.Link, tp.drafts(payloads)...)
	tp.must(err)
	epoch := st.Epoch
	if c, ok := payloads[0].(*session.Claim); ok {
		epoch = c.Epoch
	}
	return session.Record{
		Address: session.Address{Session: id, Class: class}, Format: 1, Epoch: epoch,
		Writer: session.Writer{Component: "worker", Instance: "w1", Incarnation: "i1"}, Own: &own,
	}
}

// plant appends a record that nobody folds.
func (tp *tape) plant(r session.Record) session.Raw {
	tp.t.Helper()
	h, body, err := session.EncodeRecord(r)
	tp.must(err)
	return tp.put(r.Address, h, body)
}

// add appends a valid record.
func (tp *tape) add(id session.ID, class session.Class, payloads ...session.Payload) session.Raw {
	tp.t.Helper()
	r := tp.record(id, class, payloads...)
	tp.fold(id, *r.Own)
	return tp.plant(r)
}

func (tp *tape) fold(id session.ID, own session.Section) {
	tp.t.Helper()
	st, err := session.FoldSection(tp.states[id], own)
	tp.must(err)
	tp.states[id] = st
	tp.lines[id] = append(tp.lines[id], own.Events...)
}

func (tp *tape) begin(b session.Birth, p session.Prefix) {
	tp.t.Helper()
	st, err := session.Begin(b, p)
	tp.must(err)
	id := b.Header.ID
	tp.states[id] = st
	tp.lines[id] = b.First.Events
	tp.births[id] = len(tp.raws)
	tp.ids = append(tp.ids, id)
}

// root starts a session with a prompt and switches of its own.
func (tp *tape) root(switches ...session.Payload) session.ID {
	tp.t.Helper()
	id, err := session.RootID(ulidOf(len(tp.raws)+1), 1)
	tp.must(err)
	payloads := append(slices.Clone(switches), &session.ModelSelected{Provider: "scripted", Model: "m"}, tp.message(session.FromUser))
	b, err := session.ComposeBirth(tp.header(id, "", session.OriginUser, 0, 0), session.Link{}, tp.drafts(payloads)...)
	tp.must(err)
	tp.begin(b, session.Prefix{})
	tp.plant(session.Record{Address: session.Address{Session: id, Class: session.ClassGenesis, Creator: id}, Format: 1, Writer: coordinator(), Birth: &b})
	return id
}

// fork starts a person's fork of a session at a cut.
func (tp *tape) fork(source session.ID, p session.Prefix) session.ID {
	tp.t.Helper()
	id, err := session.ForkID(source.Root(), ulidOf(len(tp.raws)+1))
	tp.must(err)
	depth := tp.states[source].Header.DelegationDepth
	var payloads []session.Payload
	if p.Count > 0 {
		payloads = append(payloads, &session.EndSeed{Inherited: true})
	}
	payloads = append(payloads, &session.ModelSelected{Provider: "scripted", Model: "m"})
	b, err := session.ComposeBirth(tp.header(id, source, session.OriginUser, p.Count, depth), p.Link, tp.drafts(payloads)...)
	tp.must(err)
	tp.begin(b, p)
	tp.plant(session.Record{Address: session.Address{Session: id, Class: session.ClassGenesis, Creator: id}, Format: 1, Writer: coordinator(), Birth: &b})
	return id
}

// open claims a session and starts a turn and a step with what is pending.
func (tp *tape) open(id session.ID) {
	tp.t.Helper()
	st := tp.states[id]
	turn := st.Turn + 1
	payloads := []session.Payload{
		&session.Claim{Epoch: st.Epoch + 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart},
		&session.TurnStart{Turn: turn},
	}
	if seqs := pending(st); len(seqs) > 0 {
		payloads = append(payloads, &session.Consumed{Turn: turn, Seqs: seqs})
	}
	tp.add(id, session.ClassTurn, append(payloads, &session.StepStart{Turn: turn, Step: 1})...)
}

func pending(st session.State) []session.Seq {
	var seqs []session.Seq
	for _, m := range st.Pending {
		seqs = append(seqs, m.Seq)
	}
	return seqs
}

// finish ends the open step and turn.
func (tp *tape) finish(id session.ID) {
	tp.t.Helper()
	turn := tp.states[id].Turn
	tp.add(id, session.ClassTurn,
		&session.StepEnd{Turn: turn, Step: 1},
		&session.TurnEnd{Turn: turn, Reason: session.EndReason{Kind: session.EndCompleted}})
}

// turn runs a whole turn that calls nothing.
func (tp *tape) turn(id session.ID) {
	tp.t.Helper()
	tp.open(id)
	tp.add(id, session.ClassTurn, &session.AssistantMessage{Turn: tp.states[id].Turn, Step: 1, Content: "done"})
	tp.finish(id)
}

// call opens a turn whose only call delegates, and leaves it undecided.
func (tp *tape) call(id session.ID) session.CallID {
	tp.t.Helper()
	tp.open(id)
	turn := tp.states[id].Turn
	call := session.MakeCallID(turn, 1, 0)
	tp.add(id, session.ClassTurn,
		&session.AssistantMessage{Turn: turn, Step: 1, Calls: []int{0}},
		&session.ToolCall{Turn: turn, Step: 1, CallID: call, Name: session.ToolDelegate, Arguments: "{}"})
	return call
}

// genesis composes the record that allows a delegating call and starts its
// child. A fork inherits the parent's completed turns.
func (tp *tape) genesis(parent session.ID, call session.CallID, kind session.Kind) session.Record {
	tp.t.Helper()
	st := tp.states[parent]
	id := session.ChildID(parent, call)
	var p session.Prefix
	var payloads []session.Payload
	if kind == session.Fork {
		p = st.Cut
	}
	if p.Count > 0 {
		payloads = append(payloads, &session.EndSeed{Inherited: true})
	}
	if st.Knobs.Sandbox.Set() {
		payloads = append(payloads, &session.SandboxSwitch{Mode: st.Knobs.Sandbox.Value, Source: session.SourceDelegation})
	}
	prompt := tp.message(session.FromAgent)
	prompt.By = &session.Party{Kind: session.SessionParty, ID: string(parent)}
	prompt.Source.SenderSessionID = parent
	payloads = append(payloads,
		&session.ApprovalSwitch{Policy: session.Never, Source: session.SourceDelegation},
		&session.Descriptor{Version: session.DescriptorVersion, Mode: session.Continuable, Provider: kind, Label: "child"},
		&session.ModelSelected{Provider: "scripted", Model: "m"}, prompt)
	h := tp.header(id, parent, session.OriginSubagent, p.Count, st.Header.DelegationDepth+1)
	b, err := session.ComposeBirth(h, p.Link, tp.drafts(payloads)...)
	tp.must(err)
	basis := basisOf(st)
	r := tp.record(parent, session.ClassTurn, &session.ToolDecision{
		CallID: call, Verdict: session.Allow, Mode: session.SandboxMode(basis.Sandbox.Value), Basis: basis,
		By: session.StagePolicy, Child: id, ChildLink: &b.First.After,
	})
	r.Address = session.Address{Session: id, Class: session.ClassGenesis, Creator: parent}
	r.Birth = &b
	return r
}

func basisOf(st session.State) session.Basis {
	b := session.Basis{
		Sandbox:  session.Ground{Value: string(session.ReadOnly)},
		Approval: session.Ground{Value: string(session.Ask)},
	}
	if k := st.Knobs.Sandbox; k.Set() {
		b.Sandbox = session.Ground{Value: string(k.Value), Seq: &k.Seq}
	}
	if k := st.Knobs.Approval; k.Set() {
		b.Approval = session.Ground{Value: string(k.Value), Seq: &k.Seq}
	}
	if k := st.Knobs.Preset; k.Set() {
		b.Preset = session.Ground{Value: string(k.Value), Seq: &k.Seq}
	}
	return b
}

// delegate runs a whole turn that starts a child.
func (tp *tape) delegate(parent session.ID, kind session.Kind) session.ID {
	tp.t.Helper()
	call := tp.call(parent)
	r := tp.genesis(parent, call, kind)
	p := session.Prefix{}
	if kind == session.Fork {
		p = tp.states[parent].Cut
	}
	tp.fold(parent, *r.Own)
	tp.begin(*r.Birth, p)
	tp.plant(r)
	turn := tp.states[parent].Turn
	tp.add(parent, session.ClassTurn, &session.ToolResult{Turn: turn, Step: 1, CallID: call, Content: "started", Child: r.Birth.Header.ID})
	tp.finish(parent)
	return r.Birth.Header.ID
}

// logOf is the logical log of a session as SPEC 1.3 has it: its parent's first
// events up to the cut, then its own.
func (tp *tape) logOf(id session.ID) []session.Event {
	h := tp.states[id].Header
	var out []session.Event
	if h.InheritedEventCount > 0 {
		out = append(out, tp.logOf(h.ParentSession)[:h.InheritedEventCount]...)
	}
	return append(out, tp.lines[id]...)
}
