package policy_test

import (
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/session"
)

// TestCurrent holds Current to SPEC 2.3 and, with capabilities left out, to 2.6.
func TestCurrent(t *testing.T) {
	t.Parallel()
	full := defaults(session.DangerFullAccess, session.Never)
	for name, tt := range map[string]struct {
		change []func(*policy.Settings)
		flags  []session.Payload
		want   session.Preset
	}{
		"derived from the shipped defaults":      {want: session.PresetReadOnly},
		"derived from an override":               {flags: knobs(session.WorkspaceWrite, ""), want: session.PresetWorkspaceWrite},
		"no row fits":                            {flags: knobs(session.WorkspaceWrite, session.Never), want: session.PresetCustom},
		"derived is never auto":                  {flags: knobs(session.DangerFullAccess, session.Never), want: session.PresetFullAccess},
		"derived from defaults is never auto":    {change: set(full), want: session.PresetFullAccess},
		"auto recorded":                          {flags: named(session.PresetAuto, session.DangerFullAccess, session.Never), want: session.PresetAuto},
		"auto recorded over fitting defaults":    {change: set(full), flags: named(session.PresetAuto, "", ""), want: session.PresetAuto},
		"auto recorded, no reviewer":             {flags: named(session.PresetAuto, session.DangerFullAccess, session.Never), want: session.PresetAuto},
		"Full access recorded":                   {flags: named(session.PresetFullAccess, session.DangerFullAccess, session.Never), want: session.PresetFullAccess},
		"auto recorded, sandbox drifted":         {flags: named(session.PresetAuto, session.WorkspaceWrite, session.Never), want: session.PresetCustom},
		"auto recorded, approval drifted":        {flags: named(session.PresetAuto, session.DangerFullAccess, session.Ask), want: session.PresetCustom},
		"auto recorded, defaults do not fit":     {flags: named(session.PresetAuto, "", ""), want: session.PresetReadOnly},
		"drifted onto another row":               {flags: named(session.PresetReadOnly, session.WorkspaceWrite, ""), want: session.PresetWorkspaceWrite},
		"an unknown name is never current":       {flags: named("gone", session.ReadOnly, session.Ask), want: session.PresetReadOnly},
		"first row that fits, in table order":    {change: set(policytest.Row("first", session.ReadOnly, session.Ask, 0)), want: "first"},
		"a recorded row before an earlier one":   {change: set(policytest.Row("first", session.ReadOnly, session.Ask, 0)), flags: named(session.PresetReadOnly, "", ""), want: session.PresetReadOnly},
		"presets left out, nothing recorded":     {change: set(compose(true, true, false), full), want: session.PresetCustom},
		"presets left out, auto recorded":        {change: set(compose(true, true, false)), flags: named(session.PresetAuto, session.DangerFullAccess, session.Never), want: session.PresetAuto},
		"presets left out, recorded and drifted": {change: set(compose(true, true, false)), flags: named(session.PresetAuto, session.ReadOnly, session.Never), want: session.PresetCustom},
		"approvals left out, auto, none pinned":  {change: set(compose(true, false, true)), flags: named(session.PresetAuto, session.DangerFullAccess, ""), want: session.PresetAuto},
		"approvals left out, auto, ask logged":   {change: set(compose(true, false, true)), flags: named(session.PresetAuto, session.DangerFullAccess, session.Ask), want: session.PresetAuto},
		"approvals left out, sandbox drifted":    {change: set(compose(true, false, true)), flags: named(session.PresetAuto, session.WorkspaceWrite, session.Never), want: session.PresetWorkspaceWrite},
		"approvals left out, derived":            {change: set(compose(true, false, true)), flags: knobs(session.DangerFullAccess, ""), want: session.PresetFullAccess},
		"sandbox left out, auto logged":          {change: set(compose(false, true, true)), flags: named(session.PresetAuto, session.DangerFullAccess, session.Never), want: session.PresetAuto},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newRoot(t, tt.flags...)
			if got := policy.Current(l.State.Knobs, deploy(t, tt.change...)); got != tt.want {
				t.Errorf("Current after %v = %q, want %q", l.Own(), got, tt.want)
			}
		})
	}
}

// TestPRE03_CurrentSiblingIdentities: auto and Full access share a bundle; the
// last recorded identity tells them apart, whichever came first.
func TestPRE03_CurrentSiblingIdentities(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]session.Preset{
		{session.PresetAuto, session.PresetFullAccess},
		{session.PresetFullAccess, session.PresetAuto},
	} {
		t.Run(string(tt[0])+" then "+string(tt[1]), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, reviewed)
			l := newRoot(t)
			choose(t, l, d, tt[0])
			choose(t, l, d, tt[1])
			same(t, "own policy events", l.Own(), []string{
				"1 permission/preset " + string(tt[0]), "2 sandbox/mode danger-full-access", "3 approval/policy never",
				"4 permission/preset " + string(tt[1]),
			})
			if got := policy.Current(l.State.Knobs, d); got != tt[1] {
				t.Errorf("Current = %q, want %q", got, tt[1])
			}
			// Once a knob moves the identity is not current, and no other takes its place.
			l.Sandbox(session.WorkspaceWrite)
			if got := policy.Current(l.State.Knobs, d); got != session.PresetCustom {
				t.Errorf("Current after a switch = %q, want custom", got)
			}
			l.Sandbox(session.DangerFullAccess)
			if got := policy.Current(l.State.Knobs, d); got != tt[1] {
				t.Errorf("Current after switching back = %q, want %q", got, tt[1])
			}
		})
	}
}

// choose selects a preset as a person does.
func choose(t *testing.T, l *log, d policy.Deployment, p session.Preset) policy.Wished {
	t.Helper()
	w, err := policy.Select(l.State, d, p, alice)
	if err != nil {
		t.Fatalf("select %s: %v", p, err)
	}
	l.Add(session.ClassPolicy, w.Events...)
	return w
}

func set(c ...func(*policy.Settings)) []func(*policy.Settings) { return c }

// knobs are creation flags; an empty value is none.
func knobs(m session.SandboxMode, p session.ApprovalPolicy) []session.Payload {
	return named("", m, p)
}

func named(name session.Preset, m session.SandboxMode, p session.ApprovalPolicy) []session.Payload {
	var out []session.Payload
	if name != "" {
		out = append(out, preset(name))
	}
	if m != "" {
		out = append(out, sandbox(m))
	}
	if p != "" {
		out = append(out, approval(p))
	}
	return out
}
