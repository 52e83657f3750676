package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/damage"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
	"github.com/entail-fleet/entail/verify"
)

// site is a deployment of two partitions on one node, whose broker and coordinator
// are stopped and started again.
type site struct {
	t      *testing.T
	dir    string // of the broker
	ids    []broker.Identity
	broker natstest.Server
	conn   func(broker.Role, string) *nats.Conn
	said   *safeBuffer // what the running coordinator logs
	store  *sessionstore.Store
	api    *client.Client
	log    *stream.Log // a worker's
	stop   func()      // ends the coordinator
	sent   int

	// The sessions: quiet's last record is in an old block, busy and last write by
	// turns until the end of partition 0, where last has the last word; other is in
	// partition 1.
	quiet, busy, last, other session.ID
}

// safeBuffer is a buffer for a logger.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// newSite writes some 32 records of 2 kB to partition 0, in three blocks, and stops
// everything. The mirror has followed to the end.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), ids: natstest.Identities(t)}
	s.conn = func(role broker.Role, name string) *nats.Conn { return s.broker.Conn(t, role, name) }
	s.startBroker()
	s.fill(1)
	s.must(s.broker.Close())
	return s
}

// fill provisions a deployment and writes to it.
func (s *site) fill(replicas int) {
	t := s.t
	t.Helper()
	// A stream with so little room has blocks of 32 kB.
	log, err := stream.New(s.conn(broker.Provisioner, "provisioner"), stream.Config{Partitions: 2, MaxBytes: 120_000, Replicas: replicas})
	s.must(err)
	s.must(log.Provision(t.Context(), stream.ProvisionConfig{AckWait: time.Second, SettingsBytes: 1 << 20, LiveBytes: 1 << 20}))
	stored, err := policy.DefaultSettings().Encode()
	s.must(err)
	set, err := stream.New(s.conn(broker.Coordinator, "coordinator"), stream.Config{})
	s.must(err)
	_, err = set.Settings().Update(t.Context(), stored, 0)
	s.must(err)
	s.coordinate(s.mirror())
	s.quiet, s.busy, s.last, s.other = s.root(0), s.root(0), s.root(0), s.root(1)
	s.must(s.send(s.quiet))
	s.must(s.send(s.other))
	for range 14 {
		s.must(s.send(s.busy))
		s.must(s.send(s.last))
	}
	s.caughtUp()
	s.stop()
}

// mirror is where the mirror is kept that had followed.
func (s *site) mirror() string { return filepath.Join(s.dir, "mirror") }

func (s *site) startBroker() {
	s.t.Helper()
	b, err := broker.Start(s.t.Context(), broker.Config{Dir: s.dir, Partitions: 2}, s.ids)
	s.must(err)
	s.t.Cleanup(func() { _ = b.Close() })
	s.broker = natstest.Server{Server: b}
}

// coordinate runs a coordinator over a mirror until it is stopped or the test ends.
func (s *site) coordinate(mirror string) {
	t := s.t
	t.Helper()
	s.said = &safeBuffer{}
	logger := slog.New(slog.NewTextHandler(s.said, nil))
	store, err := sessionstore.Open(sessionstore.Config{Dir: mirror, Interval: 50 * time.Millisecond, Logger: logger})
	s.must(err)
	nc := s.conn(broker.Coordinator, "coordinator")
	log, err := stream.New(nc, stream.Config{Partitions: 2, Witness: store, Poll: 20 * time.Millisecond, Timeout: 300 * time.Millisecond})
	s.must(err)
	c, err := coordinator.New(coordinator.Config{
		Name: "c", Conn: nc, Log: log, Store: store, Tools: tools, Partitions: 2, Logger: logger,
		Tokens: []coordinator.Token{{
			Digest: coordinator.DigestToken(adminToken), Role: coordinator.Admin, Party: session.Party{Kind: session.Person, ID: "ada"},
		}},
	})
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, store.Close()); err != nil {
			t.Errorf("the coordinator ended with %v", err)
		}
	})
	t.Cleanup(s.stop)
	select {
	case <-c.Ready():
	case <-time.After(20 * time.Second):
		t.Fatal("the coordinator is not ready")
	}
	s.store = store
	s.api = client.New(s.conn(broker.Client, "client"), client.Config{Token: adminToken, Timeout: 5 * time.Second})
	wc := s.conn(broker.Worker, "w1")
	s.log, err = stream.New(wc, stream.Config{
		Partitions: 2, Witness: agent.Witness{Client: client.New(wc, client.Config{Worker: "w1", Timeout: 5 * time.Second})},
		Timeout: 300 * time.Millisecond, Writer: session.Writer{Component: "worker", Instance: "w1", Incarnation: "i1"},
	})
	s.must(err)
}

