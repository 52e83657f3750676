package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// wayToQuestions is the way out of a question that is not there.
const wayToQuestions = "`entail approvals ls` lists those that wait"

// maxShown bounds the arguments of a call in a listing; its question shown alone has
// them whole.
const maxShown = 2 << 10

// approvals lists the questions that wait for a person (SPEC 5.6). It reads the rows
// of the sessions that ask, and of their logs the events that say what is asked.
func (c *Coordinator) approvals(ctx context.Context, _ caller, in client.ApprovalsRequest) (*client.ApprovalsReply, *client.Position, error) {
	if err := c.checkList(client.ListRequest{Root: in.Root, AfterID: in.AfterID, Limit: in.Limit}); err != nil {
		return nil, nil, err
	}
	const most = 1000
	limit := in.Limit
	if limit == 0 || limit > most {
		limit = most
	}
	ids, err := c.asking(in.Root)
	if err != nil {
		return nil, nil, err
	}
	out := client.ApprovalsReply{Approvals: []client.Approval{}}
	lost := map[int]bool{}
	for p := range c.cfg.Partitions {
		if why := c.lost(ctx, p); why != nil {
			lost[p], out.Lost = true, append(out.Lost, why.Error())
		}
	}
	size := 0
	for _, id := range ids {
		if id <= in.AfterID || lost[id.Partition()] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, context.Cause(ctx)
		}
		some, err := c.questions(id)
		if err != nil {
			return nil, nil, err
		}
		for i := range some {
			some[i].Arguments = clip(some[i].Arguments)
			size += len(some[i].Arguments) + len(some[i].Reason)
		}
		if len(out.Approvals) > 0 && (len(out.Approvals)+len(some) > limit || size > maxListed/2) {
			out.More = true
			break
		}
		out.Approvals = append(out.Approvals, some...)
	}
	return &out, nil, nil
}

// clip keeps the beginning of arguments.
func clip(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + fmt.Sprintf(" ... (%d bytes in all)", len(text))
}

// asking lists the sessions in which a question waits, by id: of the whole deployment
// or of one tree.
func (c *Coordinator) asking(root session.ID) ([]session.ID, error) {
	var all []session.ID
	for p := range c.cfg.Partitions {
		if root != "" && root.Partition() != p {
			continue
		}
		ids, err := c.cfg.Store.Asking(p)
		if err != nil {
			return nil, err
		}
		all = append(all, ids...)
	}
	if root != "" {
		all = slices.DeleteFunc(all, func(id session.ID) bool { return id.Root() != root.Root() })
	}
	slices.Sort(all)
	return all, nil
}

