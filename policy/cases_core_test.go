package policy_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// The conformance cases of modes and presets that are policy's alone. What they write
// is held by the logs of package coordinator's tests.

// Without any configuration a session is read-only. Modes are ordered, narrow to wide.
func TestSBX01_TheDefaultIsReadOnly(t *testing.T) {
	t.Parallel()
	if e := policy.EffectiveOf(newRoot(t).State.Knobs, deploy(t)); e.Sandbox != session.ReadOnly || e.Basis.Sandbox.Seq != nil {
		t.Errorf("without configuration the mode is %s on %+v", e.Sandbox, e.Basis.Sandbox)
	}
	same(t, "modes, narrow to wide", session.SandboxModes(), []session.SandboxMode{"read-only", "workspace-write", "danger-full-access"})
	for i, narrow := range session.SandboxModes() {
		for j, wide := range session.SandboxModes() {
			if wide.Wider(narrow) != (j > i) {
				t.Errorf("%s wider than %s: %t", wide, narrow, wide.Wider(narrow))
			}
		}
	}
}

// A mode that a person approved for one call comes before the last switch, and that
// before the default; the next call is back at the switch.
func TestSBX02_GrantThenSwitchThenDefault(t *testing.T) {
	t.Parallel()
	d := deploy(t, defaults(session.DangerFullAccess, session.Ask))
	l := newRoot(t)
	mode := func(l *log, c policy.Call) session.SandboxMode {
		t.Helper()
		dec, err := policy.Decide(l.State, d, c, tools)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := dec.(policy.Permit)
		if !ok {
			t.Fatalf("call %s was decided %+v", c.ID, dec)
		}
		return p.Record().Mode
	}
	call := l.Open("bash")
	plain := policy.Call{ID: call, Tool: "bash", Effect: true}
	if got := mode(l, plain); got != session.DangerFullAccess {
		t.Errorf("without a switch the mode is %s, want the default", got)
	}
	l.Sandbox(session.ReadOnly)
	if got := mode(l, plain); got != session.ReadOnly {
		t.Errorf("after a switch the mode is %s", got)
	}
	escalated := plain
	escalated.Digest, escalated.Escalate, escalated.Justification = strings.Repeat("0a", 32), session.WorkspaceWrite, "to build"
	dec, err := policy.Decide(l.State, d, escalated, tools)
	if err != nil {
		t.Fatal(err)
	}
	q, ok := dec.(policy.Question)
	if !ok {
		t.Fatalf("an escalation was decided %+v, want a question", dec)
	}
	record, ask := q.Record(), q.Ask()
	l.Add(session.ClassTurn, &record, &ask)
	l.Add(session.ClassInbox, &session.ApprovalDecided{ID: ask.ID, Outcome: session.AllowedOnce, By: &alice})
	if got := mode(l, escalated); got != session.WorkspaceWrite {
		t.Errorf("the approved call runs under %s", got)
	}
	l.Finish()
	if got := mode(l, policy.Call{ID: l.Open("bash"), Tool: "bash", Effect: true}); got != session.ReadOnly {
		t.Errorf("the next call runs under %s", got)
	}
}

// The shipped table, in its order. Two names are nobody's to define, custom is no row.
func TestPRE01_TheShippedTable(t *testing.T) {
	t.Parallel()
	same(t, "the table", policy.DefaultSettings().Presets, []policy.Bundle{
		{Name: "read-only", Sandbox: session.ReadOnly, Approval: session.Ask},
		{Name: "workspace-write", Sandbox: session.WorkspaceWrite, Approval: session.Ask},
		{Name: "auto", Sandbox: session.DangerFullAccess, Approval: session.Never},
		{Name: "danger-full-access", Sandbox: session.DangerFullAccess, Approval: session.Never},
	})
	for name, change := range map[string]func(*policy.Settings){
		"custom":        func(s *policy.Settings) { s.Presets[0].Name = session.PresetCustom },
		"a name twice":  func(s *policy.Settings) { s.Presets[0].Name = session.PresetWorkspaceWrite },
		"another auto":  func(s *policy.Settings) { s.Presets[2].Sandbox = session.ReadOnly },
		"no auto":       func(s *policy.Settings) { s.Presets = s.Presets[:2] },
		"a row of yolo": func(s *policy.Settings) { s.Presets[0].Sandbox = "yolo" },
	} {
		s := policy.DefaultSettings()
		if change(&s); s.Validate() == nil {
			t.Errorf("a table with %s is valid", name)
		}
	}
}

// current is the row that the knobs match, whatever was recorded if its bundle does not
// fit any more, and custom where none does.
func TestPRE02_PRE04_CurrentIsWhatTheKnobsMatch(t *testing.T) {
	t.Parallel()
	d := deploy(t, reviewed)
	l := newRoot(t)
	choose(t, l, d, session.PresetWorkspaceWrite)
	for _, tt := range []struct {
		change func()
		want   session.Preset
	}{
		{func() {}, session.PresetWorkspaceWrite},
		{func() { l.Sandbox(session.ReadOnly) }, session.PresetReadOnly},
		{func() { l.Add(session.ClassPolicy, approval(session.Never)) }, session.PresetCustom},
		{func() { l.Sandbox(session.DangerFullAccess) }, session.PresetFullAccess}, // never auto
		{func() { l.Sandbox(session.WorkspaceWrite) }, session.PresetCustom},
		{func() { l.Add(session.ClassPolicy, approval(session.Ask)) }, session.PresetWorkspaceWrite},
	} {
		tt.change()
		if got := policy.Current(l.State.Knobs, d); got != tt.want {
			t.Errorf("after %v current is %q, want %q", l.Own(), got, tt.want)
		}
	}
	_, err := policy.Select(l.State, d, "yolo", alice)
	refused(t, err, policy.CodeUnknownPreset, "yolo")
}

// Settings that make no sense are not loaded, null among them: it would read as no cap,
// or as a capability that is left out. A name that no table has is never current.
func TestPRE12_SenselessSettingsAreRefused(t *testing.T) {
	t.Parallel()
	good, err := policy.DefaultSettings().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range [][2]string{
		{`"depth":3`, `"depth":null`},
		{`"approvals":true`, `"approvals":null`},
		{`"reviewer":"none"`, `"reviewer":null`},
		{`"sandbox":"read-only"`, `"sandbox":null`},
		{`"sandbox":"read-only"`, `"sandbox":"yolo"`},
		{`"approval":"ask"`, `"approval":"maybe"`},
		{`"name":"auto"`, `"name":"yolo"`},
		{`"name":"read-only"`, `"name":"custom"`},
		{`"presets":[`, `"defaultPreset":"auto","presets":[`},
	} {
		bad := bytes.Replace(good, []byte(edit[0]), []byte(edit[1]), 1)
		if bytes.Equal(bad, good) {
			t.Fatalf("%s is not in the settings", edit[0])
		}
		if s, err := policy.ParseSettings(bad); err == nil {
			t.Errorf("settings with %s were read: %+v", edit[1], s)
		}
	}
	l := newRoot(t, named("gone", session.ReadOnly, session.Ask)...)
	if got := policy.Current(l.State.Knobs, deploy(t)); got != session.PresetReadOnly {
		t.Errorf("under a name that no table has, current is %q", got)
	}
}
