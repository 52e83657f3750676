package stream_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

func TestSettingsChangeByCompareAndSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.log(t)
	s := l.Settings()
	if value, revision, err := s.Load(t.Context()); value != nil || revision != 0 || err != nil {
		t.Errorf("never set: %s, %d, %v", value, revision, err)
	}
	first, err := s.Update(t.Context(), []byte("one"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), []byte("other"), 0); !errors.Is(err, stream.ErrRevision) {
		t.Errorf("a second first: %v", err)
	}
	second, err := s.Update(t.Context(), []byte("two"), first)
	if err != nil || second <= first {
		t.Fatalf("revision %d after %d, %v", second, first, err)
	}
	if _, err := s.Update(t.Context(), []byte("late"), first); !errors.Is(err, stream.ErrRevision) {
		t.Errorf("an update of an old revision: %v", err)
	}
	worker, _ := logOf(t, w.Conn(t, broker.Worker, "w1"))
	if value, revision, err := worker.Settings().Load(t.Context()); string(value) != "two" || revision != second || err != nil {
		t.Errorf("a worker loads %s, %d, %v", value, revision, err)
	}
	history, err := s.History(t.Context())
	if err != nil || len(history) != 2 || string(history[0].Value) != "one" || history[1].Revision != second || history[0].Time.IsZero() {
		t.Errorf("history %+v, %v", history, err)
	}
}

func TestSettingsUpdateSettlesALostAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.log(t)
	l.Intercept(fault(1, context.DeadlineExceeded, true))
	revision, err := l.Settings().Update(t.Context(), []byte("one"), 0)
	if err != nil || revision != 1 {
		t.Errorf("revision %d, %v", revision, err)
	}
	lost, _ := w.log(t, func(c *stream.Config) { c.Budget = 100 * time.Millisecond })
	lost.Intercept(fault(1000, context.DeadlineExceeded, false))
	if _, err := lost.Settings().Update(t.Context(), []byte("two"), 1); !errors.Is(err, stream.ErrUnknown) {
		t.Errorf("no answer: %v", err)
	}
}

// An update that is given up while another one is in flight says that, and nothing
// of a revision that it knows nothing about.
func TestSettingsUpdateEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.log(t)
	ctx, cancel := context.WithCancel(t.Context())
	l.Intercept(func(stream.Publish) stream.Publish {
		return func(context.Context, *nats.Msg) (*jetstream.PubAck, error) { cancel(); return nil, errBusy }
	})
	if _, err := l.Settings().Update(ctx, []byte("one"), 0); !errors.Is(err, context.Canceled) || errors.Is(err, stream.ErrRevision) {
		t.Errorf("got %v, want the context's end", err)
	}
}

func TestSettingsWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.log(t)
	worker, _ := logOf(t, w.Conn(t, broker.Worker, "w1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, ended := make(chan string, 10), make(chan error, 1)
	go func() {
		ended <- worker.Settings().Watch(ctx, func(s stream.Setting) error { seen <- string(s.Value); return nil })
	}()
	var revision uint64
	for _, value := range []string{"one", "two"} {
		var err error
		if revision, err = l.Settings().Update(t.Context(), []byte(value), revision); err != nil {
			t.Fatal(err)
		}
		if got := <-seen; got != value {
			t.Errorf("watched %s, want %s", got, value)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.log(t)
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
	w1, _ := logOf(t, w.Conn(t, broker.Worker, "w1", quiet))
	w2, _ := logOf(t, w.Conn(t, broker.Worker, "w2", quiet))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, ended := make(chan []string, 100), make(chan error, 1)
	go func() {
		ended <- l.Liveness().Watch(ctx, func(_ time.Time, live map[string]stream.Setting) error {
			select {
			case seen <- slices.Sorted(maps.Keys(live)):
			default: // the test has seen enough
			}
			return nil
		})
	}()
	want := func(what string, names ...string) {
		t.Helper()
		deadline := time.After(10 * time.Second)
		for {
			select {
			case got := <-seen:
				if slices.Equal(got, names) {
					return
				}
			case <-deadline:
				t.Fatalf("%s: never saw %v", what, names)
			}
		}
	}
	want("at first")
	put := func(l *stream.Log, name string) {
		t.Helper()
		if err := l.Liveness().Put(t.Context(), name, []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	put(w1, "w1")
	want("one worker", "w1")
	put(w2, "w2")
	want("two workers", "w1", "w2")
	put(w1, "w1")
	if err := w2.Liveness().Delete(t.Context(), "w2"); err != nil {
		t.Error(err)
	}
	want("one gone", "w1")
	want("the other's value run out")
	if err := w2.Liveness().Put(t.Context(), "w1", []byte("x")); err == nil {
		t.Error("a worker renewed another's liveness")
	}
	cancel()
	<-ended
}

func TestPoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, _ := w.log(t)
	worker, _ := logOf(t, w.Conn(t, broker.Worker, "w1"))
	poked := make(chan struct{}, 10)
	stop, err := worker.OnPoke("w1", func(bool) { poked <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	// Best effort: the servers of a cluster hear of a subscription from each other,
	// and until then a poke goes nowhere.
	most := time.After(30 * time.Second)
	for heard := false; !heard; {
		if err := l.Poke("w1"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-poked:
			heard = true
		case <-time.After(100 * time.Millisecond):
		case <-most:
			t.Fatal("no poke was heard")
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestProvisionIsRepeatable(t *testing.T) {
	t.Parallel()
	nc := open(t)
	for _, c := range []stream.ProvisionConfig{{}, {AckWait: 5 * time.Second}} {
		l, _ := logOf(t, nc)
		if err := l.Provision(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if err := l.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	live, err := js.Stream(t.Context(), "KV_ENTAIL_LIVE")
	if err != nil || live.CachedInfo().Config.MaxAge != 5*time.Second {
		t.Errorf("liveness keeps values %v, %v, want 5s", live.CachedInfo().Config.MaxAge, err)
	}
	work, err := js.Consumer(t.Context(), "ENTAIL_LOG_0", "work")
	if err != nil || work.CachedInfo().Config.AckWait != 5*time.Second {
		t.Errorf("work consumer: %v", err)
	}
}

// Each setting that breaks a guarantee is refused by name, both when it is met
// and when the deployment is provisioned over it.
func TestCheckRefusesEachWrongSetting(t *testing.T) {
	t.Parallel()
	nc := open(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := logOf(t, nc)
	if err := l.Check(t.Context()); err == nil {
		t.Error("a stream that is not there passed")
	}
	if err := l.Provision(t.Context(), stream.ProvisionConfig{}); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "ENTAIL_LOG_0")
	if err != nil {
		t.Fatal(err)
	}
	right := s.CachedInfo().Config
	tests := map[string]func(*jetstream.StreamConfig){
		"storage":           func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"retention":         func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"compression":       func(c *jetstream.StreamConfig) { c.Compression = jetstream.S2Compression },
		"persist mode":      func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
		"no_ack":            func(c *jetstream.StreamConfig) { c.NoAck = true },
		"sealed":            nil, // by update only, below
		"first_seq":         func(c *jetstream.StreamConfig) { c.FirstSeq = 100 },
		"subjects":          func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "other.>") },
		"mirror or sources": func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "KV_ENTAIL_LIVE"}} },
		"subject_transform": func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "entail.log.0.>", Destination: "entail.log.0.x.>"}
		},
		"discard":                 func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"discard_new_per_subject": func(c *jetstream.StreamConfig) { c.DiscardNewPerSubject, c.MaxMsgsPerSubject = true, 5 },
		"max_age":                 func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"max_msgs":                func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 },
		"max_msgs_per_subject":    func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1000 },
		"max_msg_size":            func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 },
		"max_bytes":               func(c *jetstream.StreamConfig) { c.MaxBytes = -1 },
		"duplicate_window":        func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute },
		"allow_direct":            func(c *jetstream.StreamConfig) { c.AllowDirect = false },
		"deny_delete":             func(c *jetstream.StreamConfig) { c.DenyDelete = false },
		"allow_rollup_hdrs":       func(c *jetstream.StreamConfig) { c.AllowRollup = true },
		"allow_msg_ttl":           func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
		"allow_msg_schedules":     func(c *jetstream.StreamConfig) { c.AllowMsgSchedules, c.Discard = true, jetstream.DiscardOld },
		"allow_msg_counter":       func(c *jetstream.StreamConfig) { c.AllowMsgCounter, c.Discard = true, jetstream.DiscardOld },
		"allow_atomic":            func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true },
		"allow_batched":           func(c *jetstream.StreamConfig) { c.AllowBatchPublish = true },
		"republish": func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Source: ">", Destination: "copy.>"}
		},
		"consumer limits": func(c *jetstream.StreamConfig) { c.ConsumerLimits.MaxAckPending = 5 },
	}
	for name, wrongly := range tests { // in turn: they share the stream
		replaceStream(t, js, right, wrongly)
		if err := l.Check(t.Context()); !errors.Is(err, stream.ErrSetting) || !names(err, name) {
			t.Errorf("got %v, want %s refused by name", err, name)
		}
		if err := l.Provision(t.Context(), stream.ProvisionConfig{}); err == nil && name != "max_bytes" {
			t.Errorf("provisioned over a wrong %s", name)
		}
	}
}

