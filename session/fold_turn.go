package session

import (
	"errors"
	"fmt"
	"slices"
)

// claim raises the epoch by exactly one. A claim always wins over the epoch
// before it; whether it may be made is the claimant's precondition, not the
// log's.
func (s *State) claim(p *Claim) error {
	if p.Epoch != s.Epoch+1 {
		return fmt.Errorf("epoch %d does not follow %d", p.Epoch, s.Epoch)
	}
	if s.Open == nil && p.Cause != CauseStart {
		return fmt.Errorf("cause %q needs an open turn", p.Cause)
	}
	if s.Open != nil && s.Open.Parked != (p.Cause == CauseWake) {
		return fmt.Errorf("cause %q does not fit (parked: %v)", p.Cause, s.Open.Parked)
	}
	s.Epoch, s.Claim = p.Epoch, *p
	if s.Open != nil {
		s.Open.Attempts++
	}
	return nil
}

func (s *State) startTurn(e Event, p *TurnStart) error {
	if s.Open != nil {
		return errors.New("a turn is open")
	}
	if p.Turn != s.Turn+1 {
		return fmt.Errorf("turn %d does not follow %d", p.Turn, s.Turn)
	}
	if s.Stop != nil {
		return errStopping
	}
	s.Turn = p.Turn
	s.Open = &OpenTurn{StartSeq: e.Seq, StartTime: e.Time, Attempts: 1}
	return nil
}

func (s *State) endTurn(e Event, p *TurnEnd) error {
	if s.Open == nil || p.Turn != s.Turn {
		return errNoTurn
	}
	if s.Open.StepOpen {
		return errors.New("a step is open")
	}
	s.Open = nil
	s.LastEnd = &TurnMark{Turn: p.Turn, Seq: e.Seq, Reason: p.Reason}
	s.Cut = Prefix{Count: e.Seq + 1, Link: e.Link, Knobs: s.Knobs, Turn: s.Turn}
	return nil
}

func (s *State) park(p *TurnPark) error {
	if s.Open == nil || p.Turn != s.Turn {
		return errNoTurn
	}
	for _, w := range p.WaitsFor {
		if !s.canWaitFor(w) {
			return fmt.Errorf("cannot wait for %s %s", w.Kind, quote(w.ID))
		}
	}
	s.Open.Parked, s.Open.WaitsFor = true, p.WaitsFor
	return nil
}

// canWaitFor reports whether something will end the wait: a live child or an
// open question. A wait for anything else would never end.
func (s *State) canWaitFor(w Wait) bool {
	if w.Kind == WaitChild {
		c, ok := s.Child(ID(w.ID))
		return ok && !c.Returned
	}
	return slices.ContainsFunc(s.Open.Calls, func(c Call) bool {
		return c.Ask != nil && c.Ask.ID == w.ID && c.Ask.Outcome == ""
	})
}

func (s *State) wake(p *TurnWake) error {
	if s.Open == nil || p.Turn != s.Turn {
		return errNoTurn
	}
	if !s.Open.Parked || s.Claim.Cause != CauseWake {
		return errors.New("only a parked turn wakes, by a claim with cause wake")
	}
	s.Open.Parked, s.Open.WaitsFor = false, nil
	return nil
}

func (s *State) startStep(e Event, p *StepStart) error {
	switch {
	case s.Open == nil || p.Turn != s.Turn:
		return errNoTurn
	case s.Open.StepOpen:
		return errors.New("a step is open")
	case p.Step != s.Open.Step+1:
		return fmt.Errorf("step %d does not follow %d", p.Step, s.Open.Step)
	case s.Stopping():
		return errStopping
	}
	s.Open.Step, s.Open.StepOpen, s.Open.StepSeq, s.Open.StepTime = p.Step, true, e.Seq, e.Time
	s.Open.Answered, s.Open.Calls = false, nil
	return nil
}

// inStep reports an error unless the named step is the open one.
func (s *State) inStep(turn, step int) error {
	if s.Open == nil || turn != s.Turn {
		return errNoTurn
	}
	if !s.Open.StepOpen || step != s.Open.Step {
		return errNoStep
	}
	return nil
}

func (s *State) endStep(p *StepEnd) error {
	if err := s.inStep(p.Turn, p.Step); err != nil {
		return err
	}
	for _, c := range s.Open.Calls {
		if c.State != CallEnded {
			return fmt.Errorf("call %s has no result", c.ID)
		}
	}
	s.Open.StepOpen, s.Open.Calls = false, nil
	return nil
}

