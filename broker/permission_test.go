package broker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
)

// party is an identity that natstest knows.
type party struct {
	role broker.Role
	name string
}

var (
	provisioner = party{broker.Provisioner, "provisioner"}
	client      = party{broker.Client, "client"}
	coordinator = party{broker.Coordinator, "coordinator"}
	worker      = party{broker.Worker, "w1"}
	reader      = party{broker.Reader, "reader"}
)

func everyone() []party { return []party{provisioner, client, coordinator, worker, reader} }

func TestWhoMayPublish(t *testing.T) {
	t.Parallel()
	s := provisioned(t)
	for _, c := range []struct {
		subject string
		allowed []party
	}{
		// SPEC 3: classes and their writers.
		{"entail.log.0.r.s.policy", []party{coordinator}},
		{"entail.log.0.r.s.inbox", []party{coordinator}},
		{"entail.log.0.r.s.seed", []party{coordinator}},
		{"entail.log.0.r.s.genesis.c", []party{coordinator}},
		{"entail.log.0.r.s.turn", []party{coordinator, worker}},
		{"entail.log.1.r.s.turn", []party{coordinator}},
		{"entail.log.0.r.s.turn.more", []party{coordinator}},
		{"entail.log.0.r.turn", []party{coordinator}},
		// ARCHITECTURE 8: settings, liveness, requests, pokes.
		{"$KV.ENTAIL_SETTINGS.defaults", []party{coordinator}},
		{"$KV.ENTAIL_LIVE.w1", []party{worker}},
		{"$KV.ENTAIL_LIVE.w2", nil},
		{"entail.api.v1.session.new", []party{client}},
		{"entail.api.v2.session.new", nil},
		{"entail.worker.w1.delegate", []party{worker}},
		{"entail.worker.w2.delegate", nil},
		{"entail.poke.w1", []party{coordinator}},
		{"$SRV.PING", nil},
		{"anything.else", nil},
		// Another identity's inbox.
		{"_INBOX_worker_w1.x", nil},
		{"_INBOX_coordinator_coordinator.x", nil},
		// JetStream: reading.
		{"$JS.API.INFO", []party{provisioner, coordinator, worker, reader}},
		{"$JS.API.STREAM.INFO.ENTAIL_LOG_0", []party{provisioner, coordinator, worker, reader}},
		{"$JS.API.STREAM.MSG.GET.ENTAIL_LOG_0", []party{coordinator, worker, reader}},
		{"$JS.API.DIRECT.GET.ENTAIL_LOG_0", []party{coordinator, worker, reader}},
		{"$JS.API.DIRECT.GET.ENTAIL_LOG_0.entail.log.0.r.s.turn", []party{coordinator, worker, reader}},
		{"$JS.API.DIRECT.GET.ENTAIL_LOG_1", nil},
		{"$JS.API.DIRECT.GET.KV_ENTAIL_SETTINGS", []party{coordinator, worker}},
		{"$JS.API.DIRECT.GET.KV_ENTAIL_LIVE", []party{coordinator, worker}},
		{"$JS.API.CONSUMER.CREATE.ENTAIL_LOG_0.x", []party{provisioner, coordinator}},
		{"$JS.API.CONSUMER.CREATE.KV_ENTAIL_SETTINGS.x", []party{provisioner, coordinator}},
		{"$JS.API.CONSUMER.CREATE.ENTAIL_LOG_0", nil},
		{"$JS.API.CONSUMER.DURABLE.CREATE.ENTAIL_LOG_0.x", nil},
		{"$JS.API.CONSUMER.DELETE.ENTAIL_LOG_0.x", []party{provisioner, coordinator}},
		{"$JS.API.CONSUMER.INFO.ENTAIL_LOG_0.work", []party{provisioner, coordinator, worker}},
		{"$JS.API.CONSUMER.INFO.ENTAIL_LOG_0.x", []party{provisioner, coordinator}},
		{"$JS.API.CONSUMER.MSG.NEXT.ENTAIL_LOG_0.work", []party{coordinator, worker}},
		{"$JS.API.CONSUMER.MSG.NEXT.ENTAIL_LOG_0.x", []party{coordinator}},
		{"$JS.ACK.ENTAIL_LOG_0.work.1.1.1.1.0", []party{worker}},
		{"$JS.ACK.ENTAIL_LOG_0.x.1.1.1.1.0", nil},
		// JetStream: changing.
		{"$JS.API.STREAM.CREATE.ENTAIL_LOG_0", []party{provisioner}},
		{"$JS.API.STREAM.UPDATE.ENTAIL_LOG_0", []party{provisioner}},
		{"$JS.API.STREAM.CREATE.OTHER", nil},
		{"$JS.API.STREAM.DELETE.ENTAIL_LOG_0", nil},
		{"$JS.API.STREAM.PURGE.ENTAIL_LOG_0", nil},
		{"$JS.API.STREAM.MSG.DELETE.ENTAIL_LOG_0", nil},
		{"$JS.API.STREAM.SNAPSHOT.ENTAIL_LOG_0", nil},
		{"$JS.API.STREAM.RESTORE.ENTAIL_LOG_0", nil},
		{"$JS.API.STREAM.LEADER.STEPDOWN.ENTAIL_LOG_0", nil},
		{"$JS.API.CONSUMER.RESET.ENTAIL_LOG_0.work", nil},
		{"$JS.API.CONSUMER.PAUSE.ENTAIL_LOG_0.work", nil},
		{"$SYS.REQ.SERVER.PING", nil},
	} {
		t.Run(c.subject, func(t *testing.T) {
			t.Parallel()
			wantAllowed(t, c.allowed, func(p party) error {
				nc := s.Conn(t, p.role, p.name, quiet)
				defer nc.Close()
				if err := nc.Publish(c.subject, nil); err != nil {
					t.Fatal(err)
				}
				return settled(t, nc)
			})
		})
	}
}

