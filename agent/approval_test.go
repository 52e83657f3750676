package agent_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// wantsMore is a script whose first call asks for a wider mode than its session has,
// with a call behind it that does not.
const wantsMore = `
sessions:
  root:
    - calls:
        - {id: e, tool: write, args: {path: x, content: y, sandbox_permissions: danger-full-access, justification: please}}
        - {id: f, tool: write, args: {path: behind, content: z}}
    - text: done
`

// asWorker has danger-full-access calls run as the worker, who owns the test's
// directories.
func asWorker(s *policy.Settings) { s.Confinement.FullAccessAs = policy.AsWorker }

// asks starts a session that has somebody to ask, and waits until it has asked.
func (w *world) asks(script string, change ...func(*client.CreateRequest)) (session.ID, session.State) {
	w.t.Helper()
	id := w.root(script, append(change, func(in *client.CreateRequest) { in.Surface = session.SurfaceAny })...)
	return id, w.until(id, "asked and parked", func(s session.State) bool {
		return s.Open != nil && s.Open.Parked && len(s.Questions()) == 1
	})
}

// answer answers the only question of a session.
func (w *world) answer(id session.ID, s session.State, o session.Outcome, message string) (client.AnswerReply, error) {
	w.t.Helper()
	var out client.AnswerReply
	err := w.api.Call(w.t.Context(), client.MethodAnswer, client.AnswerRequest{
		Head: head, ID: id, Ask: s.Questions()[0].Ask.ID, Outcome: o, Message: message,
	}, &out)
	return out, err
}

// A question under ask parks the turn: no worker holds it, nothing behind it runs, and
// nothing is written. The answer runs exactly this call once, under the wider mode, and
// the log says who gave it (SPEC 5.6, 5.7).
func TestAPR02_AQuestionParksTheTurnUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, asWorker)
	k := w.work("w1", 1)
	id, s := w.asks(wantsMore)
	if got := s.Open.WaitsFor; len(got) != 1 || got[0] != (session.Wait{Kind: session.WaitApproval, ID: s.Questions()[0].Ask.ID}) {
		t.Errorf("the turn waits for %+v, want its question alone", got)
	}
	eventually(t, "the worker drives nothing", func() bool { return len(k.Driving()) == 0 })
	if exists(w.path("x")) || exists(w.path("behind")) {
		t.Error("something was written before the answer")
	}
	out, err := w.answer(id, s, session.AllowedOnce, "")
	w.must(err)
	if out.Outcome != session.AllowedOnce {
		t.Errorf("the answer came to %+v", out)
	}
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	asked, decided := payloads[*session.ApprovalAsked](events), payloads[*session.ApprovalDecided](events)
	if len(asked) != 1 || len(decided) != 1 || decided[0].ID != asked[0].ID || decided[0].By == nil || decided[0].By.ID != "ada" {
		t.Errorf("asked %+v, decided %+v; want one question and ada's answer to it", asked, decided)
	}
	var granted []session.CallID
	for _, d := range payloads[*session.ToolDecision](events) {
		if d.Grant != "" {
			granted = append(granted, d.CallID)
			if d.Grant != asked[0].ID || d.Mode != session.DangerFullAccess || d.By != session.StageApproval {
				t.Errorf("the granted decision is %+v", d)
			}
		} else if d.Verdict == session.Allow && d.Mode != session.WorkspaceWrite {
			t.Errorf("call %s ran under %s without a grant", d.CallID, d.Mode)
		}
	}
	if !slices.Equal(granted, []session.CallID{"1.1.0"}) {
		t.Errorf("granted were %v, want the call that asked and no other", granted)
	}
	if !exists(w.path("x")) || !exists(w.path("behind")) {
		t.Errorf("the calls did not write: %+v, %+v", resultOf(t, events, "1.1.0"), resultOf(t, events, "1.1.1"))
	}
	// To park is one record, to go on one with the decision behind it (claim and wake).
	parks := len(payloads[*session.TurnPark](events))
	if wakes := len(payloads[*session.TurnWake](events)); parks != 1 || wakes != 1 {
		t.Errorf("the turn was parked %d times and woken %d times, want once each", parks, wakes)
	}
}

