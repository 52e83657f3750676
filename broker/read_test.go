package broker_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/entail-fleet/entail/broker"
)

func newJetStream(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestReadersReadTheWholeLog(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	var want []string
	for i := range 300 {
		request(t, d.coordinator, fmt.Sprintf("entail.log.0.r.s%d.inbox", i), "hello")
		want = append(want, fmt.Sprintf("entail.log.0.r.s%d.inbox", i))
	}
	for _, p := range []party{worker, reader, coordinator} {
		t.Run(string(p.role), func(t *testing.T) {
			t.Parallel()
			js := newJetStream(t, d.Conn(t, p.role, p.name))
			batch, err := jetstreamext.GetBatch(t.Context(), js, "ENTAIL_LOG_0", len(want)+1)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for m, err := range batch {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, m.Subject)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("subjects (-want +got):\n%s", diff)
			}
			stream, err := js.Stream(t.Context(), "ENTAIL_LOG_0")
			if err != nil {
				t.Fatal(err)
			}
			if m, err := stream.GetLastMsgForSubject(t.Context(), "entail.log.0.r.s7.>"); err != nil || m.Sequence != 8 {
				t.Errorf("last record of s7: got %v, %v, want sequence 8", m, err)
			}
		})
	}
}

func TestWorkerTakesWorkAndAcknowledges(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	js := newJetStream(t, d.Conn(t, broker.Worker, "w1"))
	work, err := js.Consumer(t.Context(), "ENTAIL_LOG_0", "work")
	if err != nil {
		t.Fatal(err)
	}
	request(t, d.coordinator, "entail.log.0.r.s.inbox", "hello")
	m, err := work.Next(jetstream.FetchMaxWait(wait))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Subject(); got != "entail.log.0.r.s.inbox" {
		t.Errorf("took %s", got)
	}
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := work.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.NumAckPending != 0 || info.AckFloor.Stream != 1 {
		t.Errorf("%d pending, acknowledged up to %d, want 0 and 1", info.NumAckPending, info.AckFloor.Stream)
	}
}

func TestWorkerAppendsWithCompareAndSet(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	js := newJetStream(t, d.Conn(t, broker.Worker, "w1"))
	m := nats.NewMsg("entail.log.0.r.s.turn")
	m.Header.Set("Entail-Seq", "0")
	expect := []jetstream.PublishOpt{jetstream.WithExpectLastSequenceForSubject(0, "entail.log.0.r.s.>")}
	if _, err := js.PublishMsg(t.Context(), m, expect...); err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(t.Context(), m, expect...); err == nil {
		t.Error("a second record at tail 0 was stored")
	}
	stored := request(t, d.coordinator, "$JS.API.DIRECT.GET.ENTAIL_LOG_0.entail.log.0.r.s.turn", "")
	if got := stored.Header.Get("Entail-Seq"); got != "0" {
		t.Errorf("header Entail-Seq is %q, want 0", got)
	}
}

func TestWorkerUsesTheBuckets(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	js := newJetStream(t, d.Conn(t, broker.Worker, "w1"))
	settings, err := js.KeyValue(t.Context(), "ENTAIL_SETTINGS")
	if err != nil {
		t.Fatal(err)
	}
	if e, err := settings.Get(t.Context(), "defaults"); err != nil || e.Revision() != 1 {
		t.Errorf("settings: got %v, %v, want revision 1", e, err)
	}
	live, err := js.KeyValue(t.Context(), "ENTAIL_LIVE")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := live.Put(t.Context(), "w1", []byte("alive")); err != nil {
		t.Errorf("own liveness: %v", err)
	}
	if e, err := live.Get(t.Context(), "w2"); err != nil || string(e.Value()) != "alive" {
		t.Errorf("liveness of w2: got %v, %v", e, err)
	}
}

// A rollup of one key may name the whole bucket. The server cannot refuse a
// header by identity, so the buckets a worker writes to have rollups off.
func TestWorkerCannotWipeTheLivenessOfOthers(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	js := newJetStream(t, d.Conn(t, broker.Worker, "w1"))
	m := nats.NewMsg("$KV.ENTAIL_LIVE.w1")
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupAll)
	if _, err := js.PublishMsg(t.Context(), m); err == nil {
		t.Error("a rollup was stored")
	}
	d.wantUntouched(t, nil)
}

func TestCoordinatorWatchesAndFollows(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	js := newJetStream(t, d.coordinator)
	settings, err := js.KeyValue(t.Context(), "ENTAIL_SETTINGS")
	if err != nil {
		t.Fatal(err)
	}
	watch, err := settings.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if e := <-watch.Updates(); e == nil || e.Key() != "defaults" {
		t.Errorf("watch got %v, want defaults", e)
	}
	if err := watch.Stop(); err != nil {
		t.Error(err)
	}
	request(t, d.coordinator, "entail.log.0.r.s.inbox", "hello")
	log, err := js.OrderedConsumer(t.Context(), "ENTAIL_LOG_0", jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := log.Next(jetstream.FetchMaxWait(wait)); err != nil || m.Subject() != "entail.log.0.r.s.inbox" {
		t.Errorf("followed %v, %v", m, err)
	}
}

func TestPokeReachesItsWorker(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	nc := d.Conn(t, broker.Worker, "w1")
	poked, err := nc.SubscribeSync("entail.poke.w1")
	if err != nil {
		t.Fatal(err)
	}
	if err := settled(t, nc); err != nil {
		t.Fatal(err)
	}
	if err := d.coordinator.Publish("entail.poke.w1", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := poked.NextMsg(wait); err != nil {
		t.Error(err)
	}
}
