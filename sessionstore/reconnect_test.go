package sessionstore_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// logFeed reads a stream in the way that the coordinator does, and counts the
// looks at it. The first thing of each check of a watermark is such a look.
type logFeed struct {
	log           *stream.Log
	looks, resets *atomic.Int64
}

func newLogFeed(t *testing.T, nc *nats.Conn) logFeed {
	t.Helper()
	log, err := stream.New(nc, stream.Config{Budget: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return logFeed{log: log, looks: new(atomic.Int64), resets: new(atomic.Int64)}
}

func (f logFeed) Info(ctx context.Context, partition int) (incarnation string, first, last uint64, err error) {
	i, err := f.log.Info(ctx, partition)
	if err == nil {
		f.looks.Add(1)
	}
	return i.Incarnation, i.FirstSeq, i.LastSeq, err
}

func (f logFeed) At(ctx context.Context, partition int, seq uint64) (session.Raw, error) {
	return f.log.At(ctx, partition, seq)
}

func (f logFeed) Follow(ctx context.Context, partition int, after uint64, fn func([]session.Raw) error) error {
	err := f.log.Follow(ctx, partition, after, fn)
	f.resets.Add(1)
	return err
}

// reaches waits until something was counted so often.
func reaches(t *testing.T, counted *atomic.Int64, n int64) {
	t.Helper()
	ctx := within(t)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for counted.Load() < n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("counted %d, want %d", counted.Load(), n)
		}
	}
}

// site is a broker that can be stopped and started again on the same data and
// port.
type site struct {
	t      *testing.T
	cfg    broker.Config
	ids    []broker.Identity
	server natstest.Server
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, cfg: broker.Config{Dir: filepath.Join(t.TempDir(), "nats")}, ids: natstest.Identities(t)}
	t.Cleanup(func() { s.stop() })
	s.start()
	u, err := url.Parse(s.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if s.cfg.Port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	owner, err := stream.New(s.conn(broker.Provisioner), stream.Config{})
	if err == nil {
		err = owner.Provision(within(t), stream.ProvisionConfig{})
	}
	if err != nil {
		t.Fatalf("provision: %v", err)
	}
	return s
}

func (s *site) start() {
	s.t.Helper()
	b, err := broker.Start(context.Background(), s.cfg, s.ids) // it outlives the test's context until its cleanup
	if err != nil {
		s.t.Fatalf("start the broker: %v", err)
	}
	s.server = natstest.Server{Server: b}
}

func (s *site) stop() {
	s.t.Helper()
	if err := s.server.Close(); err != nil {
		s.t.Errorf("stop the broker: %v", err)
	}
}

// conn reconnects for as long as the test goes on.
func (s *site) conn(role broker.Role) *nats.Conn {
	s.t.Helper()
	return s.server.Conn(s.t, role, string(role), nats.MaxReconnects(-1), nats.ReconnectWait(interval), nats.ReconnectJitter(0, 0))
}

func (s *site) feed() logFeed {
	s.t.Helper()
	return newLogFeed(s.t, s.conn(broker.Coordinator))
}

