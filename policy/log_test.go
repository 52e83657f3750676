package policy_test

import (
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/session"
)

// What the tests of this package say most, in short.
type (
	log   = policytest.Log
	child = policytest.Child
)

var (
	tools = policytest.Tools()
	alice = policytest.Alice
)

func newRoot(t policytest.T, flags ...session.Payload) *log {
	t.Helper()
	return policytest.NewLog(t, flags...)
}

func deploy(t policytest.T, change ...func(*policy.Settings)) policy.Deployment {
	t.Helper()
	return policytest.Deploy(t, change...)
}

func sandbox(m session.SandboxMode) session.Payload {
	return &session.SandboxSwitch{Mode: m, By: &alice}
}

func approval(p session.ApprovalPolicy) session.Payload {
	return &session.ApprovalSwitch{Policy: p, By: &alice}
}

func preset(p session.Preset) session.Payload {
	return &session.PresetSwitch{Preset: p, By: &alice}
}

func defaults(m session.SandboxMode, p session.ApprovalPolicy) func(*policy.Settings) {
	return func(s *policy.Settings) { s.Defaults = session.Defaults{Sandbox: m, Approval: p} }
}

// reviewed is a deployment in which auto can be selected.
func reviewed(s *policy.Settings) { s.Reviewer = policy.DelegateOnly }

func compose(sandbox, approvals, presets bool) func(*policy.Settings) {
	return func(s *policy.Settings) {
		s.Composition = policy.Composition{Sandbox: sandbox, Approvals: approvals, Presets: presets}
	}
}
