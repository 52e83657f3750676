package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// lease is short, so that tests see it run out.
const lease = time.Second

// ulid is a ULID whose root is in partition 0 of one.
const ulid = "01k9z3x5q8r7m6n4p2v0w1y3z5"

var person = &session.Party{Kind: session.Person, ID: "ann"}

// world is a provisioned deployment, on the embedded broker or on a cluster.
type world struct {
	servers
	coordinator *nats.Conn
}

// servers let identities in.
type servers interface {
	Conn(t testing.TB, role broker.Role, name string, opts ...nats.Option) *nats.Conn
}

// newWorld is on a broker of its own, or on the cluster that the test belongs to.
func newWorld(t testing.TB) world {
	t.Helper()
	if c := clusterOf(t); c != nil {
		return provisioned(t, c.Next(t), natstest.Nodes)
	}
	return provisioned(t, natstest.Start(t), 1)
}

func provisioned(t testing.TB, s servers, replicas int) world {
	t.Helper()
	l, err := stream.New(s.Conn(t, broker.Provisioner, "provisioner"), stream.Config{MaxBytes: 64 << 20, Replicas: replicas})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Provision(t.Context(), stream.ProvisionConfig{AckWait: lease, SettingsBytes: 1 << 20, LiveBytes: 1 << 20}); err != nil {
		t.Fatalf("provision: %v", err)
	}
	return world{s, s.Conn(t, broker.Coordinator, "coordinator")}
}

// config is what tests run with: little patience, and a witness that agrees.
func config() stream.Config {
	return stream.Config{
		MaxBytes: 64 << 20, Witness: witness(func(session.ID, uint64) error { return nil }),
		Timeout: 500 * time.Millisecond, Budget: 3 * time.Second, Poll: 20 * time.Millisecond,
		Writer: session.Writer{Component: "test", Instance: "t1", Incarnation: "i1"},
	}
}

// log is a coordinator's log of its own, with a view of its own.
func (w world) log(t testing.TB, edit ...func(*stream.Config)) (*stream.Log, *folder) {
	t.Helper()
	return logOf(t, w.coordinator, edit...)
}

func logOf(t testing.TB, nc *nats.Conn, edit ...func(*stream.Config)) (*stream.Log, *folder) {
	t.Helper()
	cfg := config()
	for _, e := range edit {
		e(&cfg)
	}
	l, err := stream.New(nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l, &folder{log: l, chains: map[session.ID]*folded{}}
}

// js speaks to the server past the package, for planting and looking.
func (w world) js(t testing.TB) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(w.coordinator)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// witness is a witness made of a function.
type witness func(id session.ID, past uint64) error

func (w witness) Empty(_ context.Context, id session.ID, past uint64) error { return w(id, past) }

// folder is a viewer that reads the session's own space each time.
type folder struct {
	log    *stream.Log
	mu     sync.Mutex
	chains map[session.ID]*folded
}

type folded struct {
	chain *session.Chain
	links map[session.Seq]session.Link
	ids   map[string]bool
	tail  uint64
}

func (f *folder) View(ctx context.Context, id session.ID, least uint64) (session.View, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.open(ctx, id)
	if err != nil {
		return session.View{}, err
	}
	// A read may be answered by a copy that is behind the one that took the append.
	patient, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		if s.tail, err = f.log.Read(ctx, id, s.tail, s.next); err != nil {
			return session.View{}, err
		}
		if s.chain.Tail() >= least || s.chain.Halted() != nil || !delay.For(patient, time.Millisecond) {
			break
		}
	}
	if err := s.chain.Halted(); err != nil {
		return session.View{}, err
	}
	links, ids := s.links, s.ids
	return session.View{
		State: s.chain.State(), Tail: s.chain.Tail(),
		Link: func(q session.Seq) (session.Link, bool) { l, ok := links[q]; return l, ok },
		Has:  func(id string) bool { return ids[id] },
	}, nil
}

func (f *folder) open(ctx context.Context, id session.ID) (*folded, error) {
	if s := f.chains[id]; s != nil {
		return s, nil
	}
	raw, err := f.log.Genesis(ctx, id, "")
	if err != nil {
		return nil, err
	}
	s := &folded{links: map[session.Seq]session.Link{}, ids: map[string]bool{}}
	chain, events, err := session.Open(raw, session.Prefix{}, func(q session.Seq) (session.Link, bool) { l, ok := s.links[q]; return l, ok })
	if err != nil {
		return nil, err
	}
	s.chain = chain
	s.take(events)
	f.chains[id] = s
	return s, nil
}

