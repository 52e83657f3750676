package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// A read-only parent's child is refused on the disk, and its log says by what.
func TestReadOnlyParentsChildIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, label: child, prompt: write}}]
    - text: finished
  child:
    - calls:
        - {id: w, tool: write, args: {path: blocked.txt, content: escaped}}
        - {id: b, tool: bash, args: {command: "echo escaped > blocked.txt"}}
        - {id: e, tool: bash, args: {command: "echo escaped > blocked.txt", sandbox_permissions: workspace-write, justification: please}}
    - text: child done
`, func(in *client.CreateRequest) { in.Sandbox = session.ReadOnly })
	w.idle(id)
	child := children(w.open(id).Events())[0]
	s := w.until(child, "ended", func(s session.State) bool { return s.Ended != nil })
	if s.Ended.Outcome != session.OutcomeDenials || s.Denials != 3 {
		t.Errorf("the child ended %q with %d denials, want %q with 3", s.Ended.Outcome, s.Denials, session.OutcomeDenials)
	}
	if exists(w.path("blocked.txt")) {
		t.Error("the file was written")
	}
	events := w.open(child).Events()
	onceEach(t, events)
	for _, call := range []session.CallID{"1.1.0", "1.1.1"} {
		r := resultOf(t, events, call)
		if !r.Denied || !strings.Contains(r.Content, "[sandbox: file access denied under read-only mode]") {
			t.Errorf("result of %s is %+v, want the marker", call, r)
		}
		if strings.Contains(r.Content, "escalation") {
			t.Errorf("result of %s offers an escalation where nobody may ask: %q", call, r.Content)
		}
	}
	asked, decided := payloads[*session.ApprovalAsked](events), payloads[*session.ApprovalDecided](events)
	if len(asked) != 1 || len(decided) != 1 || decided[0].Outcome != session.Rejected {
		t.Errorf("asked %+v, decided %+v; want one question, rejected unasked", asked, decided)
	}
	told := agent.Messages(events)
	if !strings.Contains(told[0].Text+told[1].Text, "delegation: you are a child session") {
		t.Errorf("the child was not told of its scope: %+v", told[:2])
	}
}

// Where there is nobody to ask, a question's outcome is unavailable at once, and asked
// and decided stand in the log before the denial (SPEC 5.7).
func TestAskIsUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(wantsMore, func(in *client.CreateRequest) { in.Surface = session.SurfaceNone })
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	decided := payloads[*session.ApprovalDecided](events)
	if len(decided) != 1 || decided[0].Outcome != session.Unavailable {
		t.Errorf("decided %+v, want one, unavailable", decided)
	}
	decisions := payloads[*session.ToolDecision](events)
	if first := decisions[0]; first.CallID != "1.1.0" || first.Verdict != session.Deny || first.By != session.StageApproval {
		t.Errorf("the first decision is %+v, want a denial by approval", first)
	}
	if exists(w.path("x")) {
		t.Error("the file was written")
	}
}

// A denied call that is repeated 25 times, each time in other clothes, ends the turn
// at the third with an event and a text that says so, whoever refuses it: a decision,
// the fence around a file operation, or the fence around a command (SPEC 5.8).
func TestC4_DenialLoopsEnd(t *testing.T) {
	t.Parallel()
	bash := func(i int, more string) string {
		clothes := []string{"echo x > f", "A=1 echo   'x' > f", `echo \"x\" >./f`, `env B=2 echo x > 'f'`, "  echo x  >  a/../f"}
		return fmt.Sprintf(`{id: a, tool: bash, args: {command: "%s", timeout: %d%s}}`, clothes[i%len(clothes)], 5+i, more)
	}
	for name, call := range map[string]func(i int) string{
		"a command": func(i int) string { return bash(i, "") },
		"an escalation": func(i int) string {
			return bash(i, fmt.Sprintf(`, sandbox_permissions: workspace-write, justification: "try %d"`, i))
		},
		"a file": func(i int) string {
			return fmt.Sprintf(`{id: a, tool: write, args: {path: "%sf", content: x}}`, strings.Repeat("./", i%3))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var script strings.Builder
			script.WriteString("sessions:\n  root:\n")
			for i := range 25 {
				fmt.Fprintf(&script, "    - calls:\n        - %s\n        - {id: b, tool: list, args: {path: .}}\n", call(i))
			}
			w := newWorld(t)
			w.work("w1", 1)
			id := w.root(script.String()+"    - text: never said\n", func(in *client.CreateRequest) {
				in.Sandbox, in.Approvals = session.ReadOnly, session.Never
			})
			s := w.idle(id)
			events := w.open(id).Events()
			if r := s.LastEnd.Reason; r.Kind != session.EndBlocked || !strings.Contains(r.Message, "refused 3 times") || !strings.Contains(r.Message, "The last refusal said: ") {
				t.Errorf("the turn ended %+v, want blocked, and how often and why:\n%s", r, list(events))
			}
			if s.Steps != 3 || s.Denials != 3 {
				t.Errorf("%d model steps and %d denials, want 3 of each", s.Steps, s.Denials)
			}
			onceEach(t, events)
			if r := resultOf(t, events, "1.3.1"); r.Code != session.CodeToolNotStarted {
				t.Errorf("the call behind the third has the result %+v, want %s", r, session.CodeToolNotStarted)
			}
			if exists(w.path("f")) {
				t.Error("the file was written")
			}
		})
	}
}