func TestWhoMaySubscribe(t *testing.T) {
	t.Parallel()
	s := provisioned(t)
	for _, c := range []struct {
		subject string
		allowed []party
	}{
		{">", nil},
		{"entail.>", nil},
		{"entail.log.>", nil},
		{"entail.log.0.r.s.turn", nil},
		{"entail.log.*.*.*.inbox", nil},
		{"$KV.ENTAIL_SETTINGS.>", nil},
		{"$KV.ENTAIL_LIVE.>", nil},
		{"entail.api.v1.>", []party{coordinator}},
		{"entail.worker.>", []party{coordinator}},
		{"entail.worker.w1.>", []party{coordinator}},
		{"$SRV.PING", []party{coordinator}},
		{"entail.poke.w1", []party{worker}},
		{"entail.poke.w2", nil},
		{"entail.poke.*", nil},
		{"_INBOX.>", nil},
		{"_R_.>", nil},
		{"_INBOX_worker_w1.>", []party{worker}},
		{"_INBOX_worker_w2.>", nil},
		{"_INBOX_client_client.>", []party{client}},
		{"_INBOX_coordinator_coordinator.>", []party{coordinator}},
		{"_INBOX_provisioner_provisioner.>", []party{provisioner}},
		{"_INBOX_reader_reader.>", []party{reader}},
		{"$JS.API.>", nil},
		{"$JS.ACK.>", nil},
		{"$JS.EVENT.>", nil},
		{"$SYS.>", nil},
	} {
		t.Run(c.subject, func(t *testing.T) {
			t.Parallel()
			wantAllowed(t, c.allowed, func(p party) error {
				nc := s.Conn(t, p.role, p.name, quiet)
				defer nc.Close()
				if _, err := nc.SubscribeSync(c.subject); err != nil {
					t.Fatal(err)
				}
				return settled(t, nc)
			})
		})
	}
}

// quiet keeps expected refusals out of the test's output.
func quiet(o *nats.Options) error {
	return nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})(o)
}

// wantAllowed compares who may do something with who should.
func wantAllowed(t *testing.T, want []party, try func(party) error) {
	t.Helper()
	var got []party
	for _, p := range everyone() {
		err := try(p)
		if err == nil {
			got = append(got, p)
		} else if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: %v", p.role, err)
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(party{})); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
}

// settled returns what the server objected to after it has seen everything that
// nc sent.
func settled(t *testing.T, nc *nats.Conn) error {
	t.Helper()
	if err := nc.FlushTimeout(wait); err != nil {
		t.Fatal(err)
	}
	return nc.LastError()
}

func TestRefusedRecordIsReportedAndNotStored(t *testing.T) {
	t.Parallel()
	s := provisioned(t)
	refused := make(chan error, 1)
	nc := s.Conn(t, broker.Worker, "w1", nats.ErrorHandler(
		func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	for _, class := range []string{"policy", "inbox", "seed", "genesis.c"} {
		if err := nc.Publish("entail.log.0.r.s."+class, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: got %v, want a permission violation", class, err)
			}
		case <-time.After(wait):
			t.Fatalf("%s: nothing was reported", class)
		}
	}
	wantSubjects(t, s.Conn(t, broker.Coordinator, "coordinator"), "ENTAIL_LOG_0", nil)
}

func TestWorkersDoNotReadEachOther(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	one, two := s.Conn(t, broker.Worker, "w1", quiet), s.Conn(t, broker.Worker, "w2")
	// A prefix is no wildcard: w1 does not cover w10.
	for _, subject := range []string{"_INBOX_worker_w2.x", "_INBOX_worker_*.x", "_INBOX_worker_w10.x"} {
		if _, err := one.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if err := settled(t, one); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("subscribe %s: got %v, want a permission violation", subject, err)
		}
	}
	if _, err := two.SubscribeSync("_INBOX_worker_w2.x"); err != nil || settled(t, two) != nil {
		t.Errorf("own inbox refused: %v, %v", err, two.LastError())
	}
}
