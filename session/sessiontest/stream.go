package sessiontest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// T is what the package needs of a test. [testing.T] has it, and so has the T of
// a property test.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Stream is the raw records of session trees in stream order, and what each
// session folds to after the records that were written with Write.
type Stream struct {
	// Records is everything in the stream, also what Put added.
	Records []session.Raw

	t      T
	last   uint64
	clock  int64
	ulids  int
	states map[session.ID]session.State
}

// NewStream returns an empty stream. A record that cannot be composed or folded
// fails the test.
func NewStream(t T) *Stream {
	return &Stream{t: t, states: map[session.ID]session.State{}}
}

// State returns what a session's written records fold to.
func (s *Stream) State(id session.ID) session.State { return s.states[id] }

// At gives a payload the next event time.
func (s *Stream) At(p session.Payload) session.Draft {
	s.clock++
	return session.Draft{Time: s.clock, Payload: p}
}

func (s *Stream) drafts(payloads []session.Payload) []session.Draft {
	out := make([]session.Draft, len(payloads))
	for i, p := range payloads {
		out[i] = s.At(p)
	}
	return out
}

// ULID returns a new ULID, the same ones in every run.
func (s *Stream) ULID() string {
	s.ulids++
	return fmt.Sprintf("%026d", s.ulids)
}

// Header returns a valid header of a root.
func (s *Stream) Header() session.Header {
	s.t.Helper()
	id, err := session.RootID(s.ULID(), 1)
	s.must(err)
	return HeaderOf(id)
}

// HeaderOf returns a valid header of the root id.
func HeaderOf(id session.ID) session.Header {
	return session.Header{
		Type: "session", ID: id, Tenant: "default", Root: id, Origin: session.OriginUser,
		Cwd: "/work", Workspace: session.Workspace{Kind: session.WorkspaceHost, Label: "host", Path: "/work", ID: "w1"},
		CreatedAt: 1, CreatedBy: Ann, Request: Digest("request of " + string(id)),
		Surface: session.SurfaceNone, FormatVersion: session.FormatFirst,
	}
}

// Digest returns the SHA-256 of s in hex.
func Digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Ann is a person.
var Ann = session.Party{Kind: session.Person, ID: "ann"}

// By returns Ann as the party of an event.
func By() *session.Party {
	by := Ann
	return &by
}

// Model returns the event that selects a model.
func Model() session.Payload { return &session.ModelSelected{Provider: "scripted", Model: "test"} }

// Root writes the genesis of a root: payloads, or model/selected alone.
func (s *Stream) Root(payloads ...session.Payload) session.ID {
	s.t.Helper()
	if len(payloads) == 0 {
		payloads = []session.Payload{Model()}
	}
	h := s.Header()
	s.bear(h, session.Prefix{}, payloads)
	return h.ID
}

// Fork writes the genesis of a person's fork at the source's last event.
func (s *Stream) Fork(source session.ID) session.ID {
	s.t.Helper()
	from := s.states[source]
	id, err := session.ForkID(source, s.ULID())
	s.must(err)
	p := from.InheritAll()
	h := from.Header
	h.ID, h.ParentSession, h.Origin = id, source, session.OriginUser
	h.InheritedEventCount, h.FirstLiveSeq = p.Count, p.Count
	h.Request = Digest("request of " + string(id))
	s.bear(h, p, []session.Payload{&session.EndSeed{Inherited: true}, Model()})
	return id
}

// bear writes a genesis that stands in its own space.
func (s *Stream) bear(h session.Header, p session.Prefix, payloads []session.Payload) {
	s.t.Helper()
	b, err := session.ComposeBirth(h, p.Link, s.drafts(payloads)...)
	s.must(err)
	state, err := session.Begin(b, p)
	s.must(err)
	s.states[h.ID] = state
	s.record(session.Record{
		Address: session.Address{Session: h.ID, Class: session.ClassGenesis, Creator: h.ID},
		Format:  state.Format, Creator: h.ID, Birth: &b,
	})
}

// Delegation is what a parent's call asks for, and what the first batch may
// differ in from the ordinary one.
type Delegation struct {
	Call session.CallID
	Kind session.Kind
	// Decision changes the parent's decision before it is composed.
	Decision func(*session.ToolDecision)
	// Header changes the child's header before it is composed.
	Header func(*session.Header)
	// First replaces the child's first events.
	First []session.Payload
}

// Delegate writes a child's genesis.
func (s *Stream) Delegate(parent session.ID, d Delegation) session.ID {
	s.t.Helper()
	r, p := s.Genesis(parent, d)
	own, err := session.FoldSection(s.states[parent], *r.Own)
	s.must(err)
	child, err := session.Begin(*r.Birth, p)
	s.must(err)
	s.states[parent], s.states[child.Header.ID] = own, child
	s.record(r)
	return child.Header.ID
}

