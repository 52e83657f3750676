package session_test

import (
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// Values that every sample uses.
const (
	rootID  = session.ID("0000000000000000000000000001")
	childID = rootID + "-0123456789abcdefghjkmnpqrs"
)

func person() *session.Party { return &session.Party{Kind: session.Person, ID: "ann"} }

func sampleExtent() session.Extent {
	ns := int64(5_000_000)
	return session.Extent{StartSeq: 3, StartTime: 1700000000000, Worker: "w1", Incarnation: "i1", Attempt: 1, DurationNs: &ns}
}

func sampleBasis() session.Basis {
	return session.Basis{
		Sandbox:  session.Ground{Value: "workspace-write", Seq: new(session.Seq(2))},
		Approval: session.Ground{Value: "ask", Seq: new(session.Seq(1))},
		Preset:   session.Ground{Value: "auto", Seq: new(session.Seq(0))},
	}
}

// samples holds payloads of every type: for each type one with every field set,
// and where fields are optional one without any.
func samples() []session.Payload {
	return append(append(policySamples(), messageSamples()...), append(turnSamples(), callSamples()...)...)
}

func policySamples() []session.Payload {
	tools, none := []string{"read", "grep"}, []string{}
	return []session.Payload{
		&session.EndSeed{Inherited: true},
		&session.EndSeed{},
		&session.SandboxSwitch{Mode: session.ReadOnly, Source: session.SourceDelegation},
		&session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()},
		&session.SandboxSwitch{Mode: session.DangerFullAccess},
		&session.ApprovalSwitch{Policy: session.Never, Source: session.SourceDelegation},
		&session.ApprovalSwitch{Policy: session.Ask, By: person()},
		&session.PresetSwitch{Preset: session.PresetAuto, By: person()},
		&session.PresetSwitch{Preset: "house-style"},
		&session.Release{Skip: []uint64{7, 9}, Seq: 4, Link: session.Link{1, 2}, Reason: "half a record", By: person()},
		&session.FormatRaised{FormatVersion: 1, By: person()},
		&session.Descriptor{
			Version: session.DescriptorVersion, Mode: session.OneShot, Provider: session.Spawn, Label: "child", Persona: "reviewer",
			ToolFilter: &session.ToolFilter{Allow: &tools, Deny: []string{"bash"}},
		},
		&session.Descriptor{
			Version: session.DescriptorVersion, Mode: session.Continuable, Provider: session.Fork, Label: "child",
			ToolFilter: &session.ToolFilter{Allow: &none},
		},
		&session.Descriptor{Version: session.DescriptorVersion, Mode: session.OneShot, Provider: session.Fork, Label: "child"},
		&session.ModelSelected{Provider: "openai", Model: "m1"},
		&session.ModelSelected{Provider: "scripted", Model: "file", Script: &session.Script{Text: "sessions: {}\n", SHA256: sessiontest.Digest("sessions: {}\n")}},
		&session.ModelSelected{Provider: "scripted", Model: "file", Script: &session.Script{Session: rootID, Seq: new(session.Seq(0)), SHA256: sessiontest.Digest("sessions: {}\n")}},
	}
}

func messageSamples() []session.Payload {
	return []session.Payload{
		&session.UserMessage{ID: "m1", Role: "user", Content: "build <it> & run ✓\n", By: person(), Source: session.MessageSource{Kind: session.FromUser}},
		&session.UserMessage{ID: "m2", Role: "user", By: person(), Source: session.MessageSource{
			Kind: session.FromAgent, Form: "prompt", SenderSessionID: rootID, Summary: "short",
		}},
		&session.UserMessage{ID: "m3", Role: "user", By: person(), Source: session.MessageSource{
			Kind: session.FromSettled, SenderSessionID: childID, Turn: 2, Seq: 40, Outcome: "completed",
		}},
		&session.UserMessage{ID: "m4", Role: "user", By: person(), Source: session.MessageSource{Kind: session.FromReport, SenderSessionID: childID}},
		&session.UserMessage{ID: "m5", Role: "user", Source: session.MessageSource{
			Kind: session.FromPlugin, Plugin: "runtime", Sections: []string{"sandbox", "approvals"},
		}},
		&session.Interrupt{ID: "i1", Turn: 2, Reason: "stop", By: person()},
		&session.Cancel{ID: "c1", Reason: "enough", By: person()},
		&session.Nudge{ID: "n1", Reason: "no driver", By: person()},
		&session.Expired{ID: "x1", Ask: "q1", Reason: "an hour", By: person()},
		&session.Expired{ID: "x2"},
		&session.Budget{ID: "b1", Reason: "tokens", By: person()},
		&session.Closed{ID: "d1", Child: childID, Reason: "done", By: person()},
		&session.Archived{ID: "a1", Reason: "old", By: person()},
		&session.End{Outcome: session.OutcomeCancelled, Cancelled: []session.Seq{4, 6}, Reason: "cancel", By: person()},
		&session.End{Outcome: session.OutcomeCompleted},
	}
}

