package scenario_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// wants is effect, as a call that asks for more than a read-only session has.
func wants(name, then string) string {
	return fmt.Sprintf(`{tool: bash, args: {command: "echo %s >> ledger%s", sandbox_permissions: workspace-write, justification: please}}`, name, then)
}

// asks waits until a session is parked on one question, and returns it.
func (w *world) asks(id session.ID) (ask string) {
	w.t.Helper()
	w.until(id, "its question", func(s session.State) bool {
		open := s.Questions()
		if len(open) == 1 {
			ask = open[0].Ask.ID
		}
		return len(open) == 1 && s.Open.Parked
	})
	return ask
}

func (w *world) answer(id session.ID, ask string, o session.Outcome) (client.AnswerReply, error) {
	w.t.Helper()
	var out client.AnswerReply
	err := w.api.Call(w.t.Context(), client.MethodAnswer, client.AnswerRequest{Head: head, ID: id, Ask: ask, Outcome: o}, &out)
	return out, err
}

func (w *world) allow(id session.ID, ask string) {
	w.t.Helper()
	out, err := w.answer(id, ask, session.AllowedOnce)
	w.must(err)
	if out.Outcome != session.AllowedOnce {
		w.t.Errorf("the answer to %s of %s came to %+v", ask, id, out)
	}
}

// questions are those that the deployment says wait, by session.
func (w *world) questions() map[session.ID]string {
	w.t.Helper()
	var out client.ApprovalsReply
	w.call(client.MethodApprovals, client.ApprovalsRequest{Head: head}, &out)
	all := map[session.ID]string{}
	for _, a := range out.Approvals {
		all[a.Session] = a.Ask
	}
	return all
}

// wantGrants wants one outcome for each question of a log and each grant used by the one
// call it names, and returns how many were.
func wantGrants(t *testing.T, events []session.Event) (used int) {
	t.Helper()
	onceEach(t, events)
	of, outcome := map[string]session.CallID{}, map[string]session.Outcome{}
	for _, e := range events {
		switch p := e.Payload.(type) {
		case *session.ApprovalAsked:
			of[p.ID] = p.CallID
		case *session.ApprovalDecided:
			if o, twice := outcome[p.ID]; twice || of[p.ID] == "" {
				t.Errorf("question %s has outcome %s after %q", p.ID, p.Outcome, o)
			}
			outcome[p.ID] = p.Outcome
		case *session.ToolDecision:
			if p.Grant == "" {
				continue
			}
			if used++; of[p.Grant] != p.CallID || outcome[p.Grant] != session.AllowedOnce {
				t.Errorf("call %s ran by grant %q, which is %s's and was %q", p.CallID, p.Grant, of[p.Grant], outcome[p.Grant])
			}
			delete(of, p.Grant)
		}
	}
	return used
}

