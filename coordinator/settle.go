package coordinator

import (
	"context"
	"errors"
	"strings"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// settled writes what the ends of a session's turns owe. It may be asked by
// anyone at any time: what is owed is read from the two logs.
func (c *Coordinator) settled(ctx context.Context, _ caller, in client.SettledRequest) (*client.Done, *client.Position, error) {
	if err := c.known(in.Session); err != nil {
		return nil, nil, err
	}
	seq, err := c.settle(ctx, in.Session)
	if err != nil {
		return nil, nil, err
	}
	return &client.Done{}, at(in.Session, seq), nil
}

// settle tells a child's parent what it has not been told, in one inbox record
// (SPEC 7.3). Two coordinators at once write it once: the notice's precondition
// is evaluated on the parent's log at exactly the tail the append expects.
func (c *Coordinator) settle(ctx context.Context, id session.ID) (uint64, error) {
	entry, err := c.cfg.Store.Session(id)
	if err != nil {
		return 0, err
	}
	child := entry.State
	if !child.Header.IsChild() || (child.LastEnd == nil && child.Ended == nil) {
		return 0, nil
	}
	parent, err := c.cfg.Store.View(ctx, child.Header.ParentSession, 0)
	if err != nil {
		return 0, err
	}
	slot, live := parent.State.Child(id)
	if !live {
		return 0, nil
	}
	ends, err := c.endsAfter(child, slot.Noticed)
	if err != nil {
		return 0, err
	}
	done, err := c.append(ctx, child.Header.ParentSession, stream.Change{
		Name: "notice of " + string(id), Class: session.ClassInbox,
		Drafts: func(v session.View) ([]session.Draft, error) {
			var out []session.Draft
			for _, p := range delegation.Notices(v.State, child, ends) {
				out = append(out, c.draft(p))
			}
			return out, nil
		},
	})
	return done.StreamSeq, err
}

// endsAfter reads the ends of a child's own turns after one, with the last text
// of each, and whether a call of it was denied: what other turns said and were
// refused is not this one's outcome.
func (c *Coordinator) endsAfter(child session.State, turn int) ([]delegation.Settled, error) {
	var ends []delegation.Settled
	var closing string
	denied := false
	err := c.cfg.Store.Events(child.Header.ID, child.Header.FirstLiveSeq, child.Next, func(e session.Event) error {
		switch p := e.Payload.(type) {
		case *session.TurnStart:
			closing, denied = "", false
		case *session.ToolDecision:
			denied = denied || p.Verdict == session.Deny
		case *session.ToolResult:
			denied = denied || p.Denied
		case *session.AssistantMessage:
			if p.Content != "" {
				closing = p.Content
			}
		case *session.TurnEnd:
			if p.Turn > turn {
				ends = append(ends, delegation.Settled{Turn: p.Turn, Seq: e.Seq, Reason: p.Reason, Denials: denied, Closing: closing})
			}
		}
		return nil
	})
	return ends, err
}

// interrupt stops the open turn of a session. Without one it is a no-op and
// says so (SPEC 7.4).
func (c *Coordinator) interrupt(ctx context.Context, who caller, in client.StopRequest) (*client.StopReply, *client.Position, error) {
	if err := c.checkStop(in); err != nil {
		return nil, nil, err
	}
	turn, seq, err := c.interruptOpen(ctx, in.ID, session.Interrupt{ID: in.RequestID, Reason: in.Reason, By: &who.party})
	if err != nil {
		return nil, nil, err
	}
	reply := client.StopReply{Turn: turn}
	if turn == 0 {
		reply.Note = "no turn is open: nothing to interrupt"
	}
	return &reply, at(in.ID, seq), nil
}

// interruptOpen appends an interrupt of the turn that is open, if one is, and returns
// that turn. The same interrupt again is of the turn that it was of, also when another
// one is open by now.
func (c *Coordinator) interruptOpen(ctx context.Context, id session.ID, p session.Interrupt) (turn int, streamSeq uint64, err error) {
	// Without an open turn nothing is written, so no compare-and-set finds a mirror behind:
	// the view must have all that stood in the log when the interrupt was asked for.
	tail, err := c.cfg.Log.Tail(ctx, id)
	if err != nil {
		return 0, 0, err
	}
	var state session.State
	done, err := c.appendAccepted(ctx, id, tail, stream.Change{
		Name: "interrupt", Class: session.ClassInbox,
		Drafts: func(v session.View) ([]session.Draft, error) {
			state, turn = v.State, 0
			was, err := c.accepted(ctx, v, p.ID)
			if was != nil || err != nil {
				if had, ok := was.(*session.Interrupt); ok {
					turn, p.Turn = had.Turn, had.Turn
				}
				return nil, sameRequest(v, was, &p, err)
			}
			if v.State.Open == nil {
				return nil, nil
			}
			turn = v.State.Turn
			p.Turn = turn
			return []session.Draft{c.draft(&p)}, nil
		},
	})
	if err != nil {
		return 0, 0, err
	}
	c.poke(state)
	return turn, done.StreamSeq, nil
}

// checkStop holds what stops something to its form.
func (c *Coordinator) checkStop(in client.StopRequest) error {
	return errors.Join(c.known(in.ID), checkMessage("requestId", in.RequestID), checkReason(in.Reason))
}

// cancel ends a session and all below it. The session's own record comes first:
// from then on it can start no child; then one goes to each child that is there.
func (c *Coordinator) cancel(ctx context.Context, who caller, in client.StopRequest) (*client.StopReply, *client.Position, error) {
	if err := c.checkStop(in); err != nil {
		return nil, nil, err
	}
	seq, err := c.cancelTree(ctx, in.ID, session.Cancel{ID: in.RequestID, Reason: in.Reason, By: &who.party})
	if err != nil {
		return nil, nil, err
	}
	return &client.StopReply{}, at(in.ID, seq), nil
}

// cancelTree appends a cancel to a session and, under ids derived from it, to
// every live child, all the way down. It is idempotent, and the sweep repeats it
// until the tree has ended.
func (c *Coordinator) cancelTree(ctx context.Context, id session.ID, cancel session.Cancel) (uint64, error) {
	var state session.State
	done, err := c.appendAccepted(ctx, id, 0, stream.Change{
		Name: "cancel", Class: session.ClassInbox,
		Drafts: func(v session.View) ([]session.Draft, error) {
			state = v.State
			if was, err := c.accepted(ctx, v, cancel.ID); was != nil || err != nil {
				return nil, sameRequest(v, was, &cancel, err)
			}
			if v.State.Ended != nil || v.State.Stop != nil {
				return nil, nil
			}
			return []session.Draft{c.draft(&cancel)}, nil
		},
	})
	if err != nil {
		return 0, err
	}
	c.poke(state)
	below, err := c.cancelBelow(ctx, state, cancel.ID)
	return max(done.StreamSeq, below), err
}

// cancelBelow sends a cancel on to a session's children and returns the stream
// sequence of the last record it wrote.
func (c *Coordinator) cancelBelow(ctx context.Context, s session.State, id string) (uint64, error) {
	var errs []error
	var last uint64
	for _, child := range s.Children {
		by := &session.Party{Kind: session.SessionParty, ID: string(s.Header.ID)}
		seq, err := c.cancelTree(ctx, child.ID, session.Cancel{ID: childCancel(id, child.ID), Reason: "its parent was cancelled", By: by})
		last = max(last, seq)
		errs = append(errs, err)
	}
	return last, errors.Join(errs...)
}

// childCancel derives the id under which a cancel goes down to one child. It is one of
// the coordinators' own, so that no requester can take its place.
func childCancel(id string, child session.ID) string {
	const own, most = reserved + "cancel/", session.MaxName - 128
	id = strings.TrimPrefix(id, own)
	if len(id) > most {
		id = id[:most]
	}
	return own + id + "/" + string(child)
}
