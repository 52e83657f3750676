//nolint:thelper // what takes a t here is a test, which TestClusterFaults runs
package stream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

const logStream = "ENTAIL_LOG_0"

// faults are tests of what happens to one deployment of a cluster alone.
var faults = map[string]func(*testing.T){
	"replicas":              clusterReplicas,
	"racing writers":        clusterRace,
	"busy":                  clusterBusy,
	"spurious conflict":     clusterSpuriousConflict,
	"late acknowledgement":  func(t *testing.T) { clusterAcknowledgement(t, (*natstest.Proxy).Hold) },
	"lost acknowledgement":  func(t *testing.T) { clusterAcknowledgement(t, (*natstest.Proxy).Drop) },
	"leaders step down":     clusterStepDown,
	"cut from the leader":   func(t *testing.T) { clusterPartition(t, natstest.ToServer, natstest.ToClient) },
	"unheard by the leader": func(t *testing.T) { clusterPartition(t, natstest.ToServer) },
	"deaf to the leader":    func(t *testing.T) { clusterPartition(t, natstest.ToClient) },
	"spent budget":          clusterBudget,
	"delivery held back":    clusterHeldDelivery,
	"F4":                    clusterF4,
}

func TestClusterFaults(t *testing.T) {
	t.Parallel()
	share(t, len(faults))
	for name, test := range faults {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t) })
	}
}

// deployment is the cluster's side of a world.
func (w world) deployment(t testing.TB) *natstest.Deployment {
	t.Helper()
	d, ok := w.servers.(*natstest.Deployment)
	if !ok {
		t.Fatalf("the world is on %T", w.servers)
	}
	return d
}

// via is a log behind a proxy in front of the leader of the log stream.
func (w world) via(t testing.TB, edit func(*stream.Config), elsewhere ...string) (*natstest.Proxy, *stream.Log, *folder) {
	t.Helper()
	d := w.deployment(t)
	p := natstest.StartProxy(t, clusterOf(t).URL(d.Leader(t, logStream)))
	nc := d.ConnURL(t, strings.Join(append([]string{p.URL()}, elsewhere...), ","), broker.Coordinator, "coordinator",
		nats.DontRandomize(), nats.IgnoreDiscoveredServers(), nats.PingInterval(100*time.Millisecond), nats.Timeout(time.Second))
	l, v := logOf(t, nc, func(c *stream.Config) { c.Budget = 30 * time.Second }, edit)
	return p, l, v
}

func asIs(*stream.Config) {}

func clusterReplicas(t *testing.T) {
	w := newWorld(t)
	d := w.deployment(t)
	for replicas, right := range map[int]bool{1: false, 3: true, 5: false} {
		l, _ := w.log(t, func(c *stream.Config) { c.Replicas = replicas })
		err := l.Check(t.Context())
		if right != (err == nil) || !right && (!errors.Is(err, stream.ErrSetting) || !strings.Contains(err.Error(), fmt.Sprintf("has replicas 3, it must be %d", replicas))) {
			t.Errorf("%d replicas: %v", replicas, err)
		}
	}
	js := w.js(t)
	for _, name := range []string{logStream, "KV_ENTAIL_SETTINGS", "KV_ENTAIL_LIVE"} {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if i := s.CachedInfo(); i.Config.Replicas != 3 || i.Cluster == nil || len(i.Cluster.Replicas) != 2 {
			t.Errorf("stream %s: %d replicas, cluster %+v; want three servers", name, i.Config.Replicas, i.Cluster)
		}
	}
	work, err := js.Consumer(t.Context(), logStream, "work")
	if err != nil || len(work.CachedInfo().Cluster.Replicas) != 2 {
		t.Errorf("the work consumer: %v, want it on three servers", err)
	}
	// A deployment of another count is refused where there are not so many servers.
	more, err := stream.New(d.Conn(t, broker.Provisioner, "provisioner"), stream.Config{MaxBytes: 64 << 20, Replicas: 5})
	if err != nil {
		t.Fatal(err)
	}
	if err := more.Provision(t.Context(), stream.ProvisionConfig{AckWait: lease, SettingsBytes: 1 << 20, LiveBytes: 1 << 20}); err == nil {
		t.Error("three servers took five replicas")
	}
}

