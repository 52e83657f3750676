package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

func (c *Coordinator) policyGet(ctx context.Context, _ caller, in client.SessionRequest) (*client.PolicyReply, *client.Position, error) {
	v, err := c.view(ctx, in.ID)
	if err != nil {
		return nil, nil, err
	}
	reply := c.policyReply(v.State)
	return &reply, at(in.ID, v.Tail), nil
}

func (c *Coordinator) policyReply(s session.State) client.PolicyReply {
	d := c.settings()
	e := policy.EffectiveOf(s.Knobs, d)
	return client.PolicyReply{Sandbox: e.Sandbox, Approvals: e.Approval, Preset: policy.Current(s.Knobs, d)}
}

// policySet changes one knob for a person. It answers only after the switch was
// folded as valid (SPEC 3.1).
func (c *Coordinator) policySet(ctx context.Context, who caller, in client.PolicySetRequest) (*client.PolicyReply, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	want, err := wish(in)
	if err != nil {
		return nil, nil, err
	}
	// What holds already is not written, so no compare-and-set finds the view old:
	// it must have all that stood in the log when the switch was asked for.
	tail, err := c.cfg.Log.Tail(ctx, in.ID)
	if err != nil {
		return nil, nil, err
	}
	var wished policy.Wished
	var state session.State
	done, err := c.appendAfter(ctx, in.ID, tail, stream.Change{
		Name: "switch policy", Class: session.ClassPolicy, Check: notEnded,
		Drafts: func(v session.View) ([]session.Draft, error) {
			state = v.State
			var err error
			if wished, err = want(v.State, c.settings(), who.party); err != nil {
				return nil, err
			}
			var out []session.Draft
			for _, p := range wished.Events {
				out = append(out, c.draft(p))
			}
			return out, nil
		},
	})
	if err != nil {
		return nil, nil, err
	}
	v, err := c.cfg.Store.View(ctx, in.ID, done.StreamSeq)
	if err != nil {
		return nil, nil, fmt.Errorf("the switch is in the log but was not read back: %w", err)
	}
	c.poke(state)
	c.endStale(ctx, v.State)
	reply := c.policyReply(v.State)
	reply.Events, reply.Note = len(wished.Events), wished.Note
	return &reply, at(in.ID, v.Tail), nil
}

// notEnded refuses to change what no call will ever be decided under.
func notEnded(v session.View) error {
	if s := v.State; s.Ended != nil {
		return &client.Error{Code: client.CodeEnded, Session: s.Header.ID, Message: fmt.Sprintf(
			"session %s has ended (%s), its policy changes no more: fork it to go on", s.Header.ID, s.Ended.Outcome)}
	}
	return nil
}

// wish picks what the request asks for: exactly one knob.
func wish(in client.PolicySetRequest) (func(session.State, policy.Deployment, session.Party) (policy.Wished, error), error) {
	n := 0
	for _, set := range []bool{in.Sandbox != "", in.Approvals != "", in.Preset != ""} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return nil, invalid("set exactly one of sandbox, approvals and preset: %d are set", n)
	case in.Sandbox != "":
		return func(s session.State, d policy.Deployment, by session.Party) (policy.Wished, error) {
			return policy.SwitchSandbox(s, d, in.Sandbox, by)
		}, nil
	case in.Approvals != "":
		return func(s session.State, d policy.Deployment, by session.Party) (policy.Wished, error) {
			return policy.SwitchApproval(s, d, in.Approvals, by)
		}, nil
	}
	return func(s session.State, d policy.Deployment, by session.Party) (policy.Wished, error) {
		return policy.Select(s, d, in.Preset, by)
	}, nil
}

func (c *Coordinator) policyExplain(ctx context.Context, _ caller, in client.SessionRequest) (*client.ExplainReply, *client.Position, error) {
	v, err := c.view(ctx, in.ID)
	if err != nil {
		return nil, nil, err
	}
	values, err := policy.Explain(v.State, c.settings(), lineage{c})
	if err != nil {
		return nil, nil, err
	}
	return &client.ExplainReply{Values: values}, at(in.ID, v.Tail), nil
}

