package agent_test

import "testing"

// TestModelOfDriving searches every situation that the rules of ARCHITECTURE 4,
// as model_rules_test.go has them, can lead to, and wants a good end to stay
// reachable from each without another fault: without the sweep, which may write
// all the same, or, where the queue cannot do it, with its help. Each search is
// complete within its bounds of workers, messages, lost drivers and lost queues;
// old reads, late acknowledgements, redeliveries, lapses and what the sweep
// writes have no bound. Three workers with three messages are too many.
func TestModelOfDriving(t *testing.T) {
	t.Parallel()
	const ok, stuck = false, true
	// Two crashes and a dropped loop, or any other three.
	two := rules{workers: 2, messages: 2, falls: 3}
	with := func(change func(*rules)) rules {
		r := two
		change(&r)
		return r
	}
	tests := []struct {
		name         string
		rules        rules
		alone, swept bool // stuck without the sweep's help, and with it
		floor        int  // fewer situations mean that the model no longer does what it says
	}{
		{"three workers", with(func(r *rules) { r.workers = 3 }), ok, ok, 1_000_000},
		{"three messages", with(func(r *rules) { r.messages, r.falls = 3, 1 }), ok, ok, 500_000},
		{"a queue that forgets", with(func(r *rules) { r.losses = 1 }), stuck, ok, 200_000},
		{"acknowledge what a live driver will see", with(func(r *rules) { r.ackLiveDriver = true }), stuck, ok, 200_000},
		{"acknowledge what a finished turn consumed", with(func(r *rules) { r.ackFinished = true }), stuck, ok, 150_000},
		{"liveness per worker", with(func(r *rules) { r.liveWorkers = true }), stuck, stuck, 150_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := explore(tt.rules)
			wantReached(t, s, tt.floor)
			wantStuck(t, s, tt.alone, false)
			if tt.alone { // what needs no help is not hindered by it
				wantStuck(t, s, tt.swept, true)
			}
		})
	}
}

func wantStuck(t *testing.T, s *search, want, sweep bool) {
	t.Helper()
	place, found := s.stuck(sweep)
	report := t.Logf
	if found != want {
		report = t.Errorf
	}
	report("found a stuck situation: %t, want %t; help of the sweep: %t", found, want, sweep)
	if found {
		report("no good end can be reached any more after\n%s", s.trace(place))
	}
}

// floorMoves is how often each kind of move is made at least.
const floorMoves = 500

func wantReached(t *testing.T, s *search, floor int) {
	t.Helper()
	t.Logf("%d situations", len(s.found))
	if len(s.found) < floor {
		t.Errorf("reached %d situations, want at least %d", len(s.found), floor)
	}
	for e, n := range s.reached {
		if !s.rules.possible(event(e)) {
			continue
		}
		t.Logf("%9d %s", n, eventNames[e])
		if n < floorMoves {
			t.Errorf("reached %q %d times, want at least %d", eventNames[e], n, floorMoves)
		}
	}
}