// A worker is killed around an answer: while a session is parked on its question; between
// the answer and the decision, with the worker stopped so that it cannot take it; in the
// middle of the granted effect; and after that, before its result. Another one goes on.
// Each grant is used once at most, no effect comes twice, and a call that began is not run
// again under the grant that it had.
func TestE1_I6_GrantsOutliveKilledWorkers(t *testing.T) {
	t.Parallel()
	w := own(t)
	c := w.startCoordinator()
	// One call signals the worker, which no tree's own user could.
	w.call(client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "confinement.fullAccessAs", Value: []byte(`"worker"`)}, nil)
	w.file(w.at("ledger"), "")
	k := w.startWorker("w1", nil)
	root := func(call string) session.ID {
		return w.root("sessions:\n  root:\n    - calls: ["+call+"]\n    - text: over\n", readOnly)
	}
	parked, between, middle := root(wants("parked", "")), root(wants("between", "")), root(wants("middle", forever))
	unrecorded := root(strings.Replace(wants("unrecorded", "; kill -STOP "+k.pid()+stopped+"; touch ended"), "workspace-write", "danger-full-access", 1))
	all := []session.ID{parked, between, middle, unrecorded}
	asks := map[session.ID]string{}
	for _, id := range all {
		asks[id] = w.asks(id)
	}
	w.allow(middle, asks[middle])
	eventually(t, func() string { return "the granted call runs" }, func() bool { return w.ledger()["middle"] == 1 })
	w.allow(unrecorded, asks[unrecorded])
	k.paused()
	w.seen(w.at("ended"))
	w.allow(between, asks[between]) // nobody takes it: the worker is stopped
	eventually(t, func() string { return "the other one is listed alone" }, func() bool {
		q := w.questions()
		return len(q) == 1 && q[parked] == asks[parked]
	})
	k.kill()
	c.kill()
	w.startCoordinator()
	if q := w.questions(); len(q) != 1 || q[parked] != asks[parked] {
		t.Errorf("after both were killed these questions wait: %v, want %s", q, asks[parked])
	}
	w.startWorker("w2", nil)
	w.turns(between, 1)
	if s, _ := w.open(parked).State(); !s.Open.Parked || len(s.Questions()) != 1 || s.Epoch != 1 {
		t.Errorf("what is still parked was touched: %+v", s.Open)
	}
	w.allow(parked, asks[parked])
	unknown := []session.ID{middle, unrecorded}
	for _, id := range all {
		w.turns(id, 1)
		events := w.events(id)
		if used := wantGrants(t, events); used != 1 {
			t.Errorf("the grant of %s was used %d times:\n%s", id, used, list(events))
		}
		r := result(t, events, "1.1.0")
		if got := r.Code == session.CodeToolOutcomeUnknown; got != slices.Contains(unknown, id) || !got && r.IsError {
			t.Errorf("the call of %s has result %+v", id, r)
		}
		if _, err := w.answer(id, asks[id], session.Rejected); client.CodeOf(err) != client.CodeAnswered {
			t.Errorf("another answer to %s: %v, want %s", asks[id], err, client.CodeAnswered)
		}
	}
	want := map[string]int{"parked": 1, "between": 1, "middle": 1, "unrecorded": 1}
	if got := w.ledger(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the ledger counts %v, want %v", got, want)
	}
}

// Questions are told apart by their call, whatever else is the same: two sessions with two
// shell calls of one form each, with the coordinator killed while they wait, are answered
// in reverse order and differently. Each answer reaches its own call, a grant says nothing
// of the next call that is the same, and an answer to no question is refused.
func TestC2_AnAnswerReachesItsOwnCall(t *testing.T) {
	t.Parallel()
	w := own(t)
	c := w.startCoordinator()
	w.startWorker("w1", nil)
	w.file(w.at("ledger"), "")
	script := "sessions:\n  root:\n    - calls: [" + wants("same", "") + ", " + wants("same", "") + "]\n    - text: over\n"
	first, second := w.root(script, readOnly), w.root(script, readOnly)
	asks := map[session.ID]string{first: w.asks(first), second: w.asks(second)}
	c.kill()
	w.startCoordinator()
	if q := w.questions(); fmt.Sprint(q) != fmt.Sprint(asks) {
		t.Errorf("after the coordinator was killed these questions wait: %v, want %v", q, asks)
	}
	next := func(id session.ID, o session.Outcome) string {
		was := asks[id]
		out, err := w.answer(id, was, o)
		w.must(err)
		if out.Outcome != o {
			t.Errorf("%s of %s came to %+v, want %s", was, id, out, o)
		}
		eventually(t, func() string { return "its next question or its end" }, func() bool {
			s, _ := w.open(id).State()
			open := s.Questions()
			return s.Open == nil || len(open) == 1 && open[0].Ask.ID != was && s.Open.Parked
		})
		if s, _ := w.open(id).State(); s.Open != nil {
			return w.asks(id)
		}
		return ""
	}
	again := map[session.ID]string{second: next(second, session.Rejected), first: next(first, session.AllowedOnce)}
	if n := w.ledger()["same"]; n != 1 || again[first] == "" || again[second] == "" {
		t.Errorf("after one of two was allowed the ledger counts %d and %v is asked, want 1 and a question each", n, again)
	}
	for _, wrong := range []string{asks[first], again[first] + "9", "ask-9.9.9-1"} {
		if _, err := w.answer(first, wrong, session.Rejected); client.CodeOf(err) != client.CodeAnswered && client.CodeOf(err) != client.CodeNoQuestion {
			t.Errorf("an answer to %q: %v", wrong, err)
		}
	}
	asks = again
	next(second, session.AllowedOnce)
	next(first, session.Rejected)
	for id, want := range map[session.ID][2]bool{first: {true, false}, second: {false, true}} {
		w.turns(id, 1)
		events := w.events(id)
		if used := wantGrants(t, events); used != 1 {
			t.Errorf("%d grants of %s were used, want 1", used, id)
		}
		for i, allowed := range want {
			if r := result(t, events, session.MakeCallID(1, 1, i)); r.IsError == allowed || r.Denied == allowed {
				t.Errorf("call %d of %s: %+v, want it allowed: %t", i, id, r, allowed)
			}
		}
	}
	if n := w.ledger()["same"]; n != 2 {
		t.Errorf("the ledger counts %d, want the two that were allowed", n)
	}
}