func (s *State) answer(p *AssistantMessage) error {
	if err := s.inStep(p.Turn, p.Step); err != nil {
		return err
	}
	if s.Open.Answered {
		return errors.New("the step has its answer")
	}
	s.Open.Answered, s.Open.Due = true, len(p.Calls)
	s.Steps++
	s.Text = p.Content != "" && len(p.Calls) == 0
	return nil
}

func (s *State) call(e Event, p *ToolCall) error {
	if err := s.inStep(p.Turn, p.Step); err != nil {
		return err
	}
	if s.Open.Due == 0 || p.Index != len(s.Open.Calls) {
		return fmt.Errorf("call %s does not follow its assistant message", p.CallID)
	}
	s.Open.Due--
	s.Open.Calls = append(slices.Clip(s.Open.Calls), Call{
		ID: p.CallID, Name: p.Name, Seq: e.Seq, Time: e.Time, State: CallUndecided,
	})
	return nil
}

// edit returns a call of the open step for writing, in a copy of its own.
func (s *State) edit(id CallID) (*Call, error) {
	if s.Open == nil {
		return nil, errNoTurn
	}
	i := slices.IndexFunc(s.Open.Calls, func(c Call) bool { return c.ID == id })
	if i < 0 {
		return nil, fmt.Errorf("call %s is not of the open step", id)
	}
	s.Open.Calls = slices.Clone(s.Open.Calls)
	return &s.Open.Calls[i], nil
}

// decide accepts a decision of a call that has none, made on exactly this state.
func (s *State) decide(e Event, p *ToolDecision) error {
	c, err := s.edit(p.CallID)
	if err != nil {
		return err
	}
	if err := s.checkDecision(p, *c); err != nil {
		return err
	}
	c.Decision, c.Mode = e.Seq, p.Mode
	switch p.Verdict {
	case Allow:
		c.State, c.Epoch = CallAllowed, s.Epoch
		s.useGrant(c, p)
		if p.Child != "" {
			c.Child = p.Child
			s.Children = append(slices.Clip(s.Children), Child{ID: p.Child, Call: p.CallID, Seq: e.Seq})
		}
	case Deny:
		c.State = CallDenied
		s.Denials++
	case AskPerson:
		c.State = CallAsked
	}
	return nil
}

func (s *State) useGrant(c *Call, p *ToolDecision) {
	if p.Grant != "" && c.Ask != nil {
		q := *c.Ask
		q.Used = true
		c.Ask = &q
	}
}

// checkDecision holds a decision to the state it says it was made on. Because
// its record was committed by compare-and-set, this state is the log right
// before it (SPEC 5.1, I4).
func (s *State) checkDecision(p *ToolDecision, c Call) error {
	delegating := c.Name == ToolDelegate && p.Verdict == Allow
	switch {
	case c.State == CallAsked && (c.Ask == nil || c.Ask.Outcome == ""):
		return fmt.Errorf("call %s waits for an answer", c.ID)
	case c.State != CallUndecided && c.State != CallAsked:
		return fmt.Errorf("call %s is decided", c.ID)
	case delegating != (p.Child != ""):
		return errDelegating
	case p.Verdict == Allow && s.Stopping():
		return errStopping
	case p.Child != "" && p.Child != ChildID(s.Header.ID, p.CallID):
		return fmt.Errorf("child %s does not derive from call %s", p.Child, p.CallID)
	}
	if err := s.checkBasis(p.Basis); err != nil {
		return err
	}
	if p.Verdict != Allow {
		return nil
	}
	return s.checkMode(p, c)
}

// checkBasis holds a basis to the log: a ground with a seq is the knob's last
// event, one without is a knob never set.
func (s *State) checkBasis(b Basis) error {
	return firstErr(
		checkGround("sandbox", b.Sandbox, s.Knobs.Sandbox),
		checkGround("approval", b.Approval, s.Knobs.Approval),
		checkGround("preset", b.Preset, s.Knobs.Preset),
	)
}

func checkGround[V ~string](knob string, g Ground, k Knob[V]) error {
	switch {
	case !k.Set() && g.Seq == nil:
		return nil
	case k.Set() && g.Seq != nil && *g.Seq == k.Seq && g.Value == string(k.Value):
		return nil
	}
	return fmt.Errorf("basis of %s is not the log's", knob)
}

