package agent_test

import (
	"fmt"
	"testing"
)

// The rules of ARCHITECTURE 4 as a model: one session, two messages, two workers,
// a queue that redelivers, folds that are stale by the time they are acted on,
// acknowledgements that come late, one loop that is dropped and two crashes (none
// with the sweep, which can only add hints and makes the model much larger). From
// every reachable state a good end must stay reachable without another fault:
// each message handled and the parent told.

// rules are the rules under test and how many crashes they are put to. The zero
// value has each old rule switched off.
type rules struct {
	ackLiveDriver bool // acknowledge what a live driver will see
	ackFinished   bool // acknowledge what a finished turn consumed, told or not
	liveWorkers   bool // a claim lives as long as its worker does
	sweep         bool // a coordinator nudges what nobody drives
	crashes       uint8
}

const (
	absent = iota
	pending
	consumed // by the open turn
	handled  // by a turn that has ended
)

const (
	waiting = iota // for a hint
	looking        // has a hint, has not read the log
	folded         // has read it, has not acted
	driving        // holds a claim
	acking         // has decided to acknowledge
)

const (
	messages = 2
	hints    = messages + 1 // the last is the sweep's nudge
	nudge    = messages
	maxDrops = 1
)

// journal is the session's log, as far as it matters.
type journal struct {
	msg  [messages]uint8
	open bool
	told bool // the parent knows of every ended turn
}

func (j journal) has(state uint8) bool { return j.msg[0] == state || j.msg[1] == state }

// claim is the claim in force and the signs of life of whoever made it. Those of
// older claims matter to nobody.
type claim struct {
	holder uint8
	listed bool // the holder's list names it; outlives a crash until it expires
	beat   bool // the holder's incarnation has a sign of life that has not expired
	up     bool // that incarnation runs
}

// member is a worker with one slot.
type member struct {
	up    bool
	phase uint8
	hint  uint8
	mine  bool    // its loop drives under the claim in force
	seen  journal // what it has read
	stale bool    // the log has moved on since
	live  bool    // what it saw of the claim's liveness
}

func (m *member) rest() { *m = member{up: true} }

// situation is a state of the whole. It is a map's key, so it counts nothing that
// makes no difference.
type situation struct {
	log     journal
	claim   claim
	worker  [2]member
	queued  [hints]bool
	held    [hints]bool
	acked   [hints]bool
	crashes uint8
	drops   uint8
}

func begin() situation {
	var s situation
	s.log.told = true
	s.log.msg[0], s.queued[0] = pending, true
	s.acked[nudge] = true // none yet
	s.worker[0].up, s.worker[1].up = true, true
	return s
}

func (s situation) good() bool {
	return s.log.msg[0] == handled && s.log.msg[1] == handled && !s.log.open && s.log.told
}

// wrote says that the log has moved on.
func (s *situation) wrote() {
	for w := range s.worker {
		if s.worker[w].phase == folded {
			s.worker[w].stale = true
		}
	}
}

// putBack gives a worker's hint back to the queue.
func (s *situation) putBack(w int) {
	h := s.worker[w].hint
	s.queued[h], s.held[h] = !s.acked[h], false
	s.worker[w].rest()
}

// live says what a reader of the liveness bucket sees.
func (r rules) live(s situation) bool {
	if r.liveWorkers {
		return s.claim.beat
	}
	return s.claim.listed
}

// next calls emit with every state that can follow, and whether a fault led to it.
func (r rules) next(s situation, emit func(t situation, fault bool)) {
	if s.log.msg[1] == absent {
		t := s
		t.log.msg[1], t.queued[1] = pending, true
		t.wrote()
		emit(t, false)
	}
	for h := range hints {
		if s.held[h] && !s.acked[h] && !s.queued[h] { // AckWait runs out
			t := s
			t.queued[h], t.held[h] = true, false
			emit(t, false)
		}
	}
	if runnable := s.log.open || s.log.has(pending) || !s.log.told; r.sweep && runnable && !r.live(s) && s.acked[nudge] {
		t := s
		t.queued[nudge], t.held[nudge], t.acked[nudge] = true, false, false
		emit(t, false)
	}
	s.lapse(func(t situation) { emit(t, false) })
	for w := range s.worker {
		r.faults(s, w, emit)
		r.step(s, w, func(t situation) { emit(t, false) })
	}
}

// lapse lets signs of life run out that nobody renews.
func (s situation) lapse(emit func(situation)) {
	driven := s.worker[s.claim.holder].mine
	if s.claim.listed && !driven {
		t := s
		t.claim.listed = false
		emit(t)
	}
	if s.claim.beat && !s.claim.up {
		t := s
		t.claim.beat = false
		emit(t)
	}
}

// faults are a crash, after which the worker comes back as another incarnation,
// and a loop that ends by itself while its worker goes on.
func (r rules) faults(s situation, w int, emit func(situation, bool)) {
	m := s.worker[w]
	switch {
	case !m.up:
		t := s
		t.worker[w] = member{up: true}
		emit(t, false)
		return
	case s.crashes < r.crashes:
		t := s
		t.crashes++
		t.worker[w] = member{}
		if int(s.claim.holder) == w {
			t.claim.up = false
		}
		emit(t, true)
	}
	if m.phase == driving && s.drops < maxDrops {
		t := s
		t.drops++
		t.worker[w].rest()
		emit(t, true)
	}
}

