package scale_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// send puts a message into a session's inbox.
func (w *world) send(id session.ID) error {
	return w.api.Call(w.t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: id, MessageID: w.name(), Content: "go on"}, nil)
}

// TestHotPartition puts all load on one of eight partitions, from clients that each
// send as soon as they are answered. A message to one of the other seven waits for
// what is in hand when it comes, a message or two of each of those clients, and not
// for what comes later. That is a count of messages, whatever the machine is like.
func TestHotPartition(t *testing.T) {
	t.Parallel()
	const partitions, hot, clients, rounds = 8, 3, 48, 12
	w := newWorld(t, partitions)
	var loaded []session.ID
	for range clients {
		loaded = append(loaded, w.fixture.settledRoot(hot, 3).id())
	}
	others := map[int]session.ID{}
	for p := range partitions {
		if p != hot {
			others[p] = w.fixture.settledRoot(p, 3).id()
		}
	}
	w.fixture.done()
	w.coordinate()

	var sent, stop atomic.Int64
	var load errgroup.Group
	for _, id := range loaded {
		load.Go(func() error {
			for stop.Load() == 0 {
				if err := w.send(id); err != nil {
					return err
				}
				sent.Add(1)
			}
			return nil
		})
	}
	eventually(t.Context(), t, "the hot partition is hot", func() bool { return sent.Load() >= 2*clients })
	var (
		mu   sync.Mutex
		most int64 // guarded by mu
	)
	var quiet errgroup.Group
	for _, id := range others {
		quiet.Go(func() error {
			for range rounds {
				before := sent.Load()
				if err := w.send(id); err != nil {
					return err
				}
				waited := sent.Load() - before
				mu.Lock()
				most = max(most, waited)
				mu.Unlock()
			}
			return nil
		})
	}
	w.must(quiet.Wait())
	stop.Store(1)
	w.must(load.Wait())
	t.Logf("%d messages to the hot partition, %d to the others; one of these saw at most %d of those", sent.Load(), len(others)*rounds, most)
	if most > 6*clients {
		t.Errorf("a message to another partition waited for %d to the hot one, with %d clients", most, clients)
	}
	for p, id := range others {
		if s := w.show(id); s.Pending != rounds {
			t.Errorf("partition %d: %d messages stand, want %d", p, s.Pending, rounds)
		}
	}
	if got := w.consumers(); got != 2*partitions {
		t.Errorf("%d consumers, want two for each of %d partitions", got, partitions)
	}
}

// TestFollowersHoldUpNobody has more readers wait for events than a coordinator
// answers requests at once. All others are answered while every one of them waits.
func TestFollowersHoldUpNobody(t *testing.T) {
	t.Parallel()
	const followers, requests = 100, 5 // a coordinator has 64 hands for each processor
	w := newWorld(t, 1)
	id, other := w.fixture.settledRoot(0, 3).id(), w.fixture.settledRoot(0, 3).id()
	w.fixture.done()
	c := start(t, "coordinator", order{Dir: w.mirror, Keys: w.keys, Partitions: w.partitions, Processors: 1})
	idle := c.figures().Goroutines
	next := w.show(id).Next

	var answered atomic.Int64
	var all sync.WaitGroup
	for range followers {
		all.Go(func() {
			var out client.EventsReply
			err := w.api.Call(t.Context(), client.MethodEvents, client.EventsRequest{Head: head, ID: id, From: next, Wait: 60_000}, &out)
			if err != nil {
				t.Errorf("follow: %v", err)
			}
			answered.Add(1)
		})
	}
	eventually(t.Context(), t, "all followers wait", func() bool {
		return answered.Load() > 0 || c.figures().Goroutines >= idle+followers
	})
	for range requests {
		w.show(other)
	}
	if n := answered.Load(); n > 0 {
		t.Errorf("%d of %d followers had to be answered before %d requests were", n, followers, requests)
	}
	w.must(w.send(id)) // ends the wait
	all.Wait()
}
