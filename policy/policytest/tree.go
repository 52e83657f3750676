package policytest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Tools are the names that a filter may speak of in a tree. Read alone has no
// effect.
func Tools() []string { return []string{"bash", "delegate", "edit", "read", "write"} }

// Alice is a person.
var Alice = session.Party{Kind: session.Person, ID: "alice"}

// T is what a tree needs of a test; *testing.T, *testing.B and *rapid.T have it.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Tree is the sessions of one root and their records.
type Tree struct {
	// Records stand in stream order, behind those that were in the stream before.
	Records []session.Raw
	// Logs are all sessions, each behind the one that it comes from.
	Logs []*Log
	// Deployment is what is in force at last, of a tree that chance grew.
	Deployment policy.Deployment

	t      T
	number int
	before uint64 // the last stream sequence before this tree
}

// NewTree starts an empty tree. Trees of different numbers have different ids.
// Before is the last sequence of the stream that its records come to.
func NewTree(t T, number int, before uint64) *Tree {
	return &Tree{t: t, number: number, before: before}
}

// ulid makes the ULID of something that grows in the tree.
func (tr *Tree) ulid(of string) string {
	sum := sha256.Sum256(fmt.Append(nil, tr.number, of))
	return "01J0000000" + strings.ToUpper(hex.EncodeToString(sum[:8]))
}

// Root starts the root, whose creation flags are the given policy events.
func (tr *Tree) Root(s session.Surface, flags ...session.Payload) *Log {
	tr.t.Helper()
	id, err := session.RootID(tr.ulid("root"), 1)
	if err != nil {
		tr.t.Fatalf("root id: %v", err)
	}
	h := header(id)
	h.Surface = s
	l, b := tr.begin(h, nil, session.Prefix{}, append(flags, model())...)
	tr.bear(l, b)
	return l
}

func header(id session.ID) session.Header {
	sum := sha256.Sum256([]byte(id))
	return session.Header{
		Type: "session", ID: id, Tenant: "default", Root: id.Root(), Origin: session.OriginUser, Cwd: "/work",
		Workspace: session.Workspace{Kind: session.WorkspaceHost, Label: "w", Path: "/work", ID: "w1"},
		CreatedBy: Alice, Request: hex.EncodeToString(sum[:]), Surface: session.SurfaceAny,
		FormatVersion: session.FormatFirst,
	}
}

func model() session.Payload { return &session.ModelSelected{Provider: "scripted", Model: "m"} }

// begin composes a session that goes on from a prefix of its source.
func (tr *Tree) begin(h session.Header, source *Log, p session.Prefix, first ...session.Payload) (*Log, session.Birth) {
	tr.t.Helper()
	h.InheritedEventCount, h.FirstLiveSeq = p.Count, p.Count
	var prefix []session.Event
	if p.Count > 0 {
		prefix = source.Events[:p.Count:p.Count]
		first = append([]session.Payload{&session.EndSeed{Inherited: true}}, first...)
	}
	b, err := session.ComposeBirth(h, p.Link, drafts(first)...)
	if err != nil {
		tr.t.Fatalf("compose birth of %s: %v", h.ID, err)
	}
	s, err := session.Begin(b, p)
	if err != nil {
		tr.t.Fatalf("begin %s: %v", h.ID, err)
	}
	l := &Log{State: s, Events: append(prefix, b.First.Events...), Birth: b, Source: source, tree: tr}
	tr.Logs = append(tr.Logs, l)
	return l, b
}

// bear writes a genesis that stands in its own space.
func (tr *Tree) bear(l *Log, b session.Birth) {
	tr.t.Helper()
	id := l.State.Header.ID
	tr.write(session.Record{
		Address: session.Address{Session: id, Class: session.ClassGenesis, Creator: id},
		Format:  l.State.Format, Creator: id, Birth: &b,
	})
}

func drafts(ps []session.Payload) []session.Draft {
	out := make([]session.Draft, 0, len(ps))
	for _, p := range ps {
		out = append(out, session.Draft{Time: 1, Payload: p})
	}
	return out
}

func (tr *Tree) write(r session.Record) {
	tr.t.Helper()
	r.Writer = session.Writer{Component: "test", Instance: "one", Incarnation: "1"}
	headers, body, err := session.EncodeRecord(r)
	if err != nil {
		tr.t.Fatalf("encode a record of %s: %v", r.Address.Session, err)
	}
	tr.put(session.Raw{Address: r.Address, Headers: headers, Body: body})
}

// put adds a record as it is and returns its stream sequence.
func (tr *Tree) put(raw session.Raw) uint64 {
	raw.StreamSeq = tr.before + uint64(len(tr.Records)) + 1
	tr.Records = append(tr.Records, raw)
	return raw.StreamSeq
}