// checkMode holds an allowing decision to its basis: the effective mode, or the
// one that an unused grant of this very call names.
func (s *State) checkMode(p *ToolDecision, c Call) error {
	if p.Grant == "" {
		if string(p.Mode) != p.Basis.Sandbox.Value {
			return fmt.Errorf("mode %q is not its basis %q", p.Mode, p.Basis.Sandbox.Value)
		}
		return nil
	}
	q := c.Ask
	if q == nil || q.ID != p.Grant || q.Outcome != AllowedOnce || q.Used || q.Mode != p.Mode || !q.Basis.Equal(p.Basis) {
		return fmt.Errorf("grant %s does not allow call %s the mode %q on this basis", quote(p.Grant), c.ID, p.Mode)
	}
	return nil
}

// Equal reports whether two bases name the same values from the same events.
func (b Basis) Equal(o Basis) bool {
	same := func(x, y Ground) bool {
		return x.Value == y.Value && (x.Seq == nil) == (y.Seq == nil) && (x.Seq == nil || *x.Seq == *y.Seq)
	}
	return same(b.Sandbox, o.Sandbox) && same(b.Approval, o.Approval) && same(b.Preset, o.Preset)
}

func (s *State) result(p *ToolResult) error {
	if err := s.inStep(p.Turn, p.Step); err != nil {
		return err
	}
	c, err := s.edit(p.CallID)
	if err != nil {
		return err
	}
	switch {
	case c.State == CallEnded:
		return fmt.Errorf("call %s has its result", c.ID)
	case (c.State == CallUndecided || c.State == CallAsked) && (!p.IsError || p.Code != CodeToolNotStarted):
		return fmt.Errorf("call %s was never allowed: only %s can end it", c.ID, CodeToolNotStarted)
	case c.State == CallDenied && !p.IsError:
		return fmt.Errorf("call %s was denied", c.ID)
	}
	if c.State == CallAllowed && p.Denied {
		s.Denials++
	}
	if !p.IsError {
		s.Calls++
	}
	c.State = CallEnded
	return nil
}

func (s *State) ask(e Event, p *ApprovalAsked) error {
	c, err := s.edit(p.CallID)
	if err != nil {
		return err
	}
	open := slices.ContainsFunc(s.Open.Calls, func(c Call) bool { return c.Ask != nil && c.Ask.ID == p.ID })
	switch {
	case open:
		return fmt.Errorf("question %s was asked before", quote(p.ID))
	case c.Ask != nil && c.Ask.Outcome == "":
		return fmt.Errorf("call %s has an open question", c.ID)
	case c.State != CallAsked && c.State != CallUndecided && c.State != CallDenied:
		return fmt.Errorf("call %s is not to be asked about", c.ID)
	case p.ToolName != c.Name:
		return fmt.Errorf("call %s is of tool %s", c.ID, quote(c.Name))
	}
	c.Ask = &Question{ID: p.ID, Seq: e.Seq, Digest: p.Digest, Mode: p.Mode, Basis: p.Basis}
	return nil
}

func (s *State) settleAsk(e Event, p *ApprovalDecided) error {
	if p.Outcome == AllowedOnce && e.Class != ClassInbox && e.Class != ClassSeed {
		return errGrant
	}
	return s.answerAsk(e, p.ID, p.Outcome)
}

func (s *State) expire(e Event, p *Expired) error {
	if p.Ask == "" {
		return nil
	}
	return s.answerAsk(e, p.Ask, Unavailable)
}

// answerAsk gives an open question its one outcome.
func (s *State) answerAsk(e Event, id string, o Outcome) error {
	if s.Open == nil {
		return errNoTurn
	}
	i := slices.IndexFunc(s.Open.Calls, func(c Call) bool { return c.Ask != nil && c.Ask.ID == id })
	if i < 0 || s.Open.Calls[i].Ask.Outcome != "" {
		return fmt.Errorf("no open question %s", quote(id))
	}
	s.Open.Calls = slices.Clone(s.Open.Calls)
	q := *s.Open.Calls[i].Ask
	q.Outcome, q.Decided = o, e.Seq
	s.Open.Calls[i].Ask = &q
	return nil
}
