package coordinator_test

import (
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// relayed makes a root with an allowed call that interrupts its child, which has no open
// turn, and the request to carry it out.
func (d *deployment) relayed() client.RelayRequest {
	d.t.Helper()
	id := d.root()
	d.claim(id)
	child := d.spawn(id)
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
			&session.ToolCall{Turn: s.Turn, Step: step, CallID: call, Name: client.ToolInterrupt, Arguments: `{"session":"` + string(child) + `"}`},
			&session.ToolDecision{CallID: call, Verdict: session.Allow, Mode: e.Sandbox, Network: session.NetworkDeny, Basis: e.Basis, By: session.StagePolicy, Revision: dep.Revision, Settings: dep.Hash},
		}
	})
	v, err := d.store.View(d.t.Context(), id, 0)
	d.must(err)
	return client.RelayRequest{Head: head, Session: id, Call: session.MakeCallID(1, s.Open.Step, 0), Epoch: s.Epoch, Tail: v.Tail}
}
