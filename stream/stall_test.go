package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// What is delivered stalls while the server's heartbeats flow, as they do for a
// consumer that is paused: the delivery is made again and brings each record once, the
// work queue is asked anew, and both say so.
func TestAStallWhileHeartbeatsFlow(t *testing.T) {
	t.Parallel()
	nc := open(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var said warnings
	l, v := logOf(t, nc, func(c *stream.Config) { c.Silence, c.Logger = time.Second, said.logger() })
	if err := l.Provision(t.Context(), stream.ProvisionConfig{}); err != nil {
		t.Fatal(err)
	}
	id := begin(t, l, v, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var followed trail
	ended, hints := make(chan error, 1), make(chan uint64, 10)
	go func() { ended <- followed.run(ctx, l) }()
	appendNudges(t, l, v, id, "a", "b")
	until(t, "the first records", func() bool { return followed.last() == 3 })
	tended := make(chan struct{})
	go func() { defer close(tended); tend(ctx, t, l, hints) }()
	for want := range uint64(3) {
		if got := receive(t, "a hint", hints); got != want+1 {
			t.Errorf("hint %d was handed out, want %d", got, want+1)
		}
	}
	pauseAll(t, js)
	appendNudges(t, l, v, id, "c", "d")
	for _, what := range []string{"delivery of a partition fell silent", "work queue fell silent"} {
		var warned []warning
		until(t, "the warning: "+what, func() bool {
			warned = slices.DeleteFunc(said.about(t, what), func(w warning) bool { return !strings.Contains(w.Error, "the stream goes on") })
			if len(warned) == 0 {
				pauseAll(t, js) // a busy machine may have lost touch, and made the delivery again
			}
			return len(warned) > 0
		})
		if w := warned[0]; w.Level != "WARN" || w.Partition == nil || *w.Partition != 0 || w.Silent < time.Second {
			t.Errorf("warned %+v, want partition 0 stalled for a second", w)
		}
	}
	until(t, "the other records", func() bool { return followed.last() == 5 })
	if _, err := js.ResumeConsumer(ctx, logStream, "work"); err != nil {
		t.Fatal(err)
	}
	for want := range uint64(2) {
		if got := receive(t, "a hint", hints); got != want+4 {
			t.Errorf("hint %d was handed out, want %d", got, want+4)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-tended
	followed.whole(t, 5)
}

// pauseAll pauses every delivery of the log stream.
func pauseAll(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	s, err := js.Stream(t.Context(), logStream)
	if err != nil {
		t.Fatal(err)
	}
	names := s.ConsumerNames(t.Context())
	for name := range names.Name() {
		_, err := js.PauseConsumer(t.Context(), logStream, name, time.Now().Add(time.Hour))
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Fatal(err)
		}
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
}

// tend acknowledges what the work queue hands out, and asks it each time for a moment
// only.
func tend(ctx context.Context, t *testing.T, l *stream.Log, hints chan<- uint64) {
	t.Helper()
	q, err := l.Queue(0)
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		moment, cancel := context.WithTimeout(ctx, 1100*time.Millisecond)
		h, err := q.Next(moment)
		if err == nil {
			err = h.Ack(ctx)
			hints <- h.StreamSeq
		}
		cancel()
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("work: %v", err)
		}
	}
}

// A partition that answers, but lets nobody make a delivery, is asked again and again
// with pauses, and then is a reset.
func TestFollowPausesBeforeItAsksAgain(t *testing.T) {
	t.Parallel()
	const budget, least, most = time.Second, 3, 20
	nc := open(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: logStream, Subjects: []string{"entail.log.0.>"}, AllowDirect: true, MaxConsumers: 1,
	})
	if err == nil {
		_, err = s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "only"})
	}
	if err != nil {
		t.Fatal(err)
	}
	var said warnings
	l, v := logOf(t, nc, func(c *stream.Config) { c.Budget, c.Logger = budget, said.logger() })
	begin(t, l, v, 1)
	var got []session.Raw
	err = l.Follow(t.Context(), 0, 0, func(batch []session.Raw) error { got = append(got, batch...); return nil })
	if !errors.Is(err, stream.ErrReset) || len(got) != 1 {
		t.Errorf("ended with %v after %d records, want a reset after one", err, len(got))
	}
	if n := len(said.about(t, "delivery of a partition fell silent")); n < least || n > most {
		t.Errorf("it was asked again %d times in %v, want %d to %d", n, budget, least, most)
	}
}

// However long the silence may last that is borne, the queue is asked for longer, so
// that it is heard.
func TestAPullLastsLongerThanTheSilence(t *testing.T) {
	t.Parallel()
	const silence = 20 * time.Second
	_, m, _, _ := behind(t)
	l, _ := logOf(t, m.nc, func(c *stream.Config) { c.Silence = silence })
	q, err := l.Queue(0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pulls := make(chan []byte, 1)
	m.instead(0, func(r *nats.Msg) bool {
		if strings.Contains(r.Subject, ".CONSUMER.MSG.NEXT.") {
			select {
			case pulls <- r.Data:
			default:
			}
		}
		return false
	}, nats.Msg{})
	ended := make(chan error, 1)
	go func() { _, err := q.Next(ctx); ended <- err }()
	var pull struct {
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}
	if err := json.Unmarshal(receive(t, "a pull", pulls), &pull); err != nil {
		t.Fatal(err)
	}
	if pull.Heartbeat != silence/2 || pull.Expires <= 2*silence {
		t.Errorf("pulled for %v with a heartbeat each %v, want more than %v, and %v", pull.Expires, pull.Heartbeat, 2*silence, silence/2)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