// replaceStream puts a stream in right's place that differs by what wrongly does,
// or that is sealed.
func replaceStream(t *testing.T, js jetstream.JetStream, right jetstream.StreamConfig, wrongly func(*jetstream.StreamConfig)) {
	t.Helper()
	if err := js.DeleteStream(t.Context(), right.Name); err != nil {
		t.Fatal(err)
	}
	wrong := right
	wrong.Subjects = slices.Clone(right.Subjects)
	if wrongly != nil {
		wrongly(&wrong)
	}
	s, err := js.CreateStream(t.Context(), wrong)
	if err != nil {
		t.Fatalf("the server refuses the setting itself: %v", err)
	}
	if wrongly != nil {
		return
	}
	wrong = s.CachedInfo().Config
	wrong.Sealed = true
	if _, err := js.UpdateStream(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
}

// names reports whether an error names a setting, what it has and the way out.
func names(err error, setting string) bool {
	return strings.Contains(err.Error(), "stream ENTAIL_LOG_0 has "+setting+" ") &&
		strings.Contains(err.Error(), "it must be ") && strings.Contains(err.Error(), "nats stream edit")
}

// New sessions are refused at 85 percent, so that the ends of others still fit.
func TestFull(t *testing.T) {
	t.Parallel()
	nc := open(t)
	l, v := logOf(t, nc, func(c *stream.Config) { c.MaxBytes = 1 << 20 })
	if err := l.Provision(t.Context(), stream.ProvisionConfig{}); err != nil {
		t.Fatal(err)
	}
	id := begin(t, l, v, 1)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	fill := func(bytes int) {
		t.Helper()
		m := &nats.Msg{Subject: stream.Subject(session.Address{Session: id, Class: session.ClassTurn}), Data: make([]byte, bytes)}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		bytes int
		full  bool
	}{{800 << 10, false}, {80 << 10, true}} {
		fill(step.bytes)
		if i, err := l.Info(t.Context(), 0); i.Full() != step.full || err != nil {
			t.Errorf("after %d bytes more: full %t, %v; want %t", step.bytes, i.Full(), err, step.full)
		}
	}
	c := nudge("")
	c.Check = nil
	c.Drafts = drafts(&session.Nudge{ID: "big", Reason: strings.Repeat("x", 300<<10), By: person})
	if _, err := l.Append(t.Context(), v, id, c); !errors.Is(err, stream.ErrFull) {
		t.Errorf("got %v, want the stream full", err)
	}
}
