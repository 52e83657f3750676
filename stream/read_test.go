package stream_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// open is a server without roles, on which a test does what no role may.
func open(t testing.TB) *nats.Conn {
	t.Helper()
	return dial(t, serve(t, server.Options{JetStream: true, StoreDir: t.TempDir()}))
}

func serve(t testing.TB, opts server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	s, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server did not start")
	}
	return s
}

func dial(t testing.TB, s *server.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// lossy is an open server whose log stream lets a test delete.
func lossy(t testing.TB) (*stream.Log, *folder, jetstream.Stream) {
	t.Helper()
	nc := open(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ENTAIL_LOG_0", Subjects: []string{"entail.log.0.>"}, AllowDirect: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, v := logOf(t, nc)
	return l, v, s
}

func appendNudges(t testing.TB, l *stream.Log, v stream.Viewer, id session.ID, ids ...string) {
	t.Helper()
	for _, n := range ids {
		if _, err := l.Append(t.Context(), v, id, nudge(n)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadInPages(t *testing.T) {
	t.Parallel()
	const n = 600 // more than two pages of 256
	w := newWorld(t)
	l, v := w.log(t)
	id, other := begin(t, l, v, 1), begin(t, l, v, 2)
	subject := stream.Subject(session.Address{Session: id, Class: session.ClassInbox})
	for i := range n {
		plant(t, w, subject, nil, strconv.Itoa(i))
	}
	appendNudges(t, l, v, other, "x")
	var got []uint64
	tail, err := l.Read(t.Context(), id, 0, func(r session.Raw) error { got = append(got, r.StreamSeq); return nil })
	want := []uint64{1}
	for i := range n {
		want = append(want, uint64(i)+3)
	}
	if err != nil || tail != n+2 || !slices.Equal(got, want) {
		t.Errorf("read %d records to tail %d, %v; want %d to %d", len(got), tail, err, len(want), n+2)
	}
	stop := errors.New("enough")
	if tail, err := l.Read(t.Context(), id, 10, func(session.Raw) error { return stop }); !errors.Is(err, stop) || tail != 10 {
		t.Errorf("stopped: tail %d, %v", tail, err)
	}
	if tail, err := l.Tail(t.Context(), id); err != nil || tail != n+2 {
		t.Errorf("tail %d, %v, want %d", tail, err, n+2)
	}
	if tail, err := l.Tail(t.Context(), rootID(t, 3)); err != nil || tail != 0 {
		t.Errorf("tail of nothing %d, %v", tail, err)
	}
}

func TestEveryReadShowsTheSameRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	appendNudges(t, l, v, id, "a")
	byRead := records(t, l, id)[1]
	at, err := l.At(t.Context(), 0, 2)
	if diff := cmp.Diff(byRead, at); err != nil || diff != "" {
		t.Errorf("At: %v (-Read +At)\n%s", err, diff)
	}
	followed := follow(t, l, 0, 2)
	if diff := cmp.Diff(byRead, followed[1]); diff != "" {
		t.Errorf("-Read +Follow\n%s", diff)
	}
	last, err := l.Last(t.Context(), id)
	if diff := cmp.Diff(byRead, last); err != nil || diff != "" {
		t.Errorf("Last: %v (-Read +Last)\n%s", err, diff)
	}
	if last, err = l.Last(t.Context(), rootID(t, 3)); err != nil || last.StreamSeq != 0 {
		t.Errorf("Last of nothing: %+v, %v", last, err)
	}
	if _, err := l.At(t.Context(), 0, 9); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("At nothing: %v", err)
	}
}

// What a worker's key stores may carry the headers and the status that the
// server answers with. None of it counts.
func TestStoredHeadersAreNoServersAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	turn := stream.Subject(session.Address{Session: id, Class: session.ClassTurn})
	policy := stream.Subject(session.Address{Session: id, Class: session.ClassPolicy})
	forged := []nats.Header{
		{"Nats-Subject": {policy}, "Nats-Sequence": {"99"}, "Nats-Num-Pending": {"0"}, "Nats-Time-Stamp": {"x"}},
		{"Status": {"404"}},
		{"Status": {"204"}, "Description": {"EOB"}},
		{"Status": {"100"}},
		{"Status": {"409"}, "Description": {"Consumer Deleted"}},
		{"Status": {"503"}},
	}
	for _, h := range forged {
		plant(t, w, turn, h, "")
	}
	appendNudges(t, l, v, id, "after")
	want := len(forged) + 2
	for name, got := range map[string][]session.Raw{"Read": records(t, l, id), "Follow": follow(t, l, 0, want)} {
		if len(got) != want {
			t.Fatalf("%s: %d records, want %d", name, len(got), want)
		}
		for i, r := range got[1 : want-1] {
			if r.Address.Class != session.ClassTurn || r.StreamSeq != uint64(i)+2 || r.Hole {
				t.Errorf("%s: forged record %d reads as %v at %d, hole %t", name, i, r.Address.Class, r.StreamSeq, r.Hole)
			}
		}
	}
}

// After a leader is lost there is a moment in which nobody serves a stream. What is
// read then is tried again, like a request that is lost.
func TestNobodyWhoServesIsNoAnswer(t *testing.T) {
	t.Parallel()
	_, _, _, err := stream.Answered(&nats.Msg{Header: nats.Header{"Status": {"503"}}})
	if !errors.Is(err, stream.ErrNoAnswer) || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("got %v, want %v and %v", err, stream.ErrNoAnswer, nats.ErrNoResponders)
	}
}

// A message outside every space is in no log, but it has its place in the stream;
// one inside a space that no record can be is the session's to judge.
func TestForeignSubjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	plant(t, w, "entail.log.0.x.y.turn", nil, "")
	plant(t, w, "entail.log.0."+string(rootID(t, 2)+"."+id)+".turn", nil, "")
	appendNudges(t, l, v, id, "a")
	var got []uint64
	for _, r := range follow(t, l, 0, 4) {
		if foreign := r.StreamSeq == 2 || r.StreamSeq == 3; r.Hole || foreign != (r.Address == session.Address{}) {
			t.Errorf("record at %d: address %v, hole %t", r.StreamSeq, r.Address, r.Hole)
		}
		got = append(got, r.StreamSeq)
	}
	if !slices.Equal(got, []uint64{1, 2, 3, 4}) {
		t.Errorf("followed %v, want 1 to 4", got)
	}
	plant(t, w, "entail.log.0."+string(id+"."+id)+".other", nil, "")
	if _, err := l.Append(t.Context(), v, id, nudge("b")); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("got %v, want the session stopped", err)
	}
}

