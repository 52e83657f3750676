package policytest

import (
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Deploy makes a deployment of the default settings as changed.
func Deploy(t T, change ...func(*policy.Settings)) policy.Deployment {
	t.Helper()
	s := policy.DefaultSettings()
	for _, c := range change {
		c(&s)
	}
	b, err := s.Encode()
	if err != nil {
		t.Fatalf("encode settings: %v", err)
	}
	d, err := policy.NewDeployment(b, 1)
	if err != nil {
		t.Fatalf("read settings: %v", err)
	}
	return d
}

// Row puts a preset into the table.
func Row(name session.Preset, m session.SandboxMode, p session.ApprovalPolicy, at int) func(*policy.Settings) {
	return func(s *policy.Settings) {
		b := policy.Bundle{Name: name, Sandbox: m, Approval: p}
		s.Presets = append(append(append([]policy.Bundle{}, s.Presets[:at]...), b), s.Presets[at:]...)
	}
}
