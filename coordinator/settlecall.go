package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// settlement is the id of the message that says of a call what a person has established
// of it. Both there are derive from the call, so that a call is settled once.
func settlement(call session.CallID, e client.Execution) string {
	return reserved + "settled/" + string(call) + "/" + string(e)
}

// settles reports whether a message is one, of a call.
func settles(m *session.UserMessage, call session.CallID) (client.Execution, bool) {
	for _, e := range []client.Execution{client.Executed, client.NotExecuted} {
		if m.ID == settlement(call, e) {
			return e, true
		}
	}
	return "", false
}

// settlementText is what a session is told. It is a person's word, so it is a message of
// the person's; what else the person says follows.
func settlementText(call session.ToolCall, e client.Execution, more string) string {
	text := fmt.Sprintf("The outcome of call %s (%s) was unknown. I have looked: it was executed. Do not repeat it.", call.CallID, call.Name)
	if e == client.NotExecuted {
		text = fmt.Sprintf("The outcome of call %s (%s) was unknown. I have looked: it was not executed. Repeat it if it is still wanted.", call.CallID, call.Name)
	}
	if more != "" {
		text += "\n\n" + more
	}
	return text
}

// settleCall puts into a session's inbox what a person has established of a call whose
// outcome is unknown (SPEC 5.9). The result in the log stays what it is: that nobody
// knew is true.
func (c *Coordinator) settleCall(ctx context.Context, who caller, in client.SettleRequest) (*client.SettleReply, *client.Position, error) {
	if err := c.checkSettle(in); err != nil {
		return nil, nil, err
	}
	// What a mirror does not know yet must not be said not to be there.
	tail, err := c.cfg.Log.Tail(ctx, in.ID)
	if err != nil {
		return nil, nil, err
	}
	var told *session.UserMessage
	var state session.State
	settled := errors.New("it is settled in the same record")
	done, err := c.appendAfter(ctx, in.ID, tail, stream.Change{
		Name: "settle call", Class: session.ClassInbox,
		Drafts: func(v session.View) ([]session.Draft, error) {
			state, told = v.State, nil
			// Events are read from the mirror, which may be behind what this coordinator wrote.
			if _, err := c.cfg.Store.View(ctx, in.ID, v.Tail); err != nil {
				return nil, err
			}
			call, err := c.unsettled(v.State, in)
			if err != nil || call == nil {
				return nil, err
			}
			if v.Has(settlement(in.Call, client.Executed)) || v.Has(settlement(in.Call, client.NotExecuted)) {
				return nil, settled // by a change before this one, which the mirror cannot have yet
			}
			if err := c.accepts(v.State); err != nil {
				return nil, err
			}
			told = &session.UserMessage{
				ID: settlement(in.Call, in.Execution), Role: "user", Content: settlementText(*call, in.Execution, in.Message), By: &who.party,
				Source: session.MessageSource{Kind: session.FromUser},
			}
			return []session.Draft{c.draft(told)}, nil
		},
	})
	if errors.Is(err, settled) {
		if state, err = c.standing(ctx, in.ID); err != nil {
			return nil, nil, err
		}
		_, err = c.unsettled(state, in)
	}
	if err != nil {
		return nil, nil, err
	}
	if told == nil {
		reply, err := c.explainCall(state, in.Call)
		if err != nil {
			return nil, nil, err
		}
		return &client.SettleReply{Settled: *reply.Settled, Existing: true}, nil, nil
	}
	c.poke(state)
	return &client.SettleReply{Settled: client.Settled{
		Execution: in.Execution, By: told.By, Seq: done.Record.Own.Seq, Text: told.Content,
	}}, at(in.ID, done.StreamSeq), nil
}

func (c *Coordinator) checkSettle(in client.SettleRequest) error {
	if err := errors.Join(c.known(in.ID), checkCall(in.Call)); err != nil {
		return err
	}
	if in.Execution != client.Executed && in.Execution != client.NotExecuted {
		return invalid("unknown execution %q (available: %s, %s)", in.Execution, client.Executed, client.NotExecuted)
	}
	if in.Message == "" {
		return nil
	}
	return delegation.CheckPrompt(in.Message)
}

// unsettled finds a call whose outcome is unknown and that nobody has settled; it is nil
// if it was settled just so, in the same words: others would be lost.
func (c *Coordinator) unsettled(s session.State, in client.SettleRequest) (*session.ToolCall, error) {
	reply, err := c.explainCall(s, in.Call)
	if err != nil {
		return nil, err
	}
	refuse := func(code client.Code, format string, args ...any) (*session.ToolCall, error) {
		return nil, &client.Error{Code: code, Session: in.ID, Message: fmt.Sprintf("call %s of session %s ", in.Call, in.ID) + fmt.Sprintf(format, args...)}
	}
	switch had := reply.Settled; {
	case reply.Result == nil:
		return refuse(client.CodePrecondition, "has no result yet: there is nothing to settle")
	case reply.Result.Code != session.CodeToolOutcomeUnknown:
		return refuse(client.CodePrecondition, "has a known outcome: only one that ended with %s is settled", session.CodeToolOutcomeUnknown)
	case had != nil && had.Execution == in.Execution && had.Text == settlementText(reply.Call, in.Execution, in.Message):
		return nil, nil
	case had != nil:
		return refuse(client.CodeSettled, "was settled as %s%s: `entail explain %s %s` shows it; say more with `entail send`",
			had.Execution, strings.TrimSpace(partyText(had.By)), in.ID, in.Call)
	}
	return &reply.Call, nil
}
