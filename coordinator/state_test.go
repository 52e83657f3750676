package coordinator_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// A session has one state, of its log and of how its driver lives (SPEC 7.5). The
// worker here is the test, so that it can live in every way that there is.
func TestSPEC7_5_OneStateOfLogAndDriver(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	d := deploy(t, 1, func(s *policy.Settings) { s.Lease = policy.Duration(lease) })
	say := func(incarnation string, claims ...client.AliveClaim) {
		t.Helper()
		value, err := json.Marshal(client.Alive{
			Worker: "w1", Incarnation: incarnation, Lease: policy.Duration(10 * time.Minute),
			Claims: append([]client.AliveClaim{}, claims...),
		})
		d.must(err)
		d.must(d.log.Liveness().Put(t.Context(), "w1", value))
	}
	is := func(id session.ID, what string, ok func(client.Summary) bool) client.Summary {
		t.Helper()
		var s client.Summary
		eventually(t, what, func() bool { s = d.show(id); return ok(s) })
		return s
	}
	status := func(want client.Status) func(client.Summary) bool {
		return func(s client.Summary) bool { return s.Status == want }
	}
	waitsFor := func(s client.Summary, kind session.WaitKind) bool {
		return s.Status == client.StatusWaiting && slices.ContainsFunc(s.WaitsFor, func(w session.Wait) bool { return w.Kind == kind })
	}

	id := d.root()
	if s := d.show(id); !waitsFor(s, client.WaitWorker) || s.Since != 0 || s.LastTime == 0 {
		t.Errorf("nobody has taken it yet: %+v", s)
	}
	is(id, "nobody has taken it for two leases: stalled", status(client.StatusStalled))

	st := d.claim(id)
	mine := client.AliveClaim{Session: id, Epoch: st.Epoch}
	if s := d.show(id); s.Status != client.StatusLost || s.Worker != "w1" || s.Since == 0 {
		t.Errorf("its driver is not there: %+v", s)
	}
	say("i0", mine)
	is(id, "another run of its driver is there", status(client.StatusLost))
	say("i1", client.AliveClaim{Session: id, Epoch: st.Epoch + 1})
	is(id, "its driver is there and lists another claim", status(client.StatusStalled))
	say("i1", mine)
	if s := is(id, "its driver lives", status(client.StatusRunning)); s.Current != nil || s.Elapsed < 0 {
		t.Errorf("nothing of it runs now: %+v", s)
	}

	d.turn(id, func(s session.State) []session.Payload {
		return []session.Payload{&session.StepStart{Turn: s.Turn, Step: 1}}
	})
	if s := is(id, "the model is asked", func(s client.Summary) bool { return len(s.Current) == 1 }); s.Current[0].What != client.DoingModel || s.Current[0].Since == 0 {
		t.Errorf("it does %+v", s.Current)
	}
	call := session.MakeCallID(1, 1, 0)
	d.turn(id, func(s session.State) []session.Payload {
		return []session.Payload{
			&session.AssistantMessage{Turn: 1, Step: 1, Calls: []int{0}},
			&session.ToolCall{Turn: 1, Step: 1, CallID: call, Name: "bash", Arguments: "{}"},
		}
	})
	d.decideAllow(id, call)
	s := is(id, "a call runs", func(s client.Summary) bool { return len(s.Current) == 1 && s.Current[0].What == client.DoingCall })
	if c := s.Current[0]; c.Call != call || c.Tool != "bash" || c.Since == 0 || s.Status != client.StatusRunning {
		t.Errorf("it does %+v", s.Current)
	}

	d.turn(id, func(s session.State) []session.Payload {
		return []session.Payload{&session.TurnDeferred{Seqs: []session.Seq{1}, Until: time.Now().UnixMilli(), Why: "handed over"}}
	})
	say("i1")
	is(id, "it was handed over: it waits for a worker", func(s client.Summary) bool { return waitsFor(s, client.WaitWorker) })

	say("i1", mine)
	d.turn(id, func(s session.State) []session.Payload {
		return []session.Payload{
			&session.ToolResult{Turn: 1, Step: 1, CallID: call, Content: "ok"}, &session.StepEnd{Turn: 1, Step: 1},
			&session.TurnEnd{Turn: 1, Reason: session.EndReason{Kind: session.EndCompleted}},
		}
	})
	if s := is(id, "its turn has ended", status(client.StatusIdle)); s.Outcome != session.OutcomeCompleted || s.Since != 0 || s.Current != nil {
		t.Errorf("its turn has ended: %+v", s)
	}
	d.must(d.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: id, RequestID: "r1"}, nil))
	d.turn(id, func(s session.State) []session.Payload {
		return []session.Payload{&session.End{Outcome: session.OutcomeCancelled}}
	})
	if s := is(id, "it has ended", status(client.StatusEnded)); s.Outcome != session.OutcomeCancelled {
		t.Errorf("it has ended: %+v", s)
	}
}

// decideAllow allows a call of the open step as a worker does.
func (d *deployment) decideAllow(id session.ID, call session.CallID) {
	d.t.Helper()
	d.turn(id, func(s session.State) []session.Payload {
		stored, revision, err := d.log.Settings().Load(d.t.Context())
		d.must(err)
		dep, err := policy.NewDeployment(stored, revision)
		d.must(err)
		dec, err := policy.Decide(s, dep, policy.Call{ID: call, Tool: "bash", Effect: true}, tools)
		d.must(err)
		rec := dec.Record()
		return []session.Payload{&rec}
	})
}
