package policy_test

import (
	"fmt"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/policy/policytest"
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
				got, err := policy.Capture(newRoot(t, tt.flags...).State, d, policy.Wish{}, tools)
				if err != nil {
					t.Fatalf("Capture: %v", err)
				}
				same(t, "events", got.Events(), handed(tt.sandbox, c.Approvals, preset))

				born := newRoot(t, tt.flags...).MustDelegate(d, child{})
				whole := newRoot(t, tt.flags...).MustDelegate(deploy(t, reviewed), child{})
				for _, w := range policytest.Wider(t, born.State, d, whole.State, deploy(t, reviewed)) {
					t.Errorf("with everything composed the child may not: %s", w)
				}
			})
		}
	}
}

func recorded(flags []session.Payload) bool {
	return len(flags) > 0 && flags[0].Type() == session.TypePreset
}
