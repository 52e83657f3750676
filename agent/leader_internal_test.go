package agent

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// herd is workers that are healthy: each drives one session and renews its claim.
type herd struct {
	t      *testing.T
	p      natstest.Processes
	pulses []*pulse
	beats  []*beat
}

// The lease of a fleet, 30 s, outlives the loss of a leader. A stream stands still for
// 4 to 9 s then. A sign of life that meets that fails after a time-out, and the next
// one is due a sixth of a lease later, so that 9 s + 5 s + the few seconds of a
// reconnection is what a renewal may be late by, and a claim is given up 2 s before
// the lease is over. A third of the lease is left.
const fleetLease = 30 * time.Second

// newHerd starts so many workers on three servers.
func newHerd(t *testing.T, workers int) *herd {
	t.Helper()
	h := &herd{t: t, p: natstest.StartProcessesConfig(t, natstest.ClusterConfig{Workers: workers})}
	logOf := func(role broker.Role, name string) *stream.Log {
		l, err := stream.New(h.p.Conn(t, role, name), stream.Config{Replicas: natstest.Nodes})
		h.must(err)
		return l
	}
	h.must(logOf(broker.Provisioner, "provisioner").Provision(t.Context(), stream.ProvisionConfig{AckWait: fleetLease}))
	stored, err := policy.DefaultSettings().Encode()
	h.must(err)
	_, err = logOf(broker.Coordinator, "coordinator").Settings().Update(t.Context(), stored, 0)
	h.must(err)
	var signing sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); signing.Wait() })
	for i := range workers {
		name := fmt.Sprintf("w%d", i+1)
		cfg := Config{Name: name, Incarnation: "i1", Lease: fleetLease, Log: logOf(broker.Worker, name)}.withDefaults()
		p := newPulse(cfg, newShift(0, nil))
		b, err := p.take(ctx, session.ID(fmt.Sprintf("00%026d", i)), 1, time.Hour)
		h.must(err)
		h.pulses, h.beats = append(h.pulses, p), append(h.beats, b)
		signing.Go(func() { p.run(ctx, func(error) {}) })
	}
	return h
}

func (h *herd) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// watch looks at every claim, many times a second, until each was renewed twice after
// something was done. None may be given up, and every worker may decide all the
// while. It returns the least that was left of a claim, and the longest that one
// stood without a renewal.
func (h *herd) watch(do func()) (left, stood time.Duration) {
	h.t.Helper()
	do()
	left = fleetLease
	renewed, last, since := make([]int, len(h.beats)), make([]time.Duration, len(h.beats)), make([]time.Duration, len(h.beats))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(4 * fleetLease); ; {
		done := true
		for i, b := range h.beats {
			now := sandbox.BootTime()
			at := b.lease()
			end := at.Deadline()
			at.close()
			if end != last[i] {
				if last[i] != 0 {
					renewed[i]++
				}
				last[i], since[i] = end, now
			}
			left, stood = min(left, end-now), max(stood, now-since[i])
			if b.over() {
				h.t.Fatalf("worker %d gave its claim up", i+1)
			}
			if err := h.pulses[i].decided(func(policy.Deployment) error { return nil }); err != nil {
				h.t.Fatalf("worker %d: %v", i+1, err)
			}
			done = done && renewed[i] >= 2
		}
		if done {
			return left, stood
		}
		select {
		case <-tick.C:
		case <-deadline:
			h.t.Fatalf("not every claim was renewed twice: %v", renewed)
		}
	}
}

// Healthy workers keep their claims while the server that leads the liveness bucket is
// killed, and while it hangs: it keeps its connections then, and answers nothing. With
// CHAOS_SECONDS set there are 40 of them, and it does both.
func TestNobodyFencesItselfForALeader(t *testing.T) {
	t.Parallel()
	workers, long := 6, os.Getenv("CHAOS_SECONDS") != ""
	if long {
		workers = 40
	}
	h := newHerd(t, workers)
	const bucket = "KV_ENTAIL_LIVE"
	quiet, _ := h.watch(func() {})
	lead := h.p.Leader(t, bucket)
	left, stood := h.watch(func() { h.p.Kill(t, lead) })
	t.Logf("%d workers, leader killed: %v of %v were left at worst (%v before), no renewal for %v", workers, left, fleetLease, quiet, stood)
	if now := h.p.Leader(t, bucket); now == lead {
		t.Errorf("server %d leads still: nothing was lost", now)
	}
	if !long {
		return
	}
	h.p.Start(t, lead)
	h.watch(func() {})
	lead = h.p.Leader(t, bucket)
	left, stood = h.watch(func() { h.p.Hang(t, lead) })
	t.Logf("%d workers, leader hung: %v of %v were left at worst, no renewal for %v", workers, left, fleetLease, stood)
	h.p.Wake(t, lead)
	h.watch(func() {})
}
