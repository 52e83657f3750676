package scenario_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// bystander is a process that no call started.
func bystander(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be gone, which the test has said
		_ = cmd.Wait()
	})
	return cmd
}

// attempts are the ways out of read-only that a child tries: each file tool, both
// redirections of the shell, and a signal to a process it did not start.
func attempts(pid int) string {
	return fmt.Sprintf(`
    - calls:
        - {tool: write, args: {path: notes/a.txt, content: mine}}
        - {tool: edit, args: {path: notes/old.txt, old: kept, new: mine}}
        - {tool: bash, args: {command: "echo mine > notes/b.txt"}}
        - {tool: bash, args: {command: "echo mine >> notes/old.txt"}}
        - {tool: bash, args: {command: "kill -TERM %d"}}
    - text: I tried`, pid)
}

// attempted wants four denials in a turn and a signal that did not arrive, a tree
// as it was and the bystander alive.
func (w *world) attempted(child session.ID, turn int, before map[string]string, p *exec.Cmd) {
	w.t.Helper()
	events := w.events(child)
	for i := range 4 {
		denied(w.t, events, session.MakeCallID(turn, 1, i), session.ReadOnly)
	}
	signal := session.MakeCallID(turn, 1, 4)
	if r := result(w.t, events, signal); r.Effect == nil || r.Effect.Sandbox.Tier != session.TierNamespaces {
		denied(w.t, events, signal, session.ReadOnly)
	} else if !r.IsError || !strings.Contains(r.Content, "No such process") { // it sees no process but its own
		w.t.Errorf("the signal came to %+v, want that there is no such process", r)
	}
	if diff := cmp.Diff(before, w.tree(w.ws)); diff != "" {
		w.t.Errorf("the tree has changed (-before +after):\n%s", diff)
	}
	if err := p.Process.Signal(syscall.Signal(0)); err != nil {
		w.t.Errorf("the bystander is gone: %v", err)
	}
}

// Delegation is no way out of read-only, whatever the child is to be and whichever
// tools it is given. One that asks for more is refused.
func TestA1_DelegationIsNoWayOut(t *testing.T) {
	t.Parallel()
	w := shared(t)
	p := bystander(t)
	w.file(w.at("notes/old.txt"), "kept\n")
	before := w.tree(w.ws)
	root := w.root(`
sessions:
  root:
    - calls: [{tool: delegate, args: {kind: spawn, label: wide, prompt: write, sandbox: workspace-write}}]
    - calls: [{tool: delegate, args: {kind: spawn, label: plain, prompt: write}}]
    - calls: [{tool: delegate, args: {kind: spawn, label: role, prompt: write, persona: you may write everything, tools: {allow: [write, edit, bash]}}}]
    - text: over
  plain:`+attempts(p.Process.Pid)+`
  role:`+attempts(p.Process.Pid)+`
`, readOnly)
	w.turns(root, 1)
	events := w.events(root)
	if d, r := decision(t, events, "1.1.0"), result(t, events, "1.1.0"); d.Verdict != session.Deny || r.Code != string(policy.CodeWider) {
		t.Errorf("asking for more was decided %s with code %q, want deny with %s", d.Verdict, r.Code, policy.CodeWider)
	}
	if n := len(children(events)); n != 2 {
		t.Fatalf("%d children were started, want 2", n)
	}
	for _, call := range []session.CallID{"1.2.0", "1.3.0"} {
		child := w.child(root, call)
		w.attempted(child, 1, before, p)
		wantKnobs(t, w.events(child), handedDown(0, session.ReadOnly), pinned(1))
	}
}

// The pin of a child is its log's: whoever looks at it, lists it or goes on with
// it changes nothing on either side. Its escalation is a structured denial, and
// the pin itself cannot be lifted.
func TestA2_ThePinIsTheChildsOwn(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(`
sessions:
  root:
    - calls: [{tool: delegate, args: {kind: spawn, mode: continuable, background: true, label: c, prompt: look}}]
    - text: over
  c:
    - text: looked
    - calls: [{tool: write, args: {path: out.txt, content: x, sandbox_permissions: danger-full-access, justification: please}}]
    - text: that is all
`, func(in *client.CreateRequest) { in.Approvals, in.Sandbox = session.Ask, session.WorkspaceWrite })
	child := w.child(root, "1.1.0")
	w.turns(child, 1)
	for _, who := range []*client.Client{w.api, w.eve} {
		w.must(who.Call(t.Context(), client.MethodShow, client.SessionRequest{Head: head, ID: child}, nil))
		w.must(who.Call(t.Context(), client.MethodList, client.ListRequest{Head: head, Root: root}, nil))
		w.must(who.Call(t.Context(), client.MethodEvents, client.EventsRequest{Head: head, ID: child}, nil))
	}
	w.send(child, "go on")
	w.turns(child, 2)
	events := w.events(child)
	ask := wantRejected(t, events, "2.1.0", session.DangerFullAccess)
	w.absent(w.at("out.txt"))
	if took := result(t, events, "2.1.0").DurationNs; took == nil || time.Duration(*took) > 2*time.Second {
		t.Errorf("the denial of %s took %v, want less than 2 s", ask.ID, took)
	}

	in := client.PolicySetRequest{Head: head, ID: child, Approvals: session.Ask}
	if err := w.api.Call(t.Context(), client.MethodPolicySet, in, nil); client.CodeOf(err) != client.Code(policy.CodePinned) {
		t.Errorf("lifting the pin: %v, want %s", err, policy.CodePinned)
	}
	wantKnobs(t, w.events(child), handedDown(0, session.WorkspaceWrite), pinned(1))
	if p := w.policy(child); p.Approvals != session.Never {
		t.Errorf("the child's approvals are %s", p.Approvals)
	}
	if p := w.policy(root); p.Approvals != session.Ask || p.Sandbox != session.WorkspaceWrite {
		t.Errorf("the parent lives under %+v", p)
	}
}

