package coordinator_test

import (
	"encoding/json"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// relayed makes a root with an allowed call that cancels its child, and the request to
// carry it out.
func (d *deployment) relayed() client.RelayRequest {
	d.t.Helper()
	id := d.root()
	d.claim(id)
	return d.says(id, client.ToolCancel, client.Stop{Session: string(d.spawn(id))})
}

// says has a driven session call one of the tools by which it speaks to another, with the
// decision that allows it, and returns the request to carry it out.
func (d *deployment) says(id session.ID, tool string, arguments any) client.RelayRequest {
	d.t.Helper()
	text, err := json.Marshal(arguments)
	d.must(err)
	s := d.turn(id, func(s session.State) []session.Payload {
		stored, revision, err := d.log.Settings().Load(d.t.Context())
		d.must(err)
		dep, err := policy.NewDeployment(stored, revision)
		d.must(err)
		e := policy.EffectiveOf(s.Knobs, dep)
		step := s.Open.Step + 1
		call := session.MakeCallID(s.Turn, step, 0)
		return []session.Payload{
			&session.StepStart{Turn: s.Turn, Step: step},
			&session.AssistantMessage{Turn: s.Turn, Step: step, Calls: []int{0}},
			&session.ToolCall{Turn: s.Turn, Step: step, CallID: call, Name: tool, Arguments: string(text)},
			&session.ToolDecision{CallID: call, Verdict: session.Allow, Mode: e.Sandbox, Network: session.NetworkDeny, Basis: e.Basis, By: session.StagePolicy, Revision: dep.Revision, Settings: dep.Hash},
		}
	})
	v, err := d.store.View(d.t.Context(), id, 0)
	d.must(err)
	return client.RelayRequest{Head: head, Session: id, Call: session.MakeCallID(s.Turn, s.Open.Step, 0), Epoch: s.Epoch, Tail: v.Tail}
}

// said carries out a call and writes its result, as a worker does.
func (d *deployment) said(in client.RelayRequest) (client.RelayReply, error) {
	d.t.Helper()
	var out client.RelayReply
	err := d.worker.Call(d.t.Context(), client.MethodRelay, in, &out)
	d.turn(in.Session, func(s session.State) []session.Payload {
		return []session.Payload{
			&session.ToolResult{Turn: s.Turn, Step: s.Open.Step, CallID: in.Call, Content: out.Text, IsError: err != nil, Code: string(client.CodeOf(err))},
			&session.StepEnd{Turn: s.Turn, Step: s.Open.Step},
		}
	})
	return out, err
}
