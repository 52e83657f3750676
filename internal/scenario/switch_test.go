package scenario_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// The policy of a session that goes on is its log's, on a worker and a
// coordinator that have just started and whose deployment's default is wider.
func TestA3_PolicyComesFromTheLog(t *testing.T) {
	t.Parallel()
	w := own(t)
	c, k := w.startCoordinator(), w.startWorker("w1", nil)
	root := w.root(`
sessions:
  root:
    - calls: [{tool: write, args: {path: a.txt, content: x}}]
    - text: no
    - calls: [{tool: write, args: {path: b.txt, content: x}}]
    - text: no
`, readOnly)
	w.turns(root, 1)
	k.kill()
	c.kill()
	w.startCoordinator()
	w.startWorker("w2", nil)
	w.send(root, "again")
	w.turns(root, 2)
	events := w.events(root)
	for call, file := range map[session.CallID]string{"1.1.0": "a.txt", "2.1.0": "b.txt"} {
		denied(t, events, call, session.ReadOnly)
		w.absent(w.at(file))
	}
	if got := knobs(events); len(got) != 1 || got[0].Seq != 0 {
		t.Errorf("policy events %v, want the one of the creation", got)
	}
}

// In a live session a narrower mode binds the next call. A wider one without
// authority is refused, and the log is as it was.
func TestA3_SwitchingALiveSession(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{tool: write, args: {path: a.txt, content: x}}]
    - wait_for: %[1]s/narrowed
      calls: [{tool: write, args: {path: b.txt, content: x}}]
    - wait_for: %[1]s/refused
      calls: [{tool: write, args: {path: c.txt, content: x}}]
    - text: over
`, w.ws))
	w.seen(w.at("a.txt"))
	w.set(root, sandboxTo(session.ReadOnly))
	w.file(w.at("narrowed"), "")
	w.until(root, "the second call's result", func(s session.State) bool { return s.Steps >= 2 && !s.Open.Answered })
	before := knobs(w.events(root))

	wider := client.PolicySetRequest{Head: head, ID: root, Sandbox: session.DangerFullAccess}
	if err := w.eve.Call(t.Context(), client.MethodPolicySet, wider, nil); client.CodeOf(err) != client.CodeUnauthorized {
		t.Errorf("widening without authority: %v, want %s", err, client.CodeUnauthorized)
	}
	w.file(w.at("refused"), "")
	w.turns(root, 1)
	events := w.events(root)
	done(t, events, "1.1.0")
	for call, file := range map[session.CallID]string{"1.2.0": "b.txt", "1.3.0": "c.txt"} {
		denied(t, events, call, session.ReadOnly)
		w.absent(w.at(file))
	}
	wantKnobs(t, events, before...)
	if len(before) != 1 || before[0].Value != string(session.ReadOnly) || before[0].Class != session.ClassPolicy {
		t.Errorf("the narrowing is in the log as %v, want one event of a person", before)
	}
	basis(t, events, "1.2.0", &before[0].Seq)
}

// A session that has ended keeps the policy that it had: a switch is refused by
// its code, and nothing follows the end.
func TestA3_NoSwitchAfterTheEnd(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(delegateOneWrite, readOnly)
	w.turns(root, 1)
	child := w.child(root, "1.1.0")
	end := w.ended(child)
	in := client.PolicySetRequest{Head: head, ID: child, Sandbox: session.WorkspaceWrite}
	if err := w.api.Call(t.Context(), client.MethodPolicySet, in, nil); client.CodeOf(err) != client.CodeEnded {
		t.Errorf("switching an ended session: %v, want %s", err, client.CodeEnded)
	}
	if events := w.events(child); session.Seq(len(events)) != end.Next {
		t.Errorf("something follows the end:\n%s", list(events))
	}
}

// basis wants a call's decision to rest on the event at a seq, or on the default.
func basis(t *testing.T, events []session.Event, call session.CallID, want *session.Seq) {
	t.Helper()
	got := decision(t, events, call).Basis.Sandbox.Seq
	if (got == nil) != (want == nil) || got != nil && *got != *want {
		t.Errorf("call %s rests on %v, want %v", call, got, want)
	}
}

// A switch that stands in the log before a call's decision binds it, though the
// call stood in the log before the switch.
func TestA4_SwitchWhileACallIsPending(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls:
        - {tool: bash, args: {command: "touch running; while [ ! -e %[1]s/switched ]; do sleep 0.05; done; touch ran"}}
        - {tool: write, args: {path: a.txt, content: x}}
        - {tool: bash, args: {command: "echo x > b.txt"}}
    - text: over
`, w.ws))
	w.seen(w.at("running"))
	w.set(root, sandboxTo(session.ReadOnly))
	w.file(w.at("switched"), "")
	w.turns(root, 1)
	events := w.events(root)
	done(t, events, "1.1.0")
	if !exists(w.at("ran")) {
		t.Error("the call that was decided before the switch did not run to its end")
	}
	at := knobs(events)[0].Seq
	for call, file := range map[session.CallID]string{"1.1.1": "a.txt", "1.1.2": "b.txt"} {
		denied(t, events, call, session.ReadOnly)
		basis(t, events, call, &at)
		w.absent(w.at(file))
	}
}

