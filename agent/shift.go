package agent

import (
	"sync"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// shift is what a worker takes on now. An admin's order changes it, by name, and so
// does being asked to stop, which nothing takes back. The stages of leaving are
//
//	draining: no session is taken and no turn is begun; turns that run go on;
//	leaving:  a loop hands its turn over at the next point where nothing of it runs;
//	aborted:  what still runs is ended where it is.
type shift struct {
	grace time.Duration // from leaving to aborted
	abort func(error)   // ends every loop

	mu       sync.Mutex // guards what follows
	state    client.WorkerState
	stopping bool
	leaving  bool
	orders   uint64        // revision of what was ordered last
	changed  chan struct{} // closed by the next change
	timers   []*time.Timer
}

func newShift(grace time.Duration, abort func(error)) *shift {
	return &shift{grace: grace, abort: abort, state: client.WorkerReady, changed: make(chan struct{})}
}

// obey makes an order's state the worker's, and reports whether the order is new.
func (s *shift) obey(o client.WorkerOrder, revision uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision == s.orders {
		return false
	}
	s.orders = revision
	if !s.stopping {
		s.becomeLocked(o.State, time.Duration(o.Grace))
	}
	return true
}

// stop ends the worker's work: turns may go on for so long.
func (s *shift) stop(drain time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	s.becomeLocked(client.WorkerDraining, drain)
}

func (s *shift) becomeLocked(state client.WorkerState, drain time.Duration) {
	s.restLocked()
	s.state, s.leaving = state, false
	if state == client.WorkerDraining {
		s.leaving = drain <= 0
		if !s.leaving {
			s.timers = append(s.timers, time.AfterFunc(drain, s.leave))
		}
		s.timers = append(s.timers, time.AfterFunc(drain+s.grace, func() { s.abort(ErrAborted) }))
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *shift) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = s.state == client.WorkerDraining
}

// rest stops the clocks.
func (s *shift) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restLocked()
}

func (s *shift) restLocked() {
	for _, t := range s.timers {
		t.Stop()
	}
	s.timers = nil
}

// takes reports whether sessions are taken, and if not when to ask again.
func (s *shift) takes() (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == client.WorkerReady, s.changed
}

// stays says whether a loop may go on with what it planned: errDraining once it is
// to hand over, or where it would begin a turn or take one.
func (s *shift) stays(record []session.Payload, next Action) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ignoreDrain || s.state != client.WorkerDraining || len(record) == 0 && next.Kind == Idle {
		return nil
	}
	if s.leaving {
		return errDraining
	}
	for _, p := range record {
		if is[*session.Claim](p) || is[*session.TurnStart](p) {
			return errDraining
		}
	}
	return nil
}

// say adds what the worker takes on to its sign of life.
func (s *shift) say(a *client.Alive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.State, a.Orders = s.state, s.orders
}
