package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// codes are the codes of a log's results, by call.
func codes(events []session.Event) map[session.CallID]string {
	out := map[session.CallID]string{}
	for _, r := range payloads[*session.ToolResult](events) {
		out[r.CallID] = r.Code
	}
	return out
}

// fromSessions are the messages of a log that other sessions sent, as kind: content.
func fromSessions(events []session.Event) []string {
	var out []string
	for _, m := range payloads[*session.UserMessage](events) {
		if k := m.Source.Kind; k == session.FromAgent || k == session.FromReport || k == session.FromSettled {
			out = append(out, fmt.Sprintf("%s: %s", k, m.Content))
		}
	}
	return out
}

// A parent talks with a continuable child: it sends while the child is idle and while it
// works, the child reports, in order, and each return to idle is one notice. The child's
// turns are numbered on in the one log, under the policy that it was born with.
func TestCON05_AParentGoesOnWithAContinuableChild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 2)
	root := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: helper, prompt: first}}]
    - calls: [{id: b, tool: send, args: {to: helper, message: second}}]
    - text: waiting
    - text: thank you
    - text: again
    - text: and again
  helper:
    - text: did the first
    - calls: [{id: r, tool: report, args: {message: half way}}]
    - text: did the second
`)
	w.until(root, "the second notice is read", func(s session.State) bool {
		c, ok := childOf(s)
		return ok && c.Noticed == 2 && s.Open == nil && len(s.Pending) == 0
	})
	parent := w.open(root).Events()
	onceEach(t, parent)
	child := children(parent)[0]
	log := w.open(child).Events()
	onceEach(t, log)
	got := fromSessions(parent)
	if len(got) != 3 || !strings.HasPrefix(got[0], "subagent-settled: ") || got[1] != "report: half way" || !strings.Contains(got[2], "did the second") {
		t.Errorf("the parent was told %q; want the first notice, the report, the second notice", got)
	}
	if sent := fromSessions(log); !slices.Equal(sent, []string{"agent-message: second"}) {
		t.Errorf("the child was told %q", sent)
	}
	s, _ := w.open(child).State()
	policies := len(payloads[*session.SandboxSwitch](log)) + len(payloads[*session.ApprovalSwitch](log)) + len(payloads[*session.PresetSwitch](log))
	if s.Turn != 2 || s.Ended != nil || policies > 3 {
		t.Errorf("the child is in turn %d, ended %v, with %d policy events", s.Turn, s.Ended, policies)
	}
	told := agent.Messages(log)
	if i := slices.IndexFunc(told, func(m model.Message) bool {
		return strings.Contains(m.Text, "message from session "+string(root)+":\nsecond")
	}); i < 0 {
		t.Errorf("the model of the child was not shown who spoke: %+v", told)
	}
	for _, m := range payloads[*session.UserMessage](log) {
		if m.Source.Kind == session.FromAgent && (m.Source.SenderSessionID != root || m.By == nil || m.By.Kind != session.SessionParty || m.By.ID != string(root)) {
			t.Errorf("the message is from %+v, by %+v", m.Source, m.By)
		}
	}
}

// childOf is the only child of a session.
func childOf(s session.State) (session.Child, bool) {
	if len(s.Children) != 1 {
		return session.Child{}, false
	}
	return s.Children[0], true
}

// Who may not is refused with a closed code, and nothing is in any log but the caller's:
// a root has nobody to report to, a one-shot child takes no follow-up, a session that is
// not there neither; what is not below a session is not its to stop (SPEC 7.6).
func TestSPEC7_6_WhoMaySpeakToWhom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 3)
	stranger := w.root("sessions: {root: [{text: hello}]}")
	w.idle(stranger)
	script := `
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, label: once, prompt: p, background: true}}]
    - calls:
        - {id: a, tool: report, args: {message: to nobody}}
        - {id: b, tool: send, args: {to: once, message: a follow-up}}
        - {id: c, tool: send, args: {to: nobody, message: a follow-up}}
        - {id: d, tool: send, args: {to: STRANGER, message: a follow-up}}
        - {id: e, tool: interrupt, args: {session: STRANGER}}
        - {id: f, tool: cancel, args: {session: STRANGER}}
        - {id: g, tool: cancel, args: {session: nobody}}
    - text: done
  once:
    - calls: [{id: a, tool: report, args: {message: one-shot}}, {id: b, tool: send, args: {to: STRANGER, message: x}}]
    - {text: done, wait_for: ` + w.path("go") + `}
