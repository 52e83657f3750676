package scenario_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

const delegateOneWrite = `
sessions:
  root:
    - calls: [{tool: delegate, args: {kind: spawn, label: c, prompt: write it}}]
    - text: over
  c:
    - calls: [{tool: write, args: {path: out.txt, content: hello}}]
    - text: that is all
`

// A read-only child's write is refused by the fence, and its turn ends as any.
func TestINH20_ReadOnlyChildWritesNothing(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(delegateOneWrite, readOnly)
	s := w.turns(root, 1)
	child := w.child(root, "1.1.0")
	w.absent(w.at("out.txt"))
	events := w.events(child)
	denied(t, events, "1.1.0", session.ReadOnly)
	if r := result(t, events, "1.1.0"); r.Code != session.CodeSandboxDenied {
		t.Errorf("the result's code is %q, want %q", r.Code, session.CodeSandboxDenied)
	}
	c := w.ended(child)
	if c.LastEnd.Reason.Kind != session.EndCompleted || s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the child's turn ended %q, the root's %q, want both completed", c.LastEnd.Reason.Kind, s.LastEnd.Reason.Kind)
	}
	if c.Ended.Outcome != session.OutcomeDenials {
		t.Errorf("the child ended %q, want %q: a denied run is no success", c.Ended.Outcome, session.OutcomeDenials)
	}
}

// Only the parent is read-only; the deployment's default is not. What stands
// between the child and the disk is the captured event alone: the child of an
// unswitched parent in the same deployment writes.
func TestINH24_OnlyTheParentIsReadOnly(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(delegateOneWrite, readOnly)
	w.turns(root, 1)
	child := w.child(root, "1.1.0")
	events := w.events(child)
	wantKnobs(t, events, handedDown(0, session.ReadOnly), pinned(1))
	if events[0].Seq != 0 || events[0].Type != session.TypeSandboxMode {
		t.Errorf("the child's first event is %d %s, want 0 %s", events[0].Seq, events[0].Type, session.TypeSandboxMode)
	}
	denied(t, events, "1.1.0", session.ReadOnly)
	w.absent(w.at("out.txt"))

	other := w.root(delegateOneWrite)
	w.turns(other, 1)
	events = w.events(w.child(other, "1.1.0"))
	done(t, events, "1.1.0")
	if !exists(w.at("out.txt")) {
		t.Error("the child of an unswitched parent wrote nothing")
	}
}

// No default crosses: an unswitched parent's child has no sandbox mode of its own
// and lives under the deployment's, by name of its revision.
func TestINH09_NoDefaultCrosses(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(delegateOneWrite)
	w.turns(root, 1)
	events := w.events(w.child(root, "1.1.0"))
	wantKnobs(t, events, pinned(0))
	d := decision(t, events, "1.1.0")
	want := session.Ground{Value: string(session.WorkspaceWrite)}
	if diff := cmp.Diff(want, d.Basis.Sandbox); diff != "" || d.Revision == 0 {
		t.Errorf("the write's basis at revision %d (-want +got):\n%s", d.Revision, diff)
	}
	if got := knobs(w.events(root)); len(got) != 0 {
		t.Errorf("the delegation wrote policy events into the parent's log: %v", got)
	}
}

// A running child keeps its snapshot when its parent is switched. Cancelled and
// delegated again, the new child has a fresh one.
func TestINH16_SnapshotsAreTakenOnce(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{tool: delegate, args: {kind: spawn, mode: continuable, background: true, label: a, prompt: write}}]
    - wait_for: %[1]s/again
      calls: [{tool: delegate, args: {kind: spawn, label: b, prompt: write}}]
    - text: over
  a:
    - wait_for: %[1]s/switched
      calls: [{tool: write, args: {path: a.txt, content: a}}]
    - text: written
  b:
    - calls: [{tool: write, args: {path: b.txt, content: b}}]
    - text: that is all
