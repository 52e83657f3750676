package scenario_test

import (
	"testing"
	"time"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// hand is a worker that the test drives itself, record by record.
type hand struct {
	w   *world
	id  session.ID
	log *stream.Log
	api *client.Client
}

func (w *world) driveByHand(name string, id session.ID) *hand {
	w.t.Helper()
	nc, err := w.connect(broker.Worker, name)
	w.must(err)
	h := &hand{w: w, id: id, api: client.New(nc, client.Config{Worker: name})}
	h.log, err = stream.New(nc, stream.Config{
		Witness: agent.Witness{Client: h.api}, Writer: session.Writer{Component: "worker", Instance: name, Incarnation: "i1"},
	})
	w.must(err)
	s, _ := w.open(id).State()
	w.must(sandbox.Mark(w.ws, s.Header.Workspace.ID)) // as whoever drives a root first
	return h
}

// write appends one record as somebody with the log of a class's writer.
func (h *hand) write(log *stream.Log, class session.Class, epoch uint64, events ...session.Payload) {
	h.w.t.Helper()
	_, err := log.Append(h.w.t.Context(), h.w.open(h.id), h.id, stream.Change{
		Name: "by hand", Class: class, Epoch: func(session.View) uint64 { return epoch },
		Drafts: func(session.View) ([]session.Draft, error) {
			var out []session.Draft
			for _, p := range events {
				out = append(out, session.Draft{Time: time.Now().UnixMilli(), Payload: p})
			}
			return out, nil
		},
	})
	h.w.must(err)
}

// decide decides a call on the log as it is.
func (h *hand) decide(c policy.Call) policy.Decision {
	h.w.t.Helper()
	stored, revision, err := h.log.Settings().Load(h.w.t.Context())
	h.w.must(err)
	dep, err := policy.NewDeployment(stored, revision)
	h.w.must(err)
	s, _ := h.w.open(h.id).State()
	d, err := policy.Decide(s, dep, c, agent.Tools())
	h.w.must(err)
	return d
}

// A person lets a read-only parent's one call write in the workspace. The grant is
// the call's: the child that the parent starts right after it is as read-only as
// the parent is, and its write is denied.
func TestINH09_NoGrantCrosses(t *testing.T) {
	t.Parallel()
	w := own(t)
	w.must(w.coordinate())
	root := w.root(delegateOneWrite, readOnly)
	h := w.driveByHand("w1", root)
	answer := func(step, index int, name string) []session.Payload {
		id := session.MakeCallID(1, step, index)
		return []session.Payload{
			&session.StepStart{Turn: 1, Step: step},
			&session.AssistantMessage{Turn: 1, Step: step, Calls: []int{index}},
			&session.ToolCall{Turn: 1, Step: step, Index: index, CallID: id, Name: name, Arguments: "{}"},
		}
	}
	pending, _ := w.open(root).State()
	h.write(h.log, session.ClassTurn, 1, append([]session.Payload{
		&session.Claim{Epoch: 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart}, &session.TurnStart{Turn: 1},
		&session.Consumed{Turn: 1, Seqs: []session.Seq{pending.Pending[0].Seq}},
	}, answer(1, 0, "write")...)...)
	call := policy.Call{ID: "1.1.0", Tool: "write", Effect: true, Digest: "d", Escalate: session.WorkspaceWrite, Justification: "once"}
	question, ok := h.decide(call).(policy.Question)
	if !ok {
		t.Fatal("nobody is to be asked")
	}
	asked, ask := question.Record(), question.Ask()
	h.write(h.log, session.ClassTurn, 1, &asked, &ask)
	h.write(w.log, session.ClassInbox, 0, &session.ApprovalDecided{
		ID: ask.ID, Outcome: session.AllowedOnce, By: &session.Party{Kind: session.Person, ID: "ada"},
	})
	permit, ok := h.decide(call).(policy.Permit)
	if !ok || permit.Mode() != session.WorkspaceWrite {
		t.Fatalf("the grant gives %v, want the call under %s", permit, session.WorkspaceWrite)
	}
	granted := permit.Record()
	h.write(h.log, session.ClassTurn, 1, &granted)
	h.write(h.log, session.ClassTurn, 1, append([]session.Payload{
		&session.ToolResult{Turn: 1, Step: 1, CallID: "1.1.0", Content: "written"}, &session.StepEnd{Turn: 1, Step: 1},
	}, answer(2, 0, session.ToolDelegate)...)...)
	child := h.delegate("1.2.0")

	w.must(w.work("w2", 2, nil))
	w.ended(child)
	events := w.events(child)
	wantKnobs(t, events, handedDown(0, session.ReadOnly), pinned(1))
	denied(t, events, "1.1.0", session.ReadOnly)
	w.absent(w.at("out.txt"))
}

// delegate has the coordinator start the child of a call.
func (h *hand) delegate(call session.CallID) session.ID {
	h.w.t.Helper()
	spec := client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "c", Prompt: "write it"}
	d := h.decide(policy.Call{ID: call, Tool: session.ToolDelegate, Effect: true, Wish: &policy.Wish{}})
	_, tail := h.w.open(h.id).State()
	var out client.DelegateReply
	h.w.must(h.api.Call(h.w.t.Context(), client.MethodDelegate, client.DelegateRequest{
		Head: head, Session: h.id, Tail: tail, Epoch: 1, Calls: []client.Delegation{{CallID: call, Spec: spec, Decision: d.Record()}},
	}, &out))
	if e := out.Outcomes[0].Error; e != nil {
		h.w.t.Fatalf("delegate: %v", e)
	}
	return out.Outcomes[0].Child
}
