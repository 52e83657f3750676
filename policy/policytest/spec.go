package policytest

import (
	"slices"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// What stands here reads SPEC on raw events once more, without the rules of package
// policy and without session's fold: the laws compare the two.

// reading is what the knob events of a log say: the last one of each (SPEC 2.1).
type reading struct {
	sandbox  session.SandboxMode
	approval session.ApprovalPolicy
	preset   session.Preset
}

func read(events []session.Event) reading {
	var r reading
	for _, e := range events {
		switch p := e.Payload.(type) {
		case *session.SandboxSwitch:
			r.sandbox = p.Mode
		case *session.ApprovalSwitch:
			r.approval = p.Policy
		case *session.PresetSwitch:
			r.preset = p.Preset
		case *session.Release:
			r.sandbox = session.ReadOnly // SPEC 1.7
		}
	}
	return r
}

// come is what the three knobs of a session come to.
type come struct {
	sandbox  session.SandboxMode
	approval session.ApprovalPolicy
	current  session.Preset
}

// under puts the defaults under a reading and names the preset: SPEC 2.3, and 2.6
// as docs/adr/0002 reads it.
func (r reading) under(d policy.Deployment) come {
	c := come{sandbox: r.sandbox, approval: r.approval}
	if c.sandbox == "" {
		c.sandbox = d.Defaults.Sandbox
	}
	if c.approval == "" {
		c.approval = d.Defaults.Approval
	}
	var derived session.Preset
	for _, b := range d.Presets {
		if b.Sandbox != c.sandbox || (b.Approval != c.approval && d.Composition.Approvals) {
			continue
		}
		if b.Name == r.preset {
			c.current = b.Name
			return c
		}
		if derived == "" && b.Name != session.PresetAuto && d.Composition.Presets {
			derived = b.Name
		}
	}
	c.current = derived
	if derived == "" {
		c.current = session.PresetCustom
	}
	return c
}

func width(m session.SandboxMode) int { return slices.Index(session.SandboxModes(), m) }

// owed is what SPEC 4.2, 4.3 and 4.11 say a child starts with, on the events of
// its parent at N; not allowed says why there is no child.
type owed struct {
	refused string
	events  []string // without seqs
	preset  session.Preset
	narrow  bool
}

func derive(parent []session.Event, d policy.Deployment, wish session.SandboxMode) owed {
	r := read(parent)
	c := r.under(d)
	mode, id := r.sandbox, session.Preset("")
	if c.current == session.PresetAuto || c.current == session.PresetFullAccess {
		id = c.current
	}
	var o owed
	if wish != "" && wish != c.sandbox {
		switch {
		case width(wish) > width(c.sandbox):
			return owed{refused: "wider"}
		case !d.Composition.Sandbox:
			return owed{refused: "sandbox left out"}
		case c.current == session.PresetAuto:
			return owed{refused: "narrowed under auto"}
		}
		mode, id, o.narrow = wish, "", true
	}
	if mode != "" {
		o.events = append(o.events, "sandbox/mode "+string(mode)+" delegation")
	}
	if d.Composition.Approvals {
		o.events = append(o.events, "approval/policy never delegation")
	}
	if id != "" {
		o.events = append(o.events, "permission/preset "+string(id))
	}
	o.preset = id
	return o
}