`
	before := len(w.open(stranger).Events())
	root := w.root(strings.ReplaceAll(script, "STRANGER", string(stranger)))
	w.until(root, "the calls have their results", func(s session.State) bool { return s.Steps == 3 })
	events := w.open(root).Events()
	want := map[session.CallID]string{
		"1.2.0": "UNAUTHORIZED", "1.2.1": "NOT_RESUMABLE", "1.2.2": "NOT_RESUMABLE", "1.2.3": "UNAUTHORIZED",
		"1.2.4": "UNAUTHORIZED", "1.2.5": "UNAUTHORIZED", "1.2.6": "UNAUTHORIZED",
	}
	got := codes(events)
	for call, code := range want {
		if got[call] != code {
			t.Errorf("call %s ended with code %q, want %s", call, got[call], code)
		}
	}
	child := children(events)[0]
	w.until(child, "the child's calls have their results", func(s session.State) bool { return s.Steps >= 1 && s.Open != nil && s.Open.Step == 2 })
	if got := codes(w.open(child).Events()); got["1.1.0"] != "UNAUTHORIZED" || got["1.1.1"] != "UNAUTHORIZED" {
		t.Errorf("the child's calls ended with %v", got)
	}
	if after := len(w.open(stranger).Events()); after != before {
		t.Errorf("%d events were added to the log of a stranger", after-before)
	}
	if told := fromSessions(w.open(child).Events()); len(told) != 0 {
		t.Errorf("the one-shot child was told %q", told)
	}
	w.touch("go")
}

// An ancestor at any depth interrupts and cancels; the interrupt cuts the target's turn
// alone and the cancel takes all below along and gives the slot back (SPEC 7.4).
func TestINT02_AnAncestorStopsWhatIsBelow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *policy.Settings) { s.Caps.Live = 1 })
	w.work("w1", 4)
	root := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: middle, prompt: p, background: true}}]
    - {text: "", calls: [{id: a, tool: interrupt, args: {session: middle, reason: enough}}], wait_for: ` + w.path("deep") + `}
    - {text: "", calls: [{id: a, tool: cancel, args: {session: middle}}], wait_for: ` + w.path("cut") + `}
    - {text: "", calls: [{id: a, tool: delegate, args: {kind: spawn, label: next, prompt: p}}], wait_for: ` + w.path("ended") + `}
    - text: done
  middle:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: leaf, prompt: p, background: true}}]
    - {text: never, wait_for: ` + w.path("never") + `}
  leaf:
    - {text: never, wait_for: ` + w.path("never") + `}
  next:
    - text: I have the place
`)
	var middle, leaf session.ID
	eventually(t, "three generations", func() bool {
		if ids := children(w.open(root).Events()); len(ids) == 1 {
			middle = ids[0]
			if below := children(w.open(middle).Events()); len(below) == 1 {
				leaf = below[0]
				s, _ := w.open(leaf).State()
				return s.Open != nil && s.Open.StepOpen
			}
		}
		return false
	})
	w.touch("deep")
	s := w.until(middle, "interrupted", func(s session.State) bool { return s.Open == nil && s.LastEnd != nil })
	if r := s.LastEnd.Reason; r.Kind != session.EndAborted || r.By != "session:"+string(root) || r.Message != "enough" {
		t.Errorf("the turn ended %+v, want it aborted by its parent", r)
	}
	if s, _ := w.open(leaf).State(); s.Open == nil || s.Open.Interrupt != nil {
		t.Errorf("the leaf's turn was cut too: %+v", s.Open)
	}
	w.touch("cut")
	w.until(root, "the slot is free", func(s session.State) bool { return len(s.Children) == 0 })
	for _, id := range []session.ID{middle, leaf} {
		if s, _ := w.open(id).State(); s.Ended == nil || s.Ended.Outcome != session.OutcomeCancelled {
			t.Errorf("session %s ended %+v, want cancelled", id, s.Ended)
		}
	}
	w.touch("ended")
	w.idle(root)
	events := w.open(root).Events()
	onceEach(t, events)
	if ids := children(events); len(ids) != 2 {
		t.Errorf("the parent has started %d children, want the second in the place of the first", len(ids))
	}
}

