package agent_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// buried are claims of incarnations that are not alive, one after the other, and
// nothing between them: what a session's log holds that killed them.
func (w *world) buried(id session.ID, incarnations ...string) {
	w.t.Helper()
	log, err := stream.New(w.broker.Conn(w.t, broker.Worker, "w2"), stream.Config{Witness: w.store})
	w.must(err)
	for i, name := range incarnations {
		rep := w.open(id)
		s, _ := rep.State()
		record := []session.Payload{&session.Claim{Epoch: s.Epoch + 1, Worker: "w2", Incarnation: name, Cause: session.CauseTakeover}}
		if i == 0 {
			record[0].(*session.Claim).Cause = session.CauseStart
			record = append(record, &session.TurnStart{Turn: 1}, &session.Consumed{Turn: 1, Seqs: []session.Seq{s.Pending[0].Seq}})
		}
		_, err := log.Append(w.t.Context(), rep, id, stream.Change{
			Name: "bury", Class: session.ClassTurn,
			Epoch: func(session.View) uint64 { return s.Epoch + 1 },
			Drafts: func(session.View) ([]session.Draft, error) {
				var out []session.Draft
				for _, p := range record {
					out = append(out, session.Draft{Time: time.Now().UnixMilli(), Payload: p})
				}
				return out, nil
			},
		})
		w.must(err)
	}
}

// A worker leaves a session on which three incarnations died and acknowledges its
// hints. It may be cancelled all the same: its end does not lead by what killed
// them. One on which two died is driven to its end: the count is what decides.
func TestQuarantinedSessionIsLeftAndCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unswept)
	poison, unlucky := w.root(oneWrite), w.root(oneWrite)
	s, _ := w.open(poison).State()
	w.must(sandbox.Mark(w.dir, s.Header.Workspace.ID)) // as the first of them did
	w.buried(poison, "i1", "i2", "i3")
	w.buried(unlucky, "i1", "i2")
	w.work("w1", 2)
	w.idle(unlucky)
	w.drained()
	if s, _ := w.open(poison).State(); s.Epoch != 3 || s.Open == nil {
		t.Errorf("the quarantined session is at epoch %d, want 3 and its turn open", s.Epoch)
	}
	w.must(w.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: poison, RequestID: ulid.Make().String()}, nil))
	s = w.until(poison, "ended", func(s session.State) bool { return s.Ended != nil })
	if s.Ended.Outcome != session.OutcomeCancelled || w.ran() != 1 {
		t.Errorf("it ended %q and %d calls ran, want cancelled, and the other one's call", s.Ended.Outcome, w.ran())
	}
	w.drained()
}

// Workers that leave a turn in order say so in its log, and did not die on it,
// however many there were and however little came of it.
func TestWorkersThatLeaveInOrderDieOnNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unswept)
	id := w.root(fmt.Sprintf("sessions:\n  root:\n    - {text: done, wait_for: %q}\n", w.path("go")))
	for epoch := range uint64(session.Fatal + 1) {
		k := w.work("w1", 1)
		w.until(id, "asking the model", func(s session.State) bool { return s.Epoch == epoch+1 && s.Open.StepOpen })
		k.stop()
		<-k.done
	}
	left := payloads[*session.TurnDeferred](w.open(id).Events())
	if len(left) != session.Fatal+1 || left[0].Why == "" {
		t.Errorf("the log says %d times that its turn was left, want %d, with why", len(left), session.Fatal+1)
	}
	w.letGo()
	w.work("w1", 1)
	if s := w.idle(id); s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the turn ended %q, want completed", s.LastEnd.Reason.Kind)
	}
}
