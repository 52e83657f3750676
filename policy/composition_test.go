package policy_test

import (
	"fmt"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// TestINH05_CaptureInAllCompositions runs the capture in the eight compositions of
// SPEC 2.6, on logs that were written before the capabilities were left out.
// Leaving one out never means less: what the log holds is handed down all the
// same, and the child may do nothing that it may not do with everything composed.
func TestINH05_CaptureInAllCompositions(t *testing.T) {
	t.Parallel()
	const all, auto, full = session.DangerFullAccess, session.PresetAuto, session.PresetFullAccess
	for name, tt := range map[string]struct {
		flags []session.Payload
		// What is handed down, but for the pin, which is there exactly where
		// approvals are composed.
		sandbox session.SandboxMode
		preset  session.Preset
		// bare is the identity where presets are left out: a derived one is not
		// handed down, a recorded one is.
		bare session.Preset
		// loose is the identity where approvals are left out: their knob is not
		// compared then.
		loose session.Preset
	}{
		"no switch":                  {},
		"read-only":                  {flags: knobs(session.ReadOnly, ""), sandbox: session.ReadOnly},
		"all three events":           {flags: named(auto, all, session.Never), sandbox: all, preset: auto, bare: auto, loose: auto},
		"Full access":                {flags: named(full, all, session.Never), sandbox: all, preset: full, bare: full, loose: full},
		"Full access, derived":       {flags: knobs(all, session.Never), sandbox: all, preset: full, loose: full},
		"auto, without its approval": {flags: named(auto, all, session.Ask), sandbox: all, loose: auto},
		"auto, without its sandbox":  {flags: named(auto, session.ReadOnly, session.Never), sandbox: session.ReadOnly},
	} {
		for i := range 8 {
			c := policy.Composition{Sandbox: i&1 != 0, Approvals: i&2 != 0, Presets: i&4 != 0}
			t.Run(fmt.Sprintf("%s/%+v", name, c), func(t *testing.T) {
				t.Parallel()
				d := deploy(t, compose(c.Sandbox, c.Approvals, c.Presets), reviewed)
				preset := tt.preset
				switch {
				case c.Presets && !c.Approvals:
					preset = tt.loose
				case !c.Presets && c.Approvals:
					preset = tt.bare
				case !c.Presets && !c.Approvals && recorded(tt.flags):
					preset = tt.loose
				case !c.Presets && !c.Approvals:
					preset = ""
				}
				got, err := policy.Capture(newRoot(t, tt.flags...).state, d, policy.Wish{}, tools)
				if err != nil {
					t.Fatalf("Capture: %v", err)
				}
				same(t, "events", got.Events(), handed(tt.sandbox, c.Approvals, preset))

				born := newRoot(t, tt.flags...).mustDelegate(d, child{})
				whole := newRoot(t, tt.flags...).mustDelegate(deploy(t, reviewed), child{})
				for _, w := range wider(t, born.state, d, whole.state, deploy(t, reviewed)) {
					t.Errorf("with everything composed the child may not: %s", w)
				}
			})
		}
	}
}

func recorded(flags []session.Payload) bool {
	return len(flags) > 0 && flags[0].Type() == session.TypePreset
}

// wider lists the calls that one session may make and another may not, or only
// under a narrower mode. Having to ask a person is no permission.
func wider(t failer, s session.State, d policy.Deployment, than session.State, dThan policy.Deployment) []string {
	t.Helper()
	var out []string
	for _, c := range calls() {
		may, ok := permitted(t, s, d, c)
		if !ok {
			continue
		}
		if bound, ok := permitted(t, than, dThan, c); !ok || may.Wider(bound) {
			out = append(out, fmt.Sprintf("%s %s wish %+v under %s (bound %q)", c.Tool, c.Escalate, c.Wish, may, bound))
		}
	}
	return out
}

// calls are all that an adversary could try: every tool, every escalation, every
// narrowing of a delegation.
func calls() []policy.Call {
	modes := append([]session.SandboxMode{""}, session.SandboxModes()...)
	var out []policy.Call
	for _, tool := range tools {
		for _, m := range modes {
			c := policy.Call{ID: "1.1.0", Tool: tool, Effect: tool != "read", Digest: "d", Escalate: m}
			if m != "" {
				c.Justification = "let me"
			}
			if tool != session.ToolDelegate {
				out = append(out, c)
				continue
			}
			for _, narrow := range modes {
				c.Wish = &policy.Wish{Sandbox: narrow}
				out = append(out, c)
			}
		}
	}
	return out
}

func permitted(t failer, s session.State, d policy.Deployment, c policy.Call) (session.SandboxMode, bool) {
	t.Helper()
	dec, err := policy.Decide(s, d, c, tools)
	if err != nil {
		t.Fatalf("decide %+v: %v", c, err)
	}
	p, ok := dec.(policy.Permit)
	return p.Mode(), ok
}
