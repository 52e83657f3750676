package agent

import (
	"fmt"
	"slices"

	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/session"
)

// calls brings the calls of the open step to their results.
func (f Facts) calls() Action {
	if a, ok := f.settleLeft(); ok {
		return a
	}
	if ids := f.again(); len(ids) > 0 {
		return Action{Kind: RunCalls, Calls: ids}
	}
	if ids := f.batch(); len(ids) > 0 {
		return Action{Kind: DecideCalls, Calls: ids}
	}
	if f.answersDue() || f.waits() != nil && len(f.State.Pending) > 0 {
		return f.consume()
	}
	if w := f.waits(); w != nil {
		return write(Park, &session.TurnPark{Turn: f.State.Turn, WaitsFor: w})
	}
	return f.endStep()
}

// settleLeft gives results to calls that need nothing but a result: those that a
// dead driver left decided, and all that a blocked turn has not started.
func (f Facts) settleLeft() (Action, bool) {
	_, blocked := f.blocked()
	for _, c := range f.State.Open.Calls {
		switch {
		case c.State == session.CallDenied:
			return write(CloseCalls, f.result(c, textRefused, "", true)), true
		case c.State == session.CallAllowed && c.Child != "" && f.background(c):
			return write(CloseCalls, f.started(c)), true
		case c.State == session.CallAllowed && c.Child == "" && !f.repeatable(c):
			return write(RecordUnknown, f.unknown(c)), true
		case blocked && (c.State == session.CallUndecided || c.State == session.CallAsked):
			return write(CloseCalls, f.notStarted(c, "the turn ends before it")...), true
		}
	}
	return Action{}, false
}