func (s *site) caughtUp() {
	s.t.Helper()
	for p := range 2 {
		i, err := s.log.Info(s.t.Context(), p)
		s.must(err)
		s.must(s.store.WaitFor(s.t.Context(), p, i.LastSeq))
	}
}

// root creates a session in a partition.
func (s *site) root(partition int) session.ID {
	s.t.Helper()
	for {
		id, err := session.RootID(ulid.Make().String(), 2)
		s.must(err)
		if id.Partition() != partition {
			continue
		}
		var out client.CreatedReply
		s.must(s.api.Call(s.t.Context(), client.MethodCreate, client.CreateRequest{
			Head: head, ID: id, Cwd: "/tmp/work", Label: "root",
			Model: client.Model{Provider: "scripted", Model: "test", Script: "sessions: {}"}, Prompt: "go",
		}, &out))
		return id
	}
}

// send has the coordinator append to a session.
func (s *site) send(id session.ID) error {
	s.sent++
	return s.api.Call(s.t.Context(), client.MethodSend, client.SendRequest{
		Head: head, ID: id, MessageID: fmt.Sprintf("m%d", s.sent), Content: strings.Repeat("x", 1500),
	}, nil)
}

// claim has a worker that knows nothing yet append to a session.
func (s *site) claim(id session.ID) error {
	r, err := agent.OpenReplica(s.t.Context(), s.log, id, "", nil)
	if err != nil {
		return err
	}
	_, err = s.log.Append(s.t.Context(), r, id, stream.Change{
		Name: "claim", Class: session.ClassTurn,
		Epoch: func(v session.View) uint64 { return v.State.Epoch + 1 },
		Drafts: func(v session.View) ([]session.Draft, error) {
			return []session.Draft{{Time: time.Now().UnixMilli(), Payload: &session.Claim{
				Epoch: v.State.Epoch + 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart,
			}}}, nil
		},
	})
	return err
}

// named is a session of the site.
func (s *site) named(name string) session.ID {
	return map[string]session.ID{"quiet": s.quiet, "busy": s.busy, "last": s.last, "other": s.other}[name]
}

// end is where partition 0 ends.
func (s *site) end() uint64 {
	s.t.Helper()
	i, err := s.log.Info(s.t.Context(), 0)
	s.must(err)
	return i.LastSeq
}

// stopped wants a session to take no append, from coordinator or worker, with words
// that say what is stopped and what to do.
func (s *site) stopped(name string) {
	s.t.Helper()
	before := s.end()
	s.refused(name, before, s.send(s.named(name)))
}

// refused wants what became of a message to be that the session is stopped, and that
// it takes nothing from a worker either.
func (s *site) refused(name string, before uint64, err error) {
	s.t.Helper()
	id := s.named(name)
	if client.CodeOf(err) != client.CodeLoss {
		s.t.Errorf("send to %s: %v, want %s", name, err, client.CodeLoss)
	} else if text := err.Error(); !strings.Contains(text, string(id)) && !strings.Contains(text, "partition 0") ||
		!strings.Contains(text, "restored from") && !strings.Contains(text, "is repaired") {
		s.t.Errorf("send to %s does not say what is stopped and what to do: %v", name, err)
	}
	if err := s.claim(id); err == nil {
		s.t.Errorf("a worker appended to %s", name)
	}
	if after := s.end(); after != before {
		s.t.Errorf("%s: the stream ends at %d and did at %d: something was appended", name, after, before)
	}
	if !strings.Contains(s.said.String(), "level=ERROR") {
		s.t.Errorf("%s: the coordinator logged no error", name)
	}
}

// stoppedOrGoesOn wants a session to take an append, or to be stopped by now.
func (s *site) stoppedOrGoesOn(name string) {
	s.t.Helper()
	before := s.end()
	if err := s.send(s.named(name)); err != nil {
		s.refused(name, before, err)
	}
}

// goesOn wants a session to take appends from coordinator and worker.
func (s *site) goesOn(name string) {
	s.t.Helper()
	if err := s.send(s.named(name)); err != nil {
		s.t.Errorf("send to %s: %v", name, err)
	}
	if err := s.claim(s.named(name)); err != nil {
		s.t.Errorf("claim of %s: %v", name, err)
	}
}

// Sessions implements verify.Source, and Rows verify.Mirror: the stream's records
// and the mirror's rows.
func (s *site) Sessions(context.Context) ([]session.ID, error) {
	return []session.ID{s.quiet, s.busy, s.last, s.other}, nil
}

func (s *site) Records(ctx context.Context, id session.ID, fn func(session.Raw) error) error {
	_, err := s.log.Read(ctx, id, 0, fn)
	return err
}