`, w.ws), func(in *client.CreateRequest) { in.Sandbox = session.WorkspaceWrite })
	a := w.child(root, "1.1.0")
	w.set(root, sandboxTo(session.ReadOnly))
	w.file(w.at("switched"), "")
	w.turns(a, 1)
	events := w.events(a)
	wantKnobs(t, events, handedDown(0, session.WorkspaceWrite), pinned(1))
	done(t, events, "1.1.0")
	if !exists(w.at("a.txt")) {
		t.Error("the running child's write had no effect")
	}

	w.call(client.MethodCancel, client.StopRequest{Head: head, ID: a, RequestID: ulid.Make().String()}, nil)
	w.ended(a)
	w.file(w.at("again"), "")
	w.turns(root, 1)
	events = w.events(w.child(root, "1.2.0"))
	wantKnobs(t, events, handedDown(0, session.ReadOnly), pinned(1))
	denied(t, events, "1.1.0", session.ReadOnly)
	w.absent(w.at("b.txt"))
}

// Two identities share one bundle. The child of an auto parent is reviewed, and
// its write's body does not run; the child of a Full access parent writes. The
// last identity recorded is the current one, and recording it changes no knob.
func TestPRE03_SiblingIdentitiesStayApart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		preset, sibling session.Preset
		writes          bool
	}{{session.PresetAuto, session.PresetFullAccess, false}, {session.PresetFullAccess, session.PresetAuto, true}} {
		t.Run(string(tt.preset), func(t *testing.T) {
			t.Parallel()
			w := shared(t)
			// Full access is the tree's own user, who has to come to its workspace.
			w.must(os.Chmod(filepath.Dir(w.ws), 0o711))
			root := w.root(delegateOneWrite, func(in *client.CreateRequest) { in.Preset = tt.preset })
			w.turns(root, 1)
			child := w.child(root, "1.1.0")
			events := w.events(child)
			wantKnobs(t, events, handedDown(0, session.DangerFullAccess), pinned(1), identity(2, tt.preset))
			p := w.policy(child)
			if p.Preset != tt.preset || p.Sandbox != session.DangerFullAccess || p.Approvals != session.Never {
				t.Errorf("the child lives under %+v", p)
			}
			if d := decision(t, w.events(root), "1.1.0"); d.Verdict != session.Allow {
				t.Errorf("the delegation itself was %s by %s: %s", d.Verdict, d.By, d.Reason)
			}
			if tt.writes {
				done(t, events, "1.1.0")
			} else {
				wantReviewed(t, events, "1.1.0")
			}
			if exists(w.at("out.txt")) != tt.writes {
				t.Errorf("the file is there: %t, want %t", !tt.writes, tt.writes)
			}
			got := w.set(root, func(in *client.PolicySetRequest) { in.Preset = tt.sibling })
			if got.Events != 1 || got.Preset != tt.sibling || got.Sandbox != session.DangerFullAccess {
				t.Errorf("selecting the sibling gives %+v, want one event and the identity", got)
			}
		})
	}
}

// wantReviewed wants a call that a reviewer denied.
func wantReviewed(t *testing.T, events []session.Event, call session.CallID) {
	t.Helper()
	d, r := decision(t, events, call), result(t, events, call)
	if d.Verdict != session.Deny || d.By != session.StageReviewer {
		t.Errorf("call %s: %s by %s, want a denial by the reviewer", call, d.Verdict, d.By)
	}
	if !r.Denied || r.Code != session.CodeAutoReviewDenied {
		t.Errorf("call %s: denied %t with code %q, want %q", call, r.Denied, r.Code, session.CodeAutoReviewDenied)
	}
}

const escalateOneWrite = `{tool: write, args: {path: out.txt, content: hello, sandbox_permissions: workspace-write, justification: I need it}}`

// A child's escalation is refused before anybody is asked. Whoever listens to all
// that workers say, and to all requests of people, hears no question; the log
// holds the question and its outcome; and nothing tells the model to ask again.
func TestINH21_EscalationAsksNobody(t *testing.T) {
	t.Parallel()
	w := shared(t)
	heard := w.listen()
	root := w.root(`
sessions:
  root:
    - calls: [{tool: write, args: {path: own.txt, content: hello}}]
    - calls: [{tool: delegate, args: {kind: spawn, label: c, prompt: write it}}]
    - text: over
  c:
    - calls: [{tool: write, args: {path: first.txt, content: hello}}]
    - calls: [`+escalateOneWrite+`]
    - text: that is all