// Nobody below a root is ever asked about, down to the deepest level, also after the
// coordinator was killed: what a child asks for is rejected within a second, the pair is in
// its log, it is told to report that, nothing waits anywhere, and its parent goes on.
func TestAPR13_C1_NobodyBelowARootAsks(t *testing.T) {
	t.Parallel()
	w := own(t)
	c := w.startCoordinator()
	w.startWorker("w1", nil)
	delegate := func(label string) string {
		return "{tool: delegate, args: {kind: spawn, label: " + label + ", prompt: go on}}"
	}
	root := w.root(`
sessions:
  root:
    - calls: [`+delegate("c")+`]
    - text: over
  c:
    - calls: [`+escalateOneWrite+`]
    - calls: [`+delegate("g")+`]
    - text: I was not allowed to write
  g:
    - calls: [`+escalateOneWrite+`]
    - calls: [`+delegate("h")+`]
    - text: I was not allowed to write
  h:
    - calls: [`+escalateOneWrite+`]
    - wait_for: `+w.at("go")+`
      calls: [`+strings.Replace(escalateOneWrite, "workspace-write", "danger-full-access", 1)+`]
    - text: I was not allowed to write
`, readOnly)
	child := w.child(root, "1.1.0")
	grandchild := w.child(child, "1.2.0")
	deepest := w.child(grandchild, "1.2.0")
	w.until(deepest, "its first refusal", func(s session.State) bool { return s.Open != nil && s.Open.Step == 2 })
	c.kill()
	w.startCoordinator()
	w.file(w.at("go"), "")
	w.turns(root, 1)
	if q := w.questions(); len(q) != 0 {
		t.Errorf("these questions wait: %v", q)
	}
	calls := map[session.ID][]session.CallID{child: {"1.1.0"}, grandchild: {"1.1.0"}, deepest: {"1.1.0", "1.2.0"}}
	for id, refused := range calls {
		s, events := w.ended(id), w.events(id)
		if depth := s.Header.DelegationDepth; (depth == 3) != (id == deepest) {
			t.Errorf("%s has depth %d", id, depth)
		}
		for i, call := range refused {
			wantRejected(t, events, call, []session.SandboxMode{session.WorkspaceWrite, session.DangerFullAccess}[i])
			r := result(t, events, call)
			if !strings.Contains(r.Content, "report the limitation") {
				t.Errorf("call %s of %s is told %q", call, id, r.Content)
			}
			at := where(events, func(p *session.ToolCall) bool { return p.CallID == call })[0]
			end := where(events, func(p *session.ToolResult) bool { return p.CallID == call })[0]
			if took := time.Duration(events[end].Time-events[at].Time) * time.Millisecond; took >= time.Second {
				t.Errorf("call %s of %s was refused after %v", call, id, took)
			}
		}
	}
	for _, id := range []session.ID{root, child, grandchild} {
		call := session.CallID("1.2.0")
		if id == root {
			call = "1.1.0"
		}
		if r := result(t, w.events(id), call); r.IsError {
			t.Errorf("the delegation of %s has result %+v", id, r)
		}
	}
	w.absent(w.at("out.txt"))
}
