package races_test

import (
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/entail-fleet/entail/internal/races"
	"github.com/entail-fleet/entail/session"
)

// step is one operation of a history made by hand, under way from one moment to
// another.
type step struct {
	from, to int64
	in       races.Input
	out      races.Output
}

const never = math.MaxInt64

func begin(s races.State) step {
	return step{0, 0, races.Input{Kind: races.Begin}, races.Output{Ending: races.Done, Start: s}}
}

func switching(from, to int64, seq session.Seq, wish races.Event, wrote ...races.Event) step {
	s := step{from, to, races.Input{Kind: races.Switch, Switch: wish}, races.Output{Ending: races.Done}}
	if len(wrote) > 0 {
		s.out.Record = &races.Record{StreamSeq: uint64(seq), Seq: seq, Events: len(wrote), Switched: wrote}
	}
	return s
}

// deciding is a plain call's decision under a mode that the event at a seq set.
func deciding(from, to int64, seq session.Seq, mode session.SandboxMode, set session.Seq) step {
	b := races.Basis{Sandbox: races.Knob{Value: string(mode), Set: true, Seq: set}, Approval: unset(session.Ask), Preset: unset(session.Preset(mode))}
	return step{from, to, races.Input{Kind: races.Decide, Call: "1.1.0"}, races.Output{Ending: races.Done, Record: &races.Record{
		StreamSeq: uint64(seq), Seq: seq, Events: 1, Verdict: session.Allow, By: session.StagePolicy, Mode: mode, Basis: b,
	}}}
}

// delegating is an allowed delegation, decided as deciding says.
func delegating(from, to int64, seq session.Seq, mode session.SandboxMode, set session.Seq, child ...races.Event) step {
	s := deciding(from, to, seq, mode, set)
	s.in.Kind, s.out.Record.Child = races.Delegate, child
	return s
}

func unset[V ~string](v V) races.Knob { return races.Knob{Value: string(v)} }

func (s step) ended(e races.Ending) step {
	s.out.Ending = e
	if e == races.Unknown {
		s.to = never
	}
	return s
}

func (s step) lost() step {
	s.out.Record = nil
	return s
}

func sandbox(m session.SandboxMode) races.Event {
	return races.Event{Knob: races.Sandbox, Value: string(m)}
}

// born is a session whose log has ten events and none of a knob.
var born = begin(races.State{Next: 10})

var pin = races.Event{Knob: races.Approval, Value: string(session.Never)}