`, readOnly)
	w.turns(root, 1)
	child := w.child(root, "1.2.0")
	w.ended(child)
	events := w.events(child)
	ask := wantRejected(t, events, "1.2.0", session.WorkspaceWrite)
	for _, name := range []string{"own.txt", "first.txt", "out.txt"} {
		w.absent(w.at(name))
	}
	unasked(t, heard(), child, ask)
	hint := sandbox.Hint(session.ReadOnly)
	if r := result(t, w.events(root), "1.1.0"); !strings.Contains(r.Content, hint) {
		t.Errorf("the root may ask, but its denial does not say so: %q", r.Content)
	}
	for _, r := range payloads[*session.ToolResult](events) {
		if strings.Contains(r.Content, hint) || strings.Contains(r.Content, "sandbox_permissions") {
			t.Errorf("call %s of the child hints at an escalation: %q", r.CallID, r.Content)
		}
	}
}

// wantRejected wants a call whose escalation was rejected without asking: the
// pair right before the denial, written by the driver itself.
func wantRejected(t *testing.T, events []session.Event, call session.CallID, m session.SandboxMode) *session.ApprovalAsked {
	t.Helper()
	at := where(events, func(a *session.ApprovalAsked) bool { return a.CallID == call })
	if len(at) != 1 || at[0]+2 >= len(events) {
		t.Fatalf("call %s has %d questions in the log, want 1:\n%s", call, len(at), list(events))
	}
	ask, _ := events[at[0]].Payload.(*session.ApprovalAsked)
	answer, _ := events[at[0]+1].Payload.(*session.ApprovalDecided)
	d, _ := events[at[0]+2].Payload.(*session.ToolDecision)
	if ask.ToolName != "write" || ask.Mode != m {
		t.Errorf("the question is about %q and %s, want write and %s", ask.ToolName, ask.Mode, m)
	}
	if answer == nil || answer.ID != ask.ID || answer.Outcome != session.Rejected || events[at[0]+1].Class != session.ClassTurn {
		t.Errorf("the question was answered by %+v, want rejected by the driver", answer)
	}
	if d == nil || d.CallID != call || d.Verdict != session.Deny || d.By != session.StageApproval || !d.Final {
		t.Errorf("the decision is %+v, want a final denial by approval", d)
	}
	if r := result(t, events, call); !r.Denied || !r.IsError {
		t.Errorf("the result is denied %t, error %t, want both", r.Denied, r.IsError)
	}
	forSomebody := func(p *session.TurnPark) bool {
		return slices.ContainsFunc(p.WaitsFor, func(w session.Wait) bool { return w.Kind == session.WaitApproval })
	}
	if parked := where(events, forSomebody); len(parked) > 0 {
		t.Errorf("the turn waited for somebody:\n%s", list(events))
	}
	return ask
}

// listen hears every message that may go to a coordinator or to a service, as a
// coordinator does. What else a worker may publish is its records and its sign of
// life. It returns what was heard so far.
func (w *world) listen() (heard func() []string) {
	w.t.Helper()
	msgs := make(chan string, 1<<14)
	for _, subject := range []string{"entail.api.v1.>", "entail.worker.>", "$SRV.>"} {
		sub, err := w.nc.Subscribe(subject, func(m *nats.Msg) { msgs <- m.Subject + " " + string(m.Data) })
		w.must(err)
		w.t.Cleanup(func() { w.must(sub.Unsubscribe()) })
	}
	w.must(w.nc.Flush())
	return func() []string {
		w.must(w.nc.Flush())
		var out []string
		for len(msgs) > 0 {
			out = append(out, <-msgs)
		}
		return out
	}
}

// unasked wants no message about a session to hold a question, among messages
// that do speak of the session.
func unasked(t *testing.T, heard []string, id session.ID, ask *session.ApprovalAsked) {
	t.Helper()
	about := 0
	for _, m := range heard {
		if !strings.Contains(m, string(id)) {
			continue
		}
		if about++; strings.Contains(m, ask.ID) || strings.Contains(m, string(session.TypeApprovalAsked)) {
			t.Errorf("somebody was asked: %s", m)
		}
	}
	if about == 0 {
		t.Errorf("of %d messages heard none is about %s: the ear is deaf", len(heard), id)
	}
}

// Under never an escalation is rejected with the pair in the log and nobody asked,
// in a session that a person could be asked for.
func TestAPR06_NeverAsksNobody(t *testing.T) {
	t.Parallel()
	w := shared(t)
	heard := w.listen()
	root := w.root(`
sessions:
  root:
    - calls: [`+escalateOneWrite+`]
    - text: over
`, readOnly, func(in *client.CreateRequest) { in.Approvals = session.Never })
	s := w.turns(root, 1)
	ask := wantRejected(t, w.events(root), "1.1.0", session.WorkspaceWrite)
	w.absent(w.at("out.txt"))
	if s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the turn ended %q, want completed", s.LastEnd.Reason.Kind)
	}
	unasked(t, heard(), root, ask)
}
