package broker_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
)

// A reply subject is never checked against permissions, so each request that an
// identity may make is tried with a reply subject it may not publish on.

// forged are the places an answer must not reach.
func forged() []string {
	return []string{
		"entail.log.0.r.s.policy",
		"entail.log.0.r.s.inbox",
		"entail.log.0.r.s.seed",
		"entail.log.0.r.s.genesis.c",
		"$KV.ENTAIL_SETTINGS.defaults",
		"$KV.ENTAIL_LIVE.w2",
		"entail.worker.w2.delegate",
		"entail.poke.w2",
	}
}

// deployment is a provisioned broker with a coordinator that answers every
// request, and w2's liveness and a setting in place.
type deployment struct {
	natstest.Server
	coordinator *nats.Conn
	// asked receives the subject of each request a coordinator got.
	asked chan string
}

func newDeployment(t *testing.T) deployment {
	t.Helper()
	s := provisioned(t)
	d := deployment{s, s.Conn(t, broker.Coordinator, "coordinator"), make(chan string, 256)}
	for _, subject := range []string{"entail.api.v1.>", "entail.worker.>"} {
		_, err := d.coordinator.Subscribe(subject, func(m *nats.Msg) {
			d.asked <- m.Subject
			_ = m.Respond(nil)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	request(t, d.coordinator, "$KV.ENTAIL_SETTINGS.defaults", "{}")
	request(t, s.Conn(t, broker.Worker, "w2"), "$KV.ENTAIL_LIVE.w2", "alive")
	return d
}

// wantUntouched checks that only what the test itself wrote is stored, and that
// nobody was asked in w2's name.
func (d deployment) wantUntouched(t *testing.T, log map[string]int) {
	t.Helper()
	wantSubjects(t, d.coordinator, "ENTAIL_LOG_0", log)
	for stream, subject := range map[string]string{
		"KV_ENTAIL_SETTINGS": "$KV.ENTAIL_SETTINGS.defaults",
		"KV_ENTAIL_LIVE":     "$KV.ENTAIL_LIVE.w2",
	} {
		m := request(t, d.coordinator, "$JS.API.DIRECT.GET."+stream+"."+subject, "")
		if got := m.Header.Get("Nats-Sequence"); got != "1" {
			t.Errorf("%s is at revision %s, want 1", subject, got)
		}
	}
	for {
		select {
		case subject := <-d.asked:
			if subject == "entail.worker.w2.delegate" {
				t.Errorf("a coordinator was asked %s by somebody else", subject)
			}
		default:
			return
		}
	}
}

func TestReplyReachesNoLogOfAnotherClass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		party
		subject, body string
	}{
		{worker, "entail.log.0.r.s.turn", "a publish is acknowledged on the reply subject"},
		{worker, "$KV.ENTAIL_LIVE.w1", "alive"},
		{worker, "entail.worker.w1.delegate", "{}"},
		{worker, "$JS.API.INFO", ""},
		{worker, "$JS.API.STREAM.INFO.ENTAIL_LOG_0", ""},
		{worker, "$JS.API.STREAM.MSG.GET.ENTAIL_LOG_0", `{"seq":1}`},
		{worker, "$JS.API.DIRECT.GET.ENTAIL_LOG_0", `{"seq":1}`},
		{worker, "$JS.API.DIRECT.GET.ENTAIL_LOG_0.entail.log.0.r.s.turn", ""},
		{worker, "$JS.API.CONSUMER.INFO.ENTAIL_LOG_0.work", ""},
		{worker, "$JS.API.CONSUMER.MSG.NEXT.ENTAIL_LOG_0.work", `{"batch":1}`},
		{worker, "$JS.ACK.ENTAIL_LOG_0.work.1.2.1.1.0", "+NXT"},
		{reader, "$JS.API.STREAM.INFO.ENTAIL_LOG_0", ""},
		{reader, "$JS.API.STREAM.MSG.GET.ENTAIL_LOG_0", `{"seq":1}`},
		{reader, "$JS.API.DIRECT.GET.ENTAIL_LOG_0", `{"seq":1}`},
		{provisioner, "$JS.API.STREAM.INFO.ENTAIL_LOG_0", ""},
		{client, "entail.api.v1.session.new", "{}"},
	} {
		t.Run(fmt.Sprintf("%s %s", c.role, c.subject), func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t)
			request(t, d.Conn(t, broker.Worker, "w1"), "entail.log.0.r.s.turn", "written by w1")
			log := map[string]int{"entail.log.0.r.s.turn": 1}
			nc := d.Conn(t, c.role, c.name)
			for i, reply := range forged() {
				if err := nc.PublishRequest(c.subject, reply, []byte(c.body)); err != nil {
					t.Fatal(err)
				}
				if c.subject == "entail.log.0.r.s.turn" {
					log[c.subject]++
				}
				if c.subject == "$JS.API.CONSUMER.MSG.NEXT.ENTAIL_LOG_0.work" || c.body == "+NXT" {
					// Something for the pull to deliver.
					request(t, d.coordinator, fmt.Sprintf("entail.log.0.r.s%d.inbox", i), "hello")
					log[fmt.Sprintf("entail.log.0.r.s%d.inbox", i)]++
				}
			}
			if err := settled(t, nc); err != nil {
				t.Fatal(err)
			}
			// What was planted before this would be stored before it.
			request(t, d.coordinator, "entail.log.0.r.s.turn", "last")
			log["entail.log.0.r.s.turn"]++
			d.wantUntouched(t, log)
		})
	}
}