// codes counts the server's refusals.
type codes struct {
	mu sync.Mutex
	n  map[jetstream.ErrorCode]int
}

func (c *codes) count(l *stream.Log) {
	l.Intercept(func(next stream.Publish) stream.Publish {
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			ack, err := next(ctx, m)
			if api, ok := errors.AsType[*jetstream.APIError](err); ok {
				c.mu.Lock()
				c.n[api.ErrorCode]++
				c.mu.Unlock()
			}
			return ack, err
		}
	})
}

func (c *codes) of(code jetstream.ErrorCode) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[code]
}

// writers append n nudges each, as processes that know nothing of each other, and
// want every append to succeed. It returns where each was acknowledged.
func writers(t *testing.T, logs int, log func(i int) (*stream.Log, *folder), id session.ID, more func(i, n int) bool) map[string]uint64 {
	t.Helper()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		acks = map[string]uint64{}
	)
	for i := range logs {
		l, v := log(i)
		wg.Go(func() {
			for n := 0; more(i, n); n++ {
				name := fmt.Sprintf("n%d-%d", i, n)
				done, err := l.Append(t.Context(), v, id, nudge(name))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				mu.Lock()
				acks[name] = done.StreamSeq
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return acks
}

// stand wants what was acknowledged to stand in the log where it was said to, once,
// and nothing else.
func stand(t *testing.T, l *stream.Log, id session.ID, acks map[string]uint64) {
	t.Helper()
	ids, at := nudges(t, l, id)
	if len(ids) != len(acks) {
		t.Errorf("%d nudges stand in the log, %d were acknowledged", len(ids), len(acks))
	}
	for n, seq := range acks {
		if at[n] != seq {
			t.Errorf("%s was acknowledged at %d and stands at %d", n, seq, at[n])
		}
	}
}

// settled is stand for a reader of its own.
func settled(t *testing.T, w world, id session.ID, acks map[string]uint64) {
	t.Helper()
	l, _ := w.log(t)
	stand(t, l, id, acks)
}

func clusterRace(t *testing.T) {
	const logs, each, least = 6, 15, 20
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	seen := codes{n: map[jetstream.ErrorCode]int{}}
	acks := writers(t, logs, func(int) (*stream.Log, *folder) {
		l, v := w.log(t)
		seen.count(l)
		return l, v
	}, id, func(_, n int) bool { return n < each })
	if len(acks) != logs*each {
		t.Errorf("%d appends were acknowledged, want %d", len(acks), logs*each)
	}
	settled(t, w, id, acks)
	if n := seen.of(10071); n < least {
		t.Errorf("%d conflicts were answered, a race has %d at least", n, least)
	}
	t.Logf("10071 %d times, 10164 %d times", seen.of(10071), seen.of(10164))
}

// Publishes with one expectation that are on their way at once: one is stored, and
// some of the others are told that it is in flight. That happens on replicated
// streams alone.
func clusterBusy(t *testing.T) {
	const burst, least, rounds = 50, 20, 100
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	d := w.deployment(t)
	nc := d.ConnTo(t, d.Leader(t, logStream), broker.Coordinator, "coordinator")
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	busy, tail := 0, uint64(1)
	for round := 0; busy < least; round++ {
		if round == rounds {
			t.Fatalf("10164 was answered %d times in %d rounds, want %d", busy, rounds, least)
		}
		for range burst {
			m := nats.NewMsg(stream.Subject(session.Address{Session: id, Class: session.ClassInbox}))
			m.Reply = answers.Subject
			m.Header.Set("Nats-Expected-Last-Subject-Sequence", decimal(tail))
			m.Header.Set("Nats-Expected-Last-Subject-Sequence-Subject", stream.TailFilter(id))
			if err := nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		var took []uint64
		for range burst {
			m, err := answers.NextMsg(10 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			ack, err := stream.ReadAck(m.Data)
			var api *jetstream.APIError
			switch {
			case err == nil:
				took = append(took, ack.Sequence)
			case errors.As(err, &api) && api.ErrorCode == 10164:
				busy++
			case errors.As(err, &api) && api.ErrorCode == 10071:
			default:
				t.Fatal(err)
			}
		}
		if len(took) != 1 {
			t.Fatalf("%d publishes with one expectation were stored: %v", len(took), took)
		}
		tail = took[0]
	}
}

// The record was stored, its answer is lost, and the answers after that say that it
// is in flight and then that it is in conflict, with itself.
func clusterSpuriousConflict(t *testing.T) {
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	tries := 0
	l.Intercept(func(next stream.Publish) stream.Publish {
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			tries++
			switch tries {
			case 1:
				if _, err := next(ctx, m); err != nil {
					t.Errorf("the first try: %v", err)
				}
				return nil, nats.ErrTimeout
			case 2:
				return nil, errBusy
			}
			_, err := next(ctx, m)
			var api *jetstream.APIError
			if !errors.As(err, &api) || api.ErrorCode != 10071 {
				t.Errorf("try %d: %v, want a conflict", tries, err)
			}
			return nil, err
		}
	})
	c := nudge("a")
	c.Once = true
	done, err := l.Append(t.Context(), v, id, c)
	if err != nil || done.StreamSeq != 2 || tries != 3 {
		t.Errorf("got %d, %v after %d tries, want it at 2 after three", done.StreamSeq, err, tries)
	}
	settled(t, w, id, map[string]uint64{"a": 2})
}

// What the leader answers comes late, or never: the record stands once, and Append
// says where.
func clusterAcknowledgement(t *testing.T, shut func(*natstest.Proxy, ...natstest.Way)) {
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	proxy, far, fv := w.via(t, asIs)
	var once sync.Once
	sent := make(chan struct{})
	far.Intercept(func(next stream.Publish) stream.Publish {
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			once.Do(func() {
				shut(proxy, natstest.ToClient)
				close(sent)
			})
			return next(ctx, m)
		}
	})
	type result struct {
		done stream.Done
		err  error
	}
	got := make(chan result, 1)
	go func() {
		done, err := far.Append(t.Context(), fv, id, nudge("a"))
		got <- result{done, err}
	}()
	<-sent
	until(t, "the record", func() bool {
		tail, err := l.Tail(t.Context(), id)
		return err == nil && tail == 2
	})
	select {
	case r := <-got:
		t.Errorf("Append returned %v without an answer", r.err)
	default:
	}
	proxy.Open()
	r := <-got
	if r.err != nil || r.done.StreamSeq != 2 {
		t.Errorf("got %d, %v, want it at 2", r.done.StreamSeq, r.err)
	}
	settled(t, w, id, map[string]uint64{"a": 2})
}

// The leader hands over again and again while several writers append: they wait,
// and nobody sees an error.
func clusterStepDown(t *testing.T) {
	const logs, downs = 3, 3
	w := newWorld(t)
	d := w.deployment(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range downs {
			d.StepDown(t, logStream)
		}
	}()
	acks := writers(t, logs, func(int) (*stream.Log, *folder) {
		return w.log(t, func(c *stream.Config) { c.Budget = 15 * time.Second })
	}, id, func(int, int) bool {
		select {
		case <-over:
			return false
		default:
			return true
		}
	})
	if len(acks) < logs {
		t.Errorf("%d appends, want some of each of %d writers", len(acks), logs)
	}
	settled(t, w, id, acks)
}

// A client that no longer hears its leader, is not heard by it, or both, goes on
// through another server, and says where its record stands.
func clusterPartition(t *testing.T, ways ...natstest.Way) {
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	leader := w.deployment(t).Leader(t, logStream)
	other := clusterOf(t).URL((leader + 1) % natstest.Nodes)
	proxy, far, fv := w.via(t, asIs, other)
	if _, err := far.Append(t.Context(), fv, id, nudge("before")); err != nil {
		t.Fatal(err)
	}
	proxy.Drop(ways...)
	done, err := far.Append(t.Context(), fv, id, nudge("cut off"))
	if err != nil {
		t.Fatalf("behind the partition: %v", err)
	}
	if caught := proxy.Caught(ways[0]); caught == 0 {
		t.Error("nothing was lost")
	}
	if far.Conn().ConnectedUrl() != other {
		t.Errorf("connected to %s, want %s", far.Conn().ConnectedUrl(), other)
	}
	settled(t, w, id, map[string]uint64{"before": 2, "cut off": done.StreamSeq})
}

// An outcome is unknown only after the whole budget, which is 15 s unless somebody
// says otherwise: losing a leader takes up to nine.
func clusterBudget(t *testing.T) {
	const budget = time.Second
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	proxy, far, fv := w.via(t, func(c *stream.Config) { c.Budget, c.Timeout = budget, 200*time.Millisecond })
	if _, err := far.Append(t.Context(), fv, id, nudge("before")); err != nil {
		t.Fatal(err)
	}
	far.Intercept(func(next stream.Publish) stream.Publish {
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			proxy.Hold()
			return next(ctx, m)
		}
	})
	start := time.Now()
	_, err := far.Append(t.Context(), fv, id, nudge("a"))
	if lasted := time.Since(start); !errors.Is(err, stream.ErrUnknown) || lasted < budget {
		t.Errorf("got %v after %v, want an unknown outcome after %v", err, lasted, budget)
	}
	standard, err := stream.New(w.coordinator, stream.Config{})
	if err != nil || standard.Budget() < 15*time.Second {
		t.Errorf("the budget is %v, %v, want 15s at least", standard.Budget(), err)
	}
}

// warnings keeps what is logged.
type warnings struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (w *warnings) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *warnings) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(w, nil)) }

