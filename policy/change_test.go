package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// refused checks a refusal's code and that it names what was asked for.
func refused(t *testing.T, err error, code policy.Code, names string) {
	t.Helper()
	if policy.CodeOf(err) != code {
		t.Fatalf("error %v has code %q, want %q", err, policy.CodeOf(err), code)
	}
	if !strings.Contains(err.Error(), names) {
		t.Errorf("error %q does not name %q", err, names)
	}
}

// TestSelect holds Select to SPEC 2.4: identity first, then only the knobs whose
// effective value changes; refusals leave the log alone.
func TestSelect(t *testing.T) {
	t.Parallel()
	full := defaults(session.DangerFullAccess, session.Never)
	for name, tt := range map[string]struct {
		change []func(*policy.Settings)
		flags  []session.Payload
		choose session.Preset
		want   []session.Payload
		code   policy.Code
	}{
		"identity and both knobs": {change: set(reviewed), choose: session.PresetAuto, want: named(session.PresetAuto, session.DangerFullAccess, session.Never)},
		"identity and one knob":   {choose: session.PresetWorkspaceWrite, want: named(session.PresetWorkspaceWrite, session.WorkspaceWrite, "")},
		"identity alone": {
			change: set(reviewed), flags: knobs(session.DangerFullAccess, session.Never),
			choose: session.PresetAuto, want: named(session.PresetAuto, "", ""),
		},
		"identity alone, knobs by default":    {change: set(reviewed, full), choose: session.PresetAuto, want: named(session.PresetAuto, "", "")},
		"current by a recorded identity":      {flags: named(session.PresetWorkspaceWrite, session.WorkspaceWrite, ""), choose: session.PresetWorkspaceWrite},
		"current with nothing recorded":       {choose: session.PresetReadOnly},
		"drifted: identity and what it needs": {flags: named(session.PresetReadOnly, session.WorkspaceWrite, ""), choose: session.PresetReadOnly, want: named(session.PresetReadOnly, session.ReadOnly, "")},
		"custom":                              {choose: session.PresetCustom, code: policy.CodeUnknownPreset},
		"an unknown name":                     {choose: "yolo", code: policy.CodeUnknownPreset},
		"no name":                             {choose: "", code: policy.CodeUnknownPreset},
		"auto without a reviewer":             {choose: session.PresetAuto, code: policy.CodeNoReviewer},
		"auto without a reviewer though current": {
			flags: named(session.PresetAuto, session.DangerFullAccess, session.Never), choose: session.PresetAuto, code: policy.CodeNoReviewer,
		},
		"presets left out":               {change: set(compose(true, true, false)), choose: session.PresetReadOnly, code: policy.CodeLeftOut},
		"auto with presets left out":     {change: set(reviewed, compose(true, true, false)), choose: session.PresetAuto, code: policy.CodeLeftOut},
		"sandbox left out, another mode": {change: set(compose(false, true, true)), choose: session.PresetWorkspaceWrite, code: policy.CodeLeftOut},
		"sandbox left out, same mode":    {change: set(compose(false, true, true), defaults(session.ReadOnly, session.Never)), choose: session.PresetReadOnly, want: named(session.PresetReadOnly, "", session.Ask)},
		"approvals left out":             {change: set(compose(true, false, true)), choose: session.PresetFullAccess, want: named(session.PresetFullAccess, session.DangerFullAccess, "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, l := deploy(t, tt.change...), newRoot(t, tt.flags...)
			w, err := policy.Select(l.State, d, tt.choose, alice)
			if tt.code != "" {
				refused(t, err, tt.code, "preset")
				same(t, "events of a refusal", w.Events, []session.Payload(nil))
				return
			}
			if err != nil {
				t.Fatalf("Select: %v", err)
			}
			same(t, "events", w.Events, tt.want)
			l.Add(session.ClassPolicy, w.Events...)
			if got := policy.Current(l.State.Knobs, d); got != tt.choose || w.Current != tt.choose {
				t.Errorf("current is %q, the answer says %q, want %q", got, w.Current, tt.choose)
			}
		})
	}
}

// TestSelectInPinnedChild holds Select to SPEC 4.10: a bundle that asks switches
// the sandbox for real, leaves the pin, records no identity and says so.
func TestSelectInPinnedChild(t *testing.T) {
	t.Parallel()
	d := deploy(t, reviewed)
	for _, tt := range []struct {
		choose, current session.Preset
		want            []session.Payload
		note            bool
	}{
		{session.PresetWorkspaceWrite, session.PresetCustom, knobs(session.WorkspaceWrite, ""), true},
		{session.PresetReadOnly, session.PresetCustom, nil, true},
		{session.PresetFullAccess, session.PresetFullAccess, named(session.PresetFullAccess, session.DangerFullAccess, ""), false},
		{session.PresetAuto, session.PresetAuto, named(session.PresetAuto, session.DangerFullAccess, ""), false},
	} {
		t.Run(string(tt.choose), func(t *testing.T) {
			t.Parallel()
			c := newRoot(t, sandbox(session.ReadOnly)).MustDelegate(d, child{})
			w := choose(t, c, d, tt.choose)
			same(t, "events", w.Events, tt.want)
			if w.Current != tt.current || policy.Current(c.State.Knobs, d) != tt.current {
				t.Errorf("current is %q, the answer says %q, want %q", policy.Current(c.State.Knobs, d), w.Current, tt.current)
			}
			if (w.Note != "") != tt.note {
				t.Errorf("note %q, want one: %v", w.Note, tt.note)
			}
			if a := c.State.Knobs.Approval; a.Value != session.Never || a.Source != session.SourceDelegation {
				t.Errorf("approval is %+v, want the pin", a)
			}
		})
	}
}