func (s *site) Rows(_ context.Context, fn func(verify.Row) error) error {
	for _, id := range []session.ID{s.quiet, s.busy, s.last, s.other} {
		e, err := s.store.Session(id)
		if errors.Is(err, session.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		k := e.State.Knobs
		row := verify.Row{ID: id, Next: e.State.Next, Link: e.State.Link, Sandbox: k.Sandbox.Value, Approval: k.Approval.Value, Preset: k.Preset.Value}
		if err := fn(row); err != nil {
			return err
		}
	}
	return nil
}

// clean reports whether verify finds nothing in stream and mirror.
func (s *site) clean() bool {
	s.t.Helper()
	report, err := verify.Run(s.t.Context(), s, verify.Options{Mirror: s})
	if err != nil && !errors.Is(err, session.ErrLoss) {
		s.t.Fatal(err)
	}
	return err == nil && report.Clean()
}

// find returns the record of a place.
func (s *site) find(store damage.Store, place func(damage.Record) bool) damage.Record {
	s.t.Helper()
	records, err := store.Records()
	s.must(err)
	if len(records) < 30 || records[len(records)-1].Block < 2 {
		s.t.Fatalf("%d records in %d blocks, want 30 in 3 at least", len(records), records[len(records)-1].Block+1)
	}
	var found damage.Record
	for _, r := range records {
		if place(r) {
			found = r
		}
	}
	return found
}

// flip turns over one bit of a record in a stopped server's store, and reads it back.
func (s *site) flip(dir string, place func(damage.Record) bool, part damage.Part, index bool) damage.Record {
	s.t.Helper()
	store, err := damage.Open(dir, stream.StreamName(0))
	s.must(err)
	r := s.find(store, place)
	bit, err := r.Bit(part)
	s.must(err)
	if bit.File != r.File || bit.Offset < r.Offset || bit.Offset >= r.Offset+r.Size {
		s.t.Fatalf("the bit at byte %d is outside of record %d", bit.Offset, r.Seq)
	}
	before := readFile(s.t, r.File)
	s.must(bit.Flip())
	if after := readFile(s.t, r.File); bytes.Equal(before, after) {
		s.t.Fatal("the record is as it was")
	}
	if !index {
		s.must(store.DropIndex())
	}
	return r
}

func readFile(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The places.
func of(id func(*site) session.ID) func(*site) func(damage.Record) bool {
	return func(s *site) func(damage.Record) bool {
		return func(r damage.Record) bool { return strings.Contains(r.Subject, "."+string(id(s))+".") }
	}
}

var (
	quietLast  = of(func(s *site) session.ID { return s.quiet })
	busyLast   = of(func(s *site) session.ID { return s.busy })
	streamLast = of(func(s *site) session.ID { return s.last })
)

// old is a record of busy in the first block, with others of all sessions around.
func old(s *site) func(damage.Record) bool {
	return func(r damage.Record) bool { return r.Block == 0 && r.Seq < 10 && busyLast(s)(r) }
}

// TestDamage turns over one bit in the store of a stopped broker, starts it again,
// and asks for appends: from a coordinator whose mirror had followed to the end, and
// from one whose mirror is new.
//
// What SPEC 1.4 and ARCHITECTURE 2 and 6 promise: no append is taken on top of a
// session that lost a record. Where the mirror sees the loss the whole partition
// stops; where an append does, that session. Other partitions go on in any case.
//
// With nobody who remembers, a loss in the middle shows as a hole. A loss at the
// stream's end does not: the stream is then as if the records had never been
// written, whole and shorter. Those cases say so, and are the control of the others:
// what notices there is the memory.
func TestDamage(t *testing.T) {
	t.Parallel()
	const partition = "partition"
	all := []string{"quiet", "busy", "last"}
	for _, tt := range []struct {
		name  string
		place func(*site) func(damage.Record) bool
		part  damage.Part
		index bool
		// What stops, with the mirror that followed and with a new one: a session,
		// the partition, or nothing.
		kept, fresh string
	}{
		{"a session's last in an old block", quietLast, damage.Body, true, "quiet", partition},
		{"a session's last in an old block, no index", quietLast, damage.Checksum, false, partition, partition},
		{"a session's last in the last block", busyLast, damage.Headers, true, "busy", partition},
		{"a session's last in the last block, no index", busyLast, damage.Body, false, partition, ""},
		{"the stream's last", streamLast, damage.Body, true, partition, partition},
		{"the stream's last, no index", streamLast, damage.Length, false, partition, ""},
		{"the stream's last, its checksum", streamLast, damage.Checksum, true, partition, partition},
		{"in an old block", old, damage.Body, true, "busy", partition},
		{"in an old block, no index", old, damage.Headers, false, partition, partition},
	} {
		for _, fresh := range []bool{false, true} {
			stops := tt.kept
			if fresh {
				stops = tt.fresh
			}
			t.Run(fmt.Sprintf("%s/new mirror %v", tt.name, fresh), func(t *testing.T) {
				t.Parallel()
				s := newSite(t)
				s.flip(s.dir, tt.place(s), tt.part, tt.index)
				s.startBroker()
				mirror := s.mirror()
				if fresh {
					mirror = t.TempDir()
				}
				s.coordinate(mirror)
				// A new mirror that stopped holds nothing to compare with.
				if clean := s.clean(); clean && !fresh || !clean && stops == "" {
					t.Errorf("verify finds nothing: %v", clean)
				}
				for _, name := range all {
					if stops == partition || stops == name {
						s.stopped(name)
					} else {
						s.goesOn(name)
					}
				}
				s.goesOn("other")
			})
		}
	}
}

// A length that is wrong has the server read a block anew when it next needs it,
// and cut it there: the records behind it go while everything runs. What has lost
// records takes no append from then on, and the partition stops.
func TestDamageThatIsFoundWhileRunning(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.flip(s.dir, old(s), damage.Length, true)
	s.startBroker()
	s.coordinate(s.mirror())
	s.stopped("busy")
	s.stopped("last")
	eventually(t, "the partition stops", func() bool { return client.CodeOf(s.send(s.quiet)) == client.CodeLoss })
	s.stopped("quiet")
	s.goesOn("other")
}

// The end of the stream is cut off, and somebody who does not remember writes until
// the sequences are given out again that a mirror holds.
func TestDamageAndRegrowth(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	lost := s.flip(s.dir, busyLast(s), damage.Body, false)
	s.startBroker()
	s.coordinate(t.TempDir())
	if end := s.end(); end != lost.Seq-1 {
		t.Fatalf("the stream ends at %d, want it cut in front of %d", end, lost.Seq)
	}
	for range 4 {
		s.must(s.send(s.quiet))
	}
	s.stop()
	s.coordinate(s.mirror())
	mark, _ := s.store.Watermark(0)
	if end := s.end(); end <= mark.Seq {
		t.Fatalf("the stream ends at %d, want it beyond the mirror's %d", end, mark.Seq)
	}
	if s.clean() {
		t.Error("verify finds nothing")
	}
	for _, name := range []string{"quiet", "busy", "last"} {
		s.stopped(name)
	}
	s.goesOn("other")
}

// What is no loss stops nobody: a damaged index, which the server makes again, one
// that is gone, and a restart.
func TestDamageOfTheIndexLosesNothing(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*site, damage.Store) error{
		"flipped": func(_ *site, d damage.Store) error {
			b, err := d.IndexBit()
			if err != nil {
				return err
			}
			return b.Flip()
		},
		"gone":     func(_ *site, d damage.Store) error { return d.DropIndex() },
		"as it is": func(*site, damage.Store) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			store, err := damage.Open(s.dir, stream.StreamName(0))
			s.must(err)
			s.must(do(s, store))
			s.startBroker()
			for _, mirror := range []string{s.mirror(), t.TempDir()} {
				s.coordinate(mirror)
				s.caughtUp()
				if !s.clean() {
					t.Error("verify finds something")
				}
				for _, name := range []string{"quiet", "busy", "last", "other"} {
					s.goesOn(name)
				}
				s.stop()
			}
		})
	}
}

