package coordinator_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// unknown makes an idle root whose only call has an outcome that nobody knows, as a
// takeover leaves it.
func (d *deployment) unknown() session.ID {
	d.t.Helper()
	id := d.root()
	d.claim(id)
	d.turn(id, func(s session.State) []session.Payload {
		stored, revision, err := d.log.Settings().Load(d.t.Context())
		d.must(err)
		dep, err := policy.NewDeployment(stored, revision)
		d.must(err)
		e := policy.EffectiveOf(s.Knobs, dep)
		call := session.MakeCallID(s.Turn, 1, 0)
		mark := session.Extent{Worker: "w1", Incarnation: "i1", Attempt: 1}
		return []session.Payload{
			&session.StepStart{Turn: s.Turn, Step: 1},
			&session.AssistantMessage{Turn: s.Turn, Step: 1, Calls: []int{0}},
			&session.ToolCall{Turn: s.Turn, Step: 1, CallID: call, Name: "bash", Arguments: `{"command":"make"}`},
			&session.ToolDecision{CallID: call, Verdict: session.Allow, Mode: e.Sandbox, Network: session.NetworkDeny, Basis: e.Basis, By: session.StagePolicy, Revision: dep.Revision, Settings: dep.Hash},
			&session.ToolResult{Turn: s.Turn, Step: 1, CallID: call, Content: "outcome unknown", IsError: true, Code: session.CodeToolOutcomeUnknown, Extent: mark},
			&session.StepEnd{Turn: s.Turn, Step: 1, Extent: mark},
			&session.TurnEnd{Turn: s.Turn, Reason: session.EndReason{Kind: session.EndCompleted}, Extent: mark},
		}
	})
	d.catchUp()
	return id
}

func (d *deployment) settleCall(id session.ID, call session.CallID, e client.Execution) (client.SettleReply, error) {
	d.t.Helper()
	var out client.SettleReply
	err := d.api.Call(d.t.Context(), client.MethodCallSettle, client.SettleRequest{Head: head, ID: id, Call: call, Execution: e, Message: "I looked"}, &out)
	return out, err
}

// A person says of a call whose outcome is unknown what happened, once: it stands in the
// log under the person's name as a message that the session reads, and the result stays
// what it is (SPEC 5.9). The same again changes nothing, another word is refused.
func TestSPEC5_9_AnUnknownOutcomeIsSettledOnce(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) })
	id := d.unknown()
	first, err := d.settleCall(id, "1.1.0", client.Executed)
	d.must(err)
	if first.Existing || first.Execution != client.Executed || first.By == nil || first.By.Kind != session.Person {
		t.Errorf("settled: %+v", first)
	}
	for range 4 { // two coordinators answer in turn
		again, err := d.settleCall(id, "1.1.0", client.Executed)
		d.must(err)
		if !again.Existing || again.Seq != first.Seq {
			t.Errorf("settled again: %+v, the first was at seq %d", again, first.Seq)
		}
		if _, err := d.settleCall(id, "1.1.0", client.NotExecuted); client.CodeOf(err) != client.CodeSettled || !strings.Contains(err.Error(), "executed") {
			t.Errorf("settled otherwise: %v, want %s", err, client.CodeSettled)
		}
	}
	d.catchUp()
	told := 0
	for _, l := range d.lines(id) {
		if l.Type == session.TypeUserMessage && strings.Contains(string(l.Data), "was executed") && strings.Contains(string(l.Data), "I looked") {
			told++
		}
	}
	if e, err := d.store.Session(id); err != nil || told != 1 || len(e.State.Pending) != 1 {
		t.Errorf("the session is told %d times, %d messages wait; want one each (%v)", told, len(e.State.Pending), err)
	}
	var shown client.CallReply
	d.must(d.api.Call(t.Context(), client.MethodCallExplain, client.CallRequest{Head: head, ID: id, Call: "1.1.0"}, &shown))
	if shown.Settled == nil || shown.Settled.Execution != client.Executed || shown.Result.Code != session.CodeToolOutcomeUnknown {
		t.Errorf("explained: %+v", shown)
	}
	other := d.root()
	d.claim(other)
	d.step(other, 1)
	if _, err := d.settleCall(other, "1.1.0", client.Executed); client.CodeOf(err) != client.CodePrecondition {
		t.Errorf("a call without a result: %v, want %s", err, client.CodePrecondition)
	}
	if _, err := d.settleCall(id, "1.1.7", client.Executed); client.CodeOf(err) != client.CodeNoCall {
		t.Errorf("no such call: %v, want %s", err, client.CodeNoCall)
	}
}

// Many people settle one call at once and do not agree: one of them is right, the others
// are told so, and the session is told once, also where they share records because others
// write to the session, too.
func TestSPEC5_9_PeopleWhoDisagreeSettleACallOnce(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) })
	const rounds, people = 5, 8
	for range rounds {
		id := d.unknown()
		var mu sync.Mutex
		var all sync.WaitGroup
		settled, refused := map[client.Execution]int{}, 0
		for i := range people {
			all.Go(func() {
				d.must(d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: id, MessageID: strconv.Itoa(i), Content: "hello"}, nil))
			})
			all.Go(func() {
				out, err := d.settleCall(id, "1.1.0", []client.Execution{client.Executed, client.NotExecuted}[i%2])
				mu.Lock()
				defer mu.Unlock()
				switch {
				case client.CodeOf(err) == client.CodeSettled:
					refused++
				case err != nil:
					t.Errorf("settle: %v", err)
				default:
					settled[out.Execution]++
				}
			})
		}
		all.Wait()
		d.catchUp()
		if e, err := d.store.Session(id); err != nil || len(settled) != 1 || refused != people/2 || len(e.State.Pending) != people+1 {
			t.Errorf("settled as %v, refused %d, %d messages wait (%v); want one outcome, %d refused, %d messages", settled, refused, len(e.State.Pending), err, people/2, people+1)
		}
	}
}
