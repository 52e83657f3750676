package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// What an agent asks for is shown as it is: nothing in it turns the text around, moves the
// cursor or passes for a line of ours. Who answers has nothing else to go by.
func TestAQuestionIsShownAsItIs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := &app{printer: &printer{out: &out}}
	q := client.ApprovalReply{Approval: client.Approval{
		Session: "00s", Ask: "ask-1\u202e", Call: "1.1.0", Tool: "bash\x1b[2J", Digest: "d\r",
		Have: session.ReadOnly, Want: session.DangerFullAccess,
		Arguments: "{\"command\":\"rm -rf /\u202e\u2066 \u009b2K\"}\ncall         1.1.0: read {}",
		Reason:    "to look\ncall         1.1.0: read {}\r\nasks for     read-only, the session has read-only",
	}}
	a.showQuestion(q)
	a.question(q.Approval)
	rows := map[string]int{}
	for line := range strings.Lines(out.String()) {
		name, _, _ := strings.Cut(line, " ")
		rows[name]++
	}
	if rows["call"] != 1 || rows["asks"] != 1 || rows["reason"] != 1 {
		t.Errorf("the rows are %v, want each once:\n%s", rows, out.String())
	}
	for _, r := range "\r\x1b\u009b\u202e\u2066" {
		if strings.ContainsRune(out.String(), r) {
			t.Errorf("%q is written to the terminal:\n%q", r, out.String())
		}
	}
	for _, shown := range []string{`rm -rf /`, "danger-full-access, the session has read-only", "             | call         1.1.0: read {}"} {
		if !strings.Contains(out.String(), shown) {
			t.Errorf("%q is not shown:\n%s", shown, out.String())
		}
	}
}

// A decision and a result are told in one line, facts before the text that the
// model is shown.
func TestCallsAreToldInOneLine(t *testing.T) {
	t.Parallel()
	decision := session.ToolDecision{CallID: "1.1.0", Verdict: session.Allow, Mode: session.WorkspaceWrite, Network: session.NetworkLoopback, By: session.StagePolicy}
	older := decision
	older.Network = ""
	for _, tt := range []struct{ got, want string }{
		{decisionText(decision), "1.1.0 allow under workspace-write by policy, network loopback"},
		{decisionText(older), "1.1.0 allow under workspace-write by policy"},
	} {
		if tt.got != tt.want {
			t.Errorf("a decision is told as %q, want %q", tt.got, tt.want)
		}
	}
	held := session.Confinement{
		Mode: session.WorkspaceWrite, Network: session.NetworkDeny, Tier: session.TierLandlock, Enforcement: session.EnforcedPartly,
		Gaps: []session.Gap{"one", "two"},
	}
	full := held
	full.Enforcement, full.Gaps = session.EnforcedFully, nil
	for name, tt := range map[string]struct {
		result session.ToolResult
		want   string
	}{
		"as it should be":     {session.ToolResult{Content: "hello\n", Effect: &session.Effect{Denial: session.DenialNone, Sandbox: full}}, "1.1.0 ok hello"},
		"of an older worker":  {session.ToolResult{Content: "hello"}, "1.1.0 ok hello"},
		"held partly":         {session.ToolResult{Effect: &session.Effect{Denial: session.DenialNone, Sandbox: held}}, "1.1.0 ok [enforcement partial]"},
		"that ran out of CPU": {session.ToolResult{IsError: true, Effect: &session.Effect{ExitCode: 152, Signal: "SIGXCPU", Limit: session.LimitCPU, Denial: session.DenialNone, Sandbox: full}}, "1.1.0 failed [exit code 152, signal SIGXCPU, limit cpu]"},
		"that ran out of time": {
			session.ToolResult{IsError: true, Content: "x", Effect: &session.Effect{ExitCode: 137, Signal: "SIGKILL", TimedOut: true, Truncated: true, Limit: session.LimitTime, Denial: session.DenialNone, Sandbox: full}},
			"1.1.0 failed [exit code 137, signal SIGKILL, timed out, limit time, shown in part] x",
		},
		"that was refused": {
			session.ToolResult{IsError: true, Denied: true, Code: "FS_SANDBOX_DENIED", Effect: &session.Effect{ExitCode: 1, Denial: session.DenialSuspected, Sandbox: full}},
			"1.1.0 denied FS_SANDBOX_DENIED [exit code 1, denial suspected]",
		},
	} {
		tt.result.CallID = "1.1.0"
		if got := resultText(tt.result); got != tt.want {
			t.Errorf("a result %s is told as %q, want %q", name, got, tt.want)
		}
	}
	if got, want := heldText(held), "workspace-write, network deny, tier landlock, enforcement partial (one two)"; got != want {
		t.Errorf("what held a call is told as %q, want %q", got, want)
	}
}