// step is what a worker's slot does by itself.
func (r rules) step(s situation, w int, emit func(situation)) {
	m := s.worker[w]
	if !m.up {
		return
	}
	t := s
	me := &t.worker[w]
	switch m.phase {
	case waiting:
		for h := range hints {
			if s.queued[h] && !s.acked[h] {
				t := s
				t.queued[h], t.held[h] = false, true
				t.worker[w].phase, t.worker[w].hint = looking, uint8(h)
				emit(t)
			}
		}
	case looking:
		me.phase, me.seen, me.stale, me.live = folded, s.log, false, r.live(s)
		emit(t)
	case folded:
		r.act(s, w, emit)
	case driving:
		r.drive(s, w, emit)
	case acking: // however late: it counts for whoever holds the hint now
		t.acked[m.hint], t.queued[m.hint], t.held[m.hint] = true, false, false
		me.rest()
		emit(t)
	}
}

// act is what a worker does with what it saw, which may be old by now.
func (r rules) act(s situation, w int, emit func(situation)) {
	t := s
	me := &t.worker[w]
	saw := me.seen
	done := me.hint == nudge && !saw.has(pending) && !saw.open || me.hint != nudge && saw.msg[me.hint] == handled
	again := member{up: true, phase: looking, hint: me.hint}
	switch {
	case done && (saw.told || r.ackFinished), r.ackLiveDriver && saw.open && me.live:
		*me = member{up: true, phase: acking, hint: me.hint}
	case done: // only the notice is missing
		*me = again
		t.log.told = true
		t.wrote()
	case saw.open && me.live: // put back with delay
		t.putBack(w)
	case me.stale: // the compare-and-set fails
		*me = again
	default:
		t.worker[1-w].mine = false
		t.claim = claim{holder: uint8(w), listed: true, beat: true, up: true}
		t.log.open = true
		t.wrote()
		*me = member{up: true, phase: driving, hint: me.hint, mine: true}
	}
	emit(t)
}

// drive is a driver's next record.
func (r rules) drive(s situation, w int, emit func(situation)) {
	t := s
	me := &t.worker[w]
	switch {
	case !me.mine: // a foreign claim
		t.putBack(w)
	case s.log.has(pending):
		t.move(pending, consumed)
		t.log.open = true
	case s.log.open:
		t.move(consumed, handled)
		t.log.open, t.log.told = false, false
	case !s.log.told:
		t.log.told = true
		t.wrote()
	default: // nothing to do: is the hint stable?
		*me = member{up: true, phase: folded, hint: me.hint, seen: s.log, live: r.live(s)}
	}
	emit(t)
}

func (s *situation) move(from, to uint8) {
	for i, m := range s.log.msg {
		if m == from {
			s.log.msg[i] = to
		}
	}
	s.wrote()
}

// explore visits every reachable state and returns how many there are, and one
// from which no good end can be reached without another fault, if there is one.
func (r rules) explore() (visited int, stuck *situation) {
	index := map[situation]int32{}
	var all []situation
	var back [][]int32 // edges without faults, reversed
	add := func(s situation) int32 {
		if i, ok := index[s]; ok {
			return i
		}
		i := int32(len(all))
		index[s] = i
		all, back = append(all, s), append(back, nil)
		return i
	}
	add(begin())
	for i := 0; i < len(all); i++ { //nolint:intrange // all grows meanwhile
		r.next(all[i], func(t situation, fault bool) {
			if j := add(t); !fault {
				back[j] = append(back[j], int32(i))
			}
		})
	}
	hope := make([]bool, len(all))
	var todo []int32
	for i, s := range all {
		if s.good() {
			hope[i] = true
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, j := range back[i] {
			if !hope[j] {
				hope[j] = true
				todo = append(todo, j)
			}
		}
	}
	for i := range all {
		if !hope[i] {
			return len(all), &all[i]
		}
	}
	return len(all), nil
}

func TestModelOfDriving(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		rules rules
		stuck bool
		floor int // fewer states mean that the model no longer does what it says
	}{
		{"the queue alone loses nothing", rules{crashes: 2}, false, 500_000},
		{"nor with the sweep", rules{sweep: true}, false, 100_000},
		{"acknowledging what a live driver will see", rules{ackLiveDriver: true, crashes: 1}, true, 100_000},
		{"acknowledging what a finished turn consumed", rules{ackFinished: true, crashes: 1}, true, 100_000},
		{"liveness per worker", rules{liveWorkers: true, sweep: true}, true, 100_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			visited, stuck := tt.rules.explore()
			t.Logf("%d states", visited)
			if visited < tt.floor {
				t.Errorf("visited %d states, want at least %d", visited, tt.floor)
			}
			if got := stuck != nil; got != tt.stuck {
				t.Errorf("found a stuck state: %t, want %t%s", got, tt.stuck, describe(stuck))
			}
		})
	}
}

func describe(s *situation) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("\n%+v", *s)
}
