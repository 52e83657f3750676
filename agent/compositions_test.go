package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// composed is a deployment with some of the three capabilities.
type composed struct {
	*world
	t    *testing.T
	c    policy.Composition
	k    *worker
	next int // number of the next worker
}

// replaceWorker kills the worker and starts another one.
func (w *composed) replaceWorker() {
	if w.k != nil {
		w.k.die(w.t)
	}
	w.next = w.next%2 + 1
	w.k = w.work(fmt.Sprintf("w%d", w.next), 3)
}

// create is world.root for a request that may be refused.
func (w *composed) create(script string, change ...func(*client.CreateRequest)) (session.ID, error) {
	id, err := session.RootID(ulid.Make().String(), 1)
	w.must(err)
	in := client.CreateRequest{
		Head: head, ID: id, Cwd: w.dir, Label: "root", Prompt: "go", Surface: session.SurfaceAny,
		Model: client.Model{Provider: "scripted", Model: "test", Script: script},
	}
	for _, fn := range change {
		fn(&in)
	}
	return id, w.api.Call(w.t.Context(), client.MethodCreate, in, nil)
}

// set switches a session's sandbox mode, which may be refused.
func (w *composed) set(id session.ID, m session.SandboxMode) error {
	return w.api.Call(w.t.Context(), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: id, Sandbox: m}, nil)
}

// possible wants what needs capabilities to be done where they are there, and to be
// refused by name where one is not. It reports whether they are there.
func (w *composed) possible(err error, there bool) bool {
	w.t.Helper()
	if there {
		w.must(err)
		return true
	}
	if client.CodeOf(err) != client.Code(policy.CodeLeftOut) || !strings.Contains(err.Error(), "left out") {
		w.t.Errorf("without a capability: %v, want %s and which", err, policy.CodeLeftOut)
	}
	return false
}

// turn waits for the end of a turn.
func (w *composed) turn(id session.ID, n int) []session.Event {
	w.t.Helper()
	w.until(id, fmt.Sprintf("the end of turn %d", n), func(s session.State) bool {
		return s.Open == nil && s.LastEnd != nil && s.LastEnd.Turn >= n && len(s.Pending) == 0
	})
	return w.open(id).Events()
}

// child is the n-th child of a session, once its turn has ended.
func (w *composed) child(events []session.Event, n int) (session.ID, []session.Event) {
	w.t.Helper()
	ids := children(events)
	if len(ids) <= n {
		w.t.Fatalf("%d children, want %d:\n%s", len(ids), n+1, list(events))
	}
	s, _ := w.open(ids[n]).State()
	return ids[n], w.turn(ids[n], s.Turn)
}

// handed wants a child's own policy events to be exactly what a parent with this
// override and identity hands down: they are in its genesis.
func (w *composed) handed(id session.ID, mode session.SandboxMode, preset session.Preset) {
	w.t.Helper()
	raw, err := w.log.Genesis(w.t.Context(), id, "")
	w.must(err)
	rec, err := session.DecodeRecord(raw)
	w.must(err)
	var got, want []string
	for _, e := range rec.Birth.First.Events {
		switch p := e.Payload.(type) {
		case *session.SandboxSwitch:
			got = append(got, fmt.Sprintf("sandbox %s %s", p.Mode, p.Source))
		case *session.ApprovalSwitch:
			got = append(got, fmt.Sprintf("approval %s %s", p.Policy, p.Source))
		case *session.PresetSwitch:
			got = append(got, fmt.Sprintf("preset %s", p.Preset))
		}
	}
	if mode != "" {
		want = append(want, fmt.Sprintf("sandbox %s delegation", mode))
	}
	if w.c.Approvals {
		want = append(want, "approval never delegation")
	}
	if preset != "" {
		want = append(want, "preset "+string(preset))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("the policy in the genesis of %s (-want +got):\n%s", id, diff)
	}
}

// wrote wants every call of a log to have been refused, or none.
func (w *composed) wrote(events []session.Event, ok bool, files ...string) {
	w.t.Helper()
	results := payloads[*session.ToolResult](events)
	if len(results) == 0 {
		w.t.Error("no call was made")
	}
	for _, r := range results {
		if r.Denied == ok || r.IsError == ok {
			w.t.Errorf("call %s: %+v, want it to be allowed: %t", r.CallID, r, ok)
		}
	}
	for _, f := range files {
		if exists(w.path(f)) != ok {
			w.t.Errorf("%s is there: %t, want %t", f, !ok, ok)
		}
	}
}

const (
	rootDelegates = "    - calls: [{id: d, tool: delegate, args: {kind: %s, label: %s, prompt: try, mode: %s, background: %t}}]\n    - text: told\n"
	childWrites   = `
  %[2]s:
    - calls:
        - {id: w, tool: write, args: {path: %[1]s-write, content: x}}
        - {id: b, tool: bash, args: {command: "echo x > %[1]s-bash"}}
    - text: tried
    - calls: [{id: w, tool: write, args: {path: %[1]s-again, content: x}}]
    - text: tried again
`
)

