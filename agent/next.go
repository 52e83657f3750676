package agent

import (
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Kind is a kind of action.
type Kind int

// The actions. Those up to EndSession write a record and do nothing else.
const (
	// Claim takes the session: it raises the epoch.
	Claim Kind = iota + 1
	// Wake goes on with a parked turn.
	Wake
	// StartTurn opens a turn.
	StartTurn
	// Consume takes what is pending into the turn, and gives the calls that
	// wait for a notice their results.
	Consume
	// LogContext tells the model about its policy, or that a person changed it.
	LogContext
	// StartStep opens a step.
	StartStep
	// StartRequest says where the next model request goes.
	StartRequest
	// CloseCalls gives results to calls that are not run: those that a stopping
	// turn leaves, and those that were refused.
	CloseCalls
	// RecordUnknown says of calls that a dead driver left open that nobody knows
	// what they did.
	RecordUnknown
	// Park leaves the turn to wait in the log.
	Park
	// EndStep ends a step.
	EndStep
	// EndTurn ends a turn.
	EndTurn
	// EndSession ends the session.
	EndSession
	// RequestModel asks the model for the step's answer.
	RequestModel
	// RunCalls runs calls again that a dead driver left open and that only read.
	RunCalls
	// DecideCalls decides calls, and runs what is allowed.
	DecideCalls
	// Settle asks a coordinator to tell the parent how the last turn ended.
	Settle
	// Busy leaves the session to its driver, which is alive.
	Busy
	// Lost leaves the session to whoever claimed it from this loop.
	Lost
	// Idle means that there is nothing to do.
	Idle
)

// Action is one thing to do. Events are what a record action writes; Calls are
// the calls to decide or to run.
type Action struct {
	Kind   Kind
	Events []session.Payload
	Calls  []session.CallID
}

// writes reports whether the action is to write its events and no more.
func (a Action) writes() bool { return a.Kind <= EndSession }

// Next says what is to be done on a log. It is pure and total: a log that was
// written by anybody, up to any record, has a next action, and doing it leads on
// until there is nothing to do.
func Next(f Facts) Action {
	s := f.State
	switch {
	case f.Self.Epoch != 0 && f.Self.Epoch != s.Epoch:
		return Action{Kind: Lost}
	case s.Ended != nil:
		return f.rest()
	case f.Self.Epoch == 0:
		return f.claim()
	case s.Open == nil:
		return f.betweenTurns()
	case s.Open.Parked:
		return f.parked()
	case s.Stopping(), f.Self.Undisposed != "":
		return f.stop()
	case !s.Open.StepOpen:
		return f.betweenSteps()
	case !s.Open.Answered:
		return f.request()
	}
	return f.calls()
}

// maxJoined bounds how much one record joins; the notices that become results
// are what counts.
const maxJoined = 256 << 10

// Plan joins the record actions that follow each other into one record, as far
// as they go, and says what is to be done after it. With no events, the action is
// to be done now.
func Plan(f Facts) ([]session.Payload, Action, error) {
	var record []session.Payload
	size := 0
	for {
		a := Next(f)
		claims := a.Kind == Claim && len(record) > 0 // a claim is the first of its record
		if !a.writes() || claims || size > maxJoined {
			return record, a, nil
		}
		for _, p := range a.Events {
			next, err := f.after(p)
			if err != nil {
				return nil, a, err
			}
			if r, ok := p.(*session.ToolResult); ok {
				size += len(r.Content)
			}
			f = next
		}
		record = append(record, a.Events...)
	}
}

// write is an action that writes events.
func write(k Kind, events ...session.Payload) Action { return Action{Kind: k, Events: events} }

// rest ends the work on a session: what a child's end owes its parent is asked
// for, once for each length of the log.
func (f Facts) rest() Action {
	s := f.State
	if s.Header.IsChild() && (s.LastEnd != nil || s.Ended != nil) && f.Self.Settled != s.Next {
		return Action{Kind: Settle}
	}
	return Action{Kind: Idle}
}

// work reports whether a driver has something to write.
func (f Facts) work() bool {
	s := f.State
	switch {
	case s.Open != nil:
		return s.Runnable()
	case s.Stop != nil:
		return len(s.Children) == 0
	}
	return len(s.Pending) > 0 || f.over()
}

// over reports whether a one-shot child has done what it was started for: its
// turn has ended, its children are closed, and nothing is pending. Roots and
// continuable children do not end by themselves.
func (f Facts) over() bool {
	s := f.State
	return s.Header.IsChild() && s.Descriptor != nil && s.Descriptor.Mode == session.OneShot &&
		s.Open == nil && s.LastEnd != nil && len(s.Children) == 0 && len(s.Pending) == 0
}

// claim takes a session that has work and no live driver.
func (f Facts) claim() Action {
	s := f.State
	if !f.work() {
		return f.rest()
	}
	cause := session.CauseStart
	if s.Open != nil {
		switch {
		case s.Open.Parked:
			cause = session.CauseWake
		case f.Self.Live:
			return Action{Kind: Busy}
		default:
			cause = session.CauseTakeover
		}
	}
	return write(Claim, &session.Claim{
		Epoch: s.Epoch + 1, Worker: f.Self.Worker, Incarnation: f.Self.Incarnation, Cause: cause,
	})
}

// parked wakes a turn whose wait is over or that has something else to do. A
// parked turn is held by nobody, so waking it takes a claim of its own.
func (f Facts) parked() Action {
	from := f.State.Open.StartSeq
	if f.last(from, is[*session.Claim]) > f.last(from, is[*session.TurnPark]) {
		return write(Wake, &session.TurnWake{Turn: f.State.Turn})
	}
	f.Self.Epoch = 0
	return f.claim()
}

func (f Facts) betweenTurns() Action {
	s := f.State
	switch {
	case !f.work():
		return f.rest()
	case s.Stop != nil:
		o := session.OutcomeCancelled
		if s.Stop.Budget {
			o = session.OutcomeBudget
		}
		if end := s.LastEnd; end != nil && end.Seq > s.Stop.Seq && end.Reason.By == session.ByDisposal {
			return f.endSession(session.OutcomeFailed, end.Reason.Message)
		}
		return f.endSession(o, s.Stop.Reason)
	case len(s.Pending) > 0:
		return write(StartTurn, &session.TurnStart{Turn: s.Turn + 1})
	}
	return f.endSession(outcome(*s.LastEnd, s.Denials), s.LastEnd.Reason.Message)
}

func (f Facts) endSession(o session.EndOutcome, reason string) Action {
	return write(EndSession, &session.End{Outcome: o, Cancelled: f.pending(), Reason: reason})
}

func (f Facts) pending() []session.Seq {
	var seqs []session.Seq
	for _, p := range f.State.Pending {
		seqs = append(seqs, p.Seq)
	}
	return seqs
}

// outcome is how a session ends whose last turn ended so (SPEC 7.5).
func outcome(end session.TurnMark, denials int) session.EndOutcome {
	switch end.Reason.Kind {
	case session.EndCompleted:
		if denials > 0 {
			return session.OutcomeDenials
		}
		return session.OutcomeCompleted
	case session.EndBlocked:
		return session.OutcomeDenials
	case session.EndRefusal:
		return session.OutcomeRefused
	case session.EndMaxTokens:
		return session.OutcomeOutOfRoom
	case session.EndAborted, session.EndInterrupted:
		return session.OutcomeInterrupted
	case session.EndError:
	}
	return session.OutcomeFailed
}

// betweenSteps goes on with the turn after a step, or ends it. What came in
// meanwhile joins the next step, also after an answer without calls.
func (f Facts) betweenSteps() Action {
	s := f.State
	if why, ok := f.blocked(); ok {
		return f.endTurn(session.EndReason{Kind: session.EndBlocked, Message: why})
	}
	if len(s.Pending) > 0 {
		return f.consume()
	}
	a, answered := f.answer()
	if answered && len(a.Calls) == 0 && f.last(s.Open.StartSeq, is[*session.Consumed]) <= f.answeredAt() {
		return f.endTurn(reasonOf(a.Finish))
	}
	return write(StartStep, &session.StepStart{Turn: s.Turn, Step: s.Open.Step + 1})
}

// answeredAt is the seq after the turn's last answer.
func (f Facts) answeredAt() session.Seq {
	return f.last(f.State.Open.StartSeq, is[*session.AssistantMessage])
}

func (f Facts) endStep() Action {
	o := f.State.Open
	return write(EndStep, &session.StepEnd{Turn: f.State.Turn, Step: o.Step, Extent: f.extent(o.StepSeq, o.StepTime)})
}

func (f Facts) endTurn(r session.EndReason) Action {
	o := f.State.Open
	return write(EndTurn, &session.TurnEnd{Turn: f.State.Turn, Reason: r, Extent: f.extent(o.StartSeq, o.StartTime)})
}

// request prepares a model request and makes it.
func (f Facts) request() Action {
	s := f.State
	if events := f.context(); len(events) > 0 {
		return write(LogContext, events...)
	}
	asked := f.last(s.Open.StepSeq, is[*session.RequestHeader])
	if asked <= f.last(s.Open.StepSeq, is[*session.Claim]) {
		return write(StartRequest, f.header())
	}
	return Action{Kind: RequestModel}
}

// header says where the model request of the open step goes.
func (f Facts) header() *session.RequestHeader {
	s := f.State
	h := &session.RequestHeader{Turn: s.Turn, Step: s.Open.Step, System: systemDigest(), Attempt: s.Open.Attempts}
	if s.Model != nil {
		h.Provider, h.Model = s.Model.Provider, s.Model.Model
	}
	for _, t := range Tools() {
		if !policy.Filtered(s.Filter(), t) {
			h.Tools = append(h.Tools, t)
		}
	}
	return h
}