func turnSamples() []session.Payload {
	return []session.Payload{
		&session.Consumed{Turn: 1, Step: 2, Seqs: []session.Seq{3, 5}},
		&session.Consumed{Turn: 1, Seqs: []session.Seq{0}},
		&session.Claim{Epoch: 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart},
		&session.TurnStart{Turn: 1},
		&session.TurnEnd{Turn: 1, Reason: session.EndReason{Kind: session.EndAborted, By: "ann", Message: "stop"}, Extent: sampleExtent()},
		&session.TurnEnd{Turn: 1, Reason: session.EndReason{Kind: session.EndCompleted}},
		&session.TurnPark{Turn: 1, WaitsFor: []session.Wait{{Kind: session.WaitChild, ID: string(childID)}, {Kind: session.WaitApproval, ID: "q1"}}},
		&session.TurnWake{Turn: 1},
		&session.TurnDeferred{Seqs: []session.Seq{3}, Until: 1700000000000, Why: "no worker for the label"},
		&session.StepStart{Turn: 1, Step: 1},
		&session.StepEnd{Turn: 1, Step: 1, Extent: sampleExtent()},
		&session.RequestHeader{Turn: 1, Step: 1, Provider: "openai", Model: "m1", Tools: []string{"read"}, System: "sha256:0", Attempt: 2},
		&session.RequestHeader{Turn: 1, Step: 1, Provider: "openai", Model: "m1"},
		&session.AssistantMessage{
			Turn: 1, Step: 1, Content: "two calls", Calls: []int{0, 1}, Model: "m1-2026", Finish: "tool_calls",
			Usage: &session.Usage{InputTokens: 10, OutputTokens: 2, CachedTokens: 8}, Extent: sampleExtent(),
		},
		&session.AssistantMessage{Turn: 1, Step: 1},
	}
}

func callSamples() []session.Payload {
	link := session.Link{3}
	return []session.Payload{
		&session.ToolCall{Turn: 1, Step: 1, CallID: "1.1.0", ModelID: "call_0", Name: "bash", Arguments: `{"command":"ls"}`},
		&session.ToolCall{Turn: 1, Step: 1, Index: 1, CallID: "1.1.1", Name: "bash"},
		&session.ToolDecision{
			CallID: "1.1.0", Verdict: session.Allow, Mode: session.WorkspaceWrite, Basis: sampleBasis(), By: session.StagePolicy,
			Child: childID, ChildLink: &link, Revision: 7, Settings: "sha256:1",
			Defaults: &session.Defaults{Sandbox: session.ReadOnly, Approval: session.Ask},
			LeftOut:  []session.Capability{session.CapabilityApprovals, session.CapabilitySandbox},
		},
		&session.ToolDecision{
			CallID: "1.1.0", Verdict: session.Deny, Mode: session.ReadOnly, Basis: sampleBasis(), By: "rule:no-push", Reason: "push", Final: true,
		},
		&session.ToolDecision{
			CallID: "1.1.0", Verdict: session.Allow, Mode: session.DangerFullAccess, Basis: sampleBasis(), By: session.StageApproval, Network: session.NetworkAllow, Grant: "q1",
		},
		&session.ToolDecision{CallID: "1.1.0", Verdict: session.AskPerson, Mode: session.ReadOnly, Basis: sampleBasis(), By: session.StageReviewer},
		&session.ToolResult{
			Turn: 1, Step: 1, CallID: "1.1.0", Content: "[sandbox]", IsError: true, Code: session.CodeSandboxDenied, Denied: true,
			Child: childID, Extent: sampleExtent(),
		},
		&session.ToolResult{
			Turn: 1, Step: 1, CallID: "1.1.2", Content: "[ended]", IsError: true, Extent: sampleExtent(), Effect: &session.Effect{
				ExitCode: 152, Signal: "SIGXCPU", TimedOut: true, Truncated: true, Limit: session.LimitCPU, Denial: session.DenialSuspected,
				Sandbox: session.Confinement{
					Mode: session.WorkspaceWrite, Network: session.NetworkLoopback, Tier: session.TierNamespaces,
					Enforcement: session.EnforcedPartly, Gaps: []session.Gap{"gap-one", "gap-two"},
				},
			},
		},
		&session.ToolResult{Turn: 1, Step: 1, CallID: "1.1.1"},
		&session.ToolDecision{
			CallID: "1.1.0", Verdict: session.Deny, Mode: session.ReadOnly, By: session.StageFilter, Basis: session.Basis{
				Sandbox: session.Ground{Value: "read-only"}, Approval: session.Ground{Value: "never"},
			},
		},
		&session.ApprovalAsked{
			ID: "q1", CallID: "1.1.0", ToolName: "bash", Digest: sessiontest.Digest("{}"), Mode: session.DangerFullAccess,
			Basis: sampleBasis(), Reason: "needs the network",
		},
		&session.ApprovalDecided{ID: "q1", Outcome: session.AllowedOnce, By: person()},
		&session.ApprovalDecided{ID: "q1", Outcome: session.Rejected},
	}
}
