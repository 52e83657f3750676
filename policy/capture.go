package policy

import (
	"slices"

	"github.com/entail-fleet/entail/session"
)

// Wish is what a delegation asks for beyond a prompt: it may narrow, never widen
// (SPEC 4.11).
type Wish struct {
	Sandbox session.SandboxMode // "" keeps what the parent has
	Filter  *session.ToolFilter
}

// Captured is the policy that a child starts with.
type Captured struct {
	Sandbox session.SandboxMode // "" when the parent never switched
	Pin     bool
	Preset  session.Preset // "" unless auto or danger-full-access
	Filter  *session.ToolFilter
}

// Capture reads from a parent's log, at the tail that s folds to, what a child
// inherits (SPEC 4.2): the sandbox override only if explicit, the identity only
// if auto or danger-full-access, a pin in place of the approval policy, and never
// a default or a grant. The composition never makes it less: what the log holds
// is captured also where the capability is left out (SPEC 2.6).
func Capture(s session.State, d Deployment, w Wish, tools []string) (Captured, error) {
	return capture(&s, &d, w, tools)
}

func capture(s *session.State, d *Deployment, w Wish, tools []string) (Captured, error) {
	have := effective(&s.Knobs, d)
	c := Captured{Pin: d.Composition.Approvals && pinApprovals}
	if s.Knobs.Sandbox.Set() && captureOverride {
		c.Sandbox = s.Knobs.Sandbox.Value
	}
	if captureIdentity && (have.Preset == session.PresetAuto || have.Preset == session.PresetFullAccess) {
		c.Preset = have.Preset
	}
	if err := c.narrow(have, d.Composition, w.Sandbox); err != nil {
		return Captured{}, err
	}
	filter, err := intersect(s.Filter(), w.Filter, tools)
	if err != nil {
		return Captured{}, err
	}
	c.Filter = filter
	return c, nil
}

// narrow replaces the captured mode by a narrower one. The mode the parent has
// already is no narrowing and changes nothing: writing it would copy a default.
func (c *Captured) narrow(have Effective, composed Composition, mode session.SandboxMode) error {
	switch {
	case mode == "" || mode == have.Sandbox:
		return nil
	case !mode.Valid():
		return refuse(CodeUnknownMode, "unknown sandbox mode %q (available: %v)", mode, session.SandboxModes())
	case mode.Wider(have.Sandbox):
		return refuse(CodeWider, "a child cannot have sandbox mode %q: its parent has %q; ask for %q or less, or widen the parent first", mode, have.Sandbox, have.Sandbox)
	case !composed.Sandbox:
		return refuse(CodeLeftOut, "sandbox switching is left out of this deployment: a child cannot be narrowed to %q", mode)
	case have.Preset == session.PresetAuto:
		return refuse(CodeUnderAuto, "under preset %q a child cannot be narrowed to %q, because it would lose its review: delegate without a sandbox mode", session.PresetAuto, mode)
	}
	c.Sandbox, c.Preset = mode, ""
	return nil
}

// Events lists what the capture adds to a child's first batch, in the order of
// SPEC 4.3.
func (c Captured) Events() []session.Payload {
	var out []session.Payload
	if c.Sandbox != "" {
		out = append(out, &session.SandboxSwitch{Mode: c.Sandbox, Source: session.SourceDelegation})
	}
	if c.Pin {
		out = append(out, &session.ApprovalSwitch{Policy: session.Never, Source: session.SourceDelegation})
	}
	if c.Preset != "" {
		out = append(out, &session.PresetSwitch{Preset: c.Preset})
	}
	return out
}

// intersect joins a parent's filter with a delegation's, as values: a tool must
// be allowed by both and denied by neither.
func intersect(parent, own *session.ToolFilter, tools []string) (*session.ToolFilter, error) {
	if err := knownTools(own, tools); err != nil {
		return nil, err
	}
	if parent == nil {
		return normal(own), nil
	}
	if own == nil {
		return normal(parent), nil
	}
	out := session.ToolFilter{Deny: append(slices.Clone(parent.Deny), own.Deny...)}
	switch {
	case parent.Allow == nil:
		out.Allow = own.Allow
	case own.Allow == nil:
		out.Allow = parent.Allow
	default:
		both := slices.DeleteFunc(slices.Clone(*own.Allow), func(t string) bool { return !slices.Contains(*parent.Allow, t) })
		out.Allow = &both
	}
	return normal(&out), nil
}

func knownTools(f *session.ToolFilter, tools []string) error {
	if f == nil {
		return nil
	}
	names := slices.Clone(f.Deny)
	if f.Allow != nil {
		names = append(names, *f.Allow...)
	}
	for _, n := range names {
		if !slices.Contains(tools, n) {
			return refuse(CodeUnknownTool, "unknown tool %q in the filter (available: %v)", n, tools)
		}
	}
	return nil
}

// normal sorts a filter, so that equal filters are equal bytes, and drops one
// that filters nothing.
func normal(f *session.ToolFilter) *session.ToolFilter {
	if f == nil || (f.Allow == nil && len(f.Deny) == 0) {
		return nil
	}
	out := session.ToolFilter{}
	if f.Allow != nil {
		allow := sorted(*f.Allow)
		out.Allow = &allow
	}
	if len(f.Deny) > 0 {
		out.Deny = sorted(f.Deny)
	}
	return &out
}

func sorted(s []string) []string {
	out := slices.Clone(s)
	if out == nil {
		out = []string{}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Filtered reports whether a filter keeps a session from a tool.
func Filtered(f *session.ToolFilter, tool string) bool {
	if f == nil {
		return false
	}
	return slices.Contains(f.Deny, tool) || (f.Allow != nil && !slices.Contains(*f.Allow, tool))
}