// A switch that commits after a worker decided a delegation and before the
// coordinator could commit it makes the commit fail: the worker decides again and
// the child gets the new mode. That holds too when the mode is the old one again.
func TestA4_SwitchBetweenCaptureAndCommit(t *testing.T) {
	t.Parallel()
	w := own(t)
	c := w.startCoordinator()
	script := func(name string) string {
		return fmt.Sprintf(`
sessions:
  root:
    - wait_for: %[1]s/go
      calls: [{tool: delegate, args: {kind: spawn, label: c, prompt: write}}]
    - text: over
  c:
    - calls: [{tool: write, args: {path: %[2]s.txt, content: x}}]
    - text: that is all
`, w.ws, name)
	}
	writes := func(in *client.CreateRequest) { in.Sandbox = session.WorkspaceWrite }
	once, twice := w.root(script("once"), writes), w.root(script("twice"), writes)
	w.startWorker("w1", nil)
	for _, id := range []session.ID{once, twice} {
		w.until(id, "its first request", func(s session.State) bool { return s.Open != nil && s.Open.StepOpen })
	}
	asked := w.delegations(once, twice)
	c.pause()
	w.file(w.at("go"), "")
	asked()
	w.forceSwitch(once, session.ReadOnly)
	w.forceSwitch(twice, session.ReadOnly)
	w.forceSwitch(twice, session.WorkspaceWrite)
	c.resume()
	for _, id := range []session.ID{once, twice} {
		w.turns(id, 1)
		events := w.events(id)
		if n := len(children(events)); n != 1 {
			t.Errorf("%s has %d children, want 1", id, n)
		}
		k := knobs(events)
		basis(t, events, "1.1.0", &k[len(k)-1].Seq)
	}
	events := w.events(w.child(once, "1.1.0"))
	wantKnobs(t, events, handedDown(0, session.ReadOnly), pinned(1))
	denied(t, events, "1.1.0", session.ReadOnly)
	w.absent(w.at("once.txt"))
	events = w.events(w.child(twice, "1.1.0"))
	wantKnobs(t, events, handedDown(0, session.WorkspaceWrite), pinned(1))
	done(t, events, "1.1.0")
}

// delegations waits, when asked, until a worker has asked a coordinator to commit
// a delegation of each session.
func (w *world) delegations(ids ...session.ID) (asked func()) {
	w.t.Helper()
	sub, err := w.nc.SubscribeSync("entail.worker.>")
	w.must(err)
	w.must(w.nc.Flush())
	return func() {
		defer func() { w.must(sub.Unsubscribe()) }()
		for seen := map[session.ID]bool{}; len(seen) < len(ids); {
			m, err := sub.NextMsg(patience)
			w.must(err)
			var in client.DelegateRequest
			if strings.HasSuffix(m.Subject, "."+client.MethodDelegate) && json.Unmarshal(m.Data, &in) == nil {
				seen[in.Session] = true
			}
		}
	}
}

// forceSwitch appends a person's switch as a coordinator does, past the one that
// is stopped.
func (w *world) forceSwitch(id session.ID, m session.SandboxMode) {
	w.t.Helper()
	_, err := w.log.Append(w.t.Context(), w.open(id), id, stream.Change{
		Name: "switch", Class: session.ClassPolicy,
		Drafts: func(session.View) ([]session.Draft, error) {
			by := &session.Party{Kind: session.Person, ID: "ada"}
			return []session.Draft{{Time: time.Now().UnixMilli(), Payload: &session.SandboxSwitch{Mode: m, By: by}}}, nil
		},
	})
	w.must(err)
}
