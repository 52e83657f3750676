package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// stepUnswitched: nothing is inherited from a parent that never switched, so the
// child lives under the default, live.
func stepUnswitched(ctx context.Context, m *demo, f *facts) error {
	const ws = "unswitched"
	root, err := m.begin(ctx, plot{name: ws, prompt: "go", script: fmt.Sprintf(`sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, label: plain, prompt: write twice}}]
    - text: done
  plain:
    - calls: [{id: a, tool: write, args: {path: one.txt, content: one}}]
    - {wait_for: %s, calls: [{id: b, tool: write, args: {path: two.txt, content: two}}]}
    - text: end
`, m.signal(ws))})
	if err != nil {
		return err
	}
	if err := await(ctx, lookEvery, func() (bool, error) { return m.called(ctx, root, "plain", 0) }); err != nil {
		return err
	}
	if err := m.set(ctx, "defaults.sandbox", string(session.ReadOnly)); err != nil {
		return err
	}
	if err := m.release(ws); err != nil {
		return err
	}
	settled := m.settle(ctx, root)
	// The rest of the story starts from the default of before, whatever this came to.
	if err := m.set(ctx, "defaults.sandbox", string(session.WorkspaceWrite)); err != nil {
		return err
	}
	if settled != nil {
		return settled
	}
	t, err := m.child(ctx, root, "plain")
	if err != nil {
		return err
	}
	events := t.policies()
	pinned := false
	if len(events) == 1 {
		p, ok := events[0].Payload.(*session.ApprovalSwitch)
		pinned = ok && events[0].Seq == 0 && p.Policy == session.Never && p.Source == session.SourceDelegation
	}
	f.log(pinned, "policy events of the child: %s", t.policyText())
	f.succeeded(t, 0)
	f.disk(m.holds(ws, "one.txt", "one"), "one.txt is %s", there(m.exists(ws, "one.txt")))
	f.refused(t, 1)
	f.disk(!m.exists(ws, "two.txt"), "two.txt is %s", there(m.exists(ws, "two.txt")))
	return nil
}

func there(exists bool) string {
	if exists {
		return "there"
	}
	return "not there"
}

// called reports whether the nth call of a child has its result.
func (m *demo) called(ctx context.Context, parent session.ID, label string, n int) (bool, error) {
	t, err := m.trail(ctx, parent)
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(t.births, func(b birth) bool { return b.header.Label == label }) {
		return false, nil
	}
	c, err := m.child(ctx, parent, label)
	if err != nil {
		return false, err
	}
	_, _, _, done := c.result(n)
	return done, nil
}

// confinedScript has a child try every way to change the disk.
const confinedScript = `sessions:
  root:
    - text: handing this over
      calls: [{id: c, tool: delegate, args: {kind: spawn, label: confined, prompt: change the disk}}]
    - text: done
  confined:
    - calls:
        - {id: a, tool: write, args: {path: new.txt, content: escaped}}
        - {id: b, tool: edit, args: {path: keep.txt, old: kept, new: changed}}
        - {id: c, tool: bash, args: {command: "echo escaped > shell.txt"}}
    - text: all three were refused
`

func stepReadOnly(ctx context.Context, m *demo, f *facts) error {
	const ws = "read-only"
	root, err := m.begin(ctx, plot{name: ws, script: confinedScript, filled: true})
	if err != nil {
		return err
	}
	if err := m.switchTo(ctx, root, session.ReadOnly); err != nil {
		return err
	}
	return m.confined(ctx, f, ws, root)
}

func stepRestarted(ctx context.Context, m *demo, f *facts) error {
	const ws = "restarted"
	root, err := m.begin(ctx, plot{name: ws, script: confinedScript, filled: true})
	if err != nil {
		return err
	}
	if err := m.switchTo(ctx, root, session.ReadOnly); err != nil {
		return err
	}
	before, err := m.everybody(ctx)
	if err != nil {
		return err
	}
	if err := m.stop(ctx); err != nil {
		return err
	}
	stopped, err := m.place.running(ctx)
	if err != nil {
		return err
	}
	if err := m.start(ctx); err != nil {
		return err
	}
	after, err := m.everybody(ctx)
	if err != nil {
		return err
	}
	f.disk(len(stopped) == 0 && replaced(before, after), "processes before %v, while stopped %v, after %v", before, stopped, after)
	return m.confined(ctx, f, ws, root)
}

// everybody lists all processes of the deployment as soon as all of them run. One
// that came up before what it needs may be on its way.
func (m *demo) everybody(ctx context.Context) (all []living, err error) {
	err = await(ctx, lookEvery, func() (bool, error) {
		all, err = m.place.running(ctx)
		return len(all) == m.site.processes, err
	})
	if err != nil {
		return nil, fmt.Errorf("of %d processes %v run: %w", m.site.processes, all, err)
	}
	return all, nil
}

