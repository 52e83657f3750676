package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/stream"
)

// A change of the settings waits for each worker by the worker's own lease, which
// bounds what it decides without a new read (SPEC 2.1).
func TestSPEC2_1_AChangeWaitsByTheLeaseOfTheWorker(t *testing.T) {
	t.Parallel()
	const revision, lease = 7, policy.Duration(30 * time.Second)
	for _, tt := range []struct {
		name   string
		alive  client.Alive
		ago    time.Duration
		behind bool
		decide bool
	}{
		{"confirmed", client.Alive{Lease: lease, Revision: revision}, 0, false, false},
		{"confirmed a later one", client.Alive{Lease: lease, Revision: revision + 1}, 0, false, false},
		{"not confirmed", client.Alive{Lease: lease, Revision: revision - 1}, 0, true, true},
		{"listed before its first read", client.Alive{Lease: lease}, 0, true, true},
		{"within its lease", client.Alive{Lease: lease, Revision: 1}, 29 * time.Second, true, true},
		{"after its lease", client.Alive{Lease: lease, Revision: 1}, 60 * time.Second, true, false},
		{"of a short lease", client.Alive{Lease: lease / 30, Revision: 1}, 2 * time.Second, true, false},
		{"of a lease that it does not say", client.Alive{Revision: 1}, time.Hour, true, true},
	} {
		names, decide := behind(map[string]client.Alive{"w1": tt.alive}, revision, tt.ago)
		if slices.Contains(names, "w1") != tt.behind || decide != tt.decide {
			t.Errorf("%s: behind %v, may decide %t; want %t, %t", tt.name, names, decide, tt.behind, tt.decide)
		}
	}
	for _, value := range []string{"", "{", `{"worker":"w2","lease":"1s","revision":7}`} {
		names, decide := behind(client.ReadAlive(map[string][]byte{"w1": []byte(value)}), revision, time.Hour)
		if !slices.Equal(names, []string{"w1"}) || !decide {
			t.Errorf("of a worker that says %q: behind %v, may decide %t; want that it may", value, names, decide)
		}
	}
	names, decide := behind(map[string]client.Alive{"w2": {Lease: 1}, "w1": {Lease: lease}, "w3": {Revision: revision}}, revision, time.Second)
	if !slices.Equal(names, []string{"w1", "w2"}) || !decide {
		t.Errorf("behind %v, may decide %t; want w1, which may, and w2", names, decide)
	}
}

// Who is alive must be known: a change that nobody was waited for is no success. Here
// there is nothing yet that says who is.
func TestSPEC2_1_AChangeIsNotConfirmedBlindly(t *testing.T) {
	t.Parallel()
	log, err := stream.New(natstest.Start(t).Conn(t, broker.Coordinator, "coordinator"), stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	stragglers, err := (&Coordinator{cfg: Config{Log: log}}).confirm(ctx, 1)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "live workers") || stragglers != nil {
		t.Errorf("stragglers %q and %v, want none and why", stragglers, err)
	}
}