func TestGenesisIsFoundWithoutItsHint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	parent := begin(t, l, v, 1)
	child := session.ChildID(parent, "1.1.0")
	if _, err := l.Genesis(t.Context(), child, parent); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	at := plant(t, w, stream.Subject(session.Address{Session: child, Class: session.ClassGenesis, Creator: parent}), nil, "x")
	for _, hint := range []session.ID{"", parent, child} {
		raw, err := l.Genesis(t.Context(), child, hint)
		if err != nil || raw.StreamSeq != at || raw.Address.Creator != parent {
			t.Errorf("with hint %q: %v at %d, %v", hint, raw.Address, raw.StreamSeq, err)
		}
	}
	plant(t, w, stream.Subject(session.Address{Session: child, Class: session.ClassGenesis, Creator: child}), nil, "y")
	if _, err := l.Genesis(t.Context(), child, ""); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("two geneses: %v, want it corrupt", err)
	}
	if raw, err := l.Genesis(t.Context(), child, parent); err != nil || raw.StreamSeq != at {
		t.Errorf("with its hint: %d, %v", raw.StreamSeq, err)
	}
	for _, bad := range []session.ID{"", "x", "*", "0001k9z3x5q8r7m6n4p2v0w1y3z5.>", "0901k9z3x5q8r7m6n4p2v0w1y3z5", session.ID(strings.Repeat("a", 300))} {
		if _, err := l.Genesis(t.Context(), bad, ""); err == nil {
			t.Errorf("genesis of %q was found", bad)
		}
	}
}

