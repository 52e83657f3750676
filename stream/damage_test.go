package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/damage"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// disk is a broker of one node that is stopped, damaged and started again.
type disk struct {
	t   *testing.T
	dir string
	ids []broker.Identity
	b   natstest.Server

	port int // of the broker; 0 is any
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{t: t, dir: t.TempDir(), ids: natstest.Identities(t)}
	d.start()
	// A stream with so little room has blocks of 32 kB.
	l, err := stream.New(d.b.Conn(t, broker.Provisioner, "provisioner"), stream.Config{MaxBytes: 100_000})
	if err == nil {
		err = l.Provision(t.Context(), stream.ProvisionConfig{AckWait: lease, SettingsBytes: 1 << 20, LiveBytes: 1 << 20})
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *disk) start() {
	d.t.Helper()
	b, err := broker.Start(d.t.Context(), broker.Config{Dir: d.dir, Port: d.port}, d.ids)
	if err != nil {
		d.t.Fatal(err)
	}
	d.b = natstest.Server{Server: b}
	d.t.Cleanup(func() { _ = b.Close() })
}

func (d *disk) log(edit ...func(*stream.Config)) (*stream.Log, *folder) {
	d.t.Helper()
	return logOf(d.t, d.b.Conn(d.t, broker.Coordinator, "coordinator"), edit...)
}

// restart stops the broker and starts it again, and calls down, if it is given, in
// between.
func (d *disk) restart(down func()) {
	d.t.Helper()
	if err := d.b.Close(); err != nil {
		d.t.Fatal(err)
	}
	if down != nil {
		down()
	}
	d.start()
}

// damage turns over a bit in the body of the record at a stream sequence while the
// broker is down. It believes its index, and so counts what it cannot read any more.
func (d *disk) damage(seq uint64) {
	d.t.Helper()
	d.restart(func() { d.flip(seq) })
}

func (d *disk) flip(seq uint64) {
	d.t.Helper()
	store, err := damage.Open(d.dir, stream.StreamName(0))
	if err != nil {
		d.t.Fatal(err)
	}
	records, err := store.Records()
	if err != nil || uint64(len(records)) < seq || records[seq-1].Seq != seq {
		d.t.Fatalf("%d records, %v; want the one at %d among them", len(records), err, seq)
	}
	bit, err := records[seq-1].Bit(damage.Body)
	if err == nil {
		err = bit.Flip()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	again, err := store.Records()
	if err != nil || string(again[seq-1].Body) == string(records[seq-1].Body) {
		d.t.Fatalf("the record is not damaged (%v)", err)
	}
}

// end is where the stream ends.
func (d *disk) end(l *stream.Log) uint64 {
	d.t.Helper()
	i, err := l.Info(d.t.Context(), 0)
	if err != nil {
		d.t.Fatal(err)
	}
	return i.LastSeq
}

// refuses wants a loss from an append, and nothing written.
func (d *disk) refuses(l *stream.Log, v stream.Viewer, id session.ID, c stream.Change) {
	d.t.Helper()
	before := d.end(l)
	_, err := l.Append(d.t.Context(), v, id, c)
	if !errors.Is(err, session.ErrLoss) {
		d.t.Errorf("append to %s: %v, want a loss", id, err)
	} else if text := err.Error(); !strings.Contains(text, string(id)) || !strings.Contains(text, "restored from") {
		d.t.Errorf("the loss names neither the session nor the way out: %v", err)
	}
	if after := d.end(l); after != before {
		d.t.Errorf("the stream ends at %d and did at %d: something was appended", after, before)
	}
}

// takes wants an append to a session that nothing happened to.
func (d *disk) takes(l *stream.Log, v stream.Viewer, id session.ID) {
	d.t.Helper()
	if _, err := l.Append(d.t.Context(), v, id, nudge("whole")); err != nil {
		d.t.Errorf("another session, %s: %v", id, err)
	}
}

// living is a log whose connection lives on while the broker is restarted, and what
// waits until it is back.
func (d *disk) living(edit ...func(*stream.Config)) (l *stream.Log, v *folder, back func()) {
	d.t.Helper()
	at, err := url.Parse(d.b.URL())
	if err == nil {
		d.port, err = strconv.Atoi(at.Port())
	}
	if err != nil {
		d.t.Fatal(err)
	}
	again := make(chan struct{}, 1)
	l, v = logOf(d.t, d.b.Conn(d.t, broker.Coordinator, "coordinator",
		nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1),
		nats.ReconnectHandler(func(*nats.Conn) { again <- struct{}{} })), edit...)
	return l, v, func() { <-again }
}

// remembering is a view of sessions that were folded before the damage, over a new
// connection: a mirror that has followed.
func remembering(f *folder, l *stream.Log) *folder {
	return &folder{log: l, chains: f.chains}
}

// forgetful is a mirror that remembers nothing.
type forgetful struct{ witness }

func (forgetful) Beyond(context.Context, session.ID, uint64) error { return nil }

func forgets(c *stream.Config) {
	c.Witness = forgetful{witness(func(session.ID, uint64) error { return nil })}
}

// write begins a session and gives it n nudges, each of which takes 2 kB.
func write(t *testing.T, l *stream.Log, v stream.Viewer, id, n int) session.ID {
	t.Helper()
	root := begin(t, l, v, id)
	for i := range n {
		if _, err := l.Append(t.Context(), v, root, big(fmt.Sprintf("n%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func big(id string) stream.Change {
	c := nudge(id)
	c.Drafts = drafts(&session.Nudge{ID: id, Reason: strings.Repeat("x", 1800), By: person})
	return c
}

// claim is the smallest turn change.
func claim(t *testing.T, epoch uint64) stream.Change {
	t.Helper()
	return stream.Change{
		Name: "claim", Class: session.ClassTurn, Once: true,
		Epoch: func(v session.View) uint64 { return v.State.Epoch + 1 },
		Drafts: func(v session.View) ([]session.Draft, error) {
			return []session.Draft{{Payload: &session.Claim{
				Epoch: v.State.Epoch + 1, Worker: "w1", Incarnation: strconv.FormatUint(epoch, 10), Cause: session.CauseStart,
			}}}, nil
		},
	}
}

// The last record of a session is damaged, and not the stream's: the server says
// that the session is empty, which is less than was seen of it.
func TestDamageOfALastRecordIsALowerTail(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	l, v := d.log()
	hit := write(t, l, v, 1, 2)
	other := write(t, l, v, 2, 2)
	d.damage(3)
	l, _ = d.log(forgets)
	v = remembering(v, l)
	once := nudge("a")
	once.Once = true
	d.refuses(l, v, hit, once)
	d.takes(l, v, other)
}

// The one record of a session is damaged: it looks as if it had never been, and the
// server would let it begin again.
func TestDamageDoesNotMakeASessionEmpty(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	l, v := d.log()
	hit := write(t, l, v, 1, 0)
	other := write(t, l, v, 2, 1)
	if _, err := v.View(t.Context(), hit, 0); err != nil {
		t.Fatal(err)
	}
	d.damage(1)
	holds := witness(func(id session.ID, _ uint64) error { return &session.ConflictError{Session: id, Tail: 1} })
	l, _ = d.log(func(c *stream.Config) { c.Witness = holds })
	v = remembering(v, l)
	d.refuses(l, blind{v}, hit, nudge("a"))
	d.takes(l, v, other)
}

// A record in an old block is damaged. The session's last one is not, so that the
// compare-and-set alone would take the append.
func TestDamageInAnOldBlock(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	l, v := d.log()
	hit := write(t, l, v, 1, 20)
	other := write(t, l, v, 2, 2)
	d.damage(5)
	l, _ = d.log()
	v = remembering(v, l)
	d.refuses(l, v, hit, nudge("a"))
	d.takes(l, v, other)
}

// Nobody remembers the session. A reader that was given all records but one would
// take the turn records behind it for void, fold a shorter log and append to that.
func TestDamageIsSeenByANewReader(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	l, v := d.log()
	id := write(t, l, v, 1, 0)
	for epoch := range uint64(4) {
		if _, err := l.Append(t.Context(), v, id, claim(t, epoch)); err != nil {
			t.Fatal(err)
		}
	}
	other := write(t, l, v, 2, 2)
	d.damage(3)
	l, v = d.log()
	d.refuses(l, v, id, claim(t, 9))
	d.takes(l, v, other)
}

// A server that was restarted behind a connection which lives on is another one:
// what was compared before is compared again.
func TestDamageBehindALivingConnection(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	l, v, back := d.living()
	hit := write(t, l, v, 1, 20)
	other := write(t, l, v, 2, 2)
	d.damage(5)
	back()
	d.refuses(l, v, hit, nudge("a"))
	d.takes(l, v, other)
}

// The server is restarted, damaged, while a record is on its way: what was compared
// before the record was first sent is compared again before it is sent again. The
// session's last record is whole, so that the compare-and-set alone would take it.
func TestDamageBehindAnAppendOnItsWay(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	l, v, back := d.living()
	hit := write(t, l, v, 1, 20)
	other := write(t, l, v, 2, 2)
	l.Intercept(onTheWay(func(stream.Publish, *nats.Msg) { d.damage(5); back() }))
	d.refuses(l, v, hit, nudge("a"))
	d.takes(l, v, other)
}

// A worker asks a mirror again, which may hold the very record by then: that is no
// conflict.
func TestRestartBehindAnAppendOnItsWay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stored bool
		says   func(id session.ID, tail uint64) error
		lost   bool
	}{
		"stored, and the mirror holds it":         {true, holdsMore, false},
		"stored, and the mirror does not hold it": {true, nil, false},
		"not stored": {false, nil, false},
		"stored, and the mirror has found a loss": {true, foundLoss, true},
		"not stored, and it has found a loss":     {false, foundLoss, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t)
			held := &mirror{witness: func(session.ID, uint64) error { return nil }}
			l, v, back := d.living(func(c *stream.Config) { c.Witness = held })
			id := write(t, l, v, 1, 1)
			l.Intercept(onTheWay(func(next stream.Publish, m *nats.Msg) {
				if tt.stored {
					if _, err := next(t.Context(), m); err != nil {
						t.Error(err)
					}
				}
				held.says = tt.says
				d.restart(nil)
				back()
			}))
			c := nudge("a")
			c.Once = true
			done, err := l.Append(t.Context(), v, id, c)
			if tt.lost {
				if !errors.Is(err, session.ErrLoss) || !errors.Is(err, stream.ErrUnknown) {
					t.Errorf("got %v, want a loss that leaves open whether it is written", err)
				}
				return
			}
			if err != nil || done.StreamSeq != 3 {
				t.Errorf("got %d, %v, want it at 3", done.StreamSeq, err)
			}
			if ids, _ := nudges(t, l, id); len(ids) != 2 {
				t.Errorf("stored %v, want two", ids)
			}
		})
	}
}

// A worker's view is read from the stream: whether the stream has lost the log's end,
// or a record of it, only a mirror knows. It is asked before the first append.
func TestAWorkerAsksAMirrorFirst(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]func(id session.ID, tail uint64) error{
		"it holds more": holdsMore, "it has found a loss": foundLoss,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t)
			l, v := d.log()
			id := write(t, l, v, 1, 1)
			held := &mirror{witness: func(session.ID, uint64) error { return nil }, says: says}
			l, v = d.log(func(c *stream.Config) { c.Witness = held })
			d.refuses(l, v, id, nudge("a"))
			held.says = nil
			l, v = d.log(func(c *stream.Config) { c.Witness = held })
			d.takes(l, v, id)
		})
	}
}

