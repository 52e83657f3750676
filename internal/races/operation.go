package races

import (
	"fmt"
	"slices"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// Kind is what an operation does.
type Kind int

// The kinds of operation.
const (
	// Begin is the first of every session: the state that the others start from.
	Begin Kind = iota + 1
	// Switch is a person's, of one of the three knobs.
	Switch
	// Decide is a worker's decision of a call that asks for nothing special.
	Decide
	// Delegate is a worker's decision of a delegating call and, if it is allowed,
	// the child that a coordinator makes of it.
	Delegate
)

// String names the kind.
func (k Kind) String() string {
	return [...]string{"?", "begin", "switch", "decide", "delegate"}[k]
}

// The names of the three knobs.
const (
	Sandbox  = "sandbox"
	Approval = "approval"
	Preset   = "preset"
)

// Event is one knob event: what a switch asks for, or what stands in a log.
type Event struct {
	Knob  string
	Value string
}

// Knob is the last event of a knob, the zero value if there is none. In a basis
// the value is the one in force, also where no event set it.
type Knob struct {
	Value string
	Set   bool
	Seq   session.Seq
}

// Basis is what a decision names as its ground.
type Basis struct{ Sandbox, Approval, Preset Knob }

// Input is what a caller asked for.
type Input struct {
	Session session.ID
	Kind    Kind
	Switch  Event               // of a switch
	Call    session.CallID      // of a decision and of a delegation
	Narrow  session.SandboxMode // the mode that a delegation asks for, if any
}

// Ending is what a caller knows of how its operation ended.
type Ending int

// The endings.
const (
	// Done was acknowledged.
	Done Ending = iota + 1
	// Refused was told that nothing was written.
	Refused
	// Unknown may have been written.
	Unknown
)

// Output is how an operation ended.
type Output struct {
	Ending Ending
	// Start is what a session folds to when it begins; of Begin only.
	Start State
	// Record is what stands in the raw stream of the operation, nil if nothing
	// does.
	Record *Record
}

// nothing reports whether an operation neither wrote nor was acknowledged.
func (o Output) nothing() bool { return o.Record == nil && o.Ending != Done }

// Record is what an operation wrote, as it was read back from the raw stream.
type Record struct {
	StreamSeq uint64
	Seq       session.Seq // of its first event in the session's own log
	Events    int         // how many events it adds to that log

	// Switched are the knob events of a switch.
	Switched []Event

	// Of a decision.
	Verdict session.Verdict
	By      session.Stage
	Mode    session.SandboxMode
	Basis   Basis

	// Child are the knob events in the first batch of the child that the record
	// starts, nil if it starts none.
	Child []Event
}

// describe is an operation in one line, for people.
func describe(in Input, out Output) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", in.Kind)
	switch {
	case in.Kind == Switch:
		fmt.Fprintf(&b, " %s=%s", in.Switch.Knob, in.Switch.Value)
	case in.Call != "":
		fmt.Fprintf(&b, " %s", in.Call)
	}
	if in.Narrow != "" {
		fmt.Fprintf(&b, " as %s", in.Narrow)
	}
	fmt.Fprintf(&b, ": %s", [...]string{"?", "done", "refused", "unknown"}[out.Ending])
	r := out.Record
	if r == nil {
		return b.String()
	}
	fmt.Fprintf(&b, ", seq %d at %d", r.Seq, r.StreamSeq)
	if r.Verdict != "" {
		fmt.Fprintf(&b, ", %s by %s under %s on %v", r.Verdict, r.By, r.Mode, r.Basis)
	}
	for _, e := range slices.Concat(r.Switched, r.Child) {
		fmt.Fprintf(&b, ", %s=%s", e.Knob, e.Value)
	}
	return b.String()
}
