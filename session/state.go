package session

import "slices"

// State is what a log folds to. It is a value: Fold returns a new one and never
// changes the old. It is small and does not grow with the log: what a session
// said is in its events, not here. It survives JSON unchanged, which is how a
// mirror keeps it.
//
// State relies on: (1) slices are never written after they were put in, only
// replaced; (2) pointers point at values that are never written.
type State struct {
	Header Header `json:"header"`
	Format int    `json:"format"`
	Next   Seq    `json:"next"`
	Link   Link   `json:"link"`

	Knobs Knobs `json:"knobs"`

	Descriptor *Descriptor    `json:"descriptor,omitempty"`
	Model      *ModelSelected `json:"model,omitempty"`
	ModelSeq   Seq            `json:"modelSeq,omitempty"`

	Epoch uint64 `json:"epoch,omitempty"`
	Claim Claim  `json:"claim,omitzero"`

	Turn    int       `json:"turn,omitempty"`
	Open    *OpenTurn `json:"open,omitempty"`
	LastEnd *TurnMark `json:"lastEnd,omitempty"`
	Cut     Prefix    `json:"cut,omitzero"`

	Pending  []Pending `json:"pending,omitempty"`
	Children []Child   `json:"children,omitempty"`

	// Steps counts the model steps in the session's own events; Calls and
	// Denials count its own calls that succeeded and that were refused.
	Steps   int  `json:"steps,omitempty"`
	Calls   int  `json:"calls,omitempty"`
	Denials int  `json:"denials,omitempty"`
	Text    bool `json:"text,omitempty"` // the last model step ended with a text

	Stop     *StopRequest `json:"stop,omitempty"`
	Ended    *End         `json:"ended,omitempty"`
	Archived bool         `json:"archived,omitempty"`
}

// Knobs are the three folds of SPEC 2. Each is last-event-wins over the whole
// log, prefix included.
type Knobs struct {
	Sandbox  Knob[SandboxMode]    `json:"sandbox,omitzero"`
	Approval Knob[ApprovalPolicy] `json:"approval,omitzero"`
	Preset   Knob[Preset]         `json:"preset,omitzero"`
}

// Knob is one override and the event that set it.
type Knob[V ~string] struct {
	Value  V      `json:"value,omitempty"`
	Seq    Seq    `json:"seq,omitempty"`
	Source Source `json:"source,omitempty"`
	By     *Party `json:"by,omitempty"`
}

// Set reports whether the log ever set the knob.
func (k Knob[V]) Set() bool { return k.Value != "" }

// Prefix is what crosses a fork's cut: where it is, and what folds over it
// (SPEC 1.3). Model context crosses as events.
type Prefix struct {
	Count Seq   `json:"count,omitempty"`
	Link  Link  `json:"link,omitzero"`
	Knobs Knobs `json:"knobs,omitzero"`
	Turn  int   `json:"turn,omitempty"`
	// Cut is the prefix that ends with the last turn/end inside this one; nil
	// says that this one does. A delegated fork of the fork is cut there until
	// the fork has ended a turn of its own.
	Cut *Prefix `json:"cut,omitempty"`
}

// TurnMark says where and how a turn ended.
type TurnMark struct {
	Turn   int       `json:"turn"`
	Seq    Seq       `json:"seq"`
	Reason EndReason `json:"reason"`
}

// OpenTurn is the turn that has not ended.
type OpenTurn struct {
	StartSeq  Seq    `json:"startSeq"`
	StartTime int64  `json:"startTime"`
	Step      int    `json:"step,omitempty"`
	StepOpen  bool   `json:"stepOpen,omitempty"`
	StepSeq   Seq    `json:"stepSeq,omitempty"`
	StepTime  int64  `json:"stepTime,omitempty"`
	Answered  bool   `json:"answered,omitempty"` // the open step has its assistant message
	Due       int    `json:"due,omitempty"`      // calls named by it that must follow in its record
	Calls     []Call `json:"calls,omitempty"`    // of the open step
	Parked    bool   `json:"parked,omitempty"`
	WaitsFor  []Wait `json:"waitsFor,omitempty"`
	Interrupt *Seq   `json:"interrupt,omitempty"`
	Context   bool   `json:"context,omitempty"` // runtime context was logged in this turn
	Attempts  int    `json:"attempts,omitempty"`
}

// CallState is where a call stands.
type CallState int

// The states of a call.
const (
	CallUndecided CallState = iota + 1
	CallAsked
	CallAllowed
	CallDenied
	CallEnded
)

