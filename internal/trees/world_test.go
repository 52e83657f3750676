package trees_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// patience bounds how long a test waits for what must come.
const patience = 5 * time.Minute

// inFlight is how many records are on their way to the stream at once.
const inFlight = 512

// world is a broker, a stream of records and the mirror that follows it.
type world struct {
	js    jetstream.JetStream
	log   *stream.Log
	dir   string
	store *sessionstore.Store
	stop  func() error // ends the mirroring
	sent  []sent
	again int // records that the mirror was given again
}

type sent struct {
	seq uint64
	ack jetstream.PubAckFuture
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server := natstest.Start(t)
	owner, err := stream.New(server.Conn(t, broker.Provisioner, string(broker.Provisioner)), stream.Config{})
	if err == nil {
		err = owner.Provision(t.Context(), stream.ProvisionConfig{})
	}
	if err != nil {
		t.Fatalf("provision: %v", err)
	}
	nc := server.Conn(t, broker.Coordinator, string(broker.Coordinator))
	w := &world{dir: t.TempDir()}
	if w.log, err = stream.New(nc, stream.Config{}); err != nil {
		t.Fatal(err)
	}
	if w.js, err = jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(inFlight)); err != nil {
		t.Fatal(err)
	}
	w.store = w.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.store.Run(ctx, feed{w}, 0) }()
	w.stop = func() error {
		cancel()
		return <-done
	}
	return w
}

func (w *world) open(t *testing.T) *sessionstore.Store {
	t.Helper()
	s, err := sessionstore.Open(sessionstore.Config{Dir: w.dir})
	if err != nil {
		t.Fatalf("open the mirror: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the mirror: %v", err)
		}
	})
	return s
}

// publish sends records, in order, on one connection.
func (w *world) publish(t policytest.T, raws []session.Raw) {
	t.Helper()
	for _, raw := range raws {
		m := nats.NewMsg(stream.Subject(raw.Address))
		for k, v := range raw.Headers {
			m.Header[k] = []string{v}
		}
		m.Data = raw.Body
		ack, err := w.js.PublishMsgAsync(m, jetstream.WithStallWait(patience))
		if err != nil {
			t.Fatalf("publish record %d: %v", raw.StreamSeq, err)
		}
		w.sent = append(w.sent, sent{raw.StreamSeq, ack})
	}
}

// read returns what readers make of all that was published: the mirror, closed
// and opened again, and a replay of the stream.
func (w *world) read(t *testing.T) readers {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, s := range w.sent {
		select {
		case ack := <-s.ack.Ok():
			if ack.Sequence != s.seq {
				t.Fatalf("record %d stands at %d", s.seq, ack.Sequence)
			}
		case err := <-s.ack.Err():
			t.Fatalf("publish record %d: %v", s.seq, err)
		case <-ctx.Done():
			t.Fatalf("record %d is not acknowledged", s.seq)
		}
	}
	last := uint64(len(w.sent))
	if err := w.store.WaitFor(ctx, 0, last); err != nil {
		t.Fatalf("mirror up to %d: %v", last, err)
	}
	if err := w.stop(); err != nil {
		t.Fatalf("mirror: %v", err)
	}
	if err := w.store.Close(); err != nil {
		t.Fatalf("close the mirror: %v", err)
	}
	return readers{mirror: w.open(t), replay: w.replay(ctx, t, last)}
}

// replay reads the stream from its beginning. A delivery that breaks goes on where
// it was.
func (w *world) replay(ctx context.Context, t *testing.T, last uint64) *sessiontest.Replica {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := sessiontest.Replay(nil)
	for at := uint64(0); at < last; {
		err := w.log.Follow(ctx, 0, at, func(raws []session.Raw) error {
			for _, raw := range raws {
				r.Next(raw)
				at = raw.StreamSeq
			}
			if at == last {
				cancel()
			}
			return nil
		})
		if at < last && !errors.Is(err, stream.ErrReset) {
			t.Fatalf("read the stream up to %d of %d: %v", at, last, err)
		}
	}
	return r
}

// feed gives the mirror the stream's records, now and then the last ones again.
type feed struct{ world *world }

var _ sessionstore.Feed = feed{}

// Info implements sessionstore.Feed.
func (f feed) Info(ctx context.Context, partition int) (incarnation string, first, last uint64, err error) {
	i, err := f.world.log.Info(ctx, partition)
	return i.Incarnation, i.FirstSeq, i.LastSeq, err
}

// At implements sessionstore.Feed.
func (f feed) At(ctx context.Context, partition int, seq uint64) (session.Raw, error) {
	return f.world.log.At(ctx, partition, seq)
}

// Follow implements sessionstore.Feed.
func (f feed) Follow(ctx context.Context, partition int, after uint64, fn func([]session.Raw) error) error {
	chance := rand.New(rand.NewPCG(2, after))
	var before []session.Raw
	return f.world.log.Follow(ctx, partition, after, func(raws []session.Raw) error {
		again := before[len(before)-chance.IntN(len(before)+1):]
		f.world.again += len(again)
		before = raws
		return fn(append(slices.Clip(again), raws...))
	})
}
