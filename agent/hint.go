package agent

import (
	"slices"

	"github.com/entail-fleet/entail/session"
)

// Stable reports whether a hint about a record may be acknowledged: whether
// nothing will ever have to be done for it (ARCHITECTURE 4). It says so only for
// what is true in every longer log too, so that a stale replica can delay an
// acknowledgement and lose no message. What a child's end owes its parent must be
// settled before it is asked.
func (r *Replica) Stable(hint session.Raw) bool {
	events, read := r.holds(hint)
	if !read {
		return false
	}
	var f Facts
	f.State, f.Events = r.both()
	return !slices.ContainsFunc(events, func(e session.Event) bool { return !f.stable(e) })
}

// stable reports whether nothing will have to be done for one event.
func (f Facts) stable(e session.Event) bool {
	if f.State.Ended != nil {
		return true
	}
	switch p := e.Payload.(type) {
	case *session.UserMessage:
		return p.Source.Kind == session.FromPlugin || f.handled(e.Seq)
	case *session.Interrupt:
		return f.State.Open == nil || f.State.Turn != p.Turn
	case *session.Cancel, *session.Budget:
		return false
	case *session.ApprovalDecided, *session.Expired:
		return !f.State.Runnable()
	}
	return true
}

// handled reports whether a message was consumed and the turn has ended or parked,
// or put it off, after that.
func (f Facts) handled(seq session.Seq) bool {
	consumed := f.last(seq, func(p session.Payload) bool {
		c, ok := p.(*session.Consumed)
		return ok && slices.Contains(c.Seqs, seq)
	})
	return consumed > 0 && f.last(consumed, func(p session.Payload) bool {
		switch p.(type) {
		case *session.TurnEnd, *session.TurnPark, *session.TurnDeferred:
			return true
		}
		return false
	}) > 0
}
