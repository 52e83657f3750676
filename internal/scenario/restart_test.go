package scenario_test

import (
	"fmt"
	"testing"

	"github.com/entail-fleet/entail/session"
)

// A parent that goes on after every process was killed hands down what its log
// says: its child's ways out of read-only are as closed as ever.
func TestA1_DelegationByAResumedParent(t *testing.T) {
	t.Parallel()
	w := own(t)
	p := bystander(t)
	w.file(w.at("notes/old.txt"), "kept\n")
	before := w.tree(w.ws)
	c, k := w.startCoordinator(), w.startWorker("w1", nil)
	root := w.root(`
sessions:
  root:
    - text: ready
    - calls: [{tool: delegate, args: {kind: fork, label: plain, prompt: write}}]
    - calls: [{tool: delegate, args: {kind: spawn, label: role, prompt: write, persona: you may write everything}}]
    - text: over
  plain:`+attempts(p.Process.Pid)+`
  role:`+attempts(p.Process.Pid)+`
`, readOnly)
	w.turns(root, 1)
	k.kill()
	c.kill()
	w.startCoordinator()
	w.startWorker("w1", nil)
	w.send(root, "hand it over")
	w.turns(root, 2)
	fork, spawn := w.child(root, "2.1.0"), w.child(root, "2.2.0")
	w.attempted(spawn, 1, before, p)
	w.attempted(fork, 2, before, p)
	wantKnobs(t, w.events(spawn), handedDown(0, session.ReadOnly), pinned(1))
	live := w.ended(fork).Header.FirstLiveSeq
	inherited := knobs(w.events(root))
	wantKnobs(t, w.events(fork), inherited[0], handedDown(live+1, session.ReadOnly), pinned(live+2))
}

// A continuable child that has left memory goes on from its own log alone: its
// parent was widened since, and nothing is captured or written again.
func TestINH18_AColdResumeCapturesNothing(t *testing.T) {
	t.Parallel()
	w := own(t)
	c, k := w.startCoordinator(), w.startWorker("w1", nil)
	root := w.root(`
sessions:
  root:
    - calls: [{tool: delegate, args: {kind: spawn, mode: continuable, label: c, prompt: look}}]
    - text: over
  c:
    - text: looked
    - calls: [{tool: write, args: {path: a.txt, content: x}}]
    - text: no
`, readOnly)
	w.turns(root, 1)
	child := w.child(root, "1.1.0")
	w.turns(child, 1)
	w.set(root, sandboxTo(session.DangerFullAccess))
	k.kill()
	c.kill()
	w.startCoordinator()
	w.startWorker("w2", nil)
	w.send(child, "go on")
	w.turns(child, 2)
	events := w.events(child)
	wantKnobs(t, events, handedDown(0, session.ReadOnly), pinned(1))
	denied(t, events, "2.1.0", session.ReadOnly)
	w.absent(w.at("a.txt"))
}

// A restriction holds at depth 2, after coordinator and worker were killed, and
// after they were killed once more in the middle of the grandchild's turn.
func TestA5_RestrictionSurvivesRestarts(t *testing.T) {
	t.Parallel()
	w := own(t)
	c, k := w.startCoordinator(), w.startWorker("w1", nil)
	root := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{tool: delegate, args: {kind: spawn, mode: continuable, label: c, prompt: hand it over}}]
    - text: over
  c:
    - calls: [{tool: delegate, args: {kind: spawn, mode: continuable, label: g, prompt: write}}]
    - text: over
  g:
    - calls: [{tool: write, args: {path: a.txt, content: x}}]
    - text: no
    - calls: [{tool: write, args: {path: b.txt, content: x}}]
    - wait_for: %[1]s/go
      calls: [{tool: write, args: {path: c.txt, content: x}}, {tool: bash, args: {command: "echo x > d.txt"}}]
    - text: no
`, w.ws), readOnly)
	w.turns(root, 1)
	child := w.child(root, "1.1.0")
	grandchild := w.child(child, "1.1.0")
	first := w.turns(grandchild, 1)

	k.kill()
	c.kill()
	c, k = w.startCoordinator(), w.startWorker("w1", nil)
	w.send(grandchild, "again")
	w.until(grandchild, "the middle of its turn", func(s session.State) bool { return s.Open != nil && s.Open.Step == 2 })
	k.kill()
	c.kill()
	w.startCoordinator()
	w.startWorker("w2", nil)
	w.file(w.at("go"), "")
	last := w.turns(grandchild, 2)

	events := w.events(grandchild)
	for call, file := range map[session.CallID]string{"1.1.0": "a.txt", "2.1.0": "b.txt", "2.2.0": "c.txt", "2.2.1": "d.txt"} {
		denied(t, events, call, session.ReadOnly)
		w.absent(w.at(file))
	}
	onceEach(t, events)
	if last.Epoch <= first.Epoch+1 {
		t.Errorf("epochs %d and %d: nobody took the turn over", first.Epoch, last.Epoch)
	}
	for _, id := range []session.ID{child, grandchild} {
		wantKnobs(t, w.events(id), handedDown(0, session.ReadOnly), pinned(1))
	}
}