// Every other outcome denies the call, with a text of its own, and runs nothing of it.
// An answer that was not offered is rejected (SPEC 5.7). What the person says with the
// answer reaches the model as a message.
func TestAPR12_AnswersThatDoNotAllow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer, want session.Outcome
		text         string
	}{
		"rejected":        {session.Rejected, session.Rejected, "was rejected"},
		"not offered":     {"allowed-always", session.Rejected, "was rejected"},
		"another outcome": {session.Unavailable, session.Rejected, "was rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, asWorker)
			w.work("w1", 1)
			id, s := w.asks(wantsMore)
			out, err := w.answer(id, s, c.answer, "use the other file")
			w.must(err)
			if out.Outcome != c.want {
				t.Errorf("it came to %+v, want %s", out, c.want)
			}
			w.idle(id)
			events := w.open(id).Events()
			onceEach(t, events)
			decided := payloads[*session.ApprovalDecided](events)
			if len(decided) != 1 || decided[0].Outcome != c.want {
				t.Errorf("decided %+v, want one, %s", decided, c.want)
			}
			if r := resultOf(t, events, "1.1.0"); !r.Denied || !strings.Contains(r.Content, c.text) {
				t.Errorf("the result is %+v, want a denial that says %q", r, c.text)
			}
			if exists(w.path("x")) || !exists(w.path("behind")) {
				t.Error("want the file of the refused call not there, and that of the one behind it there")
			}
			told := payloads[*session.UserMessage](events)
			i := slices.IndexFunc(told, func(m *session.UserMessage) bool { return m.Content == "use the other file" })
			if i < 0 || told[i].By == nil || told[i].By.ID != "ada" || told[i].Source.Kind != session.FromUser {
				t.Errorf("what the person said is not in the log: %+v", told)
			}
			if s, _ := w.open(id).State(); len(s.Pending) != 0 {
				t.Errorf("%d messages were not consumed", len(s.Pending))
			}
		})
	}
}

// An answer counts only if no switch and no new default stands between the question and
// it: else the outcome is cancelled and the call is decided anew (SPEC 5.6). Whoever
// changes the policy ends the question.
func TestSPEC5_6_AQuestionAboutAnOlderPolicyIsCancelled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world, id session.ID)
		text   string // of the result
		ran    bool
	}{
		"a switch to never": {func(w *world, id session.ID) {
			w.must(w.api.Call(w.t.Context(), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: id, Approvals: session.Never}, nil))
		}, "approvals are off", false},
		"a switch to what was asked for": {func(w *world, id session.ID) {
			w.must(w.api.Call(w.t.Context(), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: id, Sandbox: session.DangerFullAccess}, nil))
		}, "not strictly wider", false},
		"a new default": {func(w *world, _ session.ID) {
			w.must(w.api.Call(w.t.Context(), client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "defaults.approval", Value: []byte(`"never"`)}, nil))
		}, "approvals are off", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, asWorker)
			w.work("w1", 1)
			id, s := w.asks(wantsMore)
			c.change(w, id)
			w.idle(id)
			events := w.open(id).Events()
			onceEach(t, events)
			decided := payloads[*session.ApprovalDecided](events)
			if len(decided) == 0 || decided[0].ID != s.Questions()[0].Ask.ID || decided[0].Outcome != session.Cancelled {
				t.Fatalf("decided %+v, want the first question cancelled", decided)
			}
			if asked := payloads[*session.ApprovalAsked](events); len(asked) != len(decided) {
				t.Errorf("%d questions have %d outcomes, want one each", len(asked), len(decided))
			}
			if r := resultOf(t, events, "1.1.0"); !strings.Contains(r.Content, c.text) {
				t.Errorf("the result is %+v, want %q", r, c.text)
			}
			if exists(w.path("x")) != c.ran {
				t.Errorf("the file is there: %v", exists(w.path("x")))
			}
			_, err := w.answer(id, s, session.AllowedOnce, "")
			if client.CodeOf(err) != client.CodeAnswered || !strings.Contains(err.Error(), string(session.Cancelled)) {
				t.Errorf("a late answer: %v, want %s and its outcome", err, client.CodeAnswered)
			}
		})
	}
}

// An interrupt and a cancel take the question along; an answer after that changes
// nothing (SPEC 5.7, APR-05).
func TestAPR05_AQuestionIsCancelledWithItsTurn(t *testing.T) {
	t.Parallel()
	for _, method := range []string{client.MethodInterrupt, client.MethodCancel} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, asWorker)
			w.work("w1", 1)
			id, s := w.asks(wantsMore)
			w.must(w.api.Call(t.Context(), method, client.StopRequest{Head: head, ID: id, RequestID: "stop"}, nil))
			w.until(id, "stopped", func(s session.State) bool { return s.Open == nil })
			events := w.open(id).Events()
			onceEach(t, events)
			decided := payloads[*session.ApprovalDecided](events)
			if len(decided) != 1 || decided[0].Outcome != session.Cancelled {
				t.Errorf("decided %+v, want one, cancelled", decided)
			}
			if _, err := w.answer(id, s, session.AllowedOnce, ""); client.CodeOf(err) != client.CodeAnswered {
				t.Errorf("a late answer: %v, want %s", err, client.CodeAnswered)
			}
			if exists(w.path("x")) {
				t.Error("the file was written")
			}
		})
	}
}

