package agent_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// lossy is a server without roles, whose log stream a test may lose.
type lossy struct {
	*testing.T
	js     jetstream.JetStream
	log    *stream.Log
	client *client.Client // to which nobody answers
}

func newLossy(t *testing.T) lossy {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server did not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l := lossy{T: t, client: client.New(nc, client.Config{Worker: "w1"})}
	if l.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	if l.log, err = stream.New(nc, stream.Config{Timeout: time.Second, Budget: 3 * time.Second}); err != nil {
		t.Fatal(err)
	}
	return l
}

// restore makes a new stream that holds records alone, in order. It is in the
// server's memory: the server goes on removing a stream's files while it makes the
// next of that name.
func (l lossy) restore(records []session.Raw) {
	l.Helper()
	name := stream.StreamName(0)
	if err := l.js.DeleteStream(l.Context(), name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		l.Fatal(err)
	}
	_, err := l.js.CreateStream(l.Context(), jetstream.StreamConfig{
		Name: name, Subjects: []string{"entail.log.0.>"}, AllowDirect: true, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		l.Fatal(err)
	}
	for _, r := range records {
		l.add(r)
	}
}

func (l lossy) add(r session.Raw) {
	l.Helper()
	m := &nats.Msg{Subject: stream.Subject(r.Address), Data: r.Body, Header: nats.Header{}}
	for k, v := range r.Headers {
		if strings.HasPrefix(k, "Entail-") {
			m.Header[k] = []string{v}
		}
	}
	if _, err := l.js.PublishMsg(l.Context(), m); err != nil {
		l.Fatal(err)
	}
}

// written is a root's records after a turn of some length.
func written(t *testing.T) (*world, session.ID, []session.Raw) {
	t.Helper()
	w := newWorld(t)
	k := w.work("w1", 1)
	id := w.root("sessions:\n  root:\n" + steps(4) + "    - text: done\n")
	w.idle(id)
	w.drained()
	k.die(t)
	return w, id, w.space(id)
}

// A session that a worker holds is gone from the stream, in part or whole, or
// stands there with another history: the worker refuses it as long as that is so,
// however much time passes, and takes it up again when the log it knows is back.
func TestLossOfAHeldSessionFailsClosed(t *testing.T) {
	t.Parallel()
	w, id, log := written(t)
	if len(log) < 15 {
		t.Fatalf("%d records, want more", len(log))
	}
	forged := w.forge(log, func(p session.Payload) session.Payload {
		if m, ok := p.(*session.AssistantMessage); ok && len(m.Calls) == 0 {
			other := *m
			other.Content = "never said"
			return &other
		}
		return p
	})
	for name, left := range map[string][]session.Raw{
		"a tail before the one that was read": log[:len(log)-2],
		"nothing":                             nil,
		"another history of the same length":  forged,
		"another history that is longer":      append(slices.Clone(forged), forged[len(forged)-1]),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLossy(t)
			all := agent.NewReplicas(agent.Config{Log: l.log, Client: l.client}, time.Hour, 10, 1<<30)
			open := func() error {
				_, done, err := all.Open(t.Context(), id)
				if err == nil {
					done()
				}
				return err
			}
			l.restore(log)
			if err := open(); err != nil {
				t.Fatal(err)
			}
			l.restore(left)
			for range 2 {
				if err := open(); !errors.Is(err, session.ErrLoss) {
					t.Errorf("open = %v, want a loss", err)
				}
				all.Forget(time.Now().Add(time.Hour))
			}
			l.restore(log)
			if err := open(); err != nil {
				t.Errorf("open = %v once the log is back", err)
			}
		})
	}
}

// A held session is read on from where it was read, in another incarnation of the
// stream too if that holds the same log; and where void records stand at its end.
func TestHeldSessionIsReadOn(t *testing.T) {
	t.Parallel()
	w, id, log := written(t)
	want := w.folds(log)
	l := newLossy(t)
	all := agent.NewReplicas(agent.Config{Log: l.log, Client: l.client, Logger: slog.New(slog.DiscardHandler)}, time.Hour, 10, 1<<30)
	open := func(next session.Seq, what string) {
		t.Helper()
		r, done, err := all.Open(t.Context(), id)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer done()
		if s, _ := r.State(); s.Next != next {
			t.Errorf("%s: read up to seq %d, want %d", what, s.Next, next)
		}
	}
	half := len(log) / 2
	l.restore(log[:half])
	open(w.folds(log[:half]).Next, "half a log")
	open(w.folds(log[:half]).Next, "half a log again")
	l.restore(log[:half+2])
	open(w.folds(log[:half+2]).Next, "a restored log that goes on")
	junk := session.Raw{Address: session.Address{Session: id, Class: session.ClassTurn}, Body: []byte("junk\n")}
	l.add(junk)
	open(w.folds(log[:half+2]).Next, "a void record at the end")
	open(w.folds(log[:half+2]).Next, "a void record at the end again")
	for _, r := range log[half+2:] {
		l.add(r)
	}
	open(want.Next, "records after a void one")
}

// What is kept of sessions that nobody works on is bounded in number, bytes and
// time; what somebody works on stays.
func TestReplicasAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ids []session.ID
	for range 5 {
		ids = append(ids, w.root("sessions: {root: [{text: done}]}", func(in *client.CreateRequest) { in.Prompt = strings.Repeat("x", 10_000) }))
	}
	cfg := agent.Config{Log: w.log, Client: w.api, Lease: lease}
	open := func(all agent.Replicas, id session.ID) func() {
		t.Helper()
		_, done, err := all.Open(t.Context(), id)
		w.must(err)
		return done
	}
	kept := func(all agent.Replicas, what string, want ...session.ID) {
		t.Helper()
		slices.Sort(want)
		if got, bytes := all.Kept(); !slices.Equal(got, want) || len(want) > 0 && bytes < 10_000*len(want) {
			t.Errorf("%s: kept %v in %d bytes, want %v", what, got, bytes, want)
		}
	}
	byCount := agent.NewReplicas(cfg, time.Hour, 2, 1<<30)
	working := open(byCount, ids[0])
	for _, id := range ids[1:] {
		open(byCount, id)()
	}
	kept(byCount, "two and one in use", ids[0], ids[3], ids[4])
	open(byCount, ids[3])()
	working()
	kept(byCount, "the two used last", ids[0], ids[3])

	byBytes := agent.NewReplicas(cfg, time.Hour, 10, 60_000)
	for _, id := range ids {
		open(byBytes, id)()
	}
	kept(byBytes, "what fits", ids[3], ids[4])

	byTime := agent.NewReplicas(cfg, time.Hour, 10, 1<<30)
	working = open(byTime, ids[0])
	open(byTime, ids[1])()
	byTime.Forget(time.Now().Add(time.Minute))
	kept(byTime, "what is in use", ids[0])
	working()
	byTime.Forget(time.Now().Add(time.Minute))
	kept(byTime, "nothing")
}

// A session that has ended is forgotten at once, and so is one that was stopped.
func TestEndedSessionIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.work("w1", 2)
	id := w.root("sessions: {root: [{text: done}]}")
	w.idle(id)
	w.drained()
	kept := func() bool { ids, _ := k.Replicas().Kept(); return slices.Contains(ids, id) }
	if !kept() {
		t.Error("an idle session is not kept for the next hint")
	}
	w.must(w.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: id, RequestID: "r1"}, nil))
	w.until(id, "ended", func(s session.State) bool { return s.Ended != nil })
	w.drained()
	eventually(t, "the ended session is forgotten", func() bool { return !kept() })
}
