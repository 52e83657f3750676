package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/session"
)

// spoken lists a conversation in short: role, ids of calls, text.
func spoken(events []session.Event) []string {
	var out []string
	for _, m := range agent.Messages(events) {
		who := []string{string(m.Role)}
		for _, c := range m.Calls {
			who = append(who, c.ID)
		}
		if m.CallID != "" {
			who = append(who, m.CallID)
		}
		out = append(out, strings.Join(who, " ")+": "+m.Text)
	}
	return out
}

func TestMessages(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		build func(*ledger) *ledger
		want  []string
	}{
		{"a message is seen where it was consumed", func(l *ledger) *ledger {
			return l.opened().inbox(prompt("p2"))
		}, []string{"user: p1"}},
		{"results stand in the order of the calls", func(l *ledger) *ledger {
			return l.answered("read", "read").allowed("1.1.0").allowed("1.1.1").result("1.1.1").result("1.1.0")
		}, []string{"user: p1", "assistant 1.1.0 1.1.1: text", "tool 1.1.0: ok", "tool 1.1.1: ok"}},
		{"nothing stands between a call and its result", func(l *ledger) *ledger {
			l.answered("read").inbox(prompt("p2"))
			return l.turn(&session.Consumed{Turn: 1, Step: 1, Seqs: []session.Seq{l.f.State.Next - 1}}).allowed("1.1.0").result("1.1.0")
		}, []string{"user: p1", "assistant 1.1.0: text", "tool 1.1.0: ok", "user: p2"}},
		{"a notice that answers a call is its result alone", func(l *ledger) *ledger {
			l.answered("delegate").allowed("1.1.0").notice("1.1.0")
			record, _, err := agent.Plan(l.f)
			if err != nil {
				l.t.Fatal(err)
			}
			return l.turn(record[:2]...)
		}, []string{"user: p1", "assistant 1.1.0: text", "tool 1.1.0: said"}},
		{"another notice is a message", func(l *ledger) *ledger {
			l.answered("delegate").allowed("1.1.0").result("1.1.0").notice("1.1.0")
			return l.turn(&session.Consumed{Turn: 1, Step: 1, Seqs: []session.Seq{l.f.State.Next - 1}})
		}, []string{"user: p1", "assistant 1.1.0: text", "tool 1.1.0: ok", "user: [entail] said"}},
		{"a call without a result gets one", func(l *ledger) *ledger {
			return l.answered("bash").allowed("1.1.0")
		}, []string{"user: p1", "assistant 1.1.0: text", "tool 1.1.0: [TOOL_OUTCOME_UNKNOWN] no result"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, spoken(tt.build(newLedger(t)).f.Events)); diff != "" {
				t.Errorf("conversation (-want +got):\n%s", diff)
			}
		})
	}
}

