package coordinator

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// A mirror that is past its stream has not caught up with it: that is for the mirror
// to call a loss, and until it has looked a coordinator is not ready.
func TestF3_AMirrorPastItsStreamIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	owner, err := stream.New(server.Conn(t, broker.Provisioner, "provisioner"), stream.Config{})
	if err == nil {
		err = owner.Provision(t.Context(), stream.ProvisionConfig{})
	}
	if err != nil {
		t.Fatal(err)
	}
	log, err := stream.New(server.Conn(t, broker.Coordinator, "coordinator"), stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := sessionstore.Open(sessionstore.Config{Dir: filepath.Join(t.TempDir(), "mirror")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &Coordinator{cfg: Config{Log: log, Store: store, Partitions: 1}}
	if err := c.caughtUp(t.Context(), 0); err != nil {
		t.Fatalf("an empty mirror of an empty stream: %v", err)
	}
	info, err := log.Info(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	tape := sessiontest.NewStream(t)
	tape.Root()
	if err := store.Apply(0, info.Incarnation, tape.Records); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := c.caughtUp(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the mirror has looked: %v, want to be waiting", err)
	}
	if err := store.Run(t.Context(), feed{log}, 0); !errors.Is(err, session.ErrLoss) {
		t.Fatalf("the mirror says %v, want a loss", err)
	}
	if err := c.caughtUp(t.Context(), 0); !errors.Is(err, session.ErrLoss) {
		t.Errorf("after the mirror has looked: %v, want the loss", err)
	}
}
