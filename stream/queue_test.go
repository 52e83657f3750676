package stream_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// queue is a worker's queue and a root with one nudge.
func queue(t *testing.T) (*stream.Queue, session.ID) {
	t.Helper()
	q, id, _ := queueOf(t)
	return q, id
}

func queueOf(t *testing.T) (*stream.Queue, session.ID, *stream.Log) {
	t.Helper()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	appendNudges(t, l, v, id, "a")
	worker, _ := logOf(t, w.Conn(t, broker.Worker, "w1"))
	q, err := worker.Queue(0)
	if err != nil {
		t.Fatal(err)
	}
	return q, id, l
}

func next(t *testing.T, q *stream.Queue) *stream.Hint {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	h, err := q.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// empty wants no hint for a while.
func empty(t *testing.T, q *stream.Queue, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if h, err := q.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("took %v, %v, want nothing", h, err)
	}
}

func TestQueueHandsOutInboxAndGenesisUntilAcknowledged(t *testing.T) {
	t.Parallel()
	q, id, l := queueOf(t)
	born, asked := next(t, q), next(t, q)
	if born.Session != id || born.Address.Class != session.ClassGenesis || born.StreamSeq != 1 || born.Deliveries != 1 {
		t.Errorf("first hint %+v, want the genesis", born)
	}
	if asked.Session != id || asked.Address.Class != session.ClassInbox || asked.StreamSeq != 2 {
		t.Errorf("second hint %+v, want the nudge", asked)
	}
	for i, h := range []*stream.Hint{born, asked} {
		at, err := l.At(t.Context(), 0, h.StreamSeq)
		if diff := cmp.Diff(at, h.Record()); err != nil || diff != "" {
			t.Errorf("record of hint %d: %v (-At +Record)\n%s", i, err, diff)
		}
		if err := h.Ack(t.Context()); err != nil {
			t.Error(err)
		}
	}
	empty(t, q, 2*lease)
}

func TestQueueHandsOutAgainWhenTheLeaseRunsOut(t *testing.T) {
	t.Parallel()
	q, _ := queue(t)
	h := next(t, q)
	if err := next(t, q).Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := next(t, q)
	if again.StreamSeq != h.StreamSeq || again.Deliveries != 2 {
		t.Errorf("then %+v, want the first again", again)
	}
	// The first holder's late acknowledgement counts for the second.
	if err := h.Ack(t.Context()); err != nil {
		t.Error(err)
	}
	empty(t, q, 2*lease)
}

func TestQueueLater(t *testing.T) {
	t.Parallel()
	q, _ := queue(t)
	h := next(t, q)
	if err := next(t, q).Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Later(300 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if again := next(t, q); again.StreamSeq != h.StreamSeq || time.Since(start) < 200*time.Millisecond {
		t.Errorf("hint %d came after %v, want %d after 300ms", again.StreamSeq, time.Since(start), h.StreamSeq)
	}
}

func TestQueueWorkingKeepsTheLease(t *testing.T) {
	t.Parallel()
	q, _ := queue(t)
	h := next(t, q)
	if err := next(t, q).Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*lease)
	defer cancel()
	renew := time.NewTicker(lease / 6)
	defer renew.Stop()
	taken := make(chan *stream.Hint, 1)
	go func() {
		again, _ := q.Next(ctx)
		taken <- again
	}()
	for {
		select {
		case <-renew.C:
			if err := h.Working(); err != nil {
				t.Fatal(err)
			}
		case again := <-taken:
			if again != nil {
				t.Errorf("%+v was handed out while its holder worked", again)
			}
			return
		}
	}
}

func TestQueueRefusesAConsumerThatLosesHints(t *testing.T) {
	t.Parallel()
	tests := map[string]jetstream.ConsumerConfig{
		"ack policy":      {AckPolicy: jetstream.AckNonePolicy, MaxAckPending: -1},
		"max deliver":     {AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, MaxDeliver: 3},
		"max ack pending": {AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 5},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, _, s := lossy(t)
			c.Durable = "work"
			if _, err := s.CreateConsumer(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			q, err := l.Queue(0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := q.Next(t.Context()); !errors.Is(err, stream.ErrSetting) {
				t.Errorf("got %v, want the setting refused", err)
			}
		})
	}
}
