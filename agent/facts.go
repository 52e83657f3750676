package agent

import (
	"fmt"
	"slices"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Facts are all that [Next] looks at: a log, what it folds to, and who is
// looking. Facts are a value; nothing that they point at is written.
type Facts struct {
	State session.State
	// Events is the whole log, a fork's prefix included, in order of seq.
	Events []session.Event
	// Deployment is the settings that defaults come from.
	Deployment policy.Deployment
	Self       Self
}

// Self is the loop that looks at a log.
type Self struct {
	Worker      string
	Incarnation string
	// Epoch is the claim that this loop holds, zero before its first.
	Epoch uint64
	// Live says that the claim in force is another loop's and alive.
	Live bool
	// Settled is the length of the log at which a coordinator said that nothing
	// is owed to the parent.
	Settled session.Seq
	// Undisposed says why what the open turn held could not be given up. The turn
	// then ends at once, as a failure (SPEC 7.7).
	Undisposed string
	// Now is the time that events written now carry, in milliseconds since 1970.
	Now int64
}

// extent is what an end event says of its start (SPEC 3.2). The driver adds the
// duration, which only it can know.
func (f Facts) extent(seq session.Seq, at int64) session.Extent {
	e := session.Extent{StartSeq: seq, StartTime: at, Worker: f.Self.Worker, Incarnation: f.Self.Incarnation, Attempt: 1}
	if f.State.Open != nil {
		e.Attempt = f.State.Open.Attempts
	}
	return e
}

// after returns the facts once p is in the log.
func (f Facts) after(p session.Payload) (Facts, error) {
	e := session.Event{Session: f.State.Header.ID, Class: session.ClassTurn, Seq: f.State.Next, Time: f.Self.Now, Type: p.Type(), Payload: p}
	next, err := session.Fold(f.State, e)
	if err != nil {
		return f, fmt.Errorf("fold ahead: %w", err)
	}
	f.State = next
	f.Events = append(slices.Clip(f.Events), e)
	switch p := p.(type) {
	case *session.Claim:
		f.Self.Epoch = p.Epoch
	case *session.TurnEnd:
		f.Self.Undisposed = ""
	}
	return f, nil
}

// at returns the event at a seq. An import's seed is not in memory.
func (f Facts) at(seq session.Seq) (session.Event, bool) {
	if len(f.Events) == 0 || seq < f.Events[0].Seq {
		return session.Event{}, false
	}
	i := int(seq - f.Events[0].Seq) //nolint:gosec // a position in a slice
	if i >= len(f.Events) {
		return session.Event{}, false
	}
	return f.Events[i], true
}

// since returns the events from a seq on.
func (f Facts) since(seq session.Seq) []session.Event {
	if len(f.Events) == 0 || seq <= f.Events[0].Seq {
		return f.Events
	}
	return f.Events[min(uint64(seq-f.Events[0].Seq), uint64(len(f.Events))):]
}

// last returns the seq after the last of the events from a seq on that match, or
// zero.
func (f Facts) last(from session.Seq, match func(session.Payload) bool) session.Seq {
	for _, e := range slices.Backward(f.since(from)) {
		if e.Payload != nil && match(e.Payload) {
			return e.Seq + 1
		}
	}
	return 0
}

func is[P session.Payload](p session.Payload) bool {
	_, ok := p.(P)
	return ok
}

// toolCall returns the event of a call of the open step.
func (f Facts) toolCall(c session.Call) *session.ToolCall {
	if e, ok := f.at(c.Seq); ok {
		if t, ok := e.Payload.(*session.ToolCall); ok {
			return t
		}
	}
	return &session.ToolCall{CallID: c.ID, Name: c.Name}
}

// answer returns the last answer of the model in the open turn.
func (f Facts) answer() (*session.AssistantMessage, bool) {
	for _, e := range slices.Backward(f.since(f.State.Open.StartSeq)) {
		if a, ok := e.Payload.(*session.AssistantMessage); ok {
			return a, true
		}
	}
	return nil, false
}

// notice returns the first pending notice from a child.
func (f Facts) notice(child session.ID) (*session.UserMessage, bool) {
	for _, p := range f.State.Pending {
		if p.Kind != session.FromSettled || p.Sender != child {
			continue
		}
		if e, ok := f.at(p.Seq); ok {
			m, ok := e.Payload.(*session.UserMessage)
			return m, ok
		}
	}
	return nil, false
}

// maxRefusal bounds what the end of a turn repeats of a refusal.
const maxRefusal = 1 << 10

// maxRefusals is how often a turn may be refused the same call (SPEC 5.8).
const maxRefusals = 3

// blocked reports whether the open turn was refused the same call too often, and says
// so for the people and the parent who read how the turn ended.
func (f Facts) blocked() (why string, ok bool) {
	calls := map[session.CallID]*session.ToolCall{}
	refusals := map[string]int{}
	for _, e := range f.since(f.State.Open.StartSeq) {
		switch p := e.Payload.(type) {
		case *session.ToolCall:
			calls[p.CallID] = p
		case *session.ToolResult:
			c := calls[p.CallID]
			if refused := p.Denied || !sparesFailures && p.IsError; c == nil || !refused {
				continue
			}
			form := normal(f.State.Header.Cwd, c.Name, c.Arguments)
			if refusals[form]++; refusals[form] >= maxRefusals {
				return fmt.Sprintf("the same call of %q was refused %d times, so the turn ends here. The last refusal said: %s",
					c.Name, maxRefusals, clip(p.Content, maxRefusal)), true
			}
		}
	}
	return "", false
}
