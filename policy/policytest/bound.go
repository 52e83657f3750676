package policytest

import (
	"fmt"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Wider lists the calls that one session may make and another may not, or only
// under a narrower mode. Having to ask a person is no permission.
func Wider(t T, s session.State, d policy.Deployment, than session.State, dThan policy.Deployment) []string {
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
	for _, tool := range Tools() {
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

func permitted(t T, s session.State, d policy.Deployment, c policy.Call) (session.SandboxMode, bool) {
	t.Helper()
	dec, err := policy.Decide(s, d, c, Tools())
	if err != nil {
		t.Fatalf("decide %+v: %v", c, err)
	}
	p, ok := dec.(policy.Permit)
	return p.Mode(), ok
}