// Call is one call of the open step.
type Call struct {
	ID       CallID      `json:"id"`
	Name     string      `json:"name"`
	Seq      Seq         `json:"seq"`
	Time     int64       `json:"time"`
	State    CallState   `json:"state"`
	Mode     SandboxMode `json:"mode,omitempty"`
	Decision Seq         `json:"decision,omitempty"`
	Epoch    uint64      `json:"epoch,omitempty"` // in which it was allowed
	Child    ID          `json:"child,omitempty"`
	Ask      *Question   `json:"ask,omitempty"`
}

// Question is the last question about a call.
type Question struct {
	ID      string      `json:"id"`
	Seq     Seq         `json:"seq"`
	Digest  string      `json:"digest"`
	Mode    SandboxMode `json:"mode"`
	Basis   Basis       `json:"basis"`
	Outcome Outcome     `json:"outcome,omitempty"`
	Decided Seq         `json:"decided,omitempty"`
	Used    bool        `json:"used,omitempty"`
}

// Pending is a message that was accepted and not yet consumed.
type Pending struct {
	Seq    Seq         `json:"seq"`
	ID     string      `json:"id"`
	Kind   MessageKind `json:"kind"`
	Sender ID          `json:"sender,omitempty"`
}

// Child is a child that holds a slot.
type Child struct {
	ID       ID     `json:"id"`
	Call     CallID `json:"call"`
	Seq      Seq    `json:"seq"`
	Noticed  int    `json:"noticed,omitempty"` // last turn whose end was told
	Returned bool   `json:"returned,omitempty"`
}

// StopRequest is a cancel or a used-up budget that waits to be obeyed.
type StopRequest struct {
	Seq    Seq    `json:"seq"`
	Budget bool   `json:"budget,omitempty"`
	Reason string `json:"reason,omitempty"`
	By     *Party `json:"by,omitempty"`
}

// InheritAll returns what a fork at the log's last event inherits. A person's
// fork takes this; it is only right outside an open turn (SPEC 1.8).
func (s State) InheritAll() Prefix {
	p := Prefix{Count: s.Next, Link: s.Link, Knobs: s.Knobs, Turn: s.Turn}
	if cut := s.Cut; cut.Count != s.Next {
		p.Cut = &cut
	}
	return p
}

// Call finds a call of the open step.
func (s State) Call(id CallID) (Call, bool) {
	if s.Open == nil {
		return Call{}, false
	}
	i := slices.IndexFunc(s.Open.Calls, func(c Call) bool { return c.ID == id })
	if i < 0 {
		return Call{}, false
	}
	return s.Open.Calls[i], true
}

// Questions are the calls of the open step whose question waits for an answer.
func (s State) Questions() []Call {
	if s.Open == nil {
		return nil
	}
	var asked []Call
	for _, c := range s.Open.Calls {
		if c.Ask != nil && c.Ask.Outcome == "" {
			asked = append(asked, c)
		}
	}
	return asked
}

// Child finds a child that holds a slot.
func (s State) Child(id ID) (Child, bool) {
	i := slices.IndexFunc(s.Children, func(c Child) bool { return c.ID == id })
	if i < 0 {
		return Child{}, false
	}
	return s.Children[i], true
}

// Filter is the tool filter that binds the session and all below it.
func (s State) Filter() *ToolFilter {
	if s.Descriptor == nil {
		return nil
	}
	return s.Descriptor.ToolFilter
}

// Stopping reports whether an interrupt of the open turn or a cancel waits to be
// obeyed: nothing may be allowed then.
func (s State) Stopping() bool {
	return s.Stop != nil || (s.Open != nil && s.Open.Interrupt != nil)
}

// Runnable reports whether a driver has something to do: an open turn that is
// not parked, a parked one whose wait is over, input, or a cancel to obey.
func (s State) Runnable() bool {
	switch {
	case s.Ended != nil:
		return false
	case s.Stop != nil || len(s.Pending) > 0:
		return true
	case s.Open == nil:
		return false
	case !s.Open.Parked || s.Open.Interrupt != nil:
		return true
	}
	return s.waitOver()
}

// waitOver reports whether something that the parked turn waits for has come.
func (s State) waitOver() bool {
	for _, w := range s.Open.WaitsFor {
		switch w.Kind {
		case WaitApproval:
			for _, c := range s.Open.Calls {
				if c.Ask != nil && c.Ask.ID == w.ID && c.Ask.Outcome != "" {
					return true
				}
			}
		case WaitChild:
			if c, live := s.Child(ID(w.ID)); !live || c.Returned {
				return true
			}
		}
	}
	return false
}
