package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// looks counts what a mirror says about a stream that holds less than it does, and
// keeps for how long it has said so.
type looks struct {
	slog.Handler
	lasted atomic.Int64
}

func (l *looks) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "holds less than is mirrored") {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "for" {
				l.lasted.Store(int64(a.Value.Duration()))
			}
			return true
		})
	}
	return nil
}

// A leader that is cut off from the other servers answers for the stream until it
// misses them, with what it had. To a mirror that has more, and that reaches no other
// server any more, this looks like a loss, for longer than a server alone would ever
// take. Nothing is lost, and the mirror goes on once the leader hears of the others.
// Without that patience the same mirror stops.
func TestALeaderThatIsCutOffIsNoLoss(t *testing.T) {
	t.Parallel()
	c := natstest.StartClusterConfig(t, natstest.ClusterConfig{Cuttable: true})
	prov, err := stream.New(c.Conn(t, broker.Provisioner, "provisioner"), stream.Config{Replicas: natstest.Nodes})
	if err != nil {
		t.Fatal(err)
	}
	if err := prov.Provision(t.Context(), stream.ProvisionConfig{AckWait: time.Second}); err != nil {
		t.Fatal(err)
	}
	// What stands in the stream does not matter: a mirror counts strays, too.
	add := func(nc *nats.Conn, n int) (last uint64) {
		t.Helper()
		js, err := nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			eventually(t, "a record is stored", func() bool {
				ack, err := js.Publish(fmt.Sprintf("entail.log.0.%s.%s.inbox", "nobody", "nobody"), []byte("x"))
				if err == nil {
					last = ack.Sequence
				}
				return err == nil
			})
		}
		return last
	}
	mirrors := map[string]*sessionstore.Store{}
	said := &looks{Handler: slog.DiscardHandler}
	for name, patience := range map[string]time.Duration{"patient": sessionstore.PatienceFor(natstest.Nodes), "hasty": 100 * time.Millisecond} {
		cfg := sessionstore.Config{Dir: filepath.Join(t.TempDir(), name), Patience: patience, Interval: 50 * time.Millisecond}
		if name == "patient" {
			cfg.Logger = slog.New(enabled{said})
		}
		if mirrors[name], err = sessionstore.Open(cfg); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := mirrors[name].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	// follow runs a mirror on what one server says until stop is called.
	follow := func(name string, at int) (stop func() error) {
		t.Helper()
		log, err := stream.New(c.ConnTo(t, at, broker.Coordinator, "coordinator"), stream.Config{Replicas: natstest.Nodes})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mirrors[name].Run(ctx, bare{log}, 0) }()
		return func() error { cancel(); return <-ended }
	}

	lead := c.Leader(t, stream.StreamName(0))
	other := (lead + 1) % natstest.Nodes
	add(c.ConnTo(t, lead, broker.Coordinator, "coordinator"), 3)
	c.Isolate(t, lead)
	end := add(c.ConnTo(t, other, broker.Coordinator, "coordinator"), 3) // once they have another leader
	for name := range mirrors {
		stop := follow(name, other)
		if err := mirrors[name].WaitFor(t.Context(), 0, end); err != nil {
			t.Fatal(err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	stops := map[string]func() error{}
	for name := range mirrors {
		stops[name] = follow(name, lead)
	}
	var lost error
	eventually(t, "the hasty mirror takes it for a loss", func() bool {
		lost = mirrors["hasty"].WaitFor(t.Context(), 0, end)
		return errors.Is(lost, session.ErrLoss)
	})
	if err := stops["hasty"](); !errors.Is(err, session.ErrLoss) {
		t.Errorf("the hasty mirror ended with %v, want a loss: the test shows nothing else", err)
	}
	if said.lasted.Load() == 0 {
		t.Error("the patient mirror did not say that the stream holds less")
	}
	c.Heal(lead)
	last := add(c.ConnTo(t, other, broker.Coordinator, "coordinator"), 1)
	if err := mirrors["patient"].WaitFor(t.Context(), 0, last); err != nil {
		t.Errorf("the patient mirror does not go on: %v", err)
	}
	if err := stops["patient"](); err != nil {
		t.Errorf("the patient mirror ended with %v", err)
	}
}

// enabled has every record handled.
type enabled struct{ slog.Handler }

func (enabled) Enabled(context.Context, slog.Level) bool { return true }
