package stream_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/stream"
)

// The server that leads the log, delivers it to a follower and leads the work queue
// is killed while writers append. Within the standard budget they go on: what was
// acknowledged stands, once, the follower sees every record once and in order, and
// each hint is handed out.
func TestClusterKilledLeader(t *testing.T) {
	t.Parallel()
	const logs, least = 3, 5 // appends of each writer after the kill
	p := natstest.StartProcesses(t)
	w := provisioned(t, p, natstest.Nodes)
	standard := func(c *stream.Config) { c.Budget, c.Timeout = 15*time.Second, 2*time.Second }
	l, v := w.log(t, standard)
	id := begin(t, l, v, 1)

	var said warnings
	far, _ := logOf(t, p.Conn(t, broker.Coordinator, "coordinator"), standard, func(c *stream.Config) {
		c.Silence, c.Logger = time.Second, said.logger()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var followed trail
	followEnded := make(chan error, 1)
	go func() { followEnded <- followed.run(ctx, far) }()
	appendNudges(t, l, v, id, "first", "second")
	until(t, "the first records", func() bool { return followed.last() == 3 })
	victim := gather(t, p)
	hints, hintsEnded := make(chan uint64, 1000), make(chan struct{})
	worker, _ := logOf(t, p.Conn(t, broker.Worker, "w1"), standard, func(c *stream.Config) { c.Silence = time.Second })
	go func() { defer close(hintsEnded); takeHints(ctx, t, worker, hints) }()

	var killed atomic.Bool
	var after [logs]atomic.Int64
	writing := make(chan map[string]uint64, 1)
	go func() {
		writing <- writers(t, logs, func(int) (*stream.Log, *folder) { return w.log(t, standard) }, id, func(i, _ int) bool {
			return !killed.Load() || after[i].Add(1) <= least
		})
	}()
	until(t, "appends under way", func() bool { return followed.last() > 10 })
	p.Kill(t, victim)
	start := time.Now()
	killed.Store(true)
	acks := <-writing
	t.Logf("appends went on within %v", time.Since(start).Round(100*time.Millisecond))
	acks["first"], acks["second"] = 2, 3
	settled(t, w, id, acks)

	last := uint64(len(acks) + 1)
	until(t, "the follower at the end", func() bool { return followed.last() >= last })
	handed := map[uint64]bool{}
	until(t, "every hint", func() bool {
		select {
		case seq := <-hints:
			handed[seq] = true
		default:
		}
		return len(handed) == int(last)
	})
	cancel()
	if err := <-followEnded; err != nil {
		t.Error(err)
	}
	<-hintsEnded
	followed.whole(t, last)
	if followed.resets == 0 && len(said.about(t, "delivery of a partition fell silent")) == 0 {
		t.Error("the delivery was lost with its server, and nothing was said")
	}
}

// gather has one server lead the log and the work queue and deliver the log, and
// returns which.
func gather(t *testing.T, p natstest.Processes) int {
	t.Helper()
	js := p.JetStream(t)
	var delivery string
	for name := range js.ConsumerNames(logStream) {
		if name != "work" {
			delivery = name
		}
	}
	server := p.ConsumerLeader(t, logStream, delivery)
	p.Gather(t, logStream, "work", server)
	return server
}

// takeHints acknowledges what the work queue hands out, as a worker that goes on
// after an error does.
func takeHints(ctx context.Context, t *testing.T, worker *stream.Log, hints chan<- uint64) {
	t.Helper()
	q, err := worker.Queue(0)
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		h, err := q.Next(ctx)
		if err != nil {
			continue // what failed may pass
		}
		_ = h.Ack(ctx) // in doubt, it may come again or not
		hints <- h.StreamSeq
	}
}
