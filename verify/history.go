package verify

import "github.com/entail-fleet/entail/session"

// history is what is kept of one session after it was read: enough to answer
// what its log said at any seq.
type history struct {
	id     session.ID
	header session.Header
	born   session.Raw
	parent *history // of parentSession, nil for a root

	links   []session.Link // after each own event, from firstLiveSeq on
	changes []change       // of the knobs, by own events
	start   knobs          // what the prefix folds to
	ends    []session.Seq  // the seqs right after own turn/end events

	first       []session.Event // the first batch
	filter      *session.ToolFilter
	delegations []delegation
	accepted    []uint64 // stream sequences of the records in the log

	records int
	voids   int
	seen    uint64 // the highest stream sequence read
	stopped bool   // it could not be followed to its end
	until   uint64 // if stopped, the stream sequence up to which it is known
}

// setting is one knob and the event that set it; seq is nil while none did.
type setting[V ~string] struct {
	value V
	seq   *session.Seq
}

func set[V ~string](v V, at session.Seq) setting[V] { return setting[V]{value: v, seq: &at} }

// or is SPEC 2.1: override ?? default.
func (s setting[V]) or(v V) V {
	if s.seq == nil {
		return v
	}
	return s.value
}

// knobs are the three folds of SPEC 2, each last-event-wins.
type knobs struct {
	sandbox  setting[session.SandboxMode]
	approval setting[session.ApprovalPolicy]
	preset   setting[session.Preset]
}

// change is what the knobs came to at an event.
type change struct {
	seq   session.Seq
	knobs knobs
}

// turn is what an event makes of the knobs. A release brings the session back
// read-only, because what it skips may have been a switch (SPEC 1.7).
func (k knobs) turn(e session.Event) (knobs, bool) {
	switch p := e.Payload.(type) {
	case *session.SandboxSwitch:
		k.sandbox = set(p.Mode, e.Seq)
	case *session.ApprovalSwitch:
		k.approval = set(p.Policy, e.Seq)
	case *session.PresetSwitch:
		k.preset = set(p.Preset, e.Seq)
	case *session.Release:
		k.sandbox = set(session.ReadOnly, e.Seq)
	default:
		return k, false
	}
	return k, true
}

// next is the seq after the last event.
func (h *history) next() session.Seq {
	return h.header.FirstLiveSeq + session.Seq(len(h.links))
}

// knobsAt is what the log's events below s fold to.
func (h *history) knobsAt(s session.Seq) knobs {
	if s < h.header.InheritedEventCount && h.parent != nil {
		return h.parent.knobsAt(s)
	}
	at := h.start
	for _, c := range h.changes {
		if c.seq >= s {
			break
		}
		at = c.knobs
	}
	return at
}

// linkAt is the link after event s. Below the cut of a fork it is the
// ancestor's own.
func (h *history) linkAt(s session.Seq) (session.Link, bool) {
	if s < h.header.FirstLiveSeq {
		if h.parent == nil || s >= h.header.InheritedEventCount {
			return session.Link{}, false
		}
		return h.parent.linkAt(s)
	}
	i := s - h.header.FirstLiveSeq
	if i >= session.Seq(len(h.links)) {
		return session.Link{}, false
	}
	return h.links[i], true
}

// cutAt is where a fork of the log's events below s would be cut: right after
// the last ended turn, 0 without one (SPEC 4.1).
func (h *history) cutAt(s session.Seq) session.Seq {
	for n := len(h.ends); n > 0; n-- {
		if h.ends[n-1] <= s {
			return h.ends[n-1]
		}
	}
	if h.parent == nil {
		return 0
	}
	return h.parent.cutAt(min(s, h.header.InheritedEventCount))
}

// truncate forgets what was read from seq s on.
func (h *history) truncate(s session.Seq, accepted int) {
	h.links = h.links[:s-h.header.FirstLiveSeq]
	h.accepted = h.accepted[:accepted]
	for n := len(h.changes); n > 0 && h.changes[n-1].seq >= s; n-- {
		h.changes = h.changes[:n-1]
	}
	for n := len(h.ends); n > 0 && h.ends[n-1] > s; n-- {
		h.ends = h.ends[:n-1]
	}
	for n := len(h.delegations); n > 0 && h.delegations[n-1].seq >= s; n-- {
		h.delegations = h.delegations[:n-1]
	}
}

// delegation finds the decision that started a child.
func (h *history) delegation(child session.ID) (delegation, bool) {
	for _, d := range h.delegations {
		if d.child == child {
			return d, true
		}
	}
	return delegation{}, false
}

// delegation is an allowing decision of a delegating call and what the parent's
// log said right before it, at N.
type delegation struct {
	child     session.ID
	seq       session.Seq
	streamSeq uint64
	decision  *session.ToolDecision
	arguments string
	at        knobs
	cut       session.Seq // the seq after the last ended turn, 0 without one
	filter    *session.ToolFilter
}