// A call that a dead driver left open is carried out again by the next one and comes to
// the same: the message is there once (SPEC 5.9).
func TestSPEC5_9_ARelayedCallIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.work("w1", 2)
	root := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: helper, prompt: first}}]
    - {text: never, wait_for: ` + w.path("never") + `}
    - text: done
  helper:
    - text: did the first
    - text: did the second
`)
	var child session.ID
	eventually(t, "the child has answered", func() bool {
		ids := children(w.open(root).Events())
		if len(ids) == 1 {
			child = ids[0]
		}
		s, _ := w.open(root).State()
		return len(ids) == 1 && s.Open != nil && s.Open.Step == 2
	})
	k.die(t)
	// What the first worker did before it died: it took the answer, decided the call and had
	// it carried out. Only its result is lost.
	driver, err := stream.New(w.broker.Conn(t, broker.Worker, "w1"), stream.Config{Witness: w.store})
	w.must(err)
	stored, revision, err := w.log.Settings().Load(t.Context())
	w.must(err)
	dep, err := policy.NewDeployment(stored, revision)
	w.must(err)
	done, err := driver.Append(t.Context(), w.store, root, stream.Change{
		Name: "the last record", Class: session.ClassTurn, Epoch: func(v session.View) uint64 { return v.State.Epoch + 1 },
		Drafts: func(v session.View) ([]session.Draft, error) {
			turn, step := v.State.Turn, v.State.Open.Step
			dec, err := policy.Decide(v.State, dep, policy.Call{ID: "1.2.0", Tool: client.ToolSend}, agent.Tools())
			if err != nil {
				return nil, err
			}
			rec := dec.Record()
			var out []session.Draft
			for _, p := range []session.Payload{
				&session.Claim{Epoch: v.State.Epoch + 1, Worker: "w1", Incarnation: "dead", Cause: session.CauseTakeover},
				&session.AssistantMessage{Turn: turn, Step: step, Calls: []int{0}, Extent: session.Extent{Worker: "w1", Incarnation: "dead", Attempt: 2}},
				&session.ToolCall{Turn: turn, Step: step, CallID: "1.2.0", Name: client.ToolSend, Arguments: `{"to":"helper","message":"second"}`},
				&rec,
			} {
				out = append(out, session.Draft{Time: 1, Payload: p})
			}
			return out, nil
		},
	})
	w.must(err)
	dead := client.New(w.broker.Conn(t, broker.Worker, "w1"), client.Config{Worker: "w1"})
	w.must(dead.Call(t.Context(), client.MethodRelay, client.RelayRequest{
		Head: head, Session: root, Call: "1.2.0", Epoch: done.State.Epoch, Tail: done.StreamSeq,
	}, nil))
	w.work("w2", 2)
	w.until(child, "its second turn has ended", func(s session.State) bool { return s.Turn == 2 && s.Open == nil })
	w.idle(root)
	events := w.open(root).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.2.0"); r.IsError {
		t.Errorf("the send ended %+v", r)
	}
	if told := fromSessions(w.open(child).Events()); !slices.Equal(told, []string{"agent-message: second"}) {
		t.Errorf("the child was told %q", told)
	}
}

// What a worker asks for a session that it does not drive is refused: the call, its
// decision and the epoch stand in the log or they do not (SPEC 7.6).
func TestSPEC7_6_AWorkerSpeaksForNoOtherSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root("sessions: {root: [{text: hello}]}")
	s := w.idle(id)
	other := client.New(w.broker.Conn(t, broker.Worker, "w2"), client.Config{Worker: "w2"})
	for name, in := range map[string]client.RelayRequest{
		"no call":           {Session: id, Call: "1.1.0", Epoch: s.Epoch},
		"an older epoch":    {Session: id, Call: "1.1.0", Epoch: s.Epoch - 1},
		"a call to come":    {Session: id, Call: "9.1.0", Epoch: s.Epoch},
		"an epoch to come":  {Session: id, Call: "1.1.0", Epoch: s.Epoch + 1},
		"no session at all": {Session: "0001m8pgrjs8m9g9qeynnyk2zje7", Call: "1.1.0", Epoch: 1},
	} {
		in.Head, in.Tail = head, 1
		err := other.Call(t.Context(), client.MethodRelay, in, nil)
		if code := client.CodeOf(err); code != client.CodePrecondition && code != client.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
}
