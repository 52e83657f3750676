package policytest

import (
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Permit returns the permit of one call of bash, in a new session that a person
// started under mode.
func Permit(t testing.TB, mode session.SandboxMode) policy.Permit {
	t.Helper()
	l := NewTree(t, 0, 0).Root(session.SurfaceNone, &session.SandboxSwitch{Mode: mode, By: &Alice})
	id := l.Open("bash")
	dec, err := policy.Decide(l.State, Deploy(t), policy.Call{ID: id, Tool: "bash", Effect: true}, Tools())
	if err != nil {
		t.Fatalf("decide the call: %v", err)
	}
	p, ok := dec.(policy.Permit)
	if !ok || p.Mode() != mode {
		t.Fatalf("decided %+v, want a permit under %s", dec.Record(), mode)
	}
	return p
}
