package session

import (
	"errors"
	"fmt"
	"slices"
)

// Begin folds a birth: header first, then what it inherits, then its first
// events. A session without a prefix inherits the zero Prefix.
func Begin(b Birth, p Prefix) (State, error) {
	h := b.Header
	if h.InheritedEventCount != p.Count {
		return State{}, fmt.Errorf("header of %s inherits %d events, the prefix has %d", h.ID, h.InheritedEventCount, p.Count)
	}
	if b.First.Before != HeaderLink(p.Link, b.Line) {
		return State{}, fmt.Errorf("first link of %s does not follow from its header and prefix", h.ID)
	}
	s := State{
		Header: h, Format: h.FormatVersion, Next: h.FirstLiveSeq, Link: b.First.Before,
		Knobs: p.Knobs, Turn: p.Turn,
	}
	switch {
	case p.Cut != nil:
		s.Cut = *p.Cut
	case p.Count > 0:
		s.Cut = p
	}
	if err := checkFirst(h, b.First.Events); err != nil {
		return State{}, fmt.Errorf("first batch of %s: %w", h.ID, err)
	}
	s, err := FoldSection(s, b.First)
	if !seedEndsFirst && h.Seeded() {
		s.Knobs = p.Knobs
	}
	return s, err
}

// FoldSection folds the events of one section and holds them to the rules that
// speak of a record as a whole.
func FoldSection(s State, sec Section) (State, error) {
	for i, e := range sec.Events {
		if _, claim := e.Payload.(*Claim); claim && i > 0 {
			return s, fmt.Errorf("event %d: a claim is the first event of its record", e.Seq)
		}
		next, err := Fold(s, e)
		if err != nil {
			return s, err
		}
		s = next
	}
	if s.Open != nil && s.Open.Due > 0 {
		return s, fmt.Errorf("record ends %d tool calls short of its assistant message", s.Open.Due)
	}
	return s, nil
}

// Fold returns the state after e. It never changes s, reads nothing else, and
// refuses an event that the log does not allow at this place.
func Fold(s State, e Event) (State, error) {
	if e.Seq != s.Next {
		return s, fmt.Errorf("event %d: the next seq is %d", e.Seq, s.Next)
	}
	if err := s.admit(e); err != nil {
		return s, fmt.Errorf("event %d: %s: %w", e.Seq, e.Type, err)
	}
	next := s
	if s.Open != nil {
		open := *s.Open
		next.Open = &open
	}
	if err := next.apply(e); err != nil {
		return s, fmt.Errorf("event %d: %s: %w", e.Seq, e.Type, err)
	}
	next.Next, next.Link = e.Seq+1, e.Link
	return next, nil
}

var (
	errEnded      = errors.New("the session has ended")
	errNoTurn     = errors.New("no turn is open")
	errNoStep     = errors.New("no step is open")
	errParked     = errors.New("the turn is parked: only a claim and turn/wake follow")
	errNoParty    = errors.New("by is missing")
	errParty      = errors.New("by cannot stand in class turn")
	errGrant      = errors.New("a granting outcome counts in class inbox only")
	errCallsDue   = errors.New("the tool calls of the assistant message come first")
	errStopping   = errors.New("an interrupt or a cancel waits to be obeyed")
	errDelegating = errors.New("an allowing decision of a delegating call stands in a genesis only")
)

// admit holds an event to the rules that do not depend on its type alone: who
// caused it, what may follow an end, and what may follow an assistant message.
func (s *State) admit(e Event) error {
	if e.Payload == nil {
		if s.Ended != nil && e.Class == ClassTurn {
			return errEnded
		}
		return nil
	}
	by, has := partyOf(e.Payload)
	switch {
	case has && by == nil && (e.Class == ClassPolicy || e.Class == ClassInbox):
		return errNoParty
	case has && by != nil && e.Class == ClassTurn:
		return errParty
	case s.Ended != nil && !afterEnd(e):
		return errEnded
	}
	if s.Open == nil {
		return nil
	}
	if _, call := e.Payload.(*ToolCall); s.Open.Due > 0 && !call {
		return errCallsDue
	}
	if e.Class == ClassTurn && s.Open.Parked {
		switch e.Payload.(type) {
		case *Claim, *TurnWake:
		default:
			return errParked
		}
	}
	return nil
}