// confined has a switched parent delegate, and states what became of its child.
func (m *demo) confined(ctx context.Context, f *facts, ws string, root session.ID) error {
	before, err := m.fingerprint(ws)
	if err != nil {
		return err
	}
	if err := m.say(ctx, root, "go"); err != nil {
		return err
	}
	after, err := m.fingerprint(ws)
	if err != nil {
		return err
	}
	t, err := m.child(ctx, root, "confined")
	if err != nil {
		return err
	}
	parent, err := m.trail(ctx, root)
	if err != nil {
		return err
	}
	f.log(t.handedDown(session.ReadOnly) && t.own[0].Seq == 0 && len(t.policies()) <= 3, "policy events of the child: %s", t.policyText())
	for n := range 3 {
		f.refused(t, n)
	}
	f.disk(before == after, "the workspace was %s and is %s", before, after)
	f.log(len(parent.policies()) == 1 && len(parent.births) == 1, "the parent has %d policy event of its own, the switch, and %d child", len(parent.policies()), len(parent.births))
	return nil
}

func stepAfter(ctx context.Context, m *demo, f *facts) error {
	const ws = "after"
	root, err := m.begin(ctx, plot{name: ws, prompt: "go", sandbox: session.WorkspaceWrite, script: fmt.Sprintf(`sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, label: first, prompt: write}}]
    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: second, prompt: write}}]
    - text: done
  first:
    - {wait_for: %s, calls: [{id: a, tool: write, args: {path: first.txt, content: x}}]}
    - text: end
  second:
    - calls: [{id: b, tool: write, args: {path: second.txt, content: x}}]
    - text: end
`, m.signal(ws))})
	if err != nil {
		return err
	}
	if err := await(ctx, lookEvery, func() (bool, error) {
		t, err := m.trail(ctx, root)
		return len(t.births) == 1, err
	}); err != nil {
		return err
	}
	if err := m.switchTo(ctx, root, session.ReadOnly); err != nil {
		return err
	}
	if err := m.release(ws); err != nil {
		return err
	}
	if err := m.settle(ctx, root); err != nil {
		return err
	}
	first, err := m.child(ctx, root, "first")
	if err != nil {
		return err
	}
	second, err := m.child(ctx, root, "second")
	if err != nil {
		return err
	}
	f.log(first.handedDown(session.WorkspaceWrite) && len(first.policies()) == 2, "first child: %s", first.policyText())
	f.succeeded(first, 0)
	f.disk(m.exists(ws, "first.txt"), "first.txt is %s", there(m.exists(ws, "first.txt")))
	f.log(second.handedDown(session.ReadOnly), "second child: %s", second.policyText())
	f.refused(second, 0)
	f.disk(!m.exists(ws, "second.txt"), "second.txt is %s", there(m.exists(ws, "second.txt")))
	return nil
}

func stepGrandchild(ctx context.Context, m *demo, f *facts) error {
	const ws = "grandchild"
	root, err := m.begin(ctx, plot{name: ws, prompt: "go", sandbox: session.ReadOnly, script: fmt.Sprintf(`sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, label: child, prompt: hand on}}]
    - text: done
  child:
    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: grandchild, prompt: write}}]
    - {wait_for: %s, calls: [{id: a, tool: list, args: {path: .}}]}
    - calls: [{id: b, tool: write, args: {path: child.txt, content: x}}]
    - text: end
  grandchild:
    - calls: [{id: e, tool: write, args: {path: grandchild.txt, content: x}}]
    - text: end
`, m.signal(ws))})
	if err != nil {
		return err
	}
	if err := await(ctx, lookEvery, func() (bool, error) { return m.called(ctx, root, "child", 0) }); err != nil {
		return err
	}
	child, err := m.child(ctx, root, "child")
	if err != nil {
		return err
	}
	if err := m.switchTo(ctx, child.header.ID, session.WorkspaceWrite); err != nil {
		return err
	}
	if err := m.release(ws); err != nil {
		return err
	}
	if err := m.settle(ctx, root); err != nil {
		return err
	}
	if child, err = m.child(ctx, root, "child"); err != nil {
		return err
	}
	grandchild, err := m.child(ctx, child.header.ID, "grandchild")
	if err != nil {
		return err
	}
	f.log(grandchild.handedDown(session.ReadOnly) && grandchild.header.DelegationDepth == 2, "grandchild at depth %d: %s", grandchild.header.DelegationDepth, grandchild.policyText())
	f.refused(grandchild, 0)
	f.disk(!m.exists(ws, "grandchild.txt"), "grandchild.txt is %s", there(m.exists(ws, "grandchild.txt")))
	f.log(child.handedDown(session.ReadOnly), "child: %s", child.policyText())
	f.succeeded(child, 2)
	f.disk(m.exists(ws, "child.txt"), "child.txt is %s", there(m.exists(ws, "child.txt")))
	f.log(narrations(child) == 1 && narrations(grandchild) == 0, "switches told to the child's model: %d, to the grandchild's: %d", narrations(child), narrations(grandchild))
	return nil
}

// narrations counts the notices of switches that a session's model was told.
func narrations(t trail) int {
	n := 0
	for _, p := range payloads[session.UserMessage](t.own) {
		if p.Source.Kind == session.FromPlugin && p.Source.Form == "notice" {
			n++
		}
	}
	return n
}
