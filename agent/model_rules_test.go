package agent_test

// The rules of ARCHITECTURE 4 as a transition system: one child session with a
// few messages, some workers with one slot each, a queue that redelivers, and the
// coordinators' sweep. It follows the code where that does less than the rules
// allow: a loop writes what is to be written before it asks whether its hint may
// be acknowledged (driver.drive, Worker.driveHint), and what Plan joins into one
// record is one step here.
//
// What makes no difference is left out, so that the search is small. Each of
// these keeps every reachable end, and the hope of it:
//
//   - Of a read, only what the worker will do with it is kept.
//   - A hint that is put back comes again like one whose AckWait has run out.
//   - A worker that is down is one that does nothing, and so is a loop that has
//     lost its session and does not know yet.
//   - The log and the liveness bucket are read in one step, though the code reads
//     one after the other: if the log moves in between, the claim is a conflict,
//     and if it does not, it might have been read later.
//   - A worker without a claim may give up at any time, for any reason, so only a
//     driver's crash is counted.
//
// Not in the model: quarantine, sessions that no worker may take, interrupts,
// cancels, and the end of the session. The old rules get no old reads of their own.

// rules are the rules under test and what they are put to. The zero value has
// each old rule switched off.
type rules struct {
	ackLiveDriver bool // acknowledge what a live driver will see
	ackFinished   bool // acknowledge what a finished turn consumed, told or not
	liveWorkers   bool // a claim lives as long as its worker does

	workers  int
	messages int
	falls    uint8 // how many drivers crash or are dropped
	losses   uint8 // how often the queue forgets its hints
}

// next lists all that can happen.
func (r *rules) next(s *situation, out *moves) {
	out.n = 0
	r.queue(s, out)
	r.signs(s, out)
	r.coordinator(s, out)
	for w := range r.workers {
		r.faults(s, w, out)
		r.step(s, w, out)
	}
}

// queue is what happens outside: messages come in, AckWait runs out, the consumer
// is rebuilt at the stream's end.
func (r *rules) queue(s *situation, out *moves) {
	for i := range r.messages {
		if s.msg[i] == absent {
			t := out.add(s, arrive, i)
			t.msg[i], t.hint[i] = pending, queued
			t.wrote()
		}
	}
	for h, at := range s.hint {
		if at == held {
			out.add(s, expire, h).hint[h] = queued
		}
	}
	if s.losses < r.losses {
		t := out.add(s, rebuild, 0)
		t.losses++
		t.hint = [hints]uint8{}
	}
}

// signs are the signs of life of the claim in force.
func (r *rules) signs(s *situation, out *moves) {
	var driven, made bool
	for w := range s.worker {
		driven, made = driven || s.worker[w].drives(), made || s.worker[w].made
	}
	switch {
	case r.liveWorkers && (made || !s.alive): // as its worker
	case !s.alive && driven:
		out.add(s, relist, 0).alive = true
	case s.alive && driven: // renewals fail, or the loop makes no progress
		out.add(s, stall, 0).alive = false
	case s.alive:
		out.add(s, lapse, 0).alive = false
	}
}

// coordinator is the sweep. Its nudge is a compare-and-set on the log that it
// looked at, but the signs of life that it saw may be old. All nudges share a
// hint here, so a late acknowledgement of one loses them all: that is worse than
// the queue is.
func (r *rules) coordinator(s *situation, out *moves) {
	if s.turn == open || s.has(pending) {
		e := nudgeIdle
		if s.alive {
			e = nudgeLive
		}
		t := out.add(s, e, 0)
		t.hint[nudge] = queued
		t.wrote()
	}
	if s.has(ended) {
		out.add(s, owed, 0).move(ended, known)
	}
}

// faults are a driver's crash, after which the worker is another incarnation, and
// a loop that ends by itself while its worker goes on.
func (r *rules) faults(s *situation, w int, out *moves) {
	m := &s.worker[w]
	if s.falls < r.falls && (m.drives() || m.made) {
		t := out.add(s, crash, w)
		t.falls++
		t.worker[w] = member{}
	}
	if s.falls < r.falls && m.drives() {
		t := out.add(s, drop, w)
		t.falls++
		t.worker[w].leave()
	}
	if !m.drives() && m.phase != waiting {
		out.add(s, giveUp, w).worker[w].leave()
	}
}

