package scenario_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// list prints a log for a person.
func list(events []session.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%4d %-7s %.300s\n", e.Seq, e.Class, e.Line)
	}
	return b.String()
}

// payloads returns the events of one type, in order.
func payloads[P session.Payload](events []session.Event) []P {
	var out []P
	for _, e := range events {
		if p, ok := e.Payload.(P); ok {
			out = append(out, p)
		}
	}
	return out
}

// where returns the places in a log of the events of one type that match.
func where[P session.Payload](events []session.Event, match func(P) bool) []int {
	var out []int
	for i, e := range events {
		if p, ok := e.Payload.(P); ok && (match == nil || match(p)) {
			out = append(out, i)
		}
	}
	return out
}

// children lists the children that a log's decisions name.
func children(events []session.Event) []session.ID {
	var ids []session.ID
	for _, d := range payloads[*session.ToolDecision](events) {
		if d.Child != "" {
			ids = append(ids, d.Child)
		}
	}
	return ids
}

// knob is a policy event of a log as its reader sees it.
type knob struct {
	Seq    session.Seq
	Class  session.Class
	Name   session.Type
	Value  string
	Source session.Source
}

// knobs lists a log's policy events.
func knobs(events []session.Event) []knob {
	var out []knob
	for _, e := range events {
		k := knob{Seq: e.Seq, Class: e.Class, Name: e.Type}
		switch p := e.Payload.(type) {
		case *session.SandboxSwitch:
			k.Value, k.Source = string(p.Mode), p.Source
		case *session.ApprovalSwitch:
			k.Value, k.Source = string(p.Policy), p.Source
		case *session.PresetSwitch:
			k.Value = string(p.Preset)
		default:
			continue
		}
		out = append(out, k)
	}
	return out
}

// The policy events of a spawned child's first batch.
func handedDown(at session.Seq, m session.SandboxMode) knob {
	return knob{at, session.ClassGenesis, session.TypeSandboxMode, string(m), session.SourceDelegation}
}

func pinned(at session.Seq) knob {
	return knob{at, session.ClassGenesis, session.TypeApprovalPolicy, string(session.Never), session.SourceDelegation}
}

func identity(at session.Seq, p session.Preset) knob {
	return knob{Seq: at, Class: session.ClassGenesis, Name: session.TypePreset, Value: string(p)}
}

// wantKnobs compares all policy events of a log.
func wantKnobs(t *testing.T, events []session.Event, want ...knob) {
	t.Helper()
	if diff := cmp.Diff(want, knobs(events)); diff != "" {
		t.Errorf("policy events (-want +got):\n%s", diff)
	}
}

func decisions(events []session.Event, call session.CallID) []*session.ToolDecision {
	return slices.DeleteFunc(payloads[*session.ToolDecision](events), func(d *session.ToolDecision) bool { return d.CallID != call })
}

// decision returns the one decision of a call.
func decision(t *testing.T, events []session.Event, call session.CallID) *session.ToolDecision {
	t.Helper()
	all := decisions(events, call)
	if len(all) != 1 {
		t.Fatalf("call %s has %d decisions, want 1:\n%s", call, len(all), list(events))
	}
	return all[0]
}

// result returns the one result of a call.
func result(t *testing.T, events []session.Event, call session.CallID) *session.ToolResult {
	t.Helper()
	all := slices.DeleteFunc(payloads[*session.ToolResult](events), func(r *session.ToolResult) bool { return r.CallID != call })
	if len(all) != 1 {
		t.Fatalf("call %s has %d results, want 1:\n%s", call, len(all), list(events))
	}
	return all[0]
}

// denied wants a call that the fence of a mode refused: decided under the mode,
// and its result says so.
func denied(t *testing.T, events []session.Event, call session.CallID, m session.SandboxMode) {
	t.Helper()
	d, r := decision(t, events, call), result(t, events, call)
	if d.Mode != m {
		t.Errorf("call %s was decided under %s, want %s", call, d.Mode, m)
	}
	if !r.IsError || !r.Denied || !strings.Contains(r.Content, sandbox.Marker(m)) {
		t.Errorf("call %s: error %t, denied %t, %q; want a denial with %s", call, r.IsError, r.Denied, r.Content, sandbox.Marker(m))
	}
}

// done wants a call that ran and did what it was asked to.
func done(t *testing.T, events []session.Event, call session.CallID) {
	t.Helper()
	if d, r := decision(t, events, call), result(t, events, call); d.Verdict != session.Allow || r.IsError {
		t.Errorf("call %s: %s, error %t, %q; want it allowed and done", call, d.Verdict, r.IsError, r.Content)
	}
}

// onceEach wants every call of a log to have exactly one result and at most one
// decision that allows it.
func onceEach(t *testing.T, events []session.Event) {
	t.Helper()
	for _, c := range payloads[*session.ToolCall](events) {
		result(t, events, c.CallID)
		allowed := slices.DeleteFunc(decisions(events, c.CallID), func(d *session.ToolDecision) bool { return d.Verdict != session.Allow })
		if len(allowed) > 1 {
			t.Errorf("call %s was allowed %d times", c.CallID, len(allowed))
		}
	}
}
