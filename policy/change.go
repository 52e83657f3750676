package policy

import (
	"fmt"

	"github.com/entail-fleet/entail/session"
)

// Wished is what a person's wish comes to: the events to append in one record,
// none when it holds already, the preset that is current afterwards, and a note
// when something that was asked for could not be had.
type Wished struct {
	Events  []session.Payload
	Current session.Preset
	Note    string
}

// SwitchSandbox sets a session's sandbox mode (SPEC 4.10: in a child too).
func SwitchSandbox(s session.State, d Deployment, mode session.SandboxMode, by session.Party) (Wished, error) {
	if !d.Composition.Sandbox {
		return Wished{}, refuse(CodeLeftOut, "sandbox switching is left out of this deployment: every call runs under the default mode %q", d.Defaults.Sandbox)
	}
	if !mode.Valid() {
		return Wished{}, refuse(CodeUnknownMode, "unknown sandbox mode %q (available: %v)", mode, session.SandboxModes())
	}
	var events []session.Payload
	if s.Knobs.Sandbox.Value != mode {
		events = append(events, &session.SandboxSwitch{Mode: mode, By: &by})
	}
	return wished(s, d, events, ""), nil
}

// SwitchApproval sets a session's approval policy. A child's pin stays.
func SwitchApproval(s session.State, d Deployment, p session.ApprovalPolicy, by session.Party) (Wished, error) {
	switch {
	case !d.Composition.Approvals:
		return Wished{}, refuse(CodeLeftOut, "approvals are left out of this deployment")
	case !p.Valid():
		return Wished{}, refuse(CodeUnknownPolicy, "unknown approval policy %q (available: %s, %s)", p, session.Ask, session.Never)
	case p == session.Ask && pinned(s):
		return Wished{}, refuse(CodePinned, "approvals of %s were pinned to %q when it was delegated: widen its parent %s and delegate again",
			s.Header.ID, session.Never, s.Header.ParentSession)
	}
	var events []session.Payload
	if s.Knobs.Approval.Value != p {
		events = append(events, &session.ApprovalSwitch{Policy: p, By: &by})
	}
	return wished(s, d, events, ""), nil
}

// pinned reports whether the session's approvals were pinned at a delegation. In
// a child the pin binds also where it stands in the prefix: a fork that was made
// while approvals were left out has no other. In a person's fork it is an ordinary
// value (SPEC 1.8).
func pinned(s session.State) bool {
	return s.Header.IsChild() && s.Knobs.Approval.Source == session.SourceDelegation
}

// Select selects a preset (SPEC 2.4): the identity unless it is current, then
// only the knobs whose effective value changes.
func Select(s session.State, d Deployment, name session.Preset, by session.Party) (Wished, error) {
	b, err := d.selectable(name)
	if err != nil {
		return Wished{}, err
	}
	e := EffectiveOf(s.Knobs, d)
	if e.Preset == name {
		return wished(s, d, nil, ""), nil
	}
	var events []session.Payload
	var note string
	if pinned(s) && b.Approval == session.Ask {
		note = fmt.Sprintf("approvals stay %q, pinned at delegation: the sandbox mode is %q now, no identity is recorded", session.Never, b.Sandbox)
		b.Approval = e.Approval
	} else {
		events = append(events, &session.PresetSwitch{Preset: name, By: &by})
	}
	if b.Sandbox != e.Sandbox {
		if !d.Composition.Sandbox {
			return Wished{}, refuse(CodeLeftOut, "preset %q needs sandbox mode %q, and sandbox switching is left out of this deployment", name, b.Sandbox)
		}
		events = append(events, &session.SandboxSwitch{Mode: b.Sandbox, By: &by})
	}
	if d.Composition.Approvals && b.Approval != e.Approval {
		events = append(events, &session.ApprovalSwitch{Policy: b.Approval, By: &by})
	}
	return wished(s, d, events, note), nil
}

// selectable finds a preset that may be selected here. The reviewer is asked for
// first, so that auto is refused even where it is current already.
func (d Deployment) selectable(name session.Preset) (Bundle, error) {
	if !d.Composition.Presets {
		return Bundle{}, refuse(CodeLeftOut, "presets are left out of this deployment")
	}
	b := d.bundle(name)
	if b == nil {
		return Bundle{}, refuse(CodeUnknownPreset, "unknown preset %q (available: %v)", name, d.PresetNames())
	}
	if name == session.PresetAuto && d.Reviewer == NoReviewer {
		return Bundle{}, refuse(CodeNoReviewer, "preset %q needs a reviewer, and this deployment has none: start it with --reviewer", name)
	}
	return *b, nil
}

// wished folds the events into the knobs to name what is current afterwards.
func wished(s session.State, d Deployment, events []session.Payload, note string) Wished {
	k := s.Knobs
	for _, p := range events {
		switch p := p.(type) {
		case *session.SandboxSwitch:
			k.Sandbox.Value = p.Mode
		case *session.ApprovalSwitch:
			k.Approval.Value = p.Policy
		case *session.PresetSwitch:
			k.Preset.Value = p.Preset
		}
	}
	return Wished{Events: events, Current: Current(k, d), Note: note}
}
