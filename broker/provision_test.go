package broker_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
)

const wait = 10 * time.Second

// provision makes what a deployment with one partition has, with the
// provisioner's own rights.
func provision(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "ENTAIL_LOG_0", Subjects: []string{"entail.log.0.>"}},
		{Name: "KV_ENTAIL_SETTINGS", Subjects: []string{"$KV.ENTAIL_SETTINGS.>"}, MaxMsgsPerSubject: 1},
		{Name: "KV_ENTAIL_LIVE", Subjects: []string{"$KV.ENTAIL_LIVE.>"}, MaxMsgsPerSubject: 1},
	} {
		cfg.AllowDirect, cfg.DenyDelete, cfg.Discard = true, true, jetstream.DiscardNew
		if _, err := js.CreateOrUpdateStream(t.Context(), cfg); err != nil {
			t.Fatalf("create %s: %v", cfg.Name, err)
		}
	}
	_, err = js.CreateOrUpdateConsumer(t.Context(), "ENTAIL_LOG_0", jetstream.ConsumerConfig{
		Durable:        "work",
		FilterSubjects: []string{"entail.log.0.*.*.inbox", "entail.log.0.*.*.genesis.*"},
		AckPolicy:      jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatalf("create the work consumer: %v", err)
	}
}

// provisioned starts a broker with everything a deployment has.
func provisioned(t *testing.T) natstest.Server {
	t.Helper()
	s := natstest.Start(t)
	provision(t, s.Conn(t, broker.Provisioner, "provisioner"))
	return s
}

// request sends a request that must be answered.
func request(t *testing.T, nc *nats.Conn, subject, body string) *nats.Msg {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), wait)
	if err != nil {
		t.Fatalf("request %s: %v", subject, err)
	}
	return m
}

// wantSubjects compares what a stream holds, by subject, as a coordinator sees it.
func wantSubjects(t *testing.T, coordinator *nats.Conn, stream string, want map[string]int) {
	t.Helper()
	reply := request(t, coordinator, "$JS.API.STREAM.INFO."+stream, `{"subjects_filter":">"}`)
	var info struct {
		State struct {
			Subjects map[string]int `json:"subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(reply.Data, &info); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, info.State.Subjects); diff != "" {
		t.Errorf("subjects of %s (-want +got):\n%s", stream, diff)
	}
}
