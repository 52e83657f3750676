package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// longestWait bounds how long a reader of events is kept waiting: less than a
// client waits before it asks again.
const longestWait = 4 * time.Second

// maxReply bounds the lines of one reply below the broker's message size.
const maxReply = 512 << 10

// events reads a log from a seq on, prefix included. With a wait it waits until
// there is something to read.
func (c *Coordinator) events(ctx context.Context, _ caller, in client.EventsRequest) (*client.EventsReply, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(notNegative("limit", in.Limit), notNegative("wait", in.Wait)); err != nil {
		return nil, nil, err
	}
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, min(time.Duration(in.Wait)*time.Millisecond, longestWait))
	defer cancel()
	for {
		read := time.Now()
		e, err := c.cfg.Store.Session(in.ID)
		if err != nil {
			return nil, nil, err
		}
		if err := e.Err(); err != nil {
			return nil, nil, err
		}
		if e.State.Next > in.From || ctx.Err() != nil {
			reply, err := c.readEvents(in, e.State.Next)
			reply.Summary = c.summary(asked, e, read)
			return &reply, at(in.ID, e.Tail), err
		}
		mark, _ := c.cfg.Store.Watermark(in.ID.Partition())
		if err := c.cfg.Store.WaitFor(ctx, in.ID.Partition(), mark.Seq+1); err != nil && ctx.Err() == nil {
			return nil, nil, err
		}
	}
}

func (c *Coordinator) readEvents(in client.EventsRequest, to session.Seq) (client.EventsReply, error) {
	reply := client.EventsReply{Next: min(in.From, to), Lines: []json.RawMessage{}}
	if in.From >= to {
		return reply, nil
	}
	size := 0
	err := c.cfg.Store.Events(in.ID, in.From, to, func(e session.Event) error {
		size += len(e.Line)
		if len(reply.Lines) > 0 && (size > maxReply || (in.Limit > 0 && len(reply.Lines) >= in.Limit)) {
			return errDone
		}
		reply.Lines = append(reply.Lines, json.RawMessage(e.Line))
		reply.Classes = append(reply.Classes, e.Class)
		reply.Next = e.Seq + 1
		return nil
	})
	if errors.Is(err, errDone) {
		err = nil
	}
	return reply, err
}

// records reads a session's raw records, its genesis first: an export, and a
// worker's cold read.
func (c *Coordinator) records(_ context.Context, _ caller, in client.RecordsRequest) (*client.RecordsReply, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	if err := notNegative("limit", in.Limit); err != nil {
		return nil, nil, err
	}
	reply := client.RecordsReply{Records: []client.RawRecord{}}
	size := 0
	var last uint64
	err := c.cfg.Store.Records(in.ID, func(raw session.Raw) error {
		if raw.StreamSeq <= in.From {
			return nil
		}
		size += len(raw.Body)
		if len(reply.Records) > 0 && (size > maxReply/2 || (in.Limit > 0 && len(reply.Records) >= in.Limit)) {
			reply.More = true
			return errDone
		}
		reply.Records = append(reply.Records, client.FromRaw(raw))
		last = raw.StreamSeq
		return nil
	})
	if err != nil && !errors.Is(err, errDone) {
		return nil, nil, err
	}
	return &reply, at(in.ID, last), nil
}

// send puts a person's message into a session's inbox. It is durable before it
// is acknowledged, and sending it again is the same message (SPEC 7.2).
func (c *Coordinator) send(ctx context.Context, who caller, in client.SendRequest) (*client.Done, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(checkMessage("messageId", in.MessageID), delegation.CheckPrompt(in.Content)); err != nil {
		return nil, nil, err
	}
	message := session.UserMessage{
		ID: in.MessageID, Role: "user", Content: in.Content, By: &who.party,
		Source: session.MessageSource{Kind: session.FromUser},
	}
	var state session.State
	done, err := c.appendAccepted(ctx, in.ID, 0, stream.Change{
		Name: "send", Class: session.ClassInbox,
		Drafts: func(v session.View) ([]session.Draft, error) {
			state = v.State
			if was, err := c.accepted(ctx, v, message.ID); was != nil || err != nil {
				return nil, sameRequest(v, was, &message, err)
			}
			if err := c.accepts(v.State); err != nil {
				return nil, err
			}
			return []session.Draft{c.draft(&message)}, nil
		},
	})
	if err != nil {
		return nil, nil, err
	}
	c.poke(state)
	return &client.Done{}, at(in.ID, done.StreamSeq), nil
}