// story is a root that says something, then delegates, twice if it is asked again, and
// children that write.
func story(kind, mode, file string) string {
	var b strings.Builder
	b.WriteString("\nsessions:\n  root:\n    - text: first\n")
	for _, label := range []string{"child", "second"} {
		fmt.Fprintf(&b, rootDelegates, kind, label, mode, mode == "continuable")
		if mode == "continuable" { // whose notice is a message of its own
			b.WriteString("    - text: heard\n")
		}
	}
	b.WriteString(strings.Repeat("    - text: heard\n", 3))
	return b.String() + fmt.Sprintf(childWrites, file, "child") + fmt.Sprintf(childWrites, file+"-second", "second")
}

func flags(m session.SandboxMode) func(*client.CreateRequest) {
	return func(in *client.CreateRequest) { in.Sandbox = m }
}

// The ten steps of the demo, in a deployment with some capabilities. What needs one
// that is left out is refused by name, and everything else holds (SPEC 2.6).
var composedSteps = []struct {
	name string
	run  func(*composed)
}{
	{"an unswitched parent hands down the pin alone, and its child obeys the default", func(w *composed) {
		id, err := w.create(story("spawn", "continuable", "s1"))
		w.must(err)
		w.turn(id, 1)
		w.send(id, "delegate")
		kid, events := w.child(w.turn(id, 2), 0)
		w.handed(kid, "", "")
		w.wrote(events, true, "s1-write", "s1-bash")
		w.defaults(session.ReadOnly)
		w.send(kid, "again")
		w.wrote(w.turn(kid, 2)[len(events):], false, "s1-again")
		w.defaults(session.WorkspaceWrite)
	}},
	{"the child of a read-only parent is read-only with its first event", func(w *composed) {
		id, err := w.create(story("spawn", "one-shot", "s2"), flags(session.ReadOnly))
		if !w.possible(err, w.c.Sandbox) {
			return
		}
		w.turn(id, 1)
		w.send(id, "delegate")
		kid, events := w.child(w.turn(id, 2), 0)
		w.handed(kid, session.ReadOnly, "")
		w.wrote(events, false, "s2-write", "s2-bash")
	}},
	{"and that of a parent that was switched before its worker was replaced", func(w *composed) {
		id, err := w.create(story("spawn", "one-shot", "s3"))
		w.must(err)
		w.turn(id, 1)
		there := w.possible(w.set(id, session.ReadOnly), w.c.Sandbox)
		w.replaceWorker()
		w.send(id, "delegate")
		kid, events := w.child(w.turn(id, 2), 0)
		if there {
			w.handed(kid, session.ReadOnly, "")
		} else {
			w.handed(kid, "", "")
		}
		w.wrote(events, !there, "s3-write", "s3-bash")
	}},
	{"a fork whose history was workspace-write is read-only, as its parent is now", func(w *composed) {
		id, err := w.create(story("fork", "one-shot", "s4"), flags(session.WorkspaceWrite))
		if !w.possible(err, w.c.Sandbox) {
			return
		}
		w.turn(id, 1)
		w.must(w.set(id, session.ReadOnly))
		w.send(id, "delegate")
		kid, events := w.child(w.turn(id, 2), 0)
		w.handed(kid, session.ReadOnly, "")
		w.wrote(events, false, "s4-write", "s4-bash")
	}},
	{"a fork has the captured identity", func(w *composed) {
		id, err := w.create(story("fork", "one-shot", "s5"), func(in *client.CreateRequest) { in.Preset = session.PresetFullAccess })
		if !w.possible(err, w.c.Sandbox && w.c.Presets) {
			return
		}
		w.turn(id, 1)
		w.send(id, "delegate")
		kid, events := w.child(w.turn(id, 2), 0)
		w.handed(kid, session.DangerFullAccess, session.PresetFullAccess)
		w.wrote(events, true, "s5-write", "s5-bash")
	}},
	{"a switch after a delegation does not reach that child, and the next one has it", func(w *composed) {
		id, err := w.create(story("spawn", "continuable", "s6"))
		w.must(err)
		w.turn(id, 1)
		w.send(id, "delegate")
		first, events := w.child(w.turn(id, 2), 0)
		w.wrote(events, true, "s6-write", "s6-bash")
		w.until(id, "the notice is answered", func(s session.State) bool { return s.Steps == 4 && s.Open == nil })
		if !w.possible(w.set(id, session.ReadOnly), w.c.Sandbox) {
			return
		}
		w.send(id, "delegate again")
		w.until(id, "a second child", func(session.State) bool { return len(children(w.open(id).Events())) == 2 })
		second := children(w.open(id).Events())[1]
		w.handed(second, session.ReadOnly, "")
		w.wrote(w.turn(second, 1), false, "s6-second-write", "s6-second-bash")
		w.send(first, "again")
		w.wrote(w.turn(first, 2), true, "s6-again")
	}},
	{"an escalation in a child is refused and nobody is asked", func(w *composed) {
		id, err := w.create(`
sessions:
  root:
    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: child, prompt: try}}]
    - text: told
  child:
    - calls: [{id: w, tool: write, args: {path: s7, content: x, sandbox_permissions: danger-full-access, justification: please}}]
    - text: tried
`)
		w.must(err)
		_, events := w.child(w.turn(id, 1), 0)
		w.wrote(events, false, "s7")
		asked, decided := payloads[*session.ApprovalAsked](events), payloads[*session.ApprovalDecided](events)
		if want := w.c.Sandbox && w.c.Approvals; len(asked) != len(decided) || want != (len(asked) == 1 && decided[0].Outcome == session.Rejected) {
			w.t.Errorf("asked %v and decided %v, want the pair: %t", asked, decided, want)
		}
		if n := len(payloads[*session.TurnPark](events)); n != 0 {
			w.t.Errorf("the child waited %d times", n)
		}
	}},
	{"a grandchild is read-only too; a person's switch in the child wins, and is told", func(w *composed) {
		id, err := w.create(`
sessions:
  root:
    - calls: [{id: d, tool: delegate, args: {kind: spawn, mode: continuable, label: middle, prompt: try, background: true}}]
    - text: told
    - text: heard
    - text: heard
  middle:
    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: child, prompt: try}}]
    - text: told
    - calls: [{id: w, tool: write, args: {path: s8-again, content: x}}]
    - text: tried
`+fmt.Sprintf(childWrites, "s8", "child"), flags(session.ReadOnly))
		if !w.possible(err, w.c.Sandbox) {
			return
		}
		w.turn(id, 1)
		middle := children(w.open(id).Events())[0]
		before := w.turn(middle, 1)
		grand, events := w.child(before, 0)
		w.handed(grand, session.ReadOnly, "")
		w.wrote(events, false, "s8-write", "s8-bash")
		w.must(w.set(middle, session.WorkspaceWrite))
		w.send(middle, "again")
		after := w.turn(middle, 2)
		w.wrote(after[len(before):], true, "s8-again")
		told := slices.ContainsFunc(payloads[*session.UserMessage](after), func(m *session.UserMessage) bool {
			return m.Source.Form == "notice" && strings.Contains(m.Content, `from "read-only" to "workspace-write"`)
		})
		if !told {
			w.t.Error("the switch was not told")
		}
	}},
	{"a worker that dies in the middle of a delegation leaves one child, and turns that finish", func(w *composed) {
		id, err := w.create(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: child, prompt: try}}]
    - text: told
  child:
    - {text: done, wait_for: %q}
`, w.path("s9")))
		w.must(err)
		w.until(id, "a child", func(s session.State) bool { return len(s.Children) == 1 })
		w.replaceWorker()
		w.must(os.WriteFile(w.path("s9"), nil, 0o600))
		events := w.turn(id, 1)
		onceEach(w.t, events)
		if n := len(children(events)); n != 1 {
			w.t.Errorf("%d children, want one", n)
		}
		kid, _ := w.child(events, 0)
		w.handed(kid, "", "")
	}},
	{"every call explains itself by its log", func(w *composed) {
		id, err := w.create("\nsessions:\n  root:\n    - calls: [{id: w, tool: write, args: {path: s10, content: x}}]\n    - text: done\n")
		w.must(err)
		events := w.turn(id, 1)
		w.wrote(events, true, "s10")
		var out client.CallReply
		w.must(w.api.Call(w.t.Context(), client.MethodCallExplain, client.CallRequest{Head: head, ID: id, Call: "1.1.0"}, &out))
		d := payloads[*session.ToolDecision](events)[0]
		if text, err := json.Marshal(out); err != nil || !strings.Contains(string(text), `"mode":"`+string(d.Mode)) {
			w.t.Errorf("the explanation is %s (%v), want the mode of %+v", text, err, d)
		}
	}},
}

// defaults changes the deployment's default mode.
func (w *composed) defaults(m session.SandboxMode) {
	w.t.Helper()
	value, err := json.Marshal(m)
	w.must(err)
	w.must(w.api.Call(w.t.Context(), client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "defaults.sandbox", Value: value}, nil))
}

func TestSPEC2_6_EveryStepInAllCompositions(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	t.Cleanup(func() {
		if n := ran.Load(); n != 8*10 && !t.Failed() {
			t.Errorf("%d steps were run, want 10 in each of 8 compositions", n)
		}
	})
	for i := range 8 {
		c := policy.Composition{Sandbox: i&1 != 0, Approvals: i&2 != 0, Presets: i&4 != 0}
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			w := &composed{world: newWorld(t, func(s *policy.Settings) { s.Composition, s.Confinement.FullAccessAs = c, policy.AsWorker }), t: t, c: c}
			w.replaceWorker()
			for _, step := range composedSteps {
				t.Log(step.name)
				step.run(w)
				ran.Add(1)
			}
		})
	}
}
