package stream_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// A server that is cut off from the others answers a direct get with what it had.
// No read that matters takes that for the log, nothing is written on it, and once
// the server is back everything goes on.
func TestClusterStaleCopy(t *testing.T) {
	t.Parallel()
	c := natstest.StartClusterConfig(t, natstest.ClusterConfig{Cuttable: true})
	provisioned(t, c, natstest.Nodes)
	leader := c.Leader(t, logStream)
	cut := (leader + 1) % natstest.Nodes
	nc := c.ConnTo(t, leader, broker.Coordinator, "coordinator")
	l, v := logOf(t, nc)
	id := begin(t, l, v, 1)
	appendNudges(t, l, v, id, "a")

	var said warnings
	far, fv := logOf(t, c.ConnTo(t, cut, broker.Coordinator, "coordinator"), func(c *stream.Config) {
		c.Budget, c.Silence, c.Logger = time.Second, time.Second, said.logger()
	})
	until(t, "the copy", func() bool { return len(records(t, far, id)) == 2 })
	if _, err := fv.View(t.Context(), id, 2); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var followed trail
	ended := make(chan error, 1)
	go func() { ended <- followed.run(ctx, far) }()
	until(t, "the first records", func() bool { return followed.last() == 2 })

	c.Isolate(t, cut)
	// The majority may have to find another leader first.
	patient, pv := logOf(t, nc, func(c *stream.Config) { c.Budget = 15 * time.Second })
	appendNudges(t, patient, pv, id, "b", "c")

	// A new copy takes a few seconds until it answers, also when it is cut off.
	var stale []uint64
	until(t, "an answer of the copy", func() bool {
		stale = nil
		_, err := far.Read(t.Context(), id, 0, func(r session.Raw) error { stale = append(stale, r.StreamSeq); return nil })
		return err == nil
	})
	if !slices.Equal(stale, []uint64{1, 2}) {
		t.Fatalf("the copy reads as %v, want what it had: the test shows nothing else", stale)
	}
	if tail, err := far.Tail(t.Context(), id); err == nil {
		t.Errorf("behind the cut the tail is %d, want no answer", tail)
	}
	if raw, err := far.At(t.Context(), 0, 2); err == nil {
		t.Errorf("behind the cut record %d was read from a leader, want no answer", raw.StreamSeq)
	}
	if _, err := far.Info(t.Context(), 0); err == nil {
		t.Error("behind the cut a leader told of its stream")
	}
	if _, err := far.Append(t.Context(), fv, id, nudge("stale")); err == nil || errors.Is(err, session.ErrLoss) {
		t.Errorf("an append behind the cut: %v, want it refused or unknown", err)
	}
	c.Heal(cut)
	until(t, "the copy back", func() bool {
		tail, err := far.Tail(t.Context(), id)
		return err == nil && tail >= 4
	})
	done, err := patient.Append(t.Context(), pv, id, nudge("d"))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the follower at the end", func() bool { return followed.last() >= done.StreamSeq })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	followed.whole(t, done.StreamSeq)
	if len(said.about(t, "delivery of a partition fell silent")) == 0 {
		t.Error("the follower heard nothing for a while, and nothing was said")
	}
	ids, _ := nudges(t, patient, id)
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(ids, want) {
		t.Errorf("the log holds %v, want %v: what was sent on a stale view is refused", ids, want)
	}
}