// onTheWay does something to the first record that is sent, and answers nothing.
func onTheWay(do func(next stream.Publish, m *nats.Msg)) func(stream.Publish) stream.Publish {
	return func(next stream.Publish) stream.Publish {
		first := true
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			if !first {
				return next(ctx, m)
			}
			first = false
			do(next, m)
			return nil, nats.ErrTimeout
		}
	}
}

// mirror is a coordinator's, as a worker asks it.
type mirror struct {
	witness
	says func(id session.ID, tail uint64) error // of what is beyond a tail; nil for nothing
}

func holdsMore(id session.ID, tail uint64) error {
	return &session.ConflictError{Session: id, Want: tail, Tail: tail + 1}
}

func foundLoss(id session.ID, tail uint64) error {
	return &session.CorruptError{Session: id, StreamSeq: tail, Loss: true, Reason: session.ErrLoss}
}

func (m *mirror) Beyond(_ context.Context, id session.ID, tail uint64) error {
	if m.says == nil {
		return nil
	}
	return m.says(id, tail)
}

// A child's genesis may stand in two spaces, which is corrupt. If the second cannot be
// read any more that is a loss, and no other answer.
func TestDamageOfASecondGenesis(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	l, v := d.log()
	parent := begin(t, l, v, 1)
	child := session.ChildID(parent, "1.1.0")
	w := world{coordinator: d.b.Conn(t, broker.Coordinator, "coordinator")}
	for _, space := range []session.ID{parent, child} {
		plant(t, w, stream.Subject(session.Address{Session: child, Class: session.ClassGenesis, Creator: space}), nil, "x")
	}
	d.damage(3)
	l, _ = d.log()
	_, err := l.Genesis(t.Context(), child, "")
	if corrupt, ok := errors.AsType[*session.CorruptError](err); !ok || !corrupt.Loss || corrupt.Session != child || !errors.Is(err, session.ErrLoss) {
		t.Errorf("got %v, want a loss of %s", err, child)
	}
}

// Nothing is damaged: a restart alone stops nobody.
func TestRestartIsNoDamage(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	l, v := d.log()
	id := write(t, l, v, 1, 20)
	d.restart(nil)
	l, fresh := d.log()
	for i, v := range []stream.Viewer{remembering(v, l), fresh} {
		if _, err := l.Append(t.Context(), v, id, nudge(strconv.Itoa(i))); err != nil {
			t.Errorf("view %d: %v", i, err)
		}
	}
}