// again lists the open calls of a dead driver that are run again.
func (f Facts) again() []session.CallID {
	var ids []session.CallID
	for _, c := range f.State.Open.Calls {
		if c.State == session.CallAllowed && c.Child == "" && f.repeatable(c) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// batch lists the calls to decide now: the next one in order, and with it those
// right behind it that may be launched at once with it. Tools that only read run
// beside each other; delegations go to a coordinator as one request; every other
// effect waits for the one before it and gets a commit of its own (SPEC 5.3). All wait
// behind an open question: what they do may rest on its call.
func (f Facts) batch() []session.CallID {
	var ids []session.CallID
	var group string
	for _, c := range f.State.Open.Calls {
		if c.State == session.CallAsked && (c.Ask == nil || c.Ask.Outcome == "") {
			break
		}
		if c.State != session.CallUndecided && c.State != session.CallAsked {
			continue
		}
		g := groupOf(c.Name)
		if len(ids) > 0 && (g != group || g == groupAlone || g == groupReads && len(ids) == maxReads) {
			break
		}
		ids, group = append(ids, c.ID), g
	}
	return ids
}

// maxReads is how many calls that only read run at once.
const maxReads = 8

const (
	groupReads     = "reads"
	groupDelegates = "delegates"
	groupAlone     = "alone"
)

func groupOf(name string) string {
	t, known := toolOf(name)
	switch {
	case name == session.ToolDelegate:
		return groupDelegates
	case known && !t.effect && !t.relay:
		return groupReads
	}
	return groupAlone
}

// repeatable reports whether a call that a dead driver left open may be run again: it
// only reads, or it comes to the same by its id (SPEC 5.9).
func (f Facts) repeatable(c session.Call) bool {
	t, known := toolOf(c.Name)
	return known && (!t.effect || runsAgain)
}

// background reports whether a delegating call does not wait for its child.
func (f Facts) background(c session.Call) bool {
	in, err := decodeDelegate(f.toolCall(c).Arguments)
	return err == nil && in.delegate.Background
}

// waiting reports whether a call waits for its child.
func waiting(c session.Call) bool { return c.State == session.CallAllowed && c.Child != "" }

// returned reports whether what a waiting call waits for has come.
func (f Facts) returned(c session.Call) bool {
	child, live := f.State.Child(c.Child)
	return !live || child.Returned
}

// answersDue reports whether a call that waits has its child's answer.
func (f Facts) answersDue() bool {
	return slices.ContainsFunc(f.State.Open.Calls, func(c session.Call) bool { return waiting(c) && f.returned(c) })
}

// waits lists what the step's calls wait for.
func (f Facts) waits() []session.Wait {
	var w []session.Wait
	for _, c := range f.State.Open.Calls {
		switch {
		case waiting(c) && !f.returned(c):
			w = append(w, session.Wait{Kind: session.WaitChild, ID: string(c.Child)})
		case c.State == session.CallAsked && c.Ask != nil && c.Ask.Outcome == "":
			w = append(w, session.Wait{Kind: session.WaitApproval, ID: c.Ask.ID})
		}
	}
	return w
}

// consume takes all that is pending. A notice that a call waits for becomes that
// call's result in the same record.
func (f Facts) consume() Action {
	s := f.State
	var events []session.Payload
	if seqs := f.pending(); len(seqs) > 0 {
		events = append(events, &session.Consumed{Turn: s.Turn, Step: s.Open.Step, Seqs: seqs})
	}
	for _, c := range s.Open.Calls {
		if waiting(c) && f.returned(c) {
			events = append(events, f.answered(c))
		}
	}
	return write(Consume, events...)
}

// maxNotice bounds the part of a child's closing message that a result repeats.
const maxNotice = 64 << 10

// answered is the result of a call whose child has answered.
func (f Facts) answered(c session.Call) *session.ToolResult {
	m, ok := f.notice(c.Child)
	if !ok {
		r := f.result(c, fmt.Sprintf("The child session %s was closed before it answered.", c.Child), "", false)
		r.Child = c.Child
		return r
	}
	r := f.result(c, clip(m.Content, maxNotice), "", false)
	r.Child = c.Child
	switch session.EndOutcome(m.Source.Outcome) {
	case session.OutcomeCompleted, session.OutcomeDenials:
		r.IsError = false
	default:
	}
	return r
}

// started is the result of a delegation in the background.
func (f Facts) started(c session.Call) *session.ToolResult {
	r := f.result(c, fmt.Sprintf("Started the child session %s. A notice comes when it is done.", c.Child), "", false)
	r.IsError, r.Child = false, c.Child
	return r
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "\n[cut]"
}

const textRefused = "The call was refused. It was not executed."

// result is the result of a call that did not do what it was asked to.
func (f Facts) result(c session.Call, content, code string, denied bool) *session.ToolResult {
	turn, step, _, _ := c.ID.Parts()
	return &session.ToolResult{
		Turn: turn, Step: step, CallID: c.ID, Content: content, IsError: true, Code: code, Denied: denied,
		Extent: f.extent(c.Seq, c.Time),
	}
}

func (f Facts) unknown(c session.Call) *session.ToolResult {
	return f.result(c, "Interrupted, outcome unknown: the worker that ran this call is gone. "+
		"It may have had its effect, in part or whole. Look before you repeat it.", session.CodeToolOutcomeUnknown, false)
}

// notStarted closes a call that was never allowed, and a question about it.
func (f Facts) notStarted(c session.Call, why string) []session.Payload {
	var events []session.Payload
	if c.Ask != nil && c.Ask.Outcome == "" {
		events = append(events, &session.ApprovalDecided{ID: c.Ask.ID, Outcome: session.Cancelled})
	}
	return append(events, f.result(c, "Not started: "+why+".", session.CodeToolNotStarted, false))
}

// stop obeys an interrupt or a cancel, or ends a turn that cannot give up what it
// held: every call gets its result, then step and
// turn end. Children go on; a cancel reaches them by the coordinator.
func (f Facts) stop() Action {
	var events []session.Payload
	for _, c := range f.State.Open.Calls {
		switch {
		case c.State == session.CallEnded:
		case c.State == session.CallDenied:
			events = append(events, f.result(c, textRefused, "", true))
		case waiting(c) && f.background(c):
			events = append(events, f.started(c))
		case waiting(c):
			r := f.result(c, fmt.Sprintf("Interrupted while waiting for the child session %s.", c.Child), "", false)
			r.Child = c.Child
			events = append(events, r)
		case c.State == session.CallAllowed:
			events = append(events, f.unknown(c))
		default:
			events = append(events, f.notStarted(c, "the turn was stopped before it")...)
		}
	}
	switch {
	case len(events) > 0:
		return write(CloseCalls, events...)
	case f.State.Open.StepOpen:
		return f.endStep()
	}
	return f.endTurn(f.stopped())
}

// stopped says who stopped the turn.
func (f Facts) stopped() session.EndReason {
	if why := f.Self.Undisposed; why != "" {
		return session.EndReason{Kind: session.EndError, By: session.ByDisposal, Message: why}
	}
	r := session.EndReason{Kind: session.EndAborted}
	by := (*session.Party)(nil)
	if s := f.State.Stop; s != nil {
		by, r.Message = s.By, s.Reason
	} else if at := f.State.Open.Interrupt; at != nil {
		if e, ok := f.at(*at); ok {
			if p, ok := e.Payload.(*session.Interrupt); ok {
				by, r.Message = p.By, p.Reason
			}
		}
	}
	if by != nil {
		r.By = string(by.Kind) + ":" + by.ID
	}
	return r
}

// finishRefusal stands for an answer that is a refusal in words.
const finishRefusal = "refusal"

// reasonOf is how a turn ends whose last answer asked for no calls.
func reasonOf(finish string) session.EndReason {
	switch finish {
	case model.FinishLength:
		return session.EndReason{Kind: session.EndMaxTokens}
	case model.FinishContentFilter, finishRefusal:
		return session.EndReason{Kind: session.EndRefusal}
	}
	return session.EndReason{Kind: session.EndCompleted}
}