// proxied is a feed through a proxy.
func (s *site) proxied(opts ...nats.Option) (logFeed, *natstest.Proxy) {
	s.t.Helper()
	proxy := natstest.StartProxy(s.t, s.server.URL())
	creds, ok := s.server.Credentials(broker.Coordinator, string(broker.Coordinator))
	if !ok {
		s.t.Fatal("the broker knows no coordinator")
	}
	all := append(creds.Options(), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1),
		nats.ReconnectWait(interval), nats.ReconnectJitter(0, 0))
	nc, err := nats.Connect(proxy.URL(), append(all, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	return newLogFeed(s.t, nc), proxy
}

// publish puts a tape's records into the stream.
func (s *site) publish(raws []session.Raw) {
	s.t.Helper()
	natsFeed{js: s.js(broker.Coordinator)}.publish(s.t, raws)
}

func (s *site) js(role broker.Role) jetstream.JetStream {
	s.t.Helper()
	js, err := jetstream.New(s.conn(role))
	if err != nil {
		s.t.Fatal(err)
	}
	return js
}

// TestWatermarkIsCheckedAtAReset keeps the broker away from a mirror until it gives
// its consumer up. By itself it would look at the stream only in an hour; it looks,
// and goes on with another consumer.
func TestWatermarkIsCheckedAtAReset(t *testing.T) {
	t.Parallel()
	tp := family(t)
	w := newSite(t)
	half := len(tp.raws) / 2
	w.publish(tp.raws[:half])
	s := open(t, sessionstore.Config{Interval: time.Hour})
	f := w.feed()
	run(t, s, f, 0)
	wait(t, s, uint64(half))
	w.stop()
	before := f.looks.Load()
	reaches(t, f.resets, 1)
	w.start()
	reaches(t, f.looks, before+1)
	w.publish(tp.raws[half:])
	wait(t, s, uint64(len(tp.raws)))
	agree(t, s, tp)
}

// TestWatermarkIsCheckedAfterAReconnect cuts a mirror's connection. The client
// connects again, in no time and with the same consumer; the mirror looks at the
// stream all the same, and goes on.
func TestWatermarkIsCheckedAfterAReconnect(t *testing.T) {
	t.Parallel()
	tp := family(t)
	w := newSite(t)
	half := len(tp.raws) / 2
	w.publish(tp.raws[:half])
	again := make(chan struct{}, 1)
	f, proxy := w.proxied(nats.ReconnectHandler(func(*nats.Conn) { again <- struct{}{} }))
	s := open(t, sessionstore.Config{Interval: 50 * time.Millisecond})
	run(t, s, f, 0)
	wait(t, s, uint64(half))
	proxy.Cut()
	<-again
	reaches(t, f.looks, f.looks.Load()+1)
	w.publish(tp.raws[half:])
	wait(t, s, uint64(len(tp.raws)))
	agree(t, s, tp)
}

// TestWatermarkIsCheckedWhileRecordsCome writes to a stream without a pause of an
// interval. The mirror looks at it all the same: a client that reconnects goes on
// with its consumer, so that the stream may be another one without a reset.
func TestWatermarkIsCheckedWhileRecordsCome(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	tp.root()
	w := newSite(t)
	w.publish(tp.raws)
	s := open(t, sessionstore.Config{Interval: 300 * time.Millisecond})
	f := w.feed()
	run(t, s, f, 0)
	wait(t, s, 1)
	js := w.js(broker.Coordinator)
	before := f.looks.Load()
	for n := 0; f.looks.Load() < before+3; n++ {
		ack, err := js.Publish(within(t), "entail.log.0.junk.junk.turn", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		wait(t, s, ack.Sequence)
		if n > 100_000 {
			t.Fatal("the stream is not looked at")
		}
	}
}

// TestWatermarkIsCheckedAfterARestart stops the broker under a mirror. Started
// again with all that it had, it is looked at and followed; started with an older
// copy of its data, as after a disk that lost its last writes or from a backup, it
// ends before the watermark or has other records there: the partition stops.
func TestWatermarkIsCheckedAfterARestart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		older bool
		other int // records written to the older copy before the mirror comes back
	}{
		"with all":                     {},
		"with an older copy":           {older: true},
		"with an older copy, moved on": {older: true, other: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tp := family(t)
			w := newSite(t)
			half := len(tp.raws) / 2
			w.publish(tp.raws[:half])
			w.stop()
			copied := filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(copied, os.DirFS(w.cfg.Dir)); err != nil {
				t.Fatal(err)
			}
			w.start()
			more := len(tp.raws)
			if !c.older {
				more -= 2
			}
			w.publish(tp.raws[half:more])
			s := open(t, sessionstore.Config{Interval: 50 * time.Millisecond})
			f := w.feed()
			_, result := run(t, s, f, 0)
			wait(t, s, uint64(more))
			w.stop()
			before := f.looks.Load()
			if c.older {
				if err := os.RemoveAll(w.cfg.Dir); err != nil {
					t.Fatal(err)
				}
				if err := os.CopyFS(w.cfg.Dir, os.DirFS(copied)); err != nil {
					t.Fatal(err)
				}
			}
			if c.other > 0 { // where the mirror does not see it
				port := w.cfg.Port
				w.cfg.Port = 0
				w.start()
				js := w.js(broker.Coordinator)
				for range c.other {
					if _, err := js.Publish(within(t), "entail.log.0.junk.junk.turn", []byte("x")); err != nil {
						t.Fatal(err)
					}
				}
				w.stop()
				w.cfg.Port = port
			}
			w.start()
			if c.older {
				err := ended(t, result)
				if !errors.Is(err, session.ErrLoss) {
					t.Errorf("Run = %v, want ErrLoss", err)
				}
				stopped(t, s, tp, err)
				return
			}
			reaches(t, f.looks, before+1)
			w.publish(tp.raws[more:])
			wait(t, s, uint64(len(tp.raws)))
			agree(t, s, tp)
		})
	}
}

// TestWatermarkIsCheckedWhileIdle gives a stream that nobody writes to room for
// two records. The server drops the others, and no consumer hears of it.
func TestWatermarkIsCheckedWhileIdle(t *testing.T) {
	t.Parallel()
	tp := family(t)
	f := newNATSFeed(t, natstest.Start(t))
	f.publish(t, tp.raws)
	s := open(t, sessionstore.Config{Interval: interval})
	_, result := run(t, s, f, 0)
	wait(t, s, uint64(len(tp.raws)))
	small := streamConfig()
	small.MaxMsgs = 2
	if _, err := f.owner.UpdateStream(within(t), small); err != nil {
		t.Fatal(err)
	}
	stopped(t, s, tp, ended(t, result))
}

// TestDeletedMirrorIsRebuilt takes a mirror's directory away. The next one is made
// from the stream, and is the same key for key.
func TestDeletedMirrorIsRebuilt(t *testing.T) {
	t.Parallel()
	tp := family(t)
	o := newOracle(t, tp.raws)
	w := newSite(t)
	w.publish(tp.raws)
	cfg := sessionstore.Config{Dir: filepath.Join(t.TempDir(), "mirror")}
	for range 2 {
		s, err := sessionstore.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop, result := run(t, s, w.feed(), 0)
		wait(t, s, o.end())
		agree(t, s, tp)
		stop()
		if err := errors.Join(ended(t, result), s.Close(), os.RemoveAll(cfg.Dir)); err != nil {
			t.Fatal(err)
		}
	}
}