// told returns what a driver would tell the model now, by form.
func told(t *testing.T, l *ledger) map[string]*session.UserMessage {
	t.Helper()
	record, _, err := agent.Plan(l.f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*session.UserMessage{}
	for _, p := range record {
		if m, ok := p.(*session.UserMessage); ok {
			out[m.Source.Form] = m
		}
	}
	return out
}

// SPEC 4.12: the runtime context comes before the first model request, in the
// order sandbox, approvals, delegation, and the last is a child's alone.
func TestRuntimeContext(t *testing.T) {
	t.Parallel()
	root, child := told(t, newLedger(t))["snapshot"], told(t, newChild(t))["snapshot"]
	if diff := cmp.Diff([]string{"sandbox:policy", "approval:policy"}, root.Source.Sections); diff != "" {
		t.Errorf("a root's sections (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"sandbox:policy", "approval:policy", "subagent:delegation"}, child.Source.Sections); diff != "" {
		t.Errorf("a child's sections (-want +got):\n%s", diff)
	}
	if child.Source.Kind != session.FromPlugin || child.Source.Plugin != "entail" {
		t.Errorf("source %+v, want the plugin entail", child.Source)
	}
	sandbox, approvals, delegation := strings.Index(child.Content, "sandbox"), strings.Index(child.Content, "approvals"), strings.Index(child.Content, "delegation")
	if sandbox < 0 || approvals < sandbox || delegation < approvals {
		t.Errorf("the order is not sandbox, approvals, delegation:\n%s", child.Content)
	}
}

// A turn whose context has not changed is not told it again; one that has is.
func TestRuntimeContextWhenItChanged(t *testing.T) {
	t.Parallel()
	second := func(change func(*ledger)) map[string]*session.UserMessage {
		l := newLedger(t).opened()
		l.turn(told(t, l)["snapshot"], &session.AssistantMessage{Turn: 1, Step: 1, Content: "x"},
			&session.StepEnd{Turn: 1, Step: 1}, endTurn(session.EndCompleted))
		change(l)
		return told(t, l.inbox(prompt("p2")))
	}
	if got := second(func(*ledger) {}); len(got) != 0 {
		t.Errorf("told %v though nothing changed", got)
	}
	got := second(func(l *ledger) {
		l.add(session.ClassPolicy, &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: ada})
	})
	if got["snapshot"] == nil || !strings.Contains(got["snapshot"].Content, "workspace-write") {
		t.Errorf("after a switch: snapshot %+v, want the new mode in it", got["snapshot"])
	}
	want := `[entail] The sandbox mode changed from "read-only" to "workspace-write" (changed by a person).`
	if got["notice"] == nil || got["notice"].Content != want {
		t.Errorf("after a switch: notice %+v, want %q", got["notice"], want)
	}
	got = second(func(l *ledger) { l.f.Deployment.Defaults.Sandbox = session.WorkspaceWrite })
	if got["snapshot"] == nil || got["notice"] != nil {
		t.Errorf("after a change of the default: %v, want a snapshot and no notice: nobody switched here", got)
	}
}

// SPEC 2.5: a switch is told once, before the next model step, also within a
// turn; a delegation's values are not.
func TestNarration(t *testing.T) {
	t.Parallel()
	l := newChild(t).opened()
	first := told(t, l)
	if first["notice"] != nil {
		t.Errorf("a delegation was told as a switch: %q", first["notice"].Content)
	}
	l.turn(first["snapshot"]).add(session.ClassPolicy, &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: ada})
	notice := told(t, l)["notice"]
	if notice == nil || told(t, l)["snapshot"] != nil && notice.ID == told(t, l)["snapshot"].ID {
		t.Fatalf("a switch before the first answer: told %v, want a notice of its own", told(t, l))
	}
	for _, m := range told(t, l) {
		l.turn(m)
	}
	if got := told(t, l); len(got) != 0 {
		t.Errorf("told again: %v", got)
	}
}

// Every tool's schema is JSON and names each argument that its decoder wants.
func TestToolSchemas(t *testing.T) {
	t.Parallel()
	l := newLedger(t).opened()
	tools := l.f.Offered()
	if len(tools) != len(agent.Tools()) {
		t.Errorf("%d tools offered, want all %d", len(tools), len(agent.Tools()))
	}
	for _, tool := range tools {
		var schema struct {
			Properties map[string]any `json:"properties"`
			Required   []string       `json:"required"`
		}
		if err := json.Unmarshal(tool.Parameters, &schema); err != nil {
			t.Errorf("schema of %s: %v", tool.Name, err)
		}
		for _, r := range schema.Required {
			if schema.Properties[r] == nil {
				t.Errorf("schema of %s requires %q and does not describe it", tool.Name, r)
			}
		}
	}
}

// A filter limits what is offered.
func TestFilterLimitsTools(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	allow := []string{"read", "bash"}
	l.f.State.Descriptor = &session.Descriptor{ToolFilter: &session.ToolFilter{Allow: &allow, Deny: []string{"bash"}}}
	got := l.f.Offered()
	if len(got) != 1 || got[0].Name != "read" {
		t.Errorf("offered %v, want read alone", names(got))
	}
}