// warning is a line of a log about something that fell silent.
type warning struct {
	Level, Msg string
	Partition  *int
	After      uint64
	Silent     time.Duration
	Error      string
}

// about returns the warnings whose message begins so.
func (w *warnings) about(t testing.TB, what string) []warning {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []warning
	for line := range bytes.SplitSeq(bytes.TrimSpace(w.text.Bytes()), []byte("\n")) {
		var one warning
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if strings.HasPrefix(one.Msg, what) {
			out = append(out, one)
		}
	}
	return out
}

// trail follows a partition for a while and keeps what came.
type trail struct {
	mu     sync.Mutex
	seqs   []uint64
	resets int
}

// run follows as every caller does: again after a reset.
func (r *trail) run(ctx context.Context, l *stream.Log) error {
	for after := uint64(0); ; {
		err := l.Follow(ctx, 0, after, func(batch []session.Raw) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, raw := range batch {
				r.seqs = append(r.seqs, raw.StreamSeq)
				after = raw.StreamSeq
			}
			return nil
		})
		switch {
		case errors.Is(err, context.Canceled):
			return nil
		case !errors.Is(err, stream.ErrReset):
			return err
		}
		r.mu.Lock()
		r.resets++
		r.mu.Unlock()
	}
}

func (r *trail) last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seqs) == 0 {
		return 0
	}
	return r.seqs[len(r.seqs)-1]
}