// callExplain tells why a call was allowed or denied: its decisions, their basis,
// and where each value of the session's policy came from.
func (c *Coordinator) callExplain(ctx context.Context, _ caller, in client.CallRequest) (*client.CallReply, *client.Position, error) {
	if err := checkCall(in.Call); err != nil {
		return nil, nil, err
	}
	v, err := c.view(ctx, in.ID)
	if err != nil {
		return nil, nil, err
	}
	reply, err := c.explainCall(v.State, in.Call)
	if err != nil {
		return nil, nil, err
	}
	if reply.Values, err = policy.Explain(v.State, c.settings(), lineage{c}); err != nil {
		return nil, nil, err
	}
	return reply, at(in.ID, v.Tail), nil
}

// explainCall reads what a log says of a call.
func (c *Coordinator) explainCall(s session.State, call session.CallID) (*client.CallReply, error) {
	id := s.Header.ID
	var reply client.CallReply
	err := c.cfg.Store.Events(id, 0, s.Next, func(e session.Event) error {
		switch p := e.Payload.(type) {
		case *session.ToolCall:
			if p.CallID == call {
				reply.Call, reply.CallSeq = *p, e.Seq
			}
		case *session.ToolDecision:
			if p.CallID == call {
				reply.Decisions = append(reply.Decisions, *p)
			}
		case *session.ToolResult:
			if p.CallID == call {
				reply.Result = p
			}
		case *session.UserMessage:
			if execution, ok := settles(p, call); ok {
				reply.Settled = &client.Settled{Execution: execution, By: p.By, Seq: e.Seq, Text: p.Content}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if reply.Call.CallID == "" {
		return nil, &client.Error{Code: client.CodeNoCall, Session: id, Message: fmt.Sprintf("session %s has no call %q: `entail session tail %s` lists them", id, call, id)}
	}
	return &reply, nil
}

// view is a session as the mirror has it now.
func (c *Coordinator) view(ctx context.Context, id session.ID) (session.View, error) {
	if err := c.known(id); err != nil {
		return session.View{}, err
	}
	return c.cfg.Store.View(ctx, id, 0)
}

// lineage reads the logs above a session for policy.Explain.
type lineage struct{ c *Coordinator }

// Event implements policy.Lineage.
func (l lineage) Event(id session.ID, seq session.Seq) (session.Event, error) {
	var found *session.Event
	err := l.c.cfg.Store.Events(id, seq, seq+1, func(e session.Event) error {
		found = &e
		return nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("session %s has no event %d", id, seq)
	}
	if err != nil {
		return session.Event{}, err
	}
	return *found, nil
}

// Delegation implements policy.Lineage.
func (l lineage) Delegation(child session.ID) (session.ID, session.ToolDecision, session.Seq, error) {
	entry, err := l.c.cfg.Store.Session(child)
	if err != nil {
		return "", session.ToolDecision{}, 0, err
	}
	parent := entry.State.Header.ParentSession
	var dec *session.ToolDecision
	var seq session.Seq
	err = l.c.cfg.Store.Records(child, func(raw session.Raw) error {
		r, err := session.DecodeRecord(raw)
		if err != nil || r.Own == nil || raw.Address.Session != child || raw.Address.Class != session.ClassGenesis {
			return nil //nolint:nilerr // records that are not the genesis are not looked at
		}
		if d, ok := r.Own.Events[0].Payload.(*session.ToolDecision); ok {
			dec, seq = d, r.Own.Seq
		}
		return errDone
	})
	if err != nil && !errors.Is(err, errDone) {
		return "", session.ToolDecision{}, 0, err
	}
	if dec == nil {
		return "", session.ToolDecision{}, 0, fmt.Errorf("session %s was not delegated", child)
	}
	return parent, *dec, seq, nil
}
