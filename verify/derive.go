package verify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// table is the preset table and which capabilities stand beside it. A delegation's
// decision names those that were left out (SPEC 2.6).
type table struct {
	rows      []Bundle
	approvals bool
	presets   bool
}

func newTable(opt Options) table {
	rows := opt.Presets
	if rows == nil {
		rows = []Bundle{ // SPEC 2.2
			{session.PresetReadOnly, session.ReadOnly, session.Ask},
			{session.PresetWorkspaceWrite, session.WorkspaceWrite, session.Ask},
			{session.PresetAuto, session.DangerFullAccess, session.Never},
			{session.PresetFullAccess, session.DangerFullAccess, session.Never},
		}
	}
	return table{rows: rows, approvals: true, presets: true}
}

// without is the table of a deployment that leaves capabilities out.
func (t table) without(left []session.Capability) table {
	t.approvals = !slices.Contains(left, session.CapabilityApprovals)
	t.presets = !slices.Contains(left, session.CapabilityPresets)
	return t
}

// current is SPEC 2.3. Where approvals are left out nothing is pinned and that
// knob tells nothing, and without presets no identity is derived.
func (t table) current(k knobs, d session.Defaults) session.Preset {
	mode, approval := k.sandbox.or(d.Sandbox), k.approval.or(d.Approval)
	fits := func(b Bundle) bool { return b.Sandbox == mode && (!t.approvals || b.Approval == approval) }
	for _, b := range t.rows {
		if b.Name == k.preset.value && fits(b) {
			return b.Name
		}
	}
	for _, b := range t.rows {
		if t.presets && b.Name != session.PresetAuto && fits(b) {
			return b.Name
		}
	}
	return session.PresetCustom
}

// wish is what a delegating call's arguments ask for.
type wish struct {
	Kind    session.Kind        `json:"kind"`
	Mode    session.Mode        `json:"mode"`
	Label   string              `json:"label"`
	Sandbox session.SandboxMode `json:"sandbox"`
	Tools   *session.ToolFilter `json:"tools"`
}

func parseWish(arguments string) (wish, error) {
	var a wish
	err := json.Unmarshal([]byte(arguments), &a)
	return a, err
}

// derive is SPEC 4.2 and 4.11: the policy events of a child's first batch, in
// order, from what its parent's log said at N, the default named in that record
// and what the call asked for.
func (t table) derive(d delegation, a wish) ([]session.Payload, error) {
	def := *d.decision.Defaults
	mode, identity := d.at.sandbox.value, session.Preset("")
	cur, have := t.current(d.at, def), d.at.sandbox.or(def.Sandbox)
	if cur == session.PresetAuto || cur == session.PresetFullAccess {
		identity = cur
	}
	switch {
	case a.Sandbox == "" || a.Sandbox == have:
	case !have.Wider(a.Sandbox):
		return nil, fmt.Errorf("the call asks for mode %q, its parent has %q", a.Sandbox, have)
	case cur == session.PresetAuto:
		return nil, fmt.Errorf("the call narrows to mode %q under preset %q", a.Sandbox, cur)
	default:
		mode, identity = a.Sandbox, ""
	}
	var out []session.Payload
	if mode != "" {
		out = append(out, &session.SandboxSwitch{Mode: mode, Source: session.SourceDelegation})
	}
	if t.approvals {
		out = append(out, &session.ApprovalSwitch{Policy: session.Never, Source: session.SourceDelegation})
	}
	if identity != "" {
		out = append(out, &session.PresetSwitch{Preset: identity})
	}
	return out, nil
}

// permits reports whether a filter lets a tool through.
func permits(f *session.ToolFilter, tool string) bool {
	if f == nil {
		return true
	}
	return !slices.Contains(f.Deny, tool) && (f.Allow == nil || slices.Contains(*f.Allow, tool))
}

// within reports whether a filter lets nothing through that outer stops.
func within(f, outer *session.ToolFilter) bool {
	if outer == nil {
		return true
	}
	if f != nil && f.Allow != nil {
		return !slices.ContainsFunc(*f.Allow, func(t string) bool { return permits(f, t) && !permits(outer, t) })
	}
	return outer.Allow == nil && !slices.ContainsFunc(outer.Deny, func(t string) bool { return permits(f, t) })
}

// meet is the intersection of two filters.
func meet(a, b *session.ToolFilter) *session.ToolFilter {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	out := session.ToolFilter{Allow: a.Allow, Deny: append(slices.Clone(a.Deny), b.Deny...)}
	if out.Allow == nil {
		out.Allow = b.Allow
	} else if b.Allow != nil {
		both := slices.DeleteFunc(slices.Clone(*a.Allow), func(t string) bool { return !slices.Contains(*b.Allow, t) })
		out.Allow = &both
	}
	return &out
}

func isRule(s session.Stage) bool { return strings.HasPrefix(string(s), "rule:") }
