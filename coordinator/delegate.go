package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// delegate commits the delegating calls of one step, one record each, the first
// at exactly the tail that the worker decided at, each later one at the tail that
// the one before it made. It stops at the first that does not end in a child.
func (c *Coordinator) delegate(ctx context.Context, who caller, in client.DelegateRequest) (*client.DelegateReply, *client.Position, error) {
	if err := c.checkDelegate(in); err != nil {
		return nil, nil, err
	}
	reply := client.DelegateReply{Tail: in.Tail}
	for _, call := range in.Calls {
		out := c.delegateOne(ctx, who, in, call, reply.Tail)
		reply.Tail = max(reply.Tail, out.StreamSeq)
		reply.Outcomes = append(reply.Outcomes, out)
		if out.Error != nil {
			break
		}
	}
	return &reply, at(in.Session, reply.Tail), nil //nolint:nilerr // the outcomes carry their own errors
}

// checkDelegate refuses what no call of any log can be.
func (c *Coordinator) checkDelegate(in client.DelegateRequest) error {
	if err := c.known(in.Session); err != nil {
		return err
	}
	if len(in.Calls) == 0 {
		return invalid("no calls: give the delegating calls of one step")
	}
	for _, call := range in.Calls {
		if err := checkCall(call.CallID); err != nil {
			return err
		}
		if call.Decision.CallID != call.CallID {
			return invalid("call %s comes with the decision of call %q", call.CallID, call.Decision.CallID)
		}
	}
	return nil
}

func (c *Coordinator) delegateOne(ctx context.Context, who caller, in client.DelegateRequest, call client.Delegation, tail uint64) client.DelegateOutcome {
	out := client.DelegateOutcome{CallID: call.CallID}
	fail := func(err error) client.DelegateOutcome {
		out.Error = toError(err)
		return out
	}
	spec := call.Spec
	order := delegation.Order{
		CallID: call.CallID, Decision: call.Decision, Epoch: in.Epoch, Time: c.now(), Tools: c.cfg.Tools,
		Request: delegation.Request{
			Kind: spec.Kind, Mode: spec.Mode, Label: spec.Label, Prompt: spec.Prompt,
			Sandbox: spec.Sandbox, Tools: spec.Tools, Persona: spec.Persona,
		},
	}
	child := session.ChildID(in.Session, call.CallID)
	done, seen, err := c.commit(ctx, in.Session, order, tail)
	if err != nil {
		born, other := c.born(ctx, child, order.Request, seen)
		if other != nil {
			return fail(other)
		}
		if born == 0 {
			return fail(err)
		}
		out.Child, out.StreamSeq = child, born
		return out
	}
	c.cfg.Logger.Debug("child started", slog.String("parent", string(in.Session)), slog.String("child", string(child)), slog.String("worker", who.worker))
	out.Child, out.StreamSeq, out.Line = child, done.StreamSeq, done.Record.Own.Events[0].Line
	return out
}

// commit appends a delegation at exactly a tail. Seen is the newest tail of the
// parent that was met.
func (c *Coordinator) commit(ctx context.Context, parent session.ID, order delegation.Order, tail uint64) (done stream.Done, seen uint64, err error) {
	if err := c.treeRoom(ctx, parent); err != nil {
		return stream.Done{}, tail, err
	}
	seen = tail
	done, err = c.appendAfter(ctx, parent, tail, stream.Change{
		Name: "delegate call " + string(order.CallID), Once: true,
		Genesis: func(v session.View) (session.Record, error) {
			if v.State.Header.ID == "" {
				return session.Record{}, session.ErrNotFound
			}
			if seen = max(seen, v.Tail); v.Tail != tail {
				return session.Record{}, &session.ConflictError{Session: parent, Want: tail, Tail: v.Tail}
			}
			d := c.settings()
			if order.Decision.Revision > d.Revision {
				return session.Record{}, &client.Error{Code: client.CodeConflict, Message: fmt.Sprintf("this coordinator has settings revision %d, the decision %d: ask again", d.Revision, order.Decision.Revision)}
			}
			return order.Child(v, d)
		},
	})
	if conflict, ok := errors.AsType[*session.ConflictError](err); ok {
		seen = max(seen, conflict.Tail)
	}
	return done, seen, err
}

// born finds the genesis of a child that an earlier try of the same request
// started, by anyone, before any crash (SPEC 4.5): what was refused now may have
// been done then. It looks in a mirror that has reached a tail, and returns zero
// when there is none. Another request is refused.
func (c *Coordinator) born(ctx context.Context, child session.ID, r delegation.Request, tail uint64) (uint64, error) {
	if err := c.cfg.Store.WaitFor(ctx, child.Partition(), tail); err != nil {
		return 0, nil //nolint:nilerr // then why the commit failed is the answer
	}
	entry, err := c.cfg.Store.Session(child)
	if errors.Is(err, session.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	digest, err := delegation.Digest(r)
	if err != nil {
		return 0, err
	}
	if entry.State.Header.Request != digest {
		return 0, fmt.Errorf("child %s: %w", child, delegation.ErrOtherRequest)
	}
	return entry.Born, nil
}

// treeRoom holds the tree to its cap. It is counted in the mirror, so the
// delegations in flight may pass it (SPEC 4.6).
func (c *Coordinator) treeRoom(ctx context.Context, id session.ID) error {
	if err := c.room(ctx, id); err != nil {
		return err
	}
	size, err := c.cfg.Store.TreeSize(id.Root())
	if err != nil {
		return err
	}
	if most := c.settings().Caps.Tree; size >= most {
		return &client.Error{Code: client.Code(policy.CodeActivations), Message: fmt.Sprintf("the tree of %s has %d sessions, at most %d are allowed", id.Root(), size, most)}
	}
	return nil
}

// empty is the mirror's word that nothing stands under a session's own subjects.
func (c *Coordinator) empty(ctx context.Context, _ caller, in client.EmptyRequest) (*client.Done, *client.Position, error) {
	if err := c.known(in.Session); err != nil {
		return nil, nil, err
	}
	if err := c.cfg.Store.Empty(ctx, in.Session, in.Past); err != nil {
		return nil, nil, err
	}
	return &client.Done{}, at(in.Session, in.Past), nil
}