// afterEnd lists what may follow session/end: notices, reports, closings and
// archive, recorded as delivered and waking nothing (SPEC 7.4).
func afterEnd(e Event) bool {
	switch p := e.Payload.(type) {
	case *UserMessage:
		return e.Class == ClassInbox && (p.Source.Kind == FromSettled || p.Source.Kind == FromReport)
	case *Closed, *Archived, *Release:
		return true
	}
	return false
}

// partyOf finds the party of an event of a type that has one.
func partyOf(p Payload) (by *Party, has bool) {
	switch p := p.(type) {
	case *SandboxSwitch:
		return p.By, true
	case *ApprovalSwitch:
		return p.By, true
	case *PresetSwitch:
		return p.By, true
	case *Release:
		return p.By, true
	case *FormatRaised:
		return p.By, true
	case *UserMessage:
		return p.By, true
	case *ApprovalDecided:
		return p.By, true
	case *Interrupt:
		return p.By, true
	case *Cancel:
		return p.By, true
	case *Nudge:
		return p.By, true
	case *Expired:
		return p.By, true
	case *Budget:
		return p.By, true
	case *Closed:
		return p.By, true
	case *Archived:
		return p.By, true
	case *End:
		return p.By, true
	}
	return nil, false
}

// apply is one line per type. It may change s, which is Fold's own copy, but
// nothing that s points at.
func (s *State) apply(e Event) error {
	switch p := e.Payload.(type) {
	case nil, *EndSeed, *Nudge, *RequestHeader, *TurnDeferred:
		return s.note(e)
	case *SandboxSwitch:
		return s.switchSandbox(e, p)
	case *ApprovalSwitch:
		return s.switchApproval(e, p)
	case *PresetSwitch:
		return s.switchPreset(e, p)
	case *Release:
		return s.release(e, p)
	case *FormatRaised:
		return s.raiseFormat(p)
	case *Descriptor:
		return s.describe(p)
	case *ModelSelected:
		s.Model, s.ModelSeq = p, e.Seq
	case *UserMessage:
		return s.message(e, p)
	case *Interrupt:
		s.interrupt(e, p)
	case *Cancel:
		s.stop(StopRequest{Seq: e.Seq, Reason: p.Reason, By: p.By})
	case *Budget:
		s.stop(StopRequest{Seq: e.Seq, Budget: true, Reason: p.Reason, By: p.By})
	case *Closed:
		return s.closeChild(p)
	case *Archived:
		s.Archived = true
	case *End:
		return s.end(p)
	default:
		return s.applyTurn(e)
	}
	return nil
}

// applyTurn is apply for what happens in and around a turn.
func (s *State) applyTurn(e Event) error {
	switch p := e.Payload.(type) {
	case *Consumed:
		return s.consume(p)
	case *Claim:
		return s.claim(p)
	case *TurnStart:
		return s.startTurn(e, p)
	case *TurnEnd:
		return s.endTurn(e, p)
	case *TurnPark:
		return s.park(p)
	case *TurnWake:
		return s.wake(p)
	case *StepStart:
		return s.startStep(e, p)
	case *StepEnd:
		return s.endStep(p)
	case *AssistantMessage:
		return s.answer(p)
	case *ToolCall:
		return s.call(e, p)
	case *ToolDecision:
		return s.decide(e, p)
	case *ToolResult:
		return s.result(p)
	case *ApprovalAsked:
		return s.ask(e, p)
	case *ApprovalDecided:
		return s.settleAsk(e, p)
	case *Expired:
		return s.expire(e, p)
	}
	return ErrUnknownType
}

