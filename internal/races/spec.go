package races

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/entail-fleet/entail/session"
)

// State is a session as far as the raced operations read or change it.
type State struct {
	Next                      session.Seq
	Sandbox, Approval, Preset Knob
	Children                  int // that hold a slot
}

// Spec is the deployment under which a session is raced: its defaults, and the
// cap on a parent's live children.
type Spec struct {
	Sandbox  session.SandboxMode
	Approval session.ApprovalPolicy
	Live     int
}

// bundles is the preset table of SPEC 2.2, in its order.
var bundles = []struct {
	name     session.Preset
	sandbox  session.SandboxMode
	approval session.ApprovalPolicy
}{
	{session.PresetReadOnly, session.ReadOnly, session.Ask},
	{session.PresetWorkspaceWrite, session.WorkspaceWrite, session.Ask},
	{session.PresetAuto, session.DangerFullAccess, session.Never},
	{session.PresetFullAccess, session.DangerFullAccess, session.Never},
}

// Model is the specification as porcupine reads it, one session at a time. What
// stands in the stream is read back when all is over, so of an operation that was
// not acknowledged it is known whether it took place. One that did not fits into
// any order; it is left out, because looking for its place takes time that grows
// without bound.
func (s Spec) Model() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := map[session.ID][]porcupine.Operation{}
			for _, op := range history {
				if as[Output](op.Output).nothing() {
					continue
				}
				id := as[Input](op.Input).Session
				parts[id] = append(parts[id], op)
			}
			ids := make([]session.ID, 0, len(parts))
			for id := range parts {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			out := make([][]porcupine.Operation, 0, len(ids))
			for _, id := range ids {
				out = append(out, parts[id])
			}
			return out
		},
		Init: func() any { return State{} },
		Step: func(state, input, output any) (bool, any) {
			next, ok := s.step(as[State](state), as[Input](input), as[Output](output))
			return ok, next
		},
		Hash:              func(state any) uint64 { return uint64(as[State](state).Next) },
		DescribeOperation: func(input, output any) string { return describe(as[Input](input), as[Output](output)) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// as is a value of a history, whose types are the model's.
func as[T any](v any) T {
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("races: a history holds a %T", v))
	}
	return t
}

// step returns the state that a session is in after an operation that ended so. It
// reports whether it can have ended so here.
func (s Spec) step(at State, in Input, out Output) (State, bool) {
	switch {
	case in.Kind == Begin:
		return out.Start, at == (State{})
	case out.nothing():
		return at, true
	case out.Ending == Refused:
		return at, false // nothing is written of what was refused
	}
	want := s.write(at, in)
	if out.Record == nil {
		return at, want.Events == 0 // what was asked for holds already
	}
	return at.after(want), want.Events > 0 && equal(*out.Record, want)
}

// equal reports whether a record is what it should be. Where it stands in the
// stream is the stream's affair; where in its log is not.
func equal(have, want Record) bool {
	return have.Seq == want.Seq && have.Events == want.Events &&
		have.Verdict == want.Verdict && have.By == want.By && have.Mode == want.Mode && have.Basis == want.Basis &&
		slices.Equal(have.Switched, want.Switched) &&
		slices.Equal(have.Child, want.Child) && (have.Child == nil) == (want.Child == nil)
}

// write is what an operation must write at a state.
func (s Spec) write(at State, in Input) Record {
	r := Record{Seq: at.Next}
	if in.Kind == Switch {
		r.Switched = s.switched(at, in.Switch)
		r.Events = len(r.Switched)
		return r
	}
	now := s.inForce(at)
	r.Events, r.Verdict, r.By, r.Mode, r.Basis = 1, session.Allow, session.StagePolicy, now.sandbox, s.basis(at)
	if in.Kind != Delegate {
		return r
	}
	switch {
	case at.Children >= s.Live:
		r.Verdict, r.By = session.Deny, session.StageDepth
	case in.Narrow.Wider(now.sandbox):
		r.Verdict = session.Deny // refused, never clamped (SPEC 4.11)
	default:
		r.Child = s.captured(at, in.Narrow)
		return r
	}
	r.Events = 2 // the denial and its result, in one record
	return r
}

// force is what a session's calls run under.
type force struct {
	sandbox  session.SandboxMode
	approval session.ApprovalPolicy
	preset   session.Preset
}

// inForce is SPEC 2.1 and 2.3: the recorded identity if its bundle fits, else the
// first row that does, but for auto.
func (s Spec) inForce(at State) force {
	f := force{
		sandbox:  session.SandboxMode(cmp.Or(at.Sandbox.Value, string(s.Sandbox))),
		approval: session.ApprovalPolicy(cmp.Or(at.Approval.Value, string(s.Approval))),
		preset:   session.PresetCustom,
	}
	for _, b := range bundles {
		fits := b.sandbox == f.sandbox && b.approval == f.approval
		switch {
		case fits && string(b.name) == at.Preset.Value:
			f.preset = b.name
			return f
		case fits && b.name != session.PresetAuto && f.preset == session.PresetCustom:
			f.preset = b.name
		}
	}
	return f
}

// basis names each value used and the event that set it (SPEC 5.2).
func (s Spec) basis(at State) Basis {
	now := s.inForce(at)
	b := Basis{at.Sandbox, at.Approval, at.Preset}
	b.Sandbox.Value, b.Approval.Value = string(now.sandbox), string(now.approval)
	if !b.Preset.Set {
		b.Preset.Value = string(now.preset)
	}
	return b
}

// switched lists the events of a switch: none if it holds already, and SPEC 2.4's
// for a preset.
func (s Spec) switched(at State, wish Event) []Event {
	now := s.inForce(at)
	switch {
	case wish.Knob == Sandbox && wish.Value == at.Sandbox.Value,
		wish.Knob == Approval && wish.Value == at.Approval.Value,
		wish.Knob == Preset && wish.Value == string(now.preset):
		return nil
	case wish.Knob != Preset:
		return []Event{wish}
	}
	out := []Event{wish}
	for _, b := range bundles {
		if string(b.name) != wish.Value {
			continue
		}
		if b.sandbox != now.sandbox {
			out = append(out, Event{Sandbox, string(b.sandbox)})
		}
		if b.approval != now.approval {
			out = append(out, Event{Approval, string(b.approval)})
		}
	}
	return out
}

// captured is what a child starts with (SPEC 4.2, 4.3, 4.11): the mode only if it
// was switched or is narrowed, the pin, and an identity that nothing narrows.
func (s Spec) captured(at State, narrow session.SandboxMode) []Event {
	now := s.inForce(at)
	narrowed := narrow != "" && narrow != now.sandbox
	var out []Event
	switch {
	case narrowed:
		out = append(out, Event{Sandbox, string(narrow)})
	case at.Sandbox.Set:
		out = append(out, Event{Sandbox, at.Sandbox.Value})
	}
	out = append(out, Event{Approval, string(session.Never)})
	if !narrowed && (now.preset == session.PresetAuto || now.preset == session.PresetFullAccess) {
		out = append(out, Event{Preset, string(now.preset)})
	}
	return out
}

// after is the state that a record leaves.
func (at State) after(r Record) State {
	for i, e := range r.Switched {
		k := Knob{Value: e.Value, Set: true, Seq: at.Next + session.Seq(i)}
		switch e.Knob {
		case Sandbox:
			at.Sandbox = k
		case Approval:
			at.Approval = k
		case Preset:
			at.Preset = k
		}
	}
	if r.Child != nil {
		at.Children++
	}
	at.Next += session.Seq(r.Events) //nolint:gosec // a count
	return at
}