// step is what a worker's slot does by itself.
func (r *rules) step(s *situation, w int, out *moves) {
	m := &s.worker[w]
	switch m.phase {
	case waiting:
		for h, at := range s.hint {
			if at == queued {
				t := out.add(s, take, w)
				t.hint[h] = held
				t.worker[w].phase, t.worker[w].hint = looking, uint8(h)
			}
		}
	case looking:
		r.read(s, w, out)
		r.readOld(s, w, out)
	case claiming:
		r.claim(s, w, out)
	case outdated:
		out.add(s, conflict, w).worker[w].phase = looking
	case driving:
		r.drive(s, w, out)
	case settling, closing:
		r.settle(s, w, out)
	case acking:
		r.ack(s, w, out)
	}
}

// read is what Next says to a loop without a claim.
func (r *rules) read(s *situation, w int, out *moves) {
	switch {
	case s.turn == open && s.alive && r.ackLiveDriver:
		out.add(s, busy, w).worker[w].phase = acking
	case s.turn == open && s.alive:
		out.add(s, busy, w).worker[w].leave()
	case s.turn == open || s.has(pending):
		out.add(s, work, w).worker[w].phase = claiming
	default:
		r.idle(s, w, out)
	}
}

// idle is what Next says when nothing is to be written: the parent is told of
// every ended turn, and then the hint is acknowledged on a stable fact. With a
// claim, the loop gives it up first.
func (r *rules) idle(s *situation, w int, out *moves) {
	m := &s.worker[w]
	finished := m.hint != nudge && s.msg[m.hint] == ended && !m.drives()
	if !s.has(ended) || finished && r.ackFinished {
		out.add(s, stable, w).worker[w].phase = acking
		return
	}
	t := out.add(s, untold, w)
	t.worker[w].phase, t.worker[w].saw = settling, s.all(ended)
	if m.drives() {
		t.worker[w].phase = closing
	}
}

// readOld reads a copy of the stream that is behind. A driver does not: its copy
// has its own last record, so what it misses came after that, and it might have
// read before that came. What else an old read can lead to is to put the hint
// back, and a claim that is a conflict.
func (r *rules) readOld(s *situation, w int, out *moves) {
	m := &s.worker[w]
	if m.hint != nudge && (s.msg[m.hint] == known || s.msg[m.hint] == rested) {
		out.add(s, readStale, w).worker[w].phase = acking
	}
	if s.has(ended) {
		t := out.add(s, readStale, w)
		t.worker[w].phase, t.worker[w].saw = settling, s.all(ended)
	}
}

// claim writes what Plan joins into the claim's record: the turn's start or wake,
// and all that is pending. A takeover consumes later.
func (r *rules) claim(s *situation, w int, out *moves) {
	t := out.add(s, [...]event{closed: claimStart, open: claimOver, parked: claimWake}[s.turn], w)
	for i := range t.worker {
		switch m := &t.worker[i]; m.phase {
		case driving:
			m.leave()
		case closing: // may look again without a claim, which the code does not
			m.phase = settling
		}
		t.worker[i].made = false
	}
	t.wrote()
	t.alive = true
	t.worker[w] = member{phase: driving, hint: s.worker[w].hint, made: r.liveWorkers}
	if s.turn != open {
		t.turn = open
		t.move(pending, consumed)
	}
}

// drive is a driver's next record, by compare-and-set on the log as it is. One
// that fails changes nothing.
func (r *rules) drive(s *situation, w int, out *moves) {
	switch {
	case s.turn == open && s.has(pending):
		t := out.add(s, consume, w)
		t.move(pending, consumed)
		t.wrote()
	case s.turn == open:
		t := out.add(s, end, w)
		t.turn = closed
		t.move(consumed, ended)
		t.move(rested, ended)
		t.wrote()
		t = out.add(s, park, w)
		t.turn = parked
		t.move(consumed, rested)
		t.wrote()
	case s.turn == closed && s.has(pending):
		t := out.add(s, start, w)
		t.turn = open
		t.move(pending, consumed)
		t.wrote()
	case s.has(pending): // a parked turn is held by nobody
		r.claim(s, w, out)
	default:
		r.idle(s, w, out)
	}
}

// settle has the parent told of the turns that a worker saw ended. That is no
// record of this session's log. The loop looks again.
func (r *rules) settle(s *situation, w int, out *moves) {
	m := &s.worker[w]
	t := out.add(s, tell, w)
	for i := range t.msg {
		if m.saw>>i&1 == 1 {
			t.msg[i] = known
		}
	}
	t.worker[w].saw = 0
	t.worker[w].phase = looking
	if m.phase == closing {
		t.worker[w].phase = driving
	}
}

// ack acknowledges a hint. It counts for whoever holds the hint now.
func (r *rules) ack(s *situation, w int, out *moves) {
	m := &s.worker[w]
	e := ackLate
	if s.hint[m.hint] == held {
		e = ackHeld
	}
	t := out.add(s, e, w)
	t.hint[m.hint] = gone
	t.worker[w].leave()
}
