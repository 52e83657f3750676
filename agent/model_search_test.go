package agent_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// event is a kind of what can happen in the model.
type event uint8

const (
	arrive event = iota
	expire
	rebuild
	relist
	stall
	lapse
	nudgeIdle
	nudgeLive
	owed
	crash
	drop
	giveUp
	take
	busy
	work
	untold
	stable
	readStale
	claimStart
	claimOver
	claimWake
	conflict
	consume
	end
	park
	start
	tell
	ackHeld
	ackLate
	events
)

// eventNames say what happens; # is which message, hint or worker.
var eventNames = [events]string{
	arrive:     "message # comes in",
	expire:     "AckWait of hint # runs out",
	rebuild:    "the queue forgets its hints",
	relist:     "the claim is listed again",
	stall:      "the driven claim is not listed for a while",
	lapse:      "the claim, which nobody drives, lapses",
	nudgeIdle:  "the sweep nudges",
	nudgeLive:  "the sweep nudges on old signs of life",
	owed:       "the sweep tells the parent",
	crash:      "worker # crashes",
	drop:       "worker # drops its loop",
	giveUp:     "worker # gives up",
	take:       "worker # takes hint",
	busy:       "worker # sees a live driver",
	work:       "worker # sees something to do",
	untold:     "worker # sees a turn that has ended",
	stable:     "worker # sees a stable fact",
	readStale:  "worker # sees an old log",
	claimStart: "worker # claims and starts a turn",
	claimOver:  "worker # takes over",
	claimWake:  "worker # claims and wakes the turn",
	conflict:   "worker # has a conflict",
	consume:    "worker # consumes",
	end:        "worker # ends the turn",
	park:       "worker # parks the turn",
	start:      "worker # starts another turn",
	tell:       "worker # has the parent told",
	ackHeld:    "worker # acknowledges hint",
	ackLate:    "worker # acknowledges, late, hint",
}

// fair reports whether what can happen will happen in the end, so that a good end
// may need it. Whether it may need the sweep is the question.
func fair(e event, sweep bool) bool {
	switch e {
	case arrive, rebuild, relist, stall, nudgeLive, crash, drop, giveUp, readStale:
		return false
	case nudgeIdle, owed:
		return sweep
	default:
		return true
	}
}

// possible reports whether something can happen at all under the rules.
func (r *rules) possible(e event) bool {
	switch e {
	case rebuild:
		return r.losses > 0
	case relist, stall:
		return !r.liveWorkers
	default:
		return true
	}
}

// moves are all that can happen in one situation. Their memory is used again.
type moves struct {
	n    int
	list [64]move
}

type move struct {
	to   situation
	what event
	who  int
}

// add adds a move that is yet to be made to the copy that it returns.
func (m *moves) add(s *situation, what event, who int) *situation {
	v := &m.list[m.n]
	m.n++
	v.to, v.what, v.who = *s, what, who
	return &v.to
}

// search holds every situation that was reached, breadth first, each once and
// whole: two of them are never taken for one.
type search struct {
	rules   rules
	found   []uint64 // packed
	from    []uint32 // the situation before
	index   []slot   // of found, by open addressing; its length is a power of two
	reached [events]int
}

type slot struct {
	packed uint64
	place  uint32 // in found, counted from one; zero in a free slot
}

// explore finds every situation.
func explore(r rules) *search {
	s := &search{rules: r, index: make([]slot, 1<<16)}
	s.add(begin().pack(), 0)
	var m moves
	for i := 0; i < len(s.found); i++ { //nolint:intrange // it grows meanwhile
		at := unpack(s.found[i])
		r.next(&at, &m)
		for j := range m.n {
			s.reached[m.list[j].what]++
			s.add(m.list[j].to.pack(), i)
		}
	}
	return s
}

func (s *search) add(packed uint64, from int) {
	p := s.slot(packed)
	if p.place != 0 {
		return
	}
	s.found, s.from = append(s.found, packed), append(s.from, uint32(from))
	*p = slot{packed, uint32(len(s.found))}
	if 2*len(s.found) > len(s.index) {
		s.index = make([]slot, 2*len(s.index))
		for i, packed := range s.found {
			*s.slot(packed) = slot{packed, uint32(i + 1)}
		}
	}
}

// slot returns where a situation is, or would be.
func (s *search) slot(packed uint64) *slot {
	h := packed ^ packed>>32
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	for mask := uint64(len(s.index) - 1); ; h++ {
		if p := &s.index[h&mask]; p.place == 0 || p.packed == packed {
			return p
		}
	}
}

// stuck returns a situation from which no good end can be reached by fair moves,
// of those the one that the fewest moves lead to, if there is one. Good ends lie
// late in the search, so hope is spread backwards, until nothing changes.
func (s *search) stuck(sweep bool) (place int, found bool) {
	hope := make([]bool, len(s.found))
	var m moves
	for changed := true; changed; {
		changed = false
		for i := range slices.Backward(hope) {
			if !hope[i] && s.hopeful(i, hope, sweep, &m) {
				hope[i], changed = true, true
			}
		}
	}
	place = slices.Index(hope, false)
	return place, place >= 0
}

func (s *search) hopeful(i int, hope []bool, sweep bool, m *moves) bool {
	at := unpack(s.found[i])
	if at.good() {
		return true
	}
	s.rules.next(&at, m)
	for j := range m.n {
		v := &m.list[j]
		if fair(v.what, sweep) && hope[s.slot(v.to.pack()).place-1] {
			return true
		}
	}
	return false
}

// trace tells a shortest way to a situation, one move a line. It gives workers
// and messages the names that they have from the beginning.
func (s *search) trace(i int) string {
	var way []uint64
	for ; i != 0; i = int(s.from[i]) {
		way = append(way, s.found[i])
	}
	var b strings.Builder
	var m moves
	at := begin()
	for n, packed := range slices.Backward(way) {
		s.rules.next(&at, &m)
		for _, v := range m.list[:m.n] {
			if v.to.pack() == packed {
				fmt.Fprintf(&b, "%4d. %s\n", len(way)-n, v.tell(&at))
				at = v.to
				break
			}
		}
	}
	fmt.Fprintf(&b, "      %v", at)
	return b.String()
}

// tell says what happens in a move.
func (v move) tell(at *situation) string {
	name := func(i int) string {
		if i == nudge {
			return "of the nudge"
		}
		return strconv.Itoa(i + 1)
	}
	text := strings.ReplaceAll(eventNames[v.what], "#", name(v.who))
	switch v.what {
	case take:
		return text + " " + name(int(v.to.worker[v.who].hint))
	case ackHeld, ackLate:
		return text + " " + name(int(at.worker[v.who].hint))
	default:
		return text
	}
}