// Nobody answers: the coordinator ends the question once the deployment's time for it
// is over, also while nobody drives the session, and its outcome is unavailable.
func TestAPR03_AQuestionThatNobodyAnswersExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *policy.Settings) { s.Approvals.ExpireAfter = policy.Duration(lease + time.Second) })
	k := w.work("w1", 1)
	id, s := w.asks(wantsMore)
	k.stop() // nobody drives it
	w.until(id, "expired", func(s session.State) bool { return len(s.Questions()) == 0 })
	w.work("w2", 1)
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	expired := payloads[*session.Expired](events)
	if len(expired) != 1 || expired[0].Ask != s.Questions()[0].Ask.ID || expired[0].By == nil || expired[0].By.Kind != session.CoordinatorOwn {
		t.Errorf("expired %+v, want the question once, by the coordinator", expired)
	}
	if decided := payloads[*session.ApprovalDecided](events); len(decided) != 0 {
		t.Errorf("decided %+v beside it", decided)
	}
	if r := resultOf(t, events, "1.1.0"); !r.Denied || !strings.Contains(r.Content, "Nobody can be asked") {
		t.Errorf("the result is %+v", r)
	}
}

// A grant is used once, by the call it names, whatever dies in between (I6): a worker
// that is gone after the answer leaves the call to the next one, which runs it once.
func TestI6_AGrantIsUsedOnceAcrossATakeover(t *testing.T) {
	t.Parallel()
	w := newWorld(t, asWorker)
	k := w.work("w1", 1)
	id, s := w.asks(wantsMore)
	k.die(t)
	for range 2 { // the same answer twice is one
		out, err := w.answer(id, s, session.AllowedOnce, "")
		w.must(err)
		if out.Outcome != session.AllowedOnce {
			t.Fatalf("it came to %+v", out)
		}
	}
	if _, err := w.answer(id, s, session.Rejected, ""); client.CodeOf(err) != client.CodeAnswered {
		t.Errorf("another answer: %v, want %s", err, client.CodeAnswered)
	}
	w.work("w2", 1)
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	uses := 0
	for _, d := range payloads[*session.ToolDecision](events) {
		if d.Grant != "" {
			uses++
		}
	}
	if decided := payloads[*session.ApprovalDecided](events); len(decided) != 1 || uses != 1 {
		t.Errorf("%d answers, used %d times; want one each", len(decided), uses)
	}
}

// A grant dies with the call that began under it: when its worker is gone in the middle
// of the effect, the call is not run again and its grant opens nothing (SPEC 5.9).
func TestI6_AGrantDiesWithTheCallThatBegan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, asWorker)
	k := w.work("w1", 1)
	id, s := w.asks(`
sessions:
  root:
    - calls:
        - {id: e, tool: bash, args: {command: "echo ran >> ran; while :; do sleep 0.02; done", sandbox_permissions: danger-full-access, justification: please}}
    - text: done
`)
	_, err := w.answer(id, s, session.AllowedOnce, "")
	w.must(err)
	eventually(t, "the command runs", func() bool { return exists(w.path("ran")) })
	k.die(t)
	w.work("w2", 1)
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.0"); r.Code != session.CodeToolOutcomeUnknown {
		t.Errorf("the result is %+v, want %s", r, session.CodeToolOutcomeUnknown)
	}
	uses := 0
	for _, d := range payloads[*session.ToolDecision](events) {
		if d.Grant != "" {
			uses++
		}
	}
	if uses != 1 {
		t.Errorf("the grant was used %d times", uses)
	}
}

// What a person has found out of a call whose outcome nobody knew is the next thing that
// the model reads (SPEC 5.9).
func TestSPEC5_9_TheModelIsToldWhatAPersonFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - calls: [{id: e, tool: bash, args: {command: "echo ran >> ran; while :; do sleep 0.02; done"}}]
    - text: I do not know
    - text: so it ran
