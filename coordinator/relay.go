package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// relayed is a call by which a session speaks to another.
type relayed struct {
	from session.State // the caller's log
	call session.ToolCall
}

// id is that of whatever the call puts into another log: whoever carries it out, and how
// often, it is there once (SPEC 5.9).
func (r relayed) id() string {
	return reserved + "call/" + string(r.from.Header.ID) + "/" + string(r.call.CallID)
}

func (r relayed) by() *session.Party {
	return &session.Party{Kind: session.SessionParty, ID: string(r.from.Header.ID)}
}

// relay carries out an allowed call by which a session speaks to another of its tree. Who
// speaks, to whom and what is read from the caller's log, and whether it may from the
// logs of both (SPEC 7.6): nothing that a worker says of it counts.
func (c *Coordinator) relay(ctx context.Context, _ caller, in client.RelayRequest) (*client.RelayReply, *client.Position, error) {
	r, err := c.relayed(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	var text string
	var pos *client.Position
	switch r.call.Name {
	case client.ToolSend:
		text, pos, err = c.relaySend(ctx, r)
	case client.ToolReport:
		text, pos, err = c.relayReport(ctx, r)
	case client.ToolInterrupt, client.ToolCancel:
		text, pos, err = c.relayStop(ctx, r)
	default:
		err = invalid("call %s of session %s is of tool %q, which speaks to nobody", in.Call, in.Session, r.call.Name)
	}
	if err != nil {
		return nil, nil, err
	}
	return &client.RelayReply{Text: text}, pos, nil
}

// relayed finds the call and holds it to its log: it is allowed, it has no result, and
// the epoch is the one in force.
func (c *Coordinator) relayed(ctx context.Context, in client.RelayRequest) (r relayed, err error) {
	if err := errors.Join(c.known(in.Session), checkCall(in.Call)); err != nil {
		return r, err
	}
	if in.Tail == 0 {
		return r, invalid("tail is missing: give the stream sequence of the record that holds the decision, or a later one of the session")
	}
	v, err := c.cfg.Store.View(ctx, in.Session, in.Tail)
	if err != nil {
		return r, err
	}
	refuse := func(format string, args ...any) (relayed, error) {
		return r, &client.Error{Code: client.CodePrecondition, Session: in.Session, Message: fmt.Sprintf("session %s: ", in.Session) + fmt.Sprintf(format, args...)}
	}
	call, open := v.State.Call(in.Call)
	switch {
	case v.State.Epoch != in.Epoch:
		return refuse("epoch %d is not in force: the log is in epoch %d", in.Epoch, v.State.Epoch)
	case !open || call.State != session.CallAllowed:
		return refuse("call %s is not one that was allowed and has no result", in.Call)
	}
	e, err := (lineage{c}).Event(in.Session, call.Seq)
	if err != nil {
		return r, err
	}
	asked, ok := e.Payload.(*session.ToolCall)
	if !ok {
		return refuse("event %d is no call", call.Seq)
	}
	if v.State.Stop != nil {
		return r, draining(in.Session)
	}
	return relayed{from: v.State, call: *asked}, nil
}

func draining(id session.ID) error {
	return &client.Error{Code: client.CodeDraining, Session: id, Message: fmt.Sprintf("session %s is being cancelled, with all below it", id)}
}

func unauthorized(format string, args ...any) error {
	return &client.Error{Code: client.CodeUnauthorized, Message: fmt.Sprintf(format, args...)}
}

// arguments decodes what the call asks for. The worker has held it to its schema before
// it was decided.
func (r relayed) arguments(v any) error {
	if err := client.Decode([]byte(r.call.Arguments), v); err != nil {
		return invalid("call %s of session %s: the arguments of %q: %v", r.call.CallID, r.from.Header.ID, r.call.Name, err)
	}
	return nil
}

// relaySend puts a message into the inbox of a continuable child. Only its direct parent
// may send to a child, and a child that was closed or has ended takes nothing.
func (c *Coordinator) relaySend(ctx context.Context, r relayed) (string, *client.Position, error) {
	var a client.Send
	if err := errors.Join(r.arguments(&a), delegation.CheckPrompt(a.Message)); err != nil {
		return "", nil, err
	}
	none := &client.Error{Code: client.CodeNotResumable, Message: fmt.Sprintf(
		"%q is no session that can be sent to: it is not a continuable child, or it was closed or has ended", clip(a.To))}
	to, err := c.addressed(r.from, a.To)
	if err != nil {
		return "", nil, err
	}
	child, err := c.relative(to)
	switch {
	case errors.Is(err, session.ErrNotFound):
		return "", nil, none
	case err != nil:
		return "", nil, err
	case mayRelay && (!child.Header.IsChild() || child.Header.ParentSession != r.from.Header.ID):
		return "", nil, unauthorized("session %s is no child of %s: only its direct parent and people send to it", to, r.from.Header.ID)
	}
	if _, holds := r.from.Child(to); !holds || child.Descriptor == nil || child.Descriptor.Mode != session.Continuable {
		return "", nil, none
	}
	seq, err := c.tell(ctx, to, r, a.Message, session.FromAgent)
	if errors.Is(err, errGone) {
		return "", nil, none
	}
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("The message is in the inbox of session %s. A notice comes when it is idle again.", to), at(to, seq), nil
}

// relayReport puts a message into the inbox of the session that delegated. Where it goes
// is the header's to say, never the call's.
func (c *Coordinator) relayReport(ctx context.Context, r relayed) (string, *client.Position, error) {
	var a client.Report
	if err := errors.Join(r.arguments(&a), delegation.CheckPrompt(a.Message)); err != nil {
		return "", nil, err
	}
	h, d := r.from.Header, r.from.Descriptor
	if !h.IsChild() || d == nil || d.Mode != session.Continuable {
		return "", nil, unauthorized("session %s is no continuable child: it has nobody to report to, its last message is its answer", h.ID)
	}
	seq, err := c.tell(ctx, h.ParentSession, r, a.Message, session.FromReport)
	switch {
	case errors.Is(err, session.ErrCorrupt), errors.Is(err, session.ErrNotFound), errors.Is(err, errGone):
		return "", nil, &client.Error{Code: client.CodeNoParent, Session: h.ParentSession, Message: fmt.Sprintf("session %s, which delegated, takes no reports: %v", h.ParentSession, err)}
	case err != nil:
		return "", nil, err
	}
	return fmt.Sprintf("The report is in the inbox of session %s.", h.ParentSession), at(h.ParentSession, seq), nil
}

// addressed is the session that a call names: by its id, or by the label of a child that
// holds a slot, if only one has it.
func (c *Coordinator) addressed(from session.State, name string) (session.ID, error) {
	if _, err := session.ParseID(name); err == nil {
		return session.ID(name), nil
	}
	var found []session.ID
	for _, slot := range from.Children {
		child, err := c.relative(slot.ID)
		if err != nil {
			return "", err
		}
		if child.Header.Label == name {
			found = append(found, slot.ID)
		}
	}
	switch len(found) {
	case 0:
		return session.ID(name), nil // which is none, and whoever looks says so
	case 1:
		return found[0], nil
	}
	return "", invalid("%d children have the label %q, name one by its id: %v", len(found), name, found)
}

// errGone says that a session has ended.
var errGone = errors.New("it has ended")

// tell appends a message of one session to the inbox of another.
func (c *Coordinator) tell(ctx context.Context, to session.ID, r relayed, text string, kind session.MessageKind) (uint64, error) {
	var state session.State
	done, err := c.append(ctx, to, stream.Change{
		Name: "message of " + string(r.from.Header.ID), Class: session.ClassInbox,
		Drafts: func(v session.View) ([]session.Draft, error) {
			state = v.State
			switch {
			case v.Has(r.id()):
				return nil, nil
			case v.State.Ended != nil && kind != session.FromReport: // which is recorded as delivered (SPEC 7.4)
				return nil, errGone
			case v.State.Ended == nil && v.State.Stop != nil:
				return nil, draining(to)
			case v.State.Ended == nil:
				if err := c.accepts(v.State); err != nil {
					return nil, err
				}
			}
			return []session.Draft{c.draft(&session.UserMessage{
				ID: r.id(), Role: "user", Content: text, By: r.by(),
				Source: session.MessageSource{Kind: kind, Form: "relay", SenderSessionID: r.from.Header.ID},
			})}, nil
		},
	})
	if err != nil {
		return 0, err
	}
	c.poke(state)
	return done.StreamSeq, nil
}

// relayStop interrupts the open turn of a session below the caller, or cancels that
// session with all below it. Only an ancestor may, and people. What is not there, or has
// no open turn, is not interrupted, and that is no error (SPEC 7.4).
func (c *Coordinator) relayStop(ctx context.Context, r relayed) (string, *client.Position, error) {
	var a client.Stop
	if err := errors.Join(r.arguments(&a), checkReason(a.Reason)); err != nil {
		return "", nil, err
	}
	id, err := c.addressed(r.from, a.Session)
	if err != nil {
		return "", nil, err
	}
	if err := c.below(id, r.from.Header.ID); err != nil {
		return "", nil, err
	}
	if r.call.Name == client.ToolCancel {
		seq, err := c.cancelTree(ctx, id, session.Cancel{ID: r.id(), Reason: a.Reason, By: r.by()})
		return fmt.Sprintf("Session %s and all below it end. A notice comes when it has ended.", id), at(id, seq), err
	}
	turn, seq, err := c.interruptOpen(ctx, id, session.Interrupt{ID: r.id(), Reason: a.Reason, By: r.by()})
	if err != nil {
		return "", nil, err
	}
	if turn == 0 {
		return fmt.Sprintf("Session %s has no open turn: there was nothing to interrupt.", id), at(id, seq), nil
	}
	return fmt.Sprintf("The interrupt of turn %d of session %s is in its log.", turn, id), at(id, seq), nil
}

// below refuses to stop what is not below a session: itself, a sibling, a stranger. It
// walks up by the headers, which never change.
func (c *Coordinator) below(id, ancestor session.ID) error {
	for up := id; mayRelay; {
		s, err := c.relative(up)
		switch {
		case errors.Is(err, session.ErrNotFound):
			return &client.Error{Code: client.CodeUnauthorized, Session: id, Message: fmt.Sprintf("%s is no session below %s", id, ancestor)}
		case err != nil:
			return err
		case !s.Header.IsChild():
			return unauthorized("session %s is not below %s: only an ancestor and people stop it", id, ancestor)
		case s.Header.ParentSession == ancestor:
			return nil
		}
		up = s.Header.ParentSession
	}
	return nil
}

// relative is what a session of a tree folds to, stopped or not: its header, which says
// whose it is, can always be read.
func (c *Coordinator) relative(id session.ID) (session.State, error) {
	if err := c.known(id); err != nil {
		return session.State{}, fmt.Errorf("%w: %w", session.ErrNotFound, err)
	}
	entry, err := c.cfg.Store.Session(id)
	return entry.State, err
}
