package agent

import (
	"fmt"
	"slices"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// verdicts is what the decision of some calls comes to: the events of its record,
// and what may be done once the record is in the log.
type verdicts struct {
	events   []session.Payload
	launches []launch
	// delegations are the allowed delegating calls: their decisions stand in
	// geneses and are the coordinator's to write.
	delegations []client.Delegation
}

// verdict is what the decision of one call comes to: events, what may be done once
// they are in the log, or a delegation whose decision the coordinator writes.
type verdict struct {
	events     []session.Payload
	launch     *launch
	delegation *client.Delegation
}

// launch is an allowed call.
type launch struct {
	call   session.Call
	op     sandbox.Op
	permit policy.Permit
	relay  bool // a coordinator carries it out
}

// decide decides calls one after the other, each on the log as those before it
// leave it. It is pure. A delegating call stops it at the first one that is of
// another kind than those before: what a coordinator writes and what this loop
// writes do not fit into one record.
func (f Facts) decide(ids []session.CallID) (verdicts, error) {
	var v verdicts
	for _, id := range ids {
		c, ok := f.State.Call(id)
		if !ok {
			return v, fmt.Errorf("call %s is not of the open step", id)
		}
		one, err := f.decideOne(c)
		if err != nil {
			return v, err
		}
		switch d := one.delegation; {
		case d != nil && len(v.events) > 0, d == nil && len(v.delegations) > 0:
			return v, nil
		case d != nil:
			v.delegations = append(v.delegations, *d)
			child := d.Decision
			child.Child, child.ChildLink = session.ChildID(f.State.Header.ID, id), &session.Link{}
			one.events = []session.Payload{&child}
		case one.launch != nil:
			v.launches = append(v.launches, *one.launch)
			fallthrough
		default:
			v.events = append(v.events, one.events...)
		}
		for _, p := range one.events {
			if f, err = f.after(p); err != nil {
				return v, err
			}
		}
	}
	return v, nil
}

// decideOne decides one call. A call that makes no sense is not decided and is no
// denial: it is closed as not started.
func (f Facts) decideOne(c session.Call) (verdict, error) {
	event := f.toolCall(c)
	t, known := toolOf(c.Name)
	if !known {
		return verdict{events: f.notStarted(c, fmt.Sprintf("there is no tool %q; the tools are %v", c.Name, Tools()))}, nil
	}
	in, err := t.decode(event.Arguments)
	if err != nil {
		return verdict{events: f.notStarted(c, err.Error())}, nil
	}
	subject := in.subject(c.ID, t, event.Arguments)
	d, err := policy.Decide(f.State, f.Deployment, subject, Tools())
	if policy.CodeOf(err) != "" {
		return verdict{events: f.notStarted(c, err.Error())}, nil
	}
	if err != nil {
		return verdict{}, fmt.Errorf("decide call %s: %w", c.ID, err)
	}
	switch d := d.(type) {
	case policy.Permit:
		rec := d.Record()
		if in.delegate != nil {
			return verdict{delegation: &client.Delegation{CallID: c.ID, Spec: in.delegate.DelegateSpec, Decision: rec}}, nil
		}
		return verdict{events: []session.Payload{&rec}, launch: &launch{call: c, op: in.op, permit: d, relay: t.relay}}, nil
	case policy.Denial:
		return verdict{events: f.denied(c, d)}, nil
	case policy.Question:
		rec, ask := d.Record(), d.Ask()
		return verdict{events: []session.Payload{&rec, &ask}}, nil
	}
	panic("unreachable: a decision is one of three")
}

// denied writes a denial and its result. What was asked of nobody stands right
// before it (SPEC 5.6).
func (f Facts) denied(c session.Call, d policy.Denial) []session.Payload {
	var events []session.Payload
	if ask, outcome, ok := d.Asked(); ok {
		events = append(events, &ask, &session.ApprovalDecided{ID: ask.ID, Outcome: outcome})
	}
	rec := d.Record()
	return append(events, &rec, f.result(c, d.Text(), d.Code(), true))
}

// rerun prepares calls that a dead driver left open and that only read. One whose
// mode or network has changed since its decision is not run again: the log has no
// decision for it.
func (f Facts) rerun(ids []session.CallID) (verdicts, error) {
	var v verdicts
	for _, id := range ids {
		c, ok := f.State.Call(id)
		if !ok {
			return v, fmt.Errorf("call %s is not of the open step", id)
		}
		again, err := f.decideOne(c)
		if err != nil {
			return v, err
		}
		if l := again.launch; l == nil || l.permit.Mode() != c.Mode || l.permit.Network() != f.network(c) {
			v.events = append(v.events, f.unknown(c))
			continue
		}
		v.launches = append(v.launches, *again.launch)
	}
	return v, nil
}

// network is what the decision of an allowed call lets it reach.
func (f Facts) network(c session.Call) session.Network {
	for _, e := range slices.Backward(f.since(c.Seq)) {
		if d, ok := e.Payload.(*session.ToolDecision); ok && d.CallID == c.ID {
			return d.Network
		}
	}
	return ""
}

// seenRevision is the newest settings revision that the log's decisions name. A
// worker whose own is older does not decide (ARCHITECTURE 5).
func (f Facts) seenRevision() uint64 {
	at := f.last(f.State.Header.FirstLiveSeq, is[*session.ToolDecision])
	if at == 0 {
		return 0
	}
	e, _ := f.at(at - 1)
	if d, ok := e.Payload.(*session.ToolDecision); ok {
		return d.Revision
	}
	return 0
}
