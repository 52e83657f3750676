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

// The same call, refused three times however it is written, ends the turn
// (SPEC 5.8).
func TestRepeatedRefusalEndsTheTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: bash, args: {command: "echo x > f"}}]
    - calls: [{id: a, tool: bash, args: {command: "A=1 echo   'x' > f", timeout: 5}}]
    - calls:
        - {id: a, tool: bash, args: {command: "echo \"x\" > f"}}
        - {id: b, tool: bash, args: {command: "touch other"}}
    - text: never said
`, func(in *client.CreateRequest) { in.Sandbox = session.ReadOnly })
	s := w.idle(id)
	if r := s.LastEnd.Reason; r.Kind != session.EndBlocked || !strings.Contains(r.Message, "bash") {
		t.Errorf("the turn ended %+v, want blocked, naming the tool", r)
	}
	if s.Steps != 3 {
		t.Errorf("%d model steps, want 3", s.Steps)
	}
	events := w.open(id).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.3.1"); r.Code != session.CodeToolNotStarted {
		t.Errorf("the call behind it has result %+v, want %s", r, session.CodeToolNotStarted)
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