`)
	eventually(t, "the command runs", func() bool { return exists(w.path("ran")) })
	k.die(t)
	w.work("w2", 1)
	w.idle(id)
	in := client.SettleRequest{Head: head, ID: id, Call: "1.1.0", Execution: client.Executed}
	w.must(w.api.Call(t.Context(), client.MethodCallSettle, in, nil))
	w.until(id, "a second turn", func(s session.State) bool { return s.Turn == 2 && s.Open == nil })
	told := agent.Messages(w.open(id).Events())
	before := told[len(told)-2]
	if told[len(told)-1].Text != "so it ran" || !strings.Contains(before.Text, "call 1.1.0 (bash) was unknown. I have looked: it was executed.") {
		t.Errorf("the model was shown %+v last", told[len(told)-2:])
	}
	w.must(w.api.Call(t.Context(), client.MethodCallSettle, in, nil)) // the same again
	if s := w.idle(id); s.Turn != 2 {
		t.Errorf("settling it again began turn %d", s.Turn)
	}
}

// Each outcome comes to the model in words of its own; only a grant runs the call. A
// stop that overtakes a grant wins: the call is not started, and its question keeps the
// outcome that it had.
func TestAPR11_EachOutcomeHasItsOwnWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, asWorker)
	k := w.work("w1", 1)
	script := `
sessions:
  root:
    - calls:
        - {id: e, tool: write, args: {path: %q, content: y, sandbox_permissions: danger-full-access, justification: please}}
    - text: done
