package policytest_test

import (
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/session"
)

func TestPermit(t *testing.T) {
	t.Parallel()
	for _, m := range session.SandboxModes() {
		p := policytest.Permit(t, m)
		if !p.Sealed() || p.Mode() != m || p.Call() != "1.1.0" || p.Session() == "" {
			t.Errorf("Permit(%s) = sealed %v, mode %q, call %q of %q", m, p.Sealed(), p.Mode(), p.Call(), p.Session())
		}
	}
	if (policy.Permit{}).Sealed() {
		t.Error("the zero permit is sealed")
	}
}