// follow takes n records of a partition after a sequence.
func follow(t testing.TB, l *stream.Log, after uint64, n int) []session.Raw {
	t.Helper()
	var out []session.Raw
	for enough := errors.New("enough"); ; {
		err := l.Follow(t.Context(), 0, after, func(batch []session.Raw) error {
			if out = append(out, batch...); len(out) >= n {
				return enough
			}
			after = batch[len(batch)-1].StreamSeq
			return nil
		})
		if errors.Is(err, enough) {
			return out
		}
		if !errors.Is(err, stream.ErrReset) {
			t.Fatalf("follow: %v", err)
		}
	}
}

func TestFollowGoesOnWhileRecordsCome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan uint64, 10)
	ended := make(chan error, 1)
	go func() {
		ended <- l.Follow(ctx, 0, 1, func(batch []session.Raw) error {
			for _, r := range batch {
				got <- r.StreamSeq
			}
			return nil
		})
	}()
	for i := range 5 {
		appendNudges(t, l, v, id, strconv.Itoa(i))
		if seq := receive(t, "a record", got); seq != uint64(i)+2 {
			t.Errorf("followed %d, want %d", seq, i+2)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, stream.ErrReset) {
		t.Errorf("ended with %v", err)
	}
}

func TestHoles(t *testing.T) {
	t.Parallel()
	l, v, s := lossy(t)
	id, other := begin(t, l, v, 1), begin(t, l, v, 2)
	appendNudges(t, l, v, id, "a", "b") // 3, 4
	appendNudges(t, l, v, other, "c")   // 5
	appendNudges(t, l, v, id, "d")      // 6
	holes := func(raws []session.Raw) (at []uint64) {
		for _, r := range raws {
			if r.Hole {
				at = append(at, r.StreamSeq)
			}
		}
		return at
	}
	if got := holes(records(t, l, id)); got != nil {
		t.Errorf("holes %v in a whole session", got)
	}
	for _, seq := range []uint64{4} {
		if err := s.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	if got := holes(records(t, l, id)); !slices.Equal(got, []uint64{6}) {
		t.Errorf("holes %v, want one in front of 6", got)
	}
	if got := holes(records(t, l, other)); got != nil {
		t.Errorf("holes %v in a session that lacks nothing", got)
	}
	all := records(t, l, id)
	d, err := strconv.ParseUint(all[len(all)-1].Headers[session.HeaderSeq], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for next, want := range map[session.Seq][]uint64{session.Seq(d) - 1: {6}, session.Seq(d): nil} {
		var got []session.Raw
		_, err := l.ReadOn(t.Context(), id, 3, next, func(r session.Raw) error { got = append(got, r); return nil })
		if at := holes(got); err != nil || !slices.Equal(at, want) {
			t.Errorf("read on for seq %d: holes %v, %v, want %v", next, at, err, want)
		}
	}
	if got := holes(follow(t, l, 0, 5)); !slices.Equal(got, []uint64{5}) {
		t.Errorf("followed holes %v, want one in front of 5", got)
	}
	if got := holes(follow(t, l, 3, 2)); !slices.Equal(got, []uint64{5}) {
		t.Errorf("followed holes %v after 3, want one in front of 5", got)
	}
	info, err := l.Info(t.Context(), 0)
	if err != nil || info.Deleted != 1 || info.FirstSeq != 1 || info.LastSeq != 6 || info.Incarnation == "" {
		t.Errorf("info %+v, %v", info, err)
	}
}

func TestFollowEndsWhenItsStreamIsReplaced(t *testing.T) {
	t.Parallel()
	l, v, s := lossy(t)
	id := begin(t, l, v, 1)
	appendNudges(t, l, v, id, "a")
	before, err := l.Info(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{}, 2)
	ended := make(chan error, 1)
	go func() {
		ended <- l.Follow(t.Context(), 0, 0, func([]session.Raw) error { started <- struct{}{}; return nil })
	}()
	receive(t, "a record", started)
	receive(t, "the record of the consumer", started)
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(l.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "ENTAIL_LOG_0"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), s.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "the end", ended); !errors.Is(err, stream.ErrReset) {
		t.Errorf("ended with %v, want a reset", err)
	}
	after, err := l.Info(t.Context(), 0)
	if err != nil || after.Incarnation == before.Incarnation {
		t.Errorf("incarnation %s, %v, before %s; want another", after.Incarnation, err, before.Incarnation)
	}
}
