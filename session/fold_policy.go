package session

import (
	"errors"
	"fmt"
)

// checkFirst holds a first batch to SPEC 4.3, 1.10 and 1.8: what stands in it
// and in which order.
func checkFirst(h Header, events []Event) error {
	at := 0
	take := func(t Type) bool {
		if at < len(events) && events[at].Type == t {
			at++
			return true
		}
		return false
	}
	ends := take(TypeEndSeed)
	if h.IsChild() {
		take(TypeSandboxMode)
		take(TypeApprovalPolicy)
		take(TypePreset)
		ends = ends || (!seedEndsFirst && take(TypeEndSeed))
		if !take(TypeDescriptor) {
			return errors.New("a child has one subagent/descriptor, after its policy events")
		}
	} else {
		take(TypePreset)
		take(TypeSandboxMode)
		take(TypeApprovalPolicy)
		if h.ParentSession != "" {
			take(TypeDescriptor) // a person's fork writes its source's tool filter again
		}
	}
	if !take(TypeModelSelected) {
		return errors.New("model/selected is missing or out of order")
	}
	if ends != h.Seeded() {
		return errors.New("a seeded session, and no other, starts with session/end-seed")
	}
	prompt := take(TypeUserMessage)
	if at != len(events) {
		return fmt.Errorf("%s is out of order", events[at].Type)
	}
	if h.IsChild() && !prompt {
		return errors.New("a child has a creation prompt")
	}
	return checkFirstSources(h, events)
}

// checkFirstSources holds the events of a first batch to who may have caused
// them: a child's policy is delegation's, everybody else's has a party.
func checkFirstSources(h Header, events []Event) error {
	for _, e := range events {
		by, has := partyOf(e.Payload)
		var source Source
		switch p := e.Payload.(type) {
		case *SandboxSwitch:
			source = p.Source
		case *ApprovalSwitch:
			source = p.Source
			if h.IsChild() && p.Policy != Never {
				return fmt.Errorf("a child is pinned to %q", Never)
			}
		case *PresetSwitch:
			if h.IsChild() && by != nil {
				return fmt.Errorf("%s of a delegation carries no party", e.Type)
			}
			if !h.IsChild() && by == nil {
				return errNoParty
			}
			continue
		case *UserMessage:
			if by == nil {
				return errNoParty
			}
			continue
		default:
			continue
		}
		if h.IsChild() != (source == SourceDelegation) {
			return fmt.Errorf("%s: a child's value, and no other, has source %q", e.Type, SourceDelegation)
		}
		if has && !h.IsChild() && by == nil {
			return errNoParty
		}
	}
	return nil
}

func (s *State) switchSandbox(e Event, p *SandboxSwitch) error {
	if err := switchOnly(e, p.Source); err != nil {
		return err
	}
	s.Knobs.Sandbox = Knob[SandboxMode]{Value: p.Mode, Seq: e.Seq, Source: p.Source, By: p.By}
	return nil
}

func (s *State) switchApproval(e Event, p *ApprovalSwitch) error {
	if err := switchOnly(e, p.Source); err != nil {
		return err
	}
	s.Knobs.Approval = Knob[ApprovalPolicy]{Value: p.Policy, Seq: e.Seq, Source: p.Source, By: p.By}
	return nil
}

func (s *State) switchPreset(e Event, p *PresetSwitch) error {
	s.Knobs.Preset = Knob[Preset]{Value: p.Preset, Seq: e.Seq, By: p.By}
	return nil
}

// switchOnly refuses a later switch that claims to be delegation's.
func switchOnly(e Event, source Source) error {
	if e.Class == ClassPolicy && source != "" {
		return fmt.Errorf("source %q stands in a genesis only", source)
	}
	return nil
}

// release goes on after a stop. What was skipped may have been a tightening, so
// the session comes back read-only (SPEC 1.7); a person may switch it on.
func (s *State) release(e Event, p *Release) error {
	if p.Seq != e.Seq {
		return fmt.Errorf("names seq %d", p.Seq)
	}
	s.Knobs.Sandbox = Knob[SandboxMode]{Value: ReadOnly, Seq: e.Seq, By: p.By}
	return nil
}

func (s *State) raiseFormat(p *FormatRaised) error {
	if p.FormatVersion <= s.Format {
		return fmt.Errorf("format version %d is not above %d", p.FormatVersion, s.Format)
	}
	if p.FormatVersion > FormatVersion {
		return &FormatError{Session: s.Header.ID, Have: FormatVersion, Want: p.FormatVersion}
	}
	s.Format = p.FormatVersion
	return nil
}

func (s *State) describe(p *Descriptor) error {
	if s.Descriptor != nil {
		return errors.New("a second one")
	}
	s.Descriptor = p
	return nil
}