// TestSwitch holds the two switches to SPEC 2.1, 2.5 and 2.6.
func TestSwitch(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	l := newRoot(t)
	for _, tt := range []struct {
		mode session.SandboxMode
		want []session.Payload
	}{
		// The default is not an override: the first switch to its value is one.
		{session.ReadOnly, knobs(session.ReadOnly, "")},
		{session.ReadOnly, nil},
		{session.WorkspaceWrite, knobs(session.WorkspaceWrite, "")},
		{session.DangerFullAccess, knobs(session.DangerFullAccess, "")},
		{session.DangerFullAccess, nil},
	} {
		w, err := policy.SwitchSandbox(l.State, d, tt.mode, alice)
		if err != nil {
			t.Fatalf("SwitchSandbox %s: %v", tt.mode, err)
		}
		same(t, "events of "+string(tt.mode), w.Events, tt.want)
		l.Add(session.ClassPolicy, w.Events...)
	}
	for _, tt := range []struct {
		policy session.ApprovalPolicy
		want   []session.Payload
	}{
		{session.Ask, knobs("", session.Ask)},
		{session.Ask, nil},
		{session.Never, knobs("", session.Never)},
		{session.Never, nil},
		{session.Ask, knobs("", session.Ask)},
	} {
		w, err := policy.SwitchApproval(l.State, d, tt.policy, alice)
		if err != nil {
			t.Fatalf("SwitchApproval %s: %v", tt.policy, err)
		}
		same(t, "events of "+string(tt.policy), w.Events, tt.want)
		l.Add(session.ClassPolicy, w.Events...)
	}
}

// TestSwitchRefused lists what is refused by name, with nothing to append.
func TestSwitchRefused(t *testing.T) {
	t.Parallel()
	s := newRoot(t).State
	for name, tt := range map[string]struct {
		change []func(*policy.Settings)
		mode   session.SandboxMode
		policy session.ApprovalPolicy
		code   policy.Code
		names  string
	}{
		"unknown mode":             {mode: "yolo", code: policy.CodeUnknownMode, names: "yolo"},
		"mode in another case":     {mode: "Read-Only", code: policy.CodeUnknownMode, names: "Read-Only"},
		"no mode":                  {code: policy.CodeUnknownMode, names: "mode"},
		"sandbox left out":         {change: set(compose(false, true, true)), mode: session.ReadOnly, code: policy.CodeLeftOut, names: "sandbox"},
		"unknown approval policy":  {policy: "always", code: policy.CodeUnknownPolicy, names: "always"},
		"approvals left out":       {change: set(compose(true, false, true)), policy: session.Never, code: policy.CodeLeftOut, names: "approvals"},
		"approvals left out, asks": {change: set(compose(true, false, true)), policy: session.Ask, code: policy.CodeLeftOut, names: "approvals"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, tt.change...)
			w, err := policy.SwitchSandbox(s, d, tt.mode, alice)
			if tt.policy != "" {
				w, err = policy.SwitchApproval(s, d, tt.policy, alice)
			}
			refused(t, err, tt.code, tt.names)
			same(t, "events", w.Events, []session.Payload(nil))
		})
	}
}

// TestPin holds a child's pin to SPEC 4.10: it cannot be lifted, the refusal names
// the way out, and tightening never fails.
func TestPin(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	root := newRoot(t, approval(session.Ask))
	for _, kind := range []session.Kind{session.Spawn, session.Fork} {
		c := root.MustDelegate(d, child{Kind: kind})
		_, err := policy.SwitchApproval(c.State, d, session.Ask, alice)
		refused(t, err, policy.CodePinned, string(c.State.Header.ID))
		if !strings.Contains(err.Error(), string(root.State.Header.ID)) {
			t.Errorf("refusal %q does not name the parent", err)
		}
		w, err := policy.SwitchApproval(c.State, d, session.Never, alice)
		if err != nil {
			t.Fatalf("tightening: %v", err)
		}
		same(t, "events of tightening to what it has", w.Events, []session.Payload(nil))
	}
}

// TestPinInPersonsFork: a pin in the prefix of a person's fork is an ordinary
// value that a person may change (SPEC 1.8); a child of that fork is pinned anew.
func TestPinInPersonsFork(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	pinned := newRoot(t).MustDelegate(d, child{})
	f := pinned.Fork()
	if a := f.State.Knobs.Approval; a.Value != session.Never || a.Source != session.SourceDelegation {
		t.Fatalf("the fork's approval is %+v, want the prefix's pin", a)
	}
	w, err := policy.SwitchApproval(f.State, d, session.Ask, alice)
	if err != nil {
		t.Fatalf("a person's fork cannot be switched: %v", err)
	}
	same(t, "events", w.Events, knobs("", session.Ask))
	f.Add(session.ClassPolicy, w.Events...)

	c := f.MustDelegate(d, child{Kind: session.Fork})
	_, err = policy.SwitchApproval(c.State, d, session.Ask, alice)
	refused(t, err, policy.CodePinned, string(c.State.Header.ID))
}

// TestPinInChildsPrefix: a child forked while approvals were left out carries no
// pin of its own. The one in its prefix binds it, as it binds its parent.
func TestPinInChildsPrefix(t *testing.T) {
	t.Parallel()
	pinned := newRoot(t).MustDelegate(deploy(t), child{})
	pinned.Open("read")
	pinned.Finish()
	c := pinned.MustDelegate(deploy(t, compose(true, false, true)), child{Kind: session.Fork})
	same(t, "the child's policy events", c.Own(), []string(nil))
	_, err := policy.SwitchApproval(c.State, deploy(t), session.Ask, alice)
	refused(t, err, policy.CodePinned, string(c.State.Header.ID))
}