// A parent is told that its child was stopped in a loop, and by what.
func TestC4_TheParentIsToldOfTheLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 2)
	const again = "    - calls: [{id: w, tool: write, args: {path: f, content: x}}]\n"
	id := w.root(`
sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, label: child, prompt: write}}]
    - text: done
  child:
`+strings.Repeat(again, 5), func(in *client.CreateRequest) { in.Sandbox = session.ReadOnly })
	w.idle(id)
	events := w.open(id).Events()
	r := resultOf(t, events, "1.1.0")
	if !strings.Contains(r.Content, "refused 3 times") || !strings.Contains(r.Content, "[sandbox: file access denied under read-only mode]") {
		t.Errorf("the parent is told %q, want the loop and the last refusal", r.Content)
	}
	child, _ := w.open(children(events)[0]).State()
	if child.Ended == nil || child.Ended.Outcome != session.OutcomeDenials || !strings.Contains(child.Ended.Reason, "refused 3 times") {
		t.Errorf("the child ended %+v, want for denials, and why", child.Ended)
	}
}

// What fails is not refused, whatever it says of itself and however often it is
// repeated: a command that prints that it was blocked and exits with 1, one whose file
// is missing, and a call that nothing could confine here.
func TestC4_FailuresAreNoDenials(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call string
		code string
	}{
		"blocked by policy": {`{id: a, tool: bash, args: {command: "echo blocked by policy; echo denied >&2; exit 1"}}`, ""},
		"permission denied": {`{id: a, tool: bash, args: {command: "echo 'permission denied'; echo 'Permission denied' >&2; exit 1"}}`, ""},
		"no such file":      {`{id: a, tool: read, args: {path: missing}}`, "FS_NOT_FOUND"},
		"not confined":      {`{id: a, tool: bash, args: {command: "echo x"}}`, session.CodeSandboxUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *policy.Settings) {
				if tt.code == session.CodeSandboxUnavailable {
					s.Confinement.Require = session.TierNamespaces
				}
			})
			w.work("w1", 1, func(c *agent.Config) {
				if tt.code == session.CodeSandboxUnavailable { // a host that gives no more
					r, err := sandbox.New(sandbox.Config{Best: session.TierLandlock})
					w.must(err)
					c.Runner = r
				}
			})
			s := w.idle(w.root("sessions:\n  root:\n" + strings.Repeat("    - calls: ["+tt.call+"]\n", 10) + "    - text: done\n"))
			if s.LastEnd.Reason.Kind != session.EndCompleted || s.Steps != 11 || s.Denials != 0 {
				t.Errorf("the turn ended %+v after %d steps with %d denials, want completed after 11 with none", s.LastEnd.Reason, s.Steps, s.Denials)
			}
			events := w.open(s.Header.ID).Events()
			for _, r := range payloads[*session.ToolResult](events) {
				if !r.IsError || r.Denied || r.Code != tt.code {
					t.Errorf("result of %s is %+v, want a failure with code %q that is no denial", r.CallID, r, tt.code)
				}
			}
		})
	}
}

// Calls that make no sense are closed as not started and count as no denial.
func TestSenselessCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - calls:
        - {id: a, tool: write, args: {path: 7, content: x}}
        - {id: b, tool: write, args: {path: f, content: x, mode: 0644}}
        - {id: c, tool: read, args: {}}
        - {id: d, tool: bash, args: {command: "touch f", sandbox_permissions: danger-full-access}}
        - {id: e, tool: delegate, args: {kind: clone, label: l, prompt: p}}
    - text: done
