package policy

import "github.com/entail-fleet/entail/session"

// Effective is what the two knobs of a session come to, which preset is current
// under them, and on what ground.
type Effective struct {
	Sandbox  session.SandboxMode
	Approval session.ApprovalPolicy
	Preset   session.Preset
	Basis    session.Basis
}

// EffectiveOf folds defaults under a session's overrides. It costs the same for
// a log of any length.
func EffectiveOf(k session.Knobs, d Deployment) Effective { return effective(&k, &d) }

func effective(k *session.Knobs, d *Deployment) Effective {
	e := Effective{Sandbox: d.Defaults.Sandbox, Approval: d.Defaults.Approval}
	if k.Sandbox.Set() {
		e.Sandbox = k.Sandbox.Value
	}
	if k.Approval.Set() {
		e.Approval = k.Approval.Value
	}
	e.Preset = current(k.Preset.Value, d, e.Sandbox, e.Approval)
	recorded := e.Preset
	if k.Preset.Set() {
		recorded = k.Preset.Value
	}
	e.Basis = session.Basis{
		Sandbox:  ground(string(e.Sandbox), k.Sandbox),
		Approval: ground(string(e.Approval), k.Approval),
		Preset:   ground(string(recorded), k.Preset),
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
	return effective(&k, &d).Preset
}

func current(recorded session.Preset, d *Deployment, mode session.SandboxMode, p session.ApprovalPolicy) session.Preset {
	// The comparison leaves the approval knob out where approvals are: nothing
	// asks there, so it says nothing. Comparing it would make an auto child, which
	// then carries no pin, lose its identity and its review (SPEC 2.6).
	fits := func(b *Bundle) bool {
		return b.Sandbox == mode && (!d.Composition.Approvals || b.Approval == p)
	}
	if b := d.bundle(recorded); b != nil && fits(b) {
		return recorded
	}
	if !d.Composition.Presets {
		return session.PresetCustom
	}
	for i := range d.Presets {
		if b := &d.Presets[i]; b.Name != session.PresetAuto && fits(b) {
			return b.Name
		}
	}
	return session.PresetCustom
}
