package verify

import "github.com/entail-fleet/entail/session"

// call is a tool call of the open step and how far it got.
type call struct {
	name, arguments string
	verdict         session.Verdict // "" while undecided
	mode            session.SandboxMode
	network         session.Network // of the last decision, as the mode is
	ended           bool
	ask             string
	wants           session.SandboxMode
	under           session.Basis   // of the last question
	outcome         session.Outcome // of the last question
	used            bool
}

// event takes one event of the log into the state. Whatever SPEC does not allow
// at this place is flagged, and the walk goes on as if it were allowed.
func (w *walker) event(e session.Event, p at) {
	p.seq = e.Seq
	if w.st.ended && p.class == session.ClassTurn {
		w.flag(Log, "7.4", p, "%s after the session's end", e.Type)
	}
	w.switches(e, p)
	switch d := e.Payload.(type) {
	case *session.Claim:
		w.st.epoch = d.Epoch
	case *session.FormatRaised:
		w.st.format = d.FormatVersion
	case *session.Descriptor:
		w.h.filter = d.ToolFilter
	case *session.TurnStart, *session.TurnEnd, *session.StepStart, *session.StepEnd:
		w.mark(e, p)
	case *session.ToolCall:
		w.call(d, p)
	case *session.ToolDecision:
		w.decide(d, p)
	case *session.ToolResult:
		w.result(d, p)
	case *session.ApprovalAsked:
		if c, ok := w.st.calls[d.CallID]; ok {
			c.ask, c.wants, c.under, c.outcome, c.used = d.ID, d.Mode, d.Basis, "", false
			w.st.calls[d.CallID] = c
		}
	case *session.ApprovalDecided:
		if d.Outcome == session.AllowedOnce && p.class == session.ClassTurn {
			w.flag(Log, "3.1", p, "a granting outcome in class turn")
		}
		w.answer(d.ID, d.Outcome, p)
	case *session.Expired:
		if d.Ask != "" {
			w.answer(d.Ask, session.Unavailable, p)
		}
	case *session.UserMessage:
		w.message(d, p)
	case *session.Consumed:
		w.consume(d, p)
	case *session.End:
		w.cancelled(d, p)
		w.st.ended = true
	}
	w.st.next, w.st.link = e.Seq+1, e.Link
	w.h.links = append(w.h.links, e.Link)
}

// switches follows the knobs. What delegation wrote stands in a first batch
// only, and what it pinned stays pinned (SPEC 2.5, 4.10).
func (w *walker) switches(e session.Event, p at) {
	k, changed := w.st.knobs.turn(e)
	if !changed {
		return
	}
	w.st.knobs = k
	w.h.changes = append(w.h.changes, change{e.Seq, k})
	if p.class != session.ClassPolicy {
		return
	}
	var source session.Source
	switch d := e.Payload.(type) {
	case *session.SandboxSwitch:
		source = d.Source
	case *session.ApprovalSwitch:
		source = d.Source
		if w.h.header.IsChild() && d.Policy != session.Never {
			w.flag("I12", "4.10", p, "the child's approvals were unpinned to %q", d.Policy)
		}
	}
	if source != "" {
		w.flag("I1", "2.5", p, "%s with source %q outside the first batch", e.Type, source)
	}
}

// mark opens and closes turns and steps.
func (w *walker) mark(e session.Event, p at) {
	bad := false
	switch e.Payload.(type) {
	case *session.TurnStart:
		bad, w.st.turn = w.st.turn, true
	case *session.TurnEnd:
		bad, w.st.turn = !w.st.turn || w.st.step, false
		w.h.ends = append(w.h.ends, e.Seq+1)
	case *session.StepStart:
		bad, w.st.step = !w.st.turn || w.st.step, true
	case *session.StepEnd:
		bad, w.st.step = !w.st.step, false
	}
	clear(w.st.calls)
	if bad {
		w.flag(Log, "1.4", p, "%s does not fit here (turn open: %v, step open: %v)", e.Type, w.st.turn, w.st.step)
	}
}

func (w *walker) call(d *session.ToolCall, p at) {
	if _, twice := w.st.calls[d.CallID]; twice || !w.st.step {
		w.flag(Log, "1.4", p, "call %s does not fit here", d.CallID)
	}
	c := call{name: d.Name}
	if d.Name == session.ToolDelegate {
		c.arguments = d.Arguments
	}
	w.st.calls[d.CallID] = c
}

// answer gives a question its one outcome (SPEC 5.7).
func (w *walker) answer(ask string, o session.Outcome, p at) {
	for id, c := range w.st.calls {
		if c.ask == ask && c.outcome == "" {
			c.outcome = o
			w.st.calls[id] = c
			return
		}
	}
	w.flag(Log, "5.7", p, "outcome %q of question %q, which does not wait for one", o, ask)
}

// guessClass gives the class that an event of an export without records was most
// likely written in: the policy events of a first batch are its genesis', later
// ones a person's.
func guessClass(e session.Event, first bool) session.Class {
	if first {
		return session.ClassGenesis
	}
	if _, changed := (knobs{}).turn(e); changed {
		return session.ClassPolicy
	}
	return session.ClassInbox // nothing that I1 or I12 look at depends on it
}