`)
	s := w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	for _, call := range []session.CallID{"1.1.0", "1.1.1", "1.1.2", "1.1.3", "1.1.4"} {
		if r := resultOf(t, events, call); r.Code != session.CodeToolNotStarted || r.Denied {
			t.Errorf("result of %s is %+v, want %s and no denial", call, r, session.CodeToolNotStarted)
		}
	}
	if s.Denials != 0 || exists(w.path("f")) {
		t.Errorf("%d denials, want none; file written: %t", s.Denials, exists(w.path("f")))
	}
}

// Reads run beside each other and share one commit; what they return is the
// disk's.
func TestReadsShareACommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(os.WriteFile(w.path("one.txt"), []byte("first\n"), 0o600))
	w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - calls:
        - {id: a, tool: read, args: {path: one.txt}}
        - {id: b, tool: grep, args: {pattern: fir}}
        - {id: c, tool: list, args: {path: .}}
        - {id: d, tool: edit, args: {path: one.txt, old: first, new: second}}
        - {id: e, tool: read, args: {path: one.txt}}
    - text: done
`)
	w.idle(id)
	r := w.open(id)
	events := r.Events()
	onceEach(t, events)
	for call, want := range map[session.CallID]string{"1.1.0": "first", "1.1.1": "first", "1.1.2": "one.txt", "1.1.4": "second"} {
		if got := resultOf(t, events, call); got.IsError || !strings.Contains(got.Content, want) {
			t.Errorf("result of %s is %+v, want %q in it", call, got, want)
		}
	}
	var seqs []session.Seq
	for _, e := range events {
		if e.Type == session.TypeToolDecision {
			seqs = append(seqs, e.Seq)
		}
	}
	if len(seqs) != 5 || seqs[1] != seqs[0]+1 || seqs[2] != seqs[0]+2 || seqs[4] < seqs[3]+2 {
		t.Errorf("decisions stand at %v, want the three reads together and the others apart", seqs)
	}
}

// Several delegations of one step run beside each other under one wait, and a
// denied one among them does not stop the others.
func TestDelegationsOfAStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *policy.Settings) { s.Caps.Live = 2 })
	w.work("w1", 2)
	refused := filepath.Join(t.TempDir(), "the third was refused")
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls:
        - {id: call_0, tool: delegate, args: {kind: spawn, label: a, prompt: p}}
        - {id: call_0, tool: delegate, args: {kind: spawn, label: b, prompt: p}}
        - {id: call_0, tool: delegate, args: {kind: spawn, label: c, prompt: p}}
    - text: done
  a: [{text: a says, wait_for: %[1]q}]
  b: [{text: b says, wait_for: %[1]q}]
`, refused))
	// Both live until then: a child that ended would make room.
	w.until(id, "an answer to the third", func(s session.State) bool {
		c, ok := s.Call("1.1.2")
		return ok && c.State == session.CallEnded
	})
	if err := os.WriteFile(refused, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if ids := children(events); len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("children %v, want two", ids)
	}
	for call, want := range map[session.CallID]string{"1.1.0": "a says", "1.1.1": "b says"} {
		if r := resultOf(t, events, call); r.IsError || !strings.Contains(r.Content, want) {
			t.Errorf("result of %s is %+v, want %q in it", call, r, want)
		}
	}
	if r := resultOf(t, events, "1.1.2"); !r.Denied {
		t.Errorf("the third delegation's result is %+v, want a denial: two may live", r)
	}
	if s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the turn ended %q", s.LastEnd.Reason.Kind)
	}
}

// A child in the background answers by a notice, which is an ordinary message.
func TestBackgroundChild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 2)
	id := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, label: child, prompt: p, background: true}}]
    - text: went on
    - text: heard of it
  child: [{text: the news}]
`)
	w.until(id, "told and idle", func(s session.State) bool {
		return s.Open == nil && s.LastEnd != nil && len(s.Children) == 0 && len(s.Pending) == 0
	})
	events := w.open(id).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.0"); r.IsError || !strings.Contains(r.Content, "Started") {
		t.Errorf("the delegating call's result is %+v, want that the child was started", r)
	}
	seen := 0
	for _, m := range agent.Messages(events) {
		if strings.Contains(m.Text, "the news") {
			seen++
		}
	}
	if seen != 1 {
		t.Errorf("the model sees the notice %d times, want once", seen)
	}
}

// When a change of the default has returned, no call is decided under the old one
// (SPEC 2.1), also not the next call of a step that is under way.
func TestChangedDefaultBindsTheNextCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls:
        - {id: a, tool: bash, args: {command: %q}}
        - {id: b, tool: write, args: {path: second, content: x}}
    - text: done
`, hold))
	eventually(t, "the first call runs", func() bool { return w.ran() == 1 })
	var reply client.ConfigReply
	w.must(w.api.Call(t.Context(), client.MethodConfigSet, client.ConfigSetRequest{
		Head: head, Path: "defaults.sandbox", Value: json.RawMessage(`"read-only"`),
	}, &reply))
	if len(reply.Stragglers) != 0 {
		t.Errorf("stragglers %v, want none: the worker renews while a call runs", reply.Stragglers)
	}
	w.letGo()
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.1"); !r.Denied || exists(w.path("second")) {
		t.Errorf("the call after the change has result %+v, want a denial", r)
	}
	for _, d := range payloads[*session.ToolDecision](events) {
		if d.CallID == "1.1.1" && d.Revision != reply.Revision {
			t.Errorf("it was decided at revision %d, want %d", d.Revision, reply.Revision)
		}
	}
}