// questions are those of one session that wait.
func (c *Coordinator) questions(id session.ID) ([]client.Approval, error) {
	entry, err := c.cfg.Store.Session(id)
	if err != nil || entry.Err() != nil { // one that is stopped since takes no answer
		return nil, err
	}
	var out []client.Approval
	for _, call := range entry.State.Questions() {
		a, err := c.question(entry.State, call)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// question says what is asked about a call.
func (c *Coordinator) question(s session.State, call session.Call) (client.Approval, error) {
	id, d := s.Header.ID, c.settings()
	out := client.Approval{
		Session: id, Label: s.Header.Label, Ask: call.Ask.ID, Call: call.ID, Tool: call.Name,
		Have: policy.EffectiveOf(s.Knobs, d).Sandbox, Want: call.Ask.Mode, Digest: call.Ask.Digest,
		Stale: policy.Stale(s, d, *call.Ask),
	}
	from := lineage{c}
	put, err := from.Event(id, call.Ask.Seq)
	if err != nil {
		return out, err
	}
	called, err := from.Event(id, call.Seq)
	if err != nil {
		return out, err
	}
	if p, ok := put.Payload.(*session.ApprovalAsked); ok {
		out.Reason = p.Reason
	}
	if p, ok := called.Payload.(*session.ToolCall); ok {
		out.Arguments = p.Arguments
	}
	out.AskedAt = put.Time
	out.ExpiresAt = put.Time + time.Duration(d.Approvals.ExpireAfter).Milliseconds()
	return out, nil
}

// approval shows one question whole, with where the session's policy comes from.
func (c *Coordinator) approval(ctx context.Context, _ caller, in client.ApprovalRequest) (*client.ApprovalReply, *client.Position, error) {
	if err := checkAsk(in.Ask); err != nil {
		return nil, nil, err
	}
	v, err := c.view(ctx, in.ID)
	if err != nil {
		return nil, nil, err
	}
	call, err := pick(v.State, in.Ask)
	if err != nil {
		s, serr := c.standing(ctx, in.ID)
		if serr != nil {
			return nil, nil, serr
		}
		return nil, nil, c.noQuestion(s, in.Ask, err)
	}
	var out client.ApprovalReply
	if out.Approval, err = c.question(v.State, call); err != nil {
		return nil, nil, err
	}
	if out.Values, err = policy.Explain(v.State, c.settings(), lineage{c}); err != nil {
		return nil, nil, err
	}
	return &out, at(in.ID, v.Tail), nil
}

// checkAsk holds the id of a question to its form, if there is one.
func checkAsk(ask string) error {
	if ask == "" {
		return nil
	}
	return checkName("ask", ask)
}

// errNoQuestion says that no question of the session is the one that is meant.
var errNoQuestion = errors.New("no question waits")

// pick finds an open question by its id; without one, the session's only one.
func pick(s session.State, ask string) (session.Call, error) {
	open := s.Questions()
	if ask == "" && len(open) > 1 {
		var names []string
		for _, c := range open {
			names = append(names, c.Ask.ID)
		}
		return session.Call{}, invalid("session %s has %d questions, name one: %s", s.Header.ID, len(open), strings.Join(names, ", "))
	}
	for _, c := range open {
		if ask == "" || c.Ask.ID == ask {
			return c, nil
		}
	}
	return session.Call{}, errNoQuestion
}

// noQuestion says what became of a question that does not wait.
func (c *Coordinator) noQuestion(s session.State, ask string, why error) error {
	if !errors.Is(why, errNoQuestion) {
		return why
	}
	id := s.Header.ID
	if ask == "" {
		return &client.Error{Code: client.CodeNoQuestion, Session: id, Message: fmt.Sprintf("no question of session %s waits: %s", id, wayToQuestions)}
	}
	outcome, by, err := c.outcome(s, ask)
	switch {
	case err != nil:
		return err
	case outcome == "":
		return &client.Error{Code: client.CodeNoQuestion, Session: id, Message: fmt.Sprintf("session %s was never asked %q: %s", id, ask, wayToQuestions)}
	}
	return &client.Error{Code: client.CodeAnswered, Session: id, Message: fmt.Sprintf(
		"question %q of session %s has its outcome: %s%s; a question has one answer, `entail session tail %s` shows it", ask, id, outcome, by, id)}
}

// outcome finds how a question of a log ended and, in words, by whom; both are empty if
// it never was asked.
func (c *Coordinator) outcome(s session.State, ask string) (o session.Outcome, by string, err error) {
	err = c.cfg.Store.Events(s.Header.ID, s.Header.FirstLiveSeq, s.Next, func(e session.Event) error {
		switch p := e.Payload.(type) {
		case *session.ApprovalDecided:
			if p.ID == ask {
				o, by = p.Outcome, partyText(p.By)
			}
		case *session.Expired:
			if p.Ask == ask {
				o, by = session.Unavailable, ", nobody answered in time"
			}
		}
		return nil
	})
	return o, by, err
}

func partyText(by *session.Party) string {
	if by == nil {
		return ""
	}
	return fmt.Sprintf(", by %s %s", by.Kind, by.ID)
}

// answerQuestion gives a question its answer, in one inbox record with the words that come with
// it. The precondition is evaluated on the log at exactly the tail that the append
// expects: an answer counts only if the question is open there, no switch and no new
// default stands between, and nothing stops the turn; else its outcome is cancelled
// and the call is decided anew (SPEC 5.6).
func (c *Coordinator) answerQuestion(ctx context.Context, who caller, in client.AnswerRequest) (*client.AnswerReply, *client.Position, error) {
	if err := c.checkAnswer(in); err != nil {
		return nil, nil, err
	}
	// A question that a mirror does not know yet must not be said to be none.
	tail, err := c.cfg.Log.Tail(ctx, in.ID)
	if err != nil {
		return nil, nil, err
	}
	var reply client.AnswerReply
	var state session.State
	done, err := c.appendAfter(ctx, in.ID, tail, stream.Change{
		Name: "answer", Class: session.ClassInbox,
		Drafts: func(v session.View) ([]session.Draft, error) {
			state = v.State
			call, err := pick(v.State, in.Ask)
			if err != nil {
				return nil, err
			}
			reply = c.counted(v.State, *call.Ask, in.Outcome)
			drafts := []session.Draft{c.draft(&session.ApprovalDecided{ID: call.Ask.ID, Outcome: reply.Outcome, By: &who.party})}
			if in.Message != "" {
				if err := c.accepts(v.State); err != nil {
					return nil, err
				}
				drafts = append(drafts, c.draft(&session.UserMessage{
					ID: messageOf(call.Ask.ID), Role: "user", Content: in.Message, By: &who.party,
					Source: session.MessageSource{Kind: session.FromUser},
				}))
			}
			return drafts, nil
		},
	})
	if errors.Is(err, errNoQuestion) {
		if state, err = c.standing(ctx, in.ID); err != nil {
			return nil, nil, err
		}
		return c.again(who, in, state)
	}
	if err != nil {
		return nil, nil, err
	}
	c.poke(state)
	return &reply, at(in.ID, done.StreamSeq), nil
}

// standing is a session as its log stands now. What a change was shown may be ahead of the
// mirror, by events that share its record too, and events are read from the mirror.
func (c *Coordinator) standing(ctx context.Context, id session.ID) (session.State, error) {
	tail, err := c.cfg.Log.Tail(ctx, id)
	if err != nil {
		return session.State{}, err
	}
	v, err := c.cfg.Store.View(ctx, id, tail)
	return v.State, err
}

func (c *Coordinator) checkAnswer(in client.AnswerRequest) error {
	if err := errors.Join(c.known(in.ID), checkName("ask", in.Ask)); err != nil {
		return err
	}
	switch {
	case in.Outcome == "":
		return invalid("outcome is missing: give %s or %s", session.AllowedOnce, session.Rejected)
	case in.Message != "":
		return delegation.CheckPrompt(in.Message)
	}
	return nil
}

// counted is what an answer comes to on a log that has the question open.
func (c *Coordinator) counted(s session.State, q session.Question, answer session.Outcome) client.AnswerReply {
	out := client.AnswerReply{Ask: q.ID, Outcome: answer}
	switch {
	case s.Stopping():
		out.Outcome, out.Note = session.Cancelled, "the turn is being stopped: the answer does not count"
	case policy.Stale(s, c.settings(), q):
		out.Outcome, out.Note = session.Cancelled, "the policy has changed since the question: the answer does not count, and the call is decided anew"
	case answer != session.AllowedOnce && answer != session.Rejected:
		out.Outcome, out.Note = session.Rejected, fmt.Sprintf("%q was not offered (%s, %s are): it counts as %s",
			clip(string(answer)), session.AllowedOnce, session.Rejected, session.Rejected)
	}
	return out
}

// again answers a request whose question does not wait any more: if the log has what
// this very answer by the same party came to, the request came twice.
func (c *Coordinator) again(who caller, in client.AnswerRequest, s session.State) (*client.AnswerReply, *client.Position, error) {
	var same *session.ApprovalDecided
	said := in.Message == ""
	offered := in.Outcome
	if offered != session.AllowedOnce {
		offered = session.Rejected
	}
	err := c.cfg.Store.Events(s.Header.ID, s.Header.FirstLiveSeq, s.Next, func(e session.Event) error {
		switch p := e.Payload.(type) {
		case *session.ApprovalDecided:
			if p.ID == in.Ask && e.Class == session.ClassInbox && (p.Outcome == offered || p.Outcome == session.Cancelled) && p.By != nil && *p.By == who.party {
				same = p
			}
		case *session.UserMessage:
			said = said || p.ID == messageOf(in.Ask) && p.Content == in.Message
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if same == nil || !said { // words that come later would be lost
		return nil, nil, c.noQuestion(s, in.Ask, errNoQuestion)
	}
	out := client.AnswerReply{Ask: same.ID, Outcome: same.Outcome}
	if same.Outcome != in.Outcome {
		out.Note = fmt.Sprintf("this is what your answer %q came to", clip(string(in.Outcome)))
	}
	return &out, nil, nil
}

// messageOf is the id of what a person says with the answer to a question.
func messageOf(ask string) string { return reserved + "answer/" + ask }

// overdue ends the questions of a session that nobody can answer any more: those whose
// policy has changed, so that the call is decided anew, and those that have waited too
// long (SPEC 5.6). Since says when each was first seen here, by session and question.
//
// How long a question has waited is read from its event, whose time is the claim of a
// worker. A worker that lies about it can only have its own question end unanswered,
// which it could do anyway. A time that lies ahead counts from when it was seen here.
func (c *Coordinator) overdue(ctx context.Context, s session.State, now time.Time, since map[asked]time.Time) error {
	id, d := s.Header.ID, c.settings()
	for _, call := range s.Questions() {
		key := asked{id, call.Ask.ID}
		first, seen := since[key]
		if !seen {
			put, err := (lineage{c}).Event(id, call.Ask.Seq)
			if err != nil {
				return err
			}
			first = time.UnixMilli(put.Time)
			if first.After(now) {
				first = now
			}
			since[key] = first
		}
		late := now.Sub(first) >= time.Duration(d.Approvals.ExpireAfter)
		if !late && !policy.Stale(s, d, *call.Ask) {
			continue
		}
		if err := c.endQuestion(ctx, id, call.Ask.ID, late); err != nil {
			return err
		}
	}
	return nil
}

// asked names a question.
type asked struct {
	session session.ID
	ask     string
}

// endQuestion ends one question in the coordinator's own name, if it still waits and, where
// it is not late, is still about a policy that has gone.
func (c *Coordinator) endQuestion(ctx context.Context, id session.ID, ask string, late bool) error {
	by := &session.Party{Kind: session.CoordinatorOwn, ID: c.cfg.Name}
	var state session.State
	_, err := c.append(ctx, id, stream.Change{
		Name: "end a question", Class: session.ClassInbox,
		Drafts: func(v session.View) ([]session.Draft, error) {
			state = v.State
			call, err := pick(v.State, ask)
			switch {
			case errors.Is(err, errNoQuestion):
				return nil, nil // it was answered meanwhile
			case err != nil:
				return nil, err
			case policy.Stale(v.State, c.settings(), *call.Ask):
				return []session.Draft{c.draft(&session.ApprovalDecided{ID: ask, Outcome: session.Cancelled, By: by})}, nil
			case late:
				return []session.Draft{c.draft(&session.Expired{ID: reserved + "expired/" + ask, Ask: ask, Reason: "nobody answered in time", By: by})}, nil
			}
			return nil, nil
		},
	})
	if err == nil {
		c.poke(state)
	}
	return err
}

// endStale ends the questions of a session whose policy was just changed, so that
// their calls are decided anew at once. What it misses is the sweep's.
func (c *Coordinator) endStale(ctx context.Context, s session.State) {
	if err := c.overdue(ctx, s, c.cfg.Now(), map[asked]time.Time{}); err != nil {
		c.cfg.Logger.Warn("end the questions about an older policy", slog.String("session", string(s.Header.ID)), slog.Any("error", err))
	}
}

// endAllStale ends all questions about defaults that were just changed: a default that is
// changed back would otherwise let an answer to an older question count. It takes no
// longer than a lease; what it misses is the sweep's.
func (c *Coordinator) endAllStale(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.settings().Lease))
	defer cancel()
	ids, err := c.asking("")
	if err != nil {
		c.cfg.Logger.Warn("list the questions about older defaults", slog.Any("error", err))
	}
	for _, id := range ids {
		if e, err := c.cfg.Store.Session(id); err == nil && ctx.Err() == nil {
			c.endStale(ctx, e.State)
		}
	}
}

// sweepQuestions ends the questions of a partition that nobody can answer any more, and
// forgets those that do not wait.
func (c *Coordinator) sweepQuestions(ctx context.Context, partition int, now time.Time, since map[asked]time.Time) error {
	asking, err := c.cfg.Store.Asking(partition)
	if err != nil {
		return err
	}
	var errs []error
	open := map[asked]bool{}
	for _, id := range asking {
		e, err := c.cfg.Store.Session(id)
		if err == nil {
			err = c.overdue(ctx, e.State, now, since)
		}
		if err != nil {
			c.cfg.Logger.Warn("end a question", slog.String("session", string(id)), slog.Any("error", err))
			errs = append(errs, err)
		}
		for _, call := range e.State.Questions() {
			open[asked{id, call.Ask.ID}] = true
		}
	}
	maps.DeleteFunc(since, func(q asked, _ time.Time) bool { return !open[q] })
	return errors.Join(errs...)
}