func (s *folded) next(raw session.Raw) error {
	j, err := s.chain.Next(raw)
	if err != nil && !errors.Is(err, session.ErrCorrupt) {
		return err
	}
	s.take(j.Events)
	return nil
}

func (s *folded) take(events []session.Event) {
	for _, e := range events {
		s.links[e.Seq] = e.Link
		switch p := e.Payload.(type) {
		case *session.UserMessage:
			s.ids[p.ID] = true
		case *session.Nudge:
			s.ids[p.ID] = true
		}
	}
}

// rootID makes the n-th root of a test.
func rootID(t testing.TB, n int) session.ID {
	t.Helper()
	id, err := session.RootID(fmt.Sprintf("%s%04d", ulid[:22], n), 1)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// birth makes a root's genesis.
func birth(id session.ID) func(session.View) (session.Record, error) {
	return func(session.View) (session.Record, error) {
		b, err := session.ComposeBirth(session.Header{
			ID: id, Tenant: "default", Root: id.Root(), Origin: session.OriginUser, Cwd: "/w",
			Workspace: session.Workspace{Kind: session.WorkspaceHost, Label: "w", Path: "/w", ID: "w1"},
			CreatedBy: *person, Request: strings.Repeat("0", 64), Surface: session.SurfaceNone, FormatVersion: 1,
		}, session.Link{}, session.Draft{Payload: &session.ModelSelected{Provider: "scripted", Model: "m"}})
		return session.Record{
			Address: session.Address{Session: id, Class: session.ClassGenesis, Creator: id}, Format: 1, Birth: &b,
		}, err
	}
}

func genesisChange(id session.ID) stream.Change {
	return stream.Change{Name: "create", Genesis: birth(id), Check: func(v session.View) error {
		if v.State.Next > 0 {
			return errExists
		}
		return nil
	}}
}

var errExists = errors.New("exists")

// begin creates a root.
func begin(t testing.TB, l *stream.Log, v stream.Viewer, n int) session.ID {
	t.Helper()
	id := rootID(t, n)
	if _, err := l.Append(t.Context(), v, id, genesisChange(id)); err != nil {
		t.Fatalf("create %s: %v", id, err)
	}
	return id
}

// nudge is the smallest inbox change: one event under an id, once.
func nudge(id string) stream.Change {
	return stream.Change{
		Name: "nudge", Class: session.ClassInbox,
		Check: func(v session.View) error {
			if v.Has(id) {
				return errExists
			}
			return nil
		},
		Drafts: drafts(&session.Nudge{ID: id, By: person}),
	}
}

func drafts(payloads ...session.Payload) func(session.View) ([]session.Draft, error) {
	return func(session.View) ([]session.Draft, error) {
		out := make([]session.Draft, len(payloads))
		for i, p := range payloads {
			out[i].Payload = p
		}
		return out, nil
	}
}

// records reads a session's own space, from a copy that has what the leader has.
func records(t testing.TB, l *stream.Log, id session.ID) []session.Raw {
	t.Helper()
	least, err := l.Tail(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var out []session.Raw
	until(t, "a copy that is not behind", func() bool {
		out = nil
		tail, err := l.Read(t.Context(), id, 0, func(r session.Raw) error { out = append(out, r); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return tail >= least
	})
	return out
}

// nudges folds a session from its raw records, wants every one of them valid and
// returns the ids of its nudges in order, with the record each stands in.
func nudges(t testing.TB, l *stream.Log, id session.ID) (ids []string, at map[string]uint64) {
	t.Helper()
	raw := records(t, l, id)
	links := map[session.Seq]session.Link{}
	chain, _, err := session.Open(raw[0], session.Prefix{}, func(q session.Seq) (session.Link, bool) { x, ok := links[q]; return x, ok })
	if err != nil {
		t.Fatal(err)
	}
	at = map[string]uint64{}
	for _, r := range raw[1:] {
		j, err := chain.Next(r)
		if err != nil || j.Ruling != session.Valid {
			t.Fatalf("record at %d: ruling %v, %v, %v; want it valid", r.StreamSeq, j.Ruling, j.Alarm, err)
		}
		for _, e := range j.Events {
			links[e.Seq] = e.Link
			if n, ok := e.Payload.(*session.Nudge); ok {
				ids = append(ids, n.ID)
				at[n.ID] = r.StreamSeq
			}
		}
	}
	return ids, at
}

// receive waits for what is sent on a channel.
func receive[T any](t testing.TB, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(30 * time.Second):
		t.Fatalf("never came: %s", what)
	}
	return got
}

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never came: %s", what)
		}
	}
}