// Genesis composes a child's genesis without writing it, and the prefix that the
// child inherits.
func (s *Stream) Genesis(parent session.ID, d Delegation) (session.Record, session.Prefix) {
	s.t.Helper()
	from := s.states[parent]
	id := session.ChildID(parent, d.Call)
	var p session.Prefix
	if d.Kind == session.Fork {
		p = from.Cut
	}
	h := from.Header
	h.ID, h.ParentSession, h.Origin, h.DelegationDepth = id, parent, session.OriginSubagent, h.DelegationDepth+1
	h.InheritedEventCount, h.FirstLiveSeq = p.Count, p.Count
	h.Request = Digest("request of " + string(id))
	if d.Header != nil {
		d.Header(&h)
	}
	first := d.First
	if first == nil {
		first = FirstBatch(from, d.Kind, p.Count > 0)
	}
	b, err := session.ComposeBirth(h, p.Link, s.drafts(first)...)
	s.must(err)
	decision := Allow(from, d.Call)
	decision.Child, decision.ChildLink = id, &b.First.After
	if d.Decision != nil {
		d.Decision(decision)
	}
	own, err := session.Compose(parent, session.ClassTurn, from.Next, from.Link, s.At(decision))
	s.must(err)
	return session.Record{
		Address: session.Address{Session: id, Class: session.ClassGenesis, Creator: parent},
		Format:  from.Format, Epoch: from.Epoch, Creator: creator(from.Header), Own: &own, Birth: &b,
	}, p
}

// FirstBatch returns the events that a child of from starts with (SPEC 4.3).
func FirstBatch(from session.State, kind session.Kind, seeded bool) []session.Payload {
	var out []session.Payload
	if seeded {
		out = append(out, &session.EndSeed{Inherited: true})
	}
	if k := from.Knobs.Sandbox; k.Set() {
		out = append(out, &session.SandboxSwitch{Mode: k.Value, Source: session.SourceDelegation})
	}
	by := &session.Party{Kind: session.SessionParty, ID: string(from.Header.ID)}
	return append(out,
		&session.ApprovalSwitch{Policy: session.Never, Source: session.SourceDelegation},
		&session.Descriptor{Version: session.DescriptorVersion, Mode: session.OneShot, Provider: kind, Label: "child"},
		Model(),
		&session.UserMessage{ID: "prompt", Role: "user", Content: "go", By: by, Source: session.MessageSource{
			Kind: session.FromAgent, SenderSessionID: from.Header.ID,
		}},
	)
}

// Basis returns the basis of a decision made on a state, under the shipped
// defaults.
func Basis(s session.State) session.Basis {
	return session.Basis{
		Sandbox:  ground(s.Knobs.Sandbox, string(session.ReadOnly)),
		Approval: ground(s.Knobs.Approval, string(session.Ask)),
		Preset:   ground(s.Knobs.Preset, ""),
	}
}

func ground[V ~string](k session.Knob[V], otherwise string) session.Ground {
	if !k.Set() {
		return session.Ground{Value: otherwise}
	}
	at := k.Seq
	return session.Ground{Value: string(k.Value), Seq: &at}
}

// Allow returns the decision that allows a call in the effective mode.
func Allow(s session.State, call session.CallID) *session.ToolDecision {
	b := Basis(s)
	return &session.ToolDecision{
		CallID: call, Verdict: session.Allow, Mode: session.SandboxMode(b.Sandbox.Value),
		Basis: b, By: session.StagePolicy, Revision: 1,
	}
}

// Write writes one record that the session's fold accepts.
func (s *Stream) Write(id session.ID, class session.Class, payloads ...session.Payload) session.Raw {
	s.t.Helper()
	r := s.Compose(id, class, payloads...)
	next, err := session.FoldSection(s.states[id], *r.Own)
	s.must(err)
	s.states[id] = next
	return s.record(r)
}

// Compose composes the session's next record without writing it and without
// asking the fold.
func (s *Stream) Compose(id session.ID, class session.Class, payloads ...session.Payload) session.Record {
	s.t.Helper()
	from := s.states[id]
	own, err := session.Compose(id, class, from.Next, from.Link, s.drafts(payloads)...)
	s.must(err)
	epoch := from.Epoch
	if c, ok := payloads[0].(*session.Claim); ok {
		epoch = c.Epoch
	}
	return session.Record{
		Address: session.Address{Session: id, Class: class},
		Format:  from.Format, Epoch: epoch, Creator: creator(from.Header), Own: &own,
	}
}

// creator is the hint that a child's own records carry: where its genesis is.
func creator(h session.Header) session.ID {
	if h.IsChild() {
		return h.ParentSession
	}
	return ""
}

// Raw encodes a record as it would stand next in the stream.
func (s *Stream) Raw(r session.Record) session.Raw {
	s.t.Helper()
	if r.Writer == (session.Writer{}) {
		r.Writer = session.Writer{Component: "test", Instance: "one", Incarnation: "1"}
	}
	headers, body, err := session.EncodeRecord(r)
	s.must(err)
	return session.Raw{StreamSeq: s.last + 1, Address: r.Address, Headers: headers, Body: body}
}

func (s *Stream) record(r session.Record) session.Raw {
	s.t.Helper()
	return s.Put(s.Raw(r))
}

// Put adds a raw record as it is, at the stream's end.
func (s *Stream) Put(raw session.Raw) session.Raw {
	s.last++
	raw.StreamSeq = s.last
	s.Records = append(s.Records, raw)
	return raw
}

// Skip makes a hole before the next record.
func (s *Stream) Skip() { s.last++ }

func (s *Stream) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("sessiontest: %s", strings.TrimSpace(err.Error()))
	}
}
