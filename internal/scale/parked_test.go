package scale_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// cost is what sessions that wait cost.
type cost struct {
	worker, coordinator figures
	consumers, alive    int // alive is the size of the worker's sign of life
}

// slack is how much a heap after a collection differs from one time to the next. At
// the default size that is more than the sessions may cost, and only what costs
// kilobytes shows; the long run is for the rest.
const slack = 256 << 10

// TestParkedSessions parks sessions that wait for a person's answer, then four times
// as many. A worker that has seen the hints of them all pays nothing, a coordinator
// less than a kilobyte for each. Then all are cancelled, and end.
//
// Two more partitions are for a session each that can run and that no worker looks
// at: when it is nudged, sweeps were made that would have found any other one.
func TestParkedSessions(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	n := setting(t, "SCALE_PARKED", 240)
	w := newWorld(t, 3, func(s *policy.Settings) { s.Lease = policy.Duration(lease) })
	k := start(t, "worker", order{Keys: w.keys, Partitions: 1, Lease: lease, Slots: 4})
	c := w.coordinate()
	var ids []session.ID
	park := func(to, beside int) cost {
		k.without(func() { // it would drive what is not parked yet
			for len(ids) < to {
				l := w.fixture.root(0, func(r *delegation.Root) { r.Prompt, r.Surface = "go", session.SurfaceAny })
				l.open("bash", 1)
				l.park()
				ids = append(ids, l.id())
			}
			w.fixture.done()
		})
		timed(t, "the worker has seen all", w.seen)
		f := c.figures()
		t.Logf("the coordinator that mirrored them: heap %s, RSS %s", mib(f.Heap), mib(f.RSS))
		c.stop() // one that was not there when they came has them in no cache
		idle := w.fixture.root(beside, func(r *delegation.Root) { r.Prompt = "go" })
		w.fixture.done()
		c = w.coordinate()
		eventually(t.Context(), t, "sweeps have found what was runnable for two leases", func() bool { return w.show(idle.id()).Next > idle.state.Next })
		out := cost{worker: k.figures(), coordinator: c.figures(), consumers: w.consumers()}
		eventually(t.Context(), t, "the worker gives a sign of life", func() bool {
			alive, err := w.log.Liveness().All(t.Context())
			w.must(err)
			out.alive = len(alive["w1"])
			return out.alive > 0
		})
		t.Logf("%d parked: worker heap %s, RSS %s, %d goroutines; coordinator heap %s, RSS %s; %d consumers, sign of life %d bytes", len(ids),
			mib(out.worker.Heap), mib(out.worker.RSS), out.worker.Goroutines, mib(out.coordinator.Heap), mib(out.coordinator.RSS), out.consumers, out.alive)
		return out
	}
	few := park(n/4, 1)
	many := park(n, 2)
	more := uint64(n - n/4)
	if many.worker.Heap > few.worker.Heap+more*256+slack {
		t.Errorf("the heap of a worker grew from %d to %d bytes", few.worker.Heap, many.worker.Heap)
	}
	if many.worker.Goroutines > few.worker.Goroutines+12 {
		t.Errorf("the goroutines of a worker grew from %d to %d", few.worker.Goroutines, many.worker.Goroutines)
	}
	// What it has in hand for a moment comes and goes; what it keeps stays.
	most := few.coordinator.Heap + more*1024 + slack
	eventually(t.Context(), t, fmt.Sprintf("the heap of a coordinator, which was %d bytes, grows by no more than 1 KiB for each of %d", few.coordinator.Heap, more), func() bool {
		return many.coordinator.Heap <= most || c.figures().Heap <= most
	})
	if many.consumers != few.consumers || few.consumers != 2*w.partitions {
		t.Errorf("%d consumers, then %d, want two for each of %d partitions", few.consumers, many.consumers, w.partitions)
	}
	if many.alive != few.alive {
		t.Errorf("the worker's sign of life grew from %d to %d bytes", few.alive, many.alive)
	}
	w.wake(ids)
}

// seen waits until no hint waits for a worker.
func (w *world) seen() {
	w.t.Helper()
	queue, err := w.js.Consumer(w.t.Context(), stream.StreamName(0), "work")
	w.must(err)
	eventually(w.t.Context(), w.t, "all hints are acknowledged", func() bool {
		info, err := queue.Info(w.t.Context())
		w.must(err)
		return info.NumPending == 0 && info.NumAckPending == 0
	})
}

// wake cancels sessions and waits until each has ended.
func (w *world) wake(ids []session.ID) {
	t := w.t
	for _, id := range []session.ID{ids[0], ids[len(ids)-1]} {
		if s := w.show(id); s.Status != client.StatusWaiting || len(s.WaitsFor) != 1 {
			t.Fatalf("%s is %s and waits for %v, want one that waits for an answer", id, s.Status, s.WaitsFor)
		}
	}
	timed(t, "cancel all", func() {
		for _, id := range ids {
			w.call(client.MethodCancel, client.StopRequest{Head: head, ID: id, RequestID: "c1", Reason: "enough"}, nil)
		}
	})
	timed(t, "all have ended", func() { w.ended(ids) })
}

// ended waits until sessions have ended, one after the other.
func (w *world) ended(ids []session.ID) {
	w.t.Helper()
	for _, id := range ids {
		eventually(w.t.Context(), w.t, "session "+string(id)+" has ended", func() bool { return w.show(id).Status == client.StatusEnded })
	}
}