// The account of the logs has no such border: this is what the others are kept
// out of it for, and it shows that the test above would notice.
func TestReplyLandsInTheLogInsideItsAccount(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	request(t, d.coordinator, "entail.log.0.r.s.turn", "written")
	err := d.coordinator.PublishRequest("$JS.API.DIRECT.GET.ENTAIL_LOG_0", "entail.log.0.r.s.policy", []byte(`{"seq":1}`))
	if err != nil {
		t.Fatal(err)
	}
	request(t, d.coordinator, "$JS.API.DIRECT.GET.ENTAIL_LOG_0", `{"seq":1}`)
	request(t, d.coordinator, "entail.log.0.r.s.turn", "last")
	wantSubjects(t, d.coordinator, "ENTAIL_LOG_0",
		map[string]int{"entail.log.0.r.s.turn": 2, "entail.log.0.r.s.policy": 1})
}

// An acknowledgement needs no body, so any answer that lands on the reply subject
// of a hint would acknowledge it. The server refuses such a reply subject.
func TestAnswerAcknowledgesNoHint(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	request(t, d.coordinator, "entail.log.0.r.s.inbox", "hello")
	hint := request(t, d.Conn(t, broker.Worker, "w1"), "$JS.API.CONSUMER.MSG.NEXT.ENTAIL_LOG_0.work", `{"batch":1}`)
	for _, c := range []struct {
		party
		subject string
	}{
		{client, "entail.api.v1.session.new"},
		{reader, "$JS.API.STREAM.INFO.ENTAIL_LOG_0"},
	} {
		nc := d.Conn(t, c.role, c.name, quiet)
		if err := nc.PublishRequest(c.subject, hint.Reply, nil); err != nil {
			t.Fatal(err)
		}
		if err := settled(t, nc); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: got %v, want a permission violation", c.role, err)
		}
	}
}

func TestOnlyTheTrustedCreateConsumers(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	body := `{"stream_name":"KV_ENTAIL_SETTINGS","config":{"name":"x","deliver_subject":"entail.log.0.r.s.policy",` +
		`"deliver_policy":"all","ack_policy":"none"}}`
	for _, p := range []party{worker, reader, client} {
		nc := d.Conn(t, p.role, p.name, quiet)
		if err := nc.Publish("$JS.API.CONSUMER.CREATE.KV_ENTAIL_SETTINGS.x", []byte(body)); err != nil {
			t.Fatal(err)
		}
		if err := settled(t, nc); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: got %v, want a permission violation", p.role, err)
		}
	}
	d.wantUntouched(t, nil)
}

func TestAnswersReachWhoAsked(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	for _, c := range []struct {
		party
		subject string
	}{
		{client, "entail.api.v1.session.new"},
		{worker, "entail.worker.w1.delegate"},
	} {
		request(t, d.Conn(t, c.role, c.name), c.subject, "{}")
		if got := <-d.asked; got != c.subject {
			t.Errorf("asked %s, want %s", got, c.subject)
		}
	}
}

func TestAskingNobodyFailsAtOnce(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	for _, c := range []struct {
		party
		subject string
	}{
		{client, "entail.api.v1.session.new"},
		{worker, "entail.worker.w1.delegate"},
		{worker, "entail.log.0.r.s.turn"},
	} {
		_, err := s.Conn(t, c.role, c.name).Request(c.subject, nil, wait)
		if !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: got %v, want %v", c.subject, err, nats.ErrNoResponders)
		}
	}
}