// note accepts an event that changes nothing but the position.
func (s *State) note(e Event) error {
	switch p := e.Payload.(type) {
	case *EndSeed:
		if seedEndsFirst && e.Class == ClassGenesis && e.Seq != s.Header.FirstLiveSeq {
			return fmt.Errorf("stands at firstLiveSeq %d only", s.Header.FirstLiveSeq)
		}
		if e.Class == ClassGenesis && p.Inherited != (s.Header.InheritedEventCount > 0) {
			return errors.New("inherited says whether the seed is a fork's prefix")
		}
	case *RequestHeader:
		return s.inStep(p.Turn, p.Step)
	}
	return nil
}

func (s *State) message(e Event, p *UserMessage) error {
	if e.Class == ClassTurn {
		if p.Source.Kind != FromPlugin {
			return fmt.Errorf("source kind %q cannot stand in class turn", p.Source.Kind)
		}
		if s.Open == nil {
			return errNoTurn
		}
		s.Open.Context = true
		return nil
	}
	if p.Source.Kind == FromPlugin {
		return errors.New("source kind \"plugin\" stands in class turn only")
	}
	if p.Source.Kind == FromSettled {
		s.noticed(p)
	}
	if s.Ended == nil {
		s.Pending = append(slices.Clip(s.Pending), Pending{Seq: e.Seq, ID: p.ID, Kind: p.Source.Kind, Sender: p.Source.SenderSessionID})
	}
	return nil
}

// noticed marks that the parent was told how a turn of a child ended.
func (s *State) noticed(p *UserMessage) {
	i := slices.IndexFunc(s.Children, func(c Child) bool { return c.ID == p.Source.SenderSessionID })
	if i < 0 {
		return
	}
	s.Children = slices.Clone(s.Children)
	s.Children[i].Noticed = max(s.Children[i].Noticed, p.Source.Turn)
	s.Children[i].Returned = true
}

// consume takes messages out of the inbox. Messages are taken in order; a notice
// may overtake them, because a waiting call needs it.
func (s *State) consume(p *Consumed) error {
	if s.Open == nil || p.Turn != s.Turn {
		return errNoTurn
	}
	rest := make([]Pending, 0, len(s.Pending))
	taken := 0
	passed := false
	for _, m := range s.Pending {
		if taken == len(p.Seqs) || m.Seq != p.Seqs[taken] {
			rest = append(rest, m)
			passed = passed || m.Kind != FromSettled
			continue
		}
		if passed && m.Kind != FromSettled {
			return fmt.Errorf("message %d would overtake an earlier one", m.Seq)
		}
		taken++
	}
	if taken < len(p.Seqs) {
		return fmt.Errorf("message %d is not pending", p.Seqs[taken])
	}
	if len(rest) == 0 {
		rest = nil // as a decoded snapshot has it
	}
	s.Pending = rest
	return nil
}

func (s *State) closeChild(p *Closed) error {
	i := slices.IndexFunc(s.Children, func(c Child) bool { return c.ID == p.Child })
	if i < 0 {
		return fmt.Errorf("%s holds no slot", quote(string(p.Child)))
	}
	s.Children = slices.Delete(slices.Clone(s.Children), i, i+1)
	if len(s.Children) == 0 {
		s.Children = nil // as a decoded snapshot has it
	}
	return nil
}

func (s *State) interrupt(e Event, p *Interrupt) {
	if s.Open != nil && p.Turn == s.Turn && s.Open.Interrupt == nil {
		at := e.Seq
		s.Open.Interrupt = &at
	}
}

func (s *State) stop(r StopRequest) {
	if s.Stop == nil {
		s.Stop = &r
	}
}

func (s *State) end(p *End) error {
	if s.Open != nil {
		return errors.New("a turn is open")
	}
	want := make([]Seq, 0, len(s.Pending))
	for _, m := range s.Pending {
		want = append(want, m.Seq)
	}
	if !slices.Equal(want, p.Cancelled) {
		return fmt.Errorf("cancelled names %v, pending are %v", p.Cancelled, want)
	}
	s.Ended, s.Pending = p, nil
	return nil
}
