package verify

import (
	"fmt"
	"maps"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// state is where a walk stands: what the next record is judged on.
type state struct {
	next   session.Seq
	link   session.Link
	format int
	epoch  uint64
	knobs  knobs

	turn, step, ended bool
	calls             map[session.CallID]call // of the open step
	inbox             []unread                // never changed in place: a suspect keeps the one before it
}

// walker follows one session's records and says which are its log.
type walker struct {
	h        *history
	table    table
	st       state
	suspect  *suspect
	halted   bool
	since    []uint64 // stream sequences from the halt on
	findings []Finding
	notes    []Finding
}

// suspect is a turn record that the log does not allow, and what follows it, on
// probation: superseded it is void, built on it is a finding.
type suspect struct {
	saved    state // before it
	accepted int
	findings int
	// A record that cannot be read cannot be followed either; what it claims
	// to come to tells whether the log goes on from it.
	blind bool
	next  session.Seq
	after session.Link
	built bool
	fault Finding
}

// at is where in the stream an event was met.
type at struct {
	seq     session.Seq
	stream  uint64
	class   session.Class
	genesis bool
}

func (w *walker) flag(inv, clause string, p at, format string, args ...any) {
	w.findings = append(w.findings, w.finding(inv, clause, p, format, args...))
}

func (w *walker) finding(inv, clause string, p at, format string, args ...any) Finding {
	return Finding{inv, clause, w.h.id, p.seq, p.stream, fmt.Sprintf(format, args...)}
}

// begin starts the log from a genesis that was read.
func (w *walker) begin(raw session.Raw, r session.Record) {
	w.h.born = raw
	w.h.seen = raw.StreamSeq
	w.h.accepted = []uint64{raw.StreamSeq}
	w.birth(r.Birth.Header)
	p := at{seq: r.Birth.Header.FirstLiveSeq, stream: raw.StreamSeq, class: session.ClassGenesis, genesis: true}
	if f := w.genesis(raw, r, p); f != nil {
		w.findings = append(w.findings, *f)
	}
	w.st.link = r.Birth.First.Before
	w.h.first = r.Birth.First.Events
	for _, e := range w.h.first {
		w.event(e, p)
	}
}

// birth sets the walk to the start that a header gives.
func (w *walker) birth(h session.Header) {
	w.h.header = h
	if w.h.parent != nil && h.InheritedEventCount > 0 {
		w.h.start = w.h.parent.knobsAt(h.InheritedEventCount)
	}
	w.st = state{
		next: h.FirstLiveSeq, format: h.FormatVersion, knobs: w.h.start,
		calls: map[session.CallID]call{},
	}
}

// record judges the next record of the session's space.
func (w *walker) record(raw session.Raw) {
	w.h.seen = max(w.h.seen, raw.StreamSeq)
	r, err := session.DecodeRecord(raw)
	if w.halted {
		w.afterHalt(raw, r, err)
		return
	}
	if s := w.suspect; s != nil && err == nil && r.Own != nil && !w.st.expects(r) && s.saved.expects(r) {
		w.acquit()
	}
	f := w.place(raw, r, err)
	switch {
	case f == nil:
		w.accept(raw, r)
	case f.Text == "":
		// A record equal to one already read is ignored (SPEC 1.4), an import's
		// seed is not read.
	case raw.Address.Class == session.ClassTurn && f.Clause != clauseLoss:
		w.void(raw, *f)
	default:
		w.halt(raw, *f)
	}
}

// expects reports whether a record says of itself that it comes next here.
func (s state) expects(r session.Record) bool {
	return r.Own.Seq == s.next && r.Own.Before == s.link && r.Format == s.format && s.driver(r)
}

// driver reports whether a turn section names the epoch in force, or the next
// one for a claim.
func (s state) driver(r session.Record) bool {
	if r.Own.Class != session.ClassTurn {
		return true
	}
	want := s.epoch
	if claim, ok := r.Own.Events[0].Payload.(*session.Claim); ok {
		if want++; claim.Epoch != want {
			return false
		}
	}
	return r.Epoch == want && want > 0
}

// accept takes a record into the log. What its events give rise to puts a turn
// record on probation.
func (w *walker) accept(raw session.Raw, r session.Record) {
	if w.suspect != nil && w.suspect.blind {
		w.suspect = nil // the log goes on without it
	}
	before, found, accepted := w.st, len(w.findings), len(w.h.accepted)
	before.calls = maps.Clone(w.st.calls)
	w.h.accepted = append(w.h.accepted, raw.StreamSeq)
	for _, e := range r.Own.Events {
		w.event(e, at{e.Seq, raw.StreamSeq, r.Own.Class, raw.Address.Class == session.ClassGenesis})
	}
	if raw.Address.Class == session.ClassGenesis {
		w.checkChild(raw, r)
	}
	if len(w.findings) > found && w.suspect == nil && raw.Address.Class == session.ClassTurn {
		w.suspect = &suspect{saved: before, accepted: accepted, findings: found}
	}
}

// acquit drops a suspect that a later record superseded: it was void, and so was
// what followed it.
func (w *walker) acquit() {
	s := w.suspect
	w.suspect = nil
	gone := w.h.accepted[s.accepted:]
	w.h.voids += len(gone)
	for _, seq := range gone {
		w.notes = append(w.notes, w.finding("void", "1.4", at{seq: s.saved.next, stream: seq}, "superseded: the log goes on without it"))
	}
	w.findings = slices.Delete(w.findings, s.findings, len(w.findings))
	w.st = s.saved
	w.h.truncate(s.saved.next, s.accepted)
}

// void counts a turn record that changes nothing, and remembers what it claims
// to be in case the log goes on from it.
func (w *walker) void(raw session.Raw, f Finding) {
	w.h.voids++
	note := f
	note.Invariant = "void"
	w.notes = append(w.notes, note)
	c, ok := claimOf(raw)
	s := w.suspect
	switch {
	case !ok || raw.StreamSeq < w.h.born.StreamSeq:
	case s != nil && s.blind && c.seq == s.next && c.before == s.after:
		s.built, s.next, s.after = true, c.next, c.after
	case c.seq == w.st.next && (s == nil || s.blind && !s.built):
		saved := w.st
		saved.calls = maps.Clone(w.st.calls)
		w.suspect = &suspect{
			saved: saved, accepted: len(w.h.accepted), findings: len(w.findings),
			blind: true, next: c.next, after: c.after, fault: f,
		}
	}
}

// halt stops the session: SPEC 1.4 calls it corruption or loss.
func (w *walker) halt(raw session.Raw, f Finding) {
	if c, ok := claimOf(raw); ok && w.suspect != nil && w.suspect.blind && c.before == w.suspect.after {
		w.suspect.built = true
	}
	w.halted, w.h.stopped, w.h.until = true, true, raw.StreamSeq
	w.since = []uint64{raw.StreamSeq}
	w.findings = append(w.findings, f)
}

// afterHalt looks for the release that names exactly what stands since the halt
// (SPEC 1.7). Nothing that was skipped counts.
func (w *walker) afterHalt(raw session.Raw, r session.Record, err error) {
	if err == nil && raw.Address.Class == session.ClassPolicy && len(r.Own.Events) == 1 && w.st.expects(r) {
		p, ok := r.Own.Events[0].Payload.(*session.Release)
		if ok && slices.Equal(p.Skip, w.since) && p.Link == w.st.link && p.Seq == w.st.next {
			last := len(w.findings) - 1
			note := w.findings[last]
			note.Invariant, note.Text = "released", note.Text+"; released: "+p.Reason
			w.notes = append(w.notes, note)
			w.findings = w.findings[:last]
			w.halted, w.h.stopped, w.since, w.suspect = false, false, nil, nil
			w.accept(raw, r)
			return
		}
	}
	w.since = append(w.since, raw.StreamSeq)
}

// end settles what is still on probation at the end of the records.
func (w *walker) end() {
	w.h.born.Body = nil
	if s := w.suspect; s != nil && s.blind && s.built {
		w.h.stopped, w.h.until = true, s.fault.StreamSeq
		s.fault.Text = "the log goes on from a record that is not valid: " + s.fault.Text
		w.findings = append(w.findings, s.fault)
	}
}

// unborn counts records under an id that has no genesis: somebody planted them.
func (w *walker) unborn(raws []session.Raw) {
	for _, raw := range raws {
		f := w.finding(Log, "1.4", at{stream: raw.StreamSeq}, "a record of class %s without a genesis", raw.Address.Class)
		if raw.Address.Class == session.ClassTurn {
			w.void(raw, f)
			continue
		}
		w.findings = append(w.findings, f)
	}
}

// lines follows the events of an export without records.
func (w *walker) lines(h session.Header, events []session.Event) {
	w.birth(h)
	n := firstBatch(h, events)
	w.h.first = events[:n]
	for i, e := range events {
		_, decision := e.Payload.(*session.ToolDecision)
		w.event(e, at{seq: e.Seq, class: guessClass(e, i < n), genesis: decision || i < n})
	}
}
