package agent_test

import (
	"fmt"
	"slices"
)

const (
	maxWorkers  = 3
	maxMessages = 3
	nudge       = maxMessages // the hint of the sweep's nudge
	hints       = maxMessages + 1
)

// What becomes of a message.
const (
	absent   = iota
	pending  // accepted
	consumed // by the open turn
	rested   // and that turn has parked since
	ended    // with its turn, and the parent does not know
	known    // and the parent does
)

// The session's turn.
const (
	closed = iota
	open
	parked
)

// A hint in the queue. One that was acknowledged, or whose record is not there
// yet, is gone.
const (
	gone = iota
	queued
	held
)

// What a worker's slot is about to do.
const (
	waiting  = iota // for a hint
	looking         // reads the log
	claiming        // saw something to do for which nobody is alive
	outdated        // the same, and the log has moved on since
	driving         // holds the claim in force
	settling        // saw turns that have ended, and has the parent told
	closing         // the same, and holds the claim in force
	acking          // acknowledges the hint
)

// member is a worker with one slot. What its phase does not use is zero.
type member struct {
	phase uint8
	hint  uint8
	saw   uint8 // set of messages whose turn it saw ended
	made  bool  // this incarnation made the claim in force; only liveWorkers asks
}

func (m *member) drives() bool { return m.phase == driving || m.phase == closing }

// leave ends a loop; its worker waits for a hint again.
func (m *member) leave() { *m = member{made: m.made} }

// situation is a state of the whole.
type situation struct {
	msg    [maxMessages]uint8
	turn   uint8
	alive  bool // what a reader of the liveness bucket sees of the claim in force
	hint   [hints]uint8
	worker [maxWorkers]member
	falls  uint8 // how many drivers were lost
	losses uint8 // how often the queue was
}

// String tells of the log, the queue and the claim.
func (s situation) String() string {
	msg := []string{"absent", "pending", "consumed", "consumed before a park", "handled, the parent untold", "handled"}
	turn := []string{"closed", "open", "parked"}
	hint := []string{"gone", "queued", "held"}
	return fmt.Sprintf("messages: %s, %s, %s; their hints: %s, %s, %s; nudge: %s; turn: %s; claim alive: %t",
		msg[s.msg[0]], msg[s.msg[1]], msg[s.msg[2]], hint[s.hint[0]], hint[s.hint[1]], hint[s.hint[2]], hint[s.hint[nudge]],
		turn[s.turn], s.alive)
}

func begin() situation {
	var s situation
	s.msg[0], s.hint[0] = pending, queued
	return s
}

// good reports whether nothing is to be done: each message that was accepted was
// handled and its hint acknowledged, and the parent was told. A parked turn waits
// for a record that is not there.
func (s *situation) good() bool {
	return s.turn != open && !s.has(pending) && !s.has(ended) && s.hint == [hints]uint8{}
}

func (s *situation) has(state uint8) bool { return slices.Contains(s.msg[:], state) }

// all is the set of the messages in a state.
func (s *situation) all(state uint8) (set uint8) {
	for i, m := range s.msg {
		if m == state {
			set |= 1 << i
		}
	}
	return set
}

func (s *situation) move(from, to uint8) {
	for i, m := range s.msg {
		if m == from {
			s.msg[i] = to
		}
	}
}

// wrote says that the session's log has moved on.
func (s *situation) wrote() {
	for w := range s.worker {
		if m := &s.worker[w]; m.phase == claiming {
			m.phase = outdated
		}
	}
}

// Bits of a packed situation.
const (
	bitsMessage = 3
	bitsHint    = 2
	bitsWorker  = 9
)

// pack packs a situation into a word: one word for all situations that differ
// only in which worker is which, and one for most that differ only in which
// message is which. The rules treat all workers alike, and all messages.
func (s situation) pack() uint64 {
	s.sortMessages()
	k := uint64(s.turn)<<1 | flag(s.alive)
	k = k<<2 | uint64(s.falls)
	k = k<<1 | uint64(s.losses)
	for _, m := range s.msg {
		k = k<<bitsMessage | uint64(m)
	}
	for _, h := range s.hint {
		k = k<<bitsHint | uint64(h)
	}
	a, b, c := s.worker[0].pack(), s.worker[1].pack(), s.worker[2].pack()
	a, b = max(a, b), min(a, b)
	b, c = max(b, c), min(b, c)
	a, b = max(a, b), min(a, b)
	return ((k<<bitsWorker|a)<<bitsWorker|b)<<bitsWorker | c
}

func (m member) pack() uint64 {
	return ((uint64(m.phase)<<bitsHint|uint64(m.hint))<<maxMessages|uint64(m.saw))<<1 | flag(m.made)
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func unpack(k uint64) situation {
	var s situation
	take := func(bits int) uint8 {
		v := k & (1<<bits - 1)
		k >>= bits
		return uint8(v)
	}
	for w := range slices.Backward(s.worker[:]) {
		s.worker[w] = member{made: take(1) == 1, saw: take(maxMessages), hint: take(bitsHint), phase: take(3)}
	}
	for h := range slices.Backward(s.hint[:]) {
		s.hint[h] = take(bitsHint)
	}
	for i := range slices.Backward(s.msg[:]) {
		s.msg[i] = take(bitsMessage)
	}
	s.losses, s.falls = take(1), take(2)
	s.alive, s.turn = take(1) == 1, take(2)
	return s
}

// sortMessages puts the messages in an order that their names have no part in,
// but for those that it cannot tell apart.
func (s *situation) sortMessages() {
	var rank [maxMessages]int
	for i, m := range s.msg {
		rank[i] = int(m)<<bitsHint | int(s.hint[i])
	}
	for i := range rank {
		rank[i] <<= 8
		for _, m := range s.worker {
			if m.phase != waiting && int(m.hint) == i {
				rank[i] += 1 << m.phase
			}
		}
	}
	for i := range rank {
		for j := range i {
			if rank[j] < rank[i] {
				rank[i], rank[j] = rank[j], rank[i]
				s.swap(i, j)
			}
		}
	}
}

func (s *situation) swap(i, j int) {
	s.msg[i], s.msg[j] = s.msg[j], s.msg[i]
	s.hint[i], s.hint[j] = s.hint[j], s.hint[i]
	for w := range s.worker {
		m := &s.worker[w]
		switch {
		case m.phase == waiting:
		case int(m.hint) == i:
			m.hint = uint8(j)
		case int(m.hint) == j:
			m.hint = uint8(i)
		}
		if m.saw>>i&1 != m.saw>>j&1 {
			m.saw ^= 1<<i | 1<<j
		}
	}
}