// outside makes a workspace and a directory beside it.
func outside(t *testing.T) (w *world, o string) {
	t.Helper()
	w = shared(t)
	base := t.TempDir()
	o = filepath.Join(base, "o")
	w.ws = filepath.Join(base, "w")
	for _, dir := range []string{o, w.ws} {
		w.must(os.Mkdir(dir, 0o755))
	}
	return w, o
}

// Write, edit and shell agree about a path, however it is named: by a soft link,
// absolute, or by way of the parent directory. A file with another hard link becomes
// a new one under the name that the file tools were given; what a shell may do to it
// is in package sandbox.
func TestB1_ToolsAgreeOnAPath(t *testing.T) {
	t.Parallel()
	w, o := outside(t)
	for _, name := range []string{"s.txt", "h.txt", ".rc", "x.txt"} {
		w.file(filepath.Join(o, name), "kept\n")
	}
	w.must(os.Symlink(filepath.Join(o, "s.txt"), w.at("soft")))
	for _, name := range []string{"hard", "harder"} {
		w.must(os.Link(filepath.Join(o, "h.txt"), w.at(name)))
	}
	before := w.tree(o)
	var script strings.Builder
	script.WriteString("sessions:\n  root:\n")
	refused := []string{"soft", filepath.Join(o, ".rc"), "../o/x.txt", "../o/new.txt"}
	for _, path := range refused {
		fmt.Fprintf(&script, `
    - calls:
        - {tool: write, args: {path: %[1]s, content: mine}}
        - {tool: edit, args: {path: %[1]s, old: kept, new: mine}}
        - {tool: bash, args: {command: "echo mine >> %[1]s"}}
`, path)
	}
	script.WriteString(`
    - calls:
        - {tool: write, args: {path: hard, content: mine}}
        - {tool: edit, args: {path: harder, old: kept, new: mine}}
    - calls: [{tool: write, args: {path: inside.txt, content: mine}}]
    - text: over
`)
	root := w.root(script.String())
	w.turns(root, 1)
	events := w.events(root)
	for i := range refused {
		for tool := range 3 {
			denied(t, events, session.MakeCallID(1, i+1, tool), session.WorkspaceWrite)
		}
	}
	n := len(refused)
	for i, name := range []string{"hard", "harder"} {
		done(t, events, session.MakeCallID(1, n+1, i))
		if b, err := os.ReadFile(w.at(name)); err != nil || !strings.HasPrefix(string(b), "mine") {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	done(t, events, session.MakeCallID(1, n+2, 0))
	if diff := cmp.Diff(before, w.tree(o)); diff != "" {
		t.Errorf("the outside has changed (-before +after):\n%s", diff)
	}
}

// A directory link that leads out is out, by one hop or two, made beforehand or by
// the agent itself, for every file tool; the refusal names where it leads. A link
// to a directory inside goes on working.
func TestB2_DirectoryLinksAreFollowed(t *testing.T) {
	t.Parallel()
	w, o := outside(t)
	w.file(filepath.Join(o, "old.txt"), "kept\n")
	w.file(w.at("in/old.txt"), "kept\n")
	w.must(os.Symlink(o, w.at("outbox")))
	w.must(os.Symlink(w.at("outbox"), w.at("hop")))
	w.must(os.Symlink(w.at("in"), w.at("alias")))
	before := w.tree(o)
	var script strings.Builder
	script.WriteString("sessions:\n  root:\n    - calls: [{tool: bash, args: {command: \"ln -s ../o own\"}}]\n")
	links := []string{"outbox", "hop", "own", "alias"}
	for _, link := range links {
		fmt.Fprintf(&script, `
    - calls:
        - {tool: write, args: {path: %[1]s/new.txt, content: mine}}
        - {tool: edit, args: {path: %[1]s/old.txt, old: kept, new: mine}}
        - {tool: read, args: {path: %[1]s/old.txt}}
        - {tool: list, args: {path: %[1]s}}
        - {tool: grep, args: {pattern: "kept|mine", path: %[1]s}}
        - {tool: bash, args: {command: "echo mine > %[1]s/newer.txt"}}
`, link)
	}
	script.WriteString("    - text: over\n")
	root := w.root(script.String())
	w.turns(root, 1)
	events := w.events(root)
	done(t, events, "1.1.0")
	resolved, err := filepath.EvalSymlinks(o)
	w.must(err)
	for i, link := range links {
		for tool := range 6 {
			call := session.MakeCallID(1, i+2, tool)
			if link == "alias" {
				done(t, events, call)
				continue
			}
			denied(t, events, call, session.WorkspaceWrite)
			if r := result(t, events, call); tool < 5 && !strings.Contains(r.Content, resolved) {
				t.Errorf("call %s through %s does not say where that leads: %q", call, link, r.Content)
			}
		}
	}
	if diff := cmp.Diff(before, w.tree(o)); diff != "" {
		t.Errorf("the outside has changed (-before +after):\n%s", diff)
	}
	if got := w.tree(w.at("in")); len(got) != 4 {
		t.Errorf("the directory inside holds %v, want what the link's calls wrote", got)
	}
}
