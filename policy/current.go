package policy

import "github.com/entail-fleet/entail/session"

// Effective is what the two knobs of a session come to, and on what ground.
type Effective struct {
	Sandbox  session.SandboxMode
	Approval session.ApprovalPolicy
	Basis    session.Basis
}

// EffectiveOf folds defaults under a session's overrides. It costs the same for
// a log of any length.
func EffectiveOf(k session.Knobs, d Deployment) Effective {
	e := Effective{Sandbox: d.Defaults.Sandbox, Approval: d.Defaults.Approval}
	if k.Sandbox.Set() {
		e.Sandbox = k.Sandbox.Value
	}
	if k.Approval.Set() {
		e.Approval = k.Approval.Value
	}
	e.Basis = session.Basis{
		Sandbox:  ground(string(e.Sandbox), k.Sandbox),
		Approval: ground(string(e.Approval), k.Approval),
		Preset:   ground(string(current(k, d, e)), k.Preset),
	}
	if k.Preset.Set() {
		e.Basis.Preset.Value = string(k.Preset.Value)
	}
	return e
}

func ground[V ~string](value string, k session.Knob[V]) session.Ground {
	if !k.Set() {
		return session.Ground{Value: value}
	}
	seq := k.Seq
	return session.Ground{Value: value, Seq: &seq}
}

// Current names the preset that a session is under (SPEC 2.3): the recorded
// identity if its bundle still fits, else the first row of the table that does,
// except auto, which is only ever current when recorded; else custom.
func Current(k session.Knobs, d Deployment) session.Preset {
	return current(k, d, EffectiveOf(k, d))
}

func current(k session.Knobs, d Deployment, e Effective) session.Preset {
	if b, ok := d.bundle(k.Preset.Value); ok && fits(b, e, d.Composition) {
		return b.Name
	}
	if !d.Composition.Presets {
		return session.PresetCustom
	}
	for _, b := range d.Presets {
		if b.Name != session.PresetAuto && fits(b, e, d.Composition) {
			return b.Name
		}
	}
	return session.PresetCustom
}

// fits compares a bundle with the effective knobs. Where approvals are left out
// nothing asks, so that knob says nothing: comparing it would make an auto child,
// which then carries no pin, lose its identity and its review (SPEC 2.6).
func fits(b Bundle, e Effective, c Composition) bool {
	return b.Sandbox == e.Sandbox && (!c.Approvals || b.Approval == e.Approval)
}