func names(tools []model.Tool) []string {
	var out []string
	for _, t := range tools {
		out = append(out, t.Name)
	}
	return out
}

// Two ways to write one call have one normal form, and one digest if only white
// space and the order of keys differ.
func TestNormalForm(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, tool, a, b string
		same             bool
	}{
		{"quotes and spaces", "bash", `{"command":"rm  'a'"}`, `{"command":"rm \"a\" "}`, true},
		{"variables in front", "bash", `{"command":"A=1 B=2 rm a"}`, `{"command":"rm a"}`, true},
		{"timeout and justification", "bash", `{"command":"rm a","timeout":3}`, `{"command":"rm a","justification":"x"}`, true},
		{"paths", "write", `{"path":"./a/../b","content":"x"}`, `{"content":"x","path":"/w/b"}`, true},
		{"another file", "write", `{"path":"a","content":"x"}`, `{"path":"b","content":"x"}`, false},
		{"another command", "bash", `{"command":"rm a"}`, `{"command":"rm b"}`, false},
		{"an escalation", "bash", `{"command":"rm a"}`, `{"command":"rm a","sandbox_permissions":"workspace-write"}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, b := agent.Normal("/w", tt.tool, tt.a), agent.Normal("/w", tt.tool, tt.b)
			if (a == b) != tt.same {
				t.Errorf("normal forms %q and %q, want the same: %t", a, b, tt.same)
			}
		})
	}
	if a, b := agent.Digest(`{"b":1, "a":2}`), agent.Digest(`{"a":2,"b":1}`); a != b || a == agent.Digest(`{"a":2,"b":1.0}`) {
		t.Errorf("digests %s and %s, want the same for the same arguments only", a, b)
	}
}

// A hint is acknowledged on a stable fact only.
func TestStable(t *testing.T) {
	t.Parallel()
	ended := func(l *ledger) *ledger {
		return l.turn(&session.StepEnd{Turn: 1, Step: 1}, endTurn(session.EndCompleted))
	}
	tests := []struct {
		name  string
		build func(*ledger) *ledger
		seq   func(*ledger) session.Seq // of the event that the hint is about
		want  bool
	}{
		{"a message that waits", untouched, first, false},
		{"one in an open turn", func(l *ledger) *ledger { return l.opened() }, first, false},
		{"one in an ended turn", func(l *ledger) *ledger { return ended(l.opened()) }, first, true},
		{"one in a parked turn", func(l *ledger) *ledger { return l.answered("delegate").allowed("1.1.0").park("1.1.0") }, first, true},
		{"one after the turn that ended", func(l *ledger) *ledger { return ended(l.opened()).inbox(prompt("p2")) }, last, false},
		{"an interrupt of the open turn", func(l *ledger) *ledger { return l.opened().inbox(interrupt()) }, last, false},
		{"an interrupt of an ended turn", func(l *ledger) *ledger { return ended(l.opened()).inbox(interrupt()) }, last, true},
		{"a cancel that waits", func(l *ledger) *ledger { return l.inbox(cancel()) }, last, false},
		{"a nudge", func(l *ledger) *ledger { return l.inbox(&session.Nudge{ID: "n", By: ada}) }, last, true},
		{"a genesis' model", untouched, func(l *ledger) session.Seq { return 0 }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := tt.build(newLedger(t))
			if got := l.f.Stable(tt.seq(l)); got != tt.want {
				t.Errorf("stable: %t, want %t; log:\n%s", got, tt.want, fmt.Sprint(spoken(l.f.Events)))
			}
		})
	}
}

func first(*ledger) session.Seq  { return 1 } // the prompt
func last(l *ledger) session.Seq { return l.f.State.Next - 1 }