// accepts reports why a session takes no message.
func (c *Coordinator) accepts(s session.State) error {
	most := c.settings().Caps.Inbox
	switch {
	case s.Ended != nil:
		return &client.Error{Code: client.CodeEnded, Session: s.Header.ID, Message: fmt.Sprintf("session %s has ended (%s): fork it to go on", s.Header.ID, s.Ended.Outcome)}
	case s.Stop != nil:
		return draining(s.Header.ID)
	case len(s.Pending) >= most:
		return &client.Error{Code: client.CodeInboxFull, Session: s.Header.ID, Message: fmt.Sprintf("session %s has %d unread messages, at most %d fit: wait until it has read some", s.Header.ID, len(s.Pending), most)}
	}
	return nil
}

// release lets a stopped session go on without what stands since its last good
// record (SPEC 1.7).
func (c *Coordinator) release(ctx context.Context, who caller, in client.ReleaseRequest) (*client.ReleaseReply, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	if in.Reason == "" {
		return nil, nil, invalid("a release needs a reason: say why the session may go on")
	}
	if err := checkReason(in.Reason); err != nil {
		return nil, nil, err
	}
	halted, err := c.cfg.Store.Halted(in.ID)
	if errors.Is(err, sessionstore.ErrNotHalted) {
		return c.unquarantine(ctx, who, in, err)
	}
	if err != nil {
		return nil, nil, err
	}
	done, err := c.cfg.Log.Append(ctx, sessionstore.Releases{Store: c.cfg.Store}, in.ID, stream.Change{
		Name: "release", Class: session.ClassPolicy, Once: true,
		Drafts: func(v session.View) ([]session.Draft, error) {
			if v.Tail != halted.Tail {
				return nil, &session.ConflictError{Session: in.ID, Want: halted.Tail, Tail: v.Tail}
			}
			return []session.Draft{c.draft(&session.Release{
				Skip: halted.Since, Seq: v.State.Next, Link: v.State.Link, Reason: in.Reason, By: &who.party,
			})}, nil
		},
	})
	if err != nil {
		return nil, nil, err
	}
	// It is released when a reader has taken it for released.
	if _, err := c.cfg.Store.View(ctx, in.ID, done.StreamSeq); err != nil {
		return nil, nil, fmt.Errorf("the release is in the log but was not read back: %w", err)
	}
	// Its hints were acknowledged when it was stopped, and a release is none.
	seq, err := c.wake(ctx, in.ID, session.Nudge{Reason: "released", By: &who.party})
	if err != nil { // the sweep does it in a while
		c.cfg.Logger.Warn("nudge a released session", slog.String("session", string(in.ID)), slog.Any("error", err))
	}
	return &client.ReleaseReply{Skipped: halted.Since}, at(in.ID, max(done.StreamSeq, seq)), nil
}

// unquarantine lets a session go on whose drivers died, by a nudge in a person's
// name (see [session.Quarantine]). One that is not quarantined has its log as it
// should be, and no is the answer.
func (c *Coordinator) unquarantine(ctx context.Context, who caller, in client.ReleaseRequest, no error) (*client.ReleaseReply, *client.Position, error) {
	entry, err := c.cfg.Store.Session(in.ID)
	if err != nil {
		return nil, nil, err
	}
	switch why, err := c.quarantine(ctx, entry.State); {
	case err != nil:
		return nil, nil, err
	case why == "":
		return nil, nil, no
	}
	seq, err := c.wake(ctx, in.ID, session.Nudge{Reason: in.Reason, By: &who.party})
	if err != nil {
		return nil, nil, err
	}
	return &client.ReleaseReply{Skipped: []uint64{}}, at(in.ID, seq), nil
}

// wake nudges a session that has something to do. The nudge gets its id here.
func (c *Coordinator) wake(ctx context.Context, id session.ID, nudge session.Nudge) (uint64, error) {
	done, err := c.append(ctx, id, stream.Change{
		Name: "nudge", Class: session.ClassInbox,
		Drafts: func(v session.View) ([]session.Draft, error) {
			if !v.State.Runnable() {
				return nil, nil
			}
			n := nudge
			n.ID = fmt.Sprintf("nudge-%d", v.Tail)
			return []session.Draft{c.draft(&n)}, nil
		},
	})
	return done.StreamSeq, err
}