`
	type end struct {
		outcome session.Outcome // what stands in the log
		result  *session.ToolResult
		ran     bool
	}
	ends := map[string]end{}
	finish := func(name string, id session.ID) {
		s := w.until(id, "its end", func(s session.State) bool { return s.Open == nil && s.LastEnd != nil })
		events := w.open(id).Events()
		onceEach(t, events)
		asked, decided := payloads[*session.ApprovalAsked](events), payloads[*session.ApprovalDecided](events)
		if len(asked) != 1 || len(decided) != 1 || decided[0].ID != asked[0].ID || len(s.Questions()) != 0 {
			t.Fatalf("%s: %d questions and %d outcomes, want one each:\n%s", name, len(asked), len(decided), list(events))
		}
		ends[name] = end{decided[0].Outcome, resultOf(t, events, "1.1.0"), exists(w.path(name))}
	}
	for _, o := range []session.Outcome{session.AllowedOnce, session.Rejected} {
		id, s := w.asks(fmt.Sprintf(script, o))
		_, err := w.answer(id, s, o, "")
		w.must(err)
		finish(string(o), id)
	}
	nobody := w.root(fmt.Sprintf(script, session.Unavailable), func(in *client.CreateRequest) { in.Surface = session.SurfaceNone })
	finish(string(session.Unavailable), nobody)
	// A person's answer that is cancelled because the turn stops meanwhile is the same.
	cancelled, _ := w.asks(fmt.Sprintf(script, session.Cancelled))
	overtaken, s := w.asks(fmt.Sprintf(script, "overtaken"))
	k.stop()
	<-k.done
	_, err := w.answer(overtaken, s, session.AllowedOnce, "")
	w.must(err)
	for _, id := range []session.ID{cancelled, overtaken} {
		w.must(w.api.Call(t.Context(), client.MethodInterrupt, client.StopRequest{Head: head, ID: id, RequestID: "stop"}, nil))
	}
	w.work("w2", 1)
	finish(string(session.Cancelled), cancelled)
	finish("overtaken", overtaken)

	words := map[string]string{}
	for name, e := range ends {
		wantOutcome := session.Outcome(name)
		if name == "overtaken" {
			wantOutcome = session.AllowedOnce
		}
		if allowed := name == string(session.AllowedOnce); e.outcome != wantOutcome || e.ran != allowed || e.result.IsError == allowed {
			t.Errorf("%s: the outcome is %q, the call ran %t, its result is %+v", name, e.outcome, e.ran, e.result)
		}
		stopped := name == "overtaken" || name == string(session.Cancelled)
		if (e.result.Code == session.CodeToolNotStarted) != stopped {
			t.Errorf("%s: the result's code is %q", name, e.result.Code)
		}
		if other, twice := words[e.result.Content]; twice && !stopped {
			t.Errorf("%s and %s have the same words: %q", name, other, e.result.Content)
		}
		words[e.result.Content] = name
	}
}

// A question has exactly one outcome, whatever comes at once: answers of both kinds, an
// interrupt of its turn, a switch and a new default. A grant is used by its call alone and
// only if its question still held (SPEC 5.6, 5.7).
func TestSPEC5_7_OneOutcomeWhateverComesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, asWorker)
	w.work("w1", 4)
	outcomes := map[session.Outcome]int{}
	for round := range 8 {
		id, s := w.asks(wantsMore)
		var all sync.WaitGroup
		at := func(method string, in any) {
			all.Go(func() {
				// What comes too late is refused, and says so.
				if err := w.api.Call(t.Context(), method, in, nil); err != nil && client.CodeOf(err) != client.CodeAnswered {
					t.Errorf("%s: %v", method, err)
				}
			})
		}
		for _, o := range []session.Outcome{session.AllowedOnce, session.Rejected} {
			at(client.MethodAnswer, client.AnswerRequest{Head: head, ID: id, Ask: s.Questions()[0].Ask.ID, Outcome: o})
		}
		if round%2 == 0 {
			at(client.MethodInterrupt, client.StopRequest{Head: head, ID: id, RequestID: "stop"})
		}
		if round%3 == 0 {
			at(client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: id, Sandbox: session.ReadOnly})
		}
		if round%4 == 1 {
			mode := []byte(`"read-only"`)
			if round == 1 {
				mode = []byte(`"workspace-write"`)
			}
			at(client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "defaults.sandbox", Value: mode})
		}
		all.Wait()
		w.must(w.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: id, RequestID: "over"}, nil))
		w.until(id, "its end", func(s session.State) bool { return s.Ended != nil })
		events := w.open(id).Events()
		onceEach(t, events)
		outcome, used := map[string]session.Outcome{}, map[string]int{}
		for _, p := range payloads[*session.ApprovalDecided](events) {
			if o, twice := outcome[p.ID]; twice {
				t.Errorf("question %s is %s after it was %s:\n%s", p.ID, p.Outcome, o, list(events))
			}
			outcome[p.ID] = p.Outcome
			outcomes[p.Outcome]++
		}
		for _, q := range payloads[*session.ApprovalAsked](events) {
			if outcome[q.ID] == "" {
				t.Errorf("question %s has no outcome:\n%s", q.ID, list(events))
			}
		}
		for _, d := range payloads[*session.ToolDecision](events) {
			if d.Grant == "" {
				continue
			}
			if used[d.Grant]++; used[d.Grant] > 1 || outcome[d.Grant] != session.AllowedOnce {
				t.Errorf("grant %s, %s, was used %d times:\n%s", d.Grant, outcome[d.Grant], used[d.Grant], list(events))
			}
		}
	}
	t.Logf("outcomes: %v", outcomes)
}

// A grant covers one call and all of it, not what looks like it: a long command that ends
// otherwise, other text for the same file and the very same call again are asked about on
// their own, and what was allowed ran as it stood there.
func TestC3_AGrantCoversOneCallAndAllOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, asWorker)
	w.work("w1", 1)
	const more = `sandbox_permissions: danger-full-access, justification: please`
	long := ": " + strings.Repeat("a", 300) + "; echo "
	steps := []struct {
		call   string
		answer session.Outcome
	}{
		{`{tool: bash, args: {command: "` + long + `allowed >> ledger", ` + more + `}}`, session.AllowedOnce},
		{`{tool: bash, args: {command: "` + long + `refused >> ledger", ` + more + `}}`, session.Rejected},
		{`{tool: bash, args: {command: "` + long + `allowed >> ledger", ` + more + `}}`, session.Rejected},
		{`{tool: write, args: {path: p, content: allowed, ` + more + `}}`, session.AllowedOnce},
		{`{tool: write, args: {path: p, content: refused, ` + more + `}}`, session.Rejected},
	}
	var script strings.Builder
	script.WriteString("sessions:\n  root:\n")
	for _, s := range steps {
		script.WriteString("    - calls: [" + s.call + "]\n")
	}
	script.WriteString("    - text: done\n")
	id := w.root(script.String(), func(in *client.CreateRequest) { in.Surface = session.SurfaceAny })
	var asks []string
	for _, step := range steps {
		s := w.until(id, fmt.Sprintf("question %d", len(asks)+1), func(s session.State) bool {
			q := s.Questions()
			return len(q) == 1 && s.Open.Parked && !slices.Contains(asks, q[0].Ask.ID)
		})
		asks = append(asks, s.Questions()[0].Ask.ID)
		_, err := w.answer(id, s, step.answer, "")
		w.must(err)
	}
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	digests := map[string]bool{}
	for _, q := range payloads[*session.ApprovalAsked](events) {
		digests[q.Digest] = true
	}
	if len(digests) != 4 {
		t.Errorf("%d questions name %d digests, want one for each way to call", len(asks), len(digests))
	}
	for name, want := range map[string]string{"ledger": "allowed\n", "p": "allowed"} {
		if b, err := os.ReadFile(w.path(name)); err != nil || string(b) != want {
			t.Errorf("%s has %q (%v), want %q", name, b, err, want)
		}
	}
}