// whole wants every sequence up to last, once and in order.
func (r *trail) whole(t *testing.T, last uint64) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	want := make([]uint64, last)
	for i := range want {
		want[i] = uint64(i) + 1
	}
	if !slices.Equal(r.seqs, want) {
		t.Errorf("followed %v, want 1 to %d", r.seqs, last)
	}
}

// What the server delivers is held back while other records come: the delivery is
// asked for again, loudly, and brings each record once.
func clusterHeldDelivery(t *testing.T) {
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	var said warnings
	proxy, far, _ := w.via(t, func(c *stream.Config) { c.Silence, c.Logger = time.Second, said.logger() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var followed trail
	ended := make(chan error, 1)
	go func() { ended <- followed.run(ctx, far) }()
	appendNudges(t, l, v, id, "a", "b")
	until(t, "the first records", func() bool { return followed.last() == 3 })
	proxy.Hold(natstest.ToClient)
	appendNudges(t, l, v, id, "c", "d")
	const what = "delivery of a partition fell silent"
	// A busy machine may be silent before that.
	var warned []warning
	until(t, "a warning of the silence after 3", func() bool {
		warned = slices.DeleteFunc(said.about(t, what), func(w warning) bool { return w.After != 3 })
		return len(warned) > 0
	})
	proxy.Open()
	until(t, "the other records", func() bool { return followed.last() == 5 })
	first := warned[0]
	if first.Level != "WARN" || first.Partition == nil || *first.Partition != 0 || first.Silent < time.Second {
		t.Errorf("warned %+v, want partition 0 silent for a second", first)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	followed.whole(t, 5)
}

// The leader of the work queue goes down again and again while calls are queued, and
// then the worker is cut off while one is queued each second: each is handed out in
// time, and none that was acknowledged comes again.
func clusterF4(t *testing.T) {
	const bound = 10 * time.Second
	downs, seconds := rounds(t, 2, 20), rounds(t, 2, 30)
	w := newWorld(t)
	d := w.deployment(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	proxy := natstest.StartProxy(t, clusterOf(t).URL(0))
	// A server that says nothing is left, and asked again, sooner than by a fleet.
	nc := d.ConnURL(t, proxy.URL(), broker.Worker, "w1", nats.IgnoreDiscoveredServers(),
		nats.PingInterval(100*time.Millisecond), nats.Timeout(time.Second), nats.ReconnectWait(50*time.Millisecond))
	worker, _ := logOf(t, nc, func(c *stream.Config) { c.Silence = time.Second })
	q, err := worker.Queue(0)
	if err != nil {
		t.Fatal(err)
	}
	came, taken := map[uint64]bool{}, map[uint64]bool{} // handed out, and acknowledged
	take := func(want uint64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		for !came[want] {
			h, err := q.Next(ctx)
			if ctx.Err() != nil {
				t.Fatalf("the hint at %d was not handed out in %v: %v", want, bound, err)
			}
			if err != nil {
				delay.For(ctx, 10*time.Millisecond) // as a worker does: what failed may pass
				continue
			}
			if taken[h.StreamSeq] {
				t.Errorf("the hint at %d came again after its acknowledgement", h.StreamSeq)
			}
			// One whose acknowledgement is in doubt may come again or not.
			taken[h.StreamSeq] = h.Ack(ctx) == nil
			came[h.StreamSeq] = true
		}
	}
	take(1)
	for n := range downs {
		over := make(chan struct{})
		go func() {
			defer close(over)
			d.StepDownConsumer(t, logStream, "work")
		}()
		for more, i := true, 0; more; i++ {
			select {
			case <-over:
				more = false // one more, by the new leader
			default:
			}
			done, err := l.Append(t.Context(), v, id, nudge(fmt.Sprintf("n%d-%d", n, i)))
			if err != nil {
				t.Fatal(err)
			}
			take(done.StreamSeq)
		}
	}
	proxy.Drop()
	var queued []uint64
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for n := range seconds {
		done, err := l.Append(t.Context(), v, id, nudge(fmt.Sprintf("cut-%d", n)))
		if err != nil {
			t.Fatal(err)
		}
		queued = append(queued, done.StreamSeq)
		<-second.C
	}
	if proxy.Caught(natstest.ToServer)+proxy.Caught(natstest.ToClient) == 0 {
		t.Error("nothing was lost while the worker was cut off")
	}
	proxy.Open()
	for _, seq := range queued {
		take(seq)
	}
}