// A history fits or not by SPEC 4.2 to 4.6 and 5.1; each that does not fit has one
// of their rules taken out.
func TestModelTellsHistoriesApart(t *testing.T) {
	t.Parallel()
	const ro, ww, full = session.ReadOnly, session.WorkspaceWrite, session.DangerFullAccess
	tight := switching(1, 2, 10, sandbox(ro), sandbox(ro))
	wide := switching(3, 4, 11, sandbox(ww), sandbox(ww))
	preset := races.Event{Knob: races.Preset, Value: string(session.PresetFullAccess)}
	tests := map[string]struct {
		steps []step
		want  bool
	}{
		"nothing happens":                            {[]step{born}, true},
		"a decision after a switch names it":         {[]step{born, tight, deciding(3, 4, 11, ro, 10)}, true},
		"a decision that ended before the switch":    {[]step{born, deciding(1, 2, 11, ro, 10), switching(3, 4, 10, sandbox(ro), sandbox(ro))}, false},
		"a decision beside two switches, on the old": {[]step{born, tight, deciding(3, 6, 11, ro, 10), switching(3, 6, 12, sandbox(ww), sandbox(ww))}, true},
		"a decision after two switches, on the old":  {[]step{born, tight, wide, deciding(5, 6, 12, ro, 10)}, false},
		"two decisions on one tail":                  {[]step{born, tight, deciding(3, 6, 11, ro, 10), deciding(3, 6, 11, ro, 10)}, false},
		"a child has its parent's mode and the pin":  {[]step{born, tight, delegating(3, 4, 11, ro, 10, sandbox(ro), pin)}, true},
		"a child has the mode before the switch":     {[]step{born, tight, wide, delegating(5, 6, 12, ww, 11, sandbox(ro), pin)}, false},
		"a child without the pin":                    {[]step{born, tight, delegating(3, 4, 11, ro, 10, sandbox(ro))}, false},
		"a child with an identity that is not current": {
			[]step{born, tight, delegating(3, 4, 11, ro, 10, sandbox(ro), pin, preset)}, false,
		},
		"full access is an identity and two knobs": {
			[]step{born, switching(1, 2, 10, preset, preset, sandbox(full), pin)}, true,
		},
		"full access without its knobs":          {[]step{born, switching(1, 2, 10, preset, preset)}, false},
		"what holds already is not written":      {[]step{born, tight, switching(3, 4, 0, sandbox(ro))}, true},
		"what held before is said to hold":       {[]step{born, tight, wide, switching(5, 6, 0, sandbox(ro))}, false},
		"what held a moment ago is said to hold": {[]step{born, tight, switching(3, 6, 11, sandbox(ww), sandbox(ww)), switching(5, 6, 0, sandbox(ro))}, true},
		"acknowledged and not in the stream":     {[]step{born, tight.lost()}, false},
		"refused and not in the stream":          {[]step{born, tight.lost().ended(races.Refused)}, true},
		"refused and in the stream":              {[]step{born, tight.ended(races.Refused)}, false},
		"unknown and never":                      {[]step{born, tight.lost().ended(races.Unknown), switching(3, 4, 10, sandbox(ww), sandbox(ww))}, true},
		"unknown and in the stream":              {[]step{born, tight.ended(races.Unknown), wide}, true},
		"unknown and in the stream before it was asked for": {
			[]step{born, switching(5, never, 10, sandbox(ro), sandbox(ro)).ended(races.Unknown), wide}, false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := byHand(tt.steps)
			got, _ := porcupine.CheckOperationsVerbose(spec.Model(), h, time.Minute)
			if (got == porcupine.Ok) != tt.want {
				t.Errorf("porcupine says %s, want fit: %t", got, tt.want)
			}
			if why := spec.Explain(h); (len(why) == 0) != tt.want {
				t.Errorf("explained as %q, want fit: %t", why, tt.want)
			}
		})
	}
}

// The cap on live children is exact (SPEC 4.6).
func TestModelHoldsTheCap(t *testing.T) {
	t.Parallel()
	full := begin(races.State{Next: 10, Sandbox: races.Knob{Value: string(session.ReadOnly), Set: true, Seq: 5}, Children: spec.Live})
	one := delegating(1, 2, 10, session.ReadOnly, 5, sandbox(session.ReadOnly), pin)
	if porcupine.CheckOperations(spec.Model(), byHand([]step{full, one})) {
		t.Error("one child more than the cap fits")
	}
	one.out.Record.Child, one.out.Record.Events = nil, 2
	one.out.Record.Verdict, one.out.Record.By = session.Deny, session.StageDepth
	if !porcupine.CheckOperations(spec.Model(), byHand([]step{full, one})) {
		t.Error("the denial of one child more does not fit")
	}
}

// A delegation that asks for more than its parent has is refused, one that asks
// for less is narrowed and carries no identity (SPEC 4.11).
func TestModelNarrows(t *testing.T) {
	t.Parallel()
	parent := begin(races.State{Next: 10, Sandbox: races.Knob{Value: string(session.WorkspaceWrite), Set: true, Seq: 5}})
	less := delegating(1, 2, 10, session.WorkspaceWrite, 5, sandbox(session.ReadOnly), pin)
	less.in.Narrow = session.ReadOnly
	if !porcupine.CheckOperations(spec.Model(), byHand([]step{parent, less})) {
		t.Error("a narrowed child does not fit")
	}
	more := delegating(1, 2, 10, session.WorkspaceWrite, 5, sandbox(session.DangerFullAccess), pin)
	more.in.Narrow = session.DangerFullAccess
	if porcupine.CheckOperations(spec.Model(), byHand([]step{parent, more})) {
		t.Error("a widened child fits")
	}
}

func byHand(steps []step) []porcupine.Operation {
	var out []porcupine.Operation
	for i, s := range steps {
		out = append(out, porcupine.Operation{ClientId: i, Input: s.in, Call: s.from, Output: s.out, Return: s.to})
	}
	return out
}