// bare is a feed that is not held to having all that it says it has.
type bare struct{ *stream.Log }

func (b bare) Info(ctx context.Context, partition int) (incarnation string, first, last uint64, err error) {
	i, err := b.Log.Info(ctx, partition)
	return i.Incarnation, i.FirstSeq, i.LastSeq, err
}

// The control of the cases with a hole: a mirror that looks at the watermark alone
// goes on.
func TestDamageNeedsALookAtHoles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.flip(s.dir, old(s), damage.Body, false)
	s.startBroker()
	store, err := sessionstore.Open(sessionstore.Config{Dir: s.mirror()})
	s.must(err)
	defer func() { s.must(store.Close()) }()
	log, err := stream.New(s.conn(broker.Coordinator, "coordinator"), stream.Config{Partitions: 2})
	s.must(err)
	info, err := log.Info(t.Context(), 0)
	s.must(err)
	if info.Deleted == 0 {
		t.Fatal("the stream has no hole")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx, bare{log}, 0) }()
	_, err = log.Append(t.Context(), store, s.quiet, stream.Change{
		Name: "nudge", Class: session.ClassInbox,
		Drafts: func(session.View) ([]session.Draft, error) {
			return []session.Draft{{Payload: &session.Nudge{ID: "n", By: &session.Party{Kind: session.Person, ID: "ada"}}}}, nil
		},
	})
	s.must(err)
	s.must(store.WaitFor(t.Context(), 0, info.LastSeq+1))
	cancel()
	s.must(<-ended)
}
