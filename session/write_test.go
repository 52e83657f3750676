package session_test

import (
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// Short ways to write events that many tests need.

func prompt(id string) *session.UserMessage {
	return &session.UserMessage{ID: id, Role: "user", Content: "go", By: person(), Source: session.MessageSource{Kind: session.FromUser}}
}

func claim(epoch uint64, cause session.Cause) *session.Claim {
	return &session.Claim{Epoch: epoch, Worker: "w1", Incarnation: "i1", Cause: cause}
}

func extent() session.Extent {
	return session.Extent{Worker: "w1", Incarnation: "i1", Attempt: 1}
}

func turnEnd(turn int) *session.TurnEnd {
	return &session.TurnEnd{Turn: turn, Reason: session.EndReason{Kind: session.EndCompleted}, Extent: extent()}
}

// openCalls claims, opens a turn and a step, and answers with calls of tools.
func openCalls(s *sessiontest.Stream, id session.ID, turn int, tools ...string) {
	m := &session.AssistantMessage{Turn: turn, Step: 1, Content: "calling", Extent: extent()}
	events := []session.Payload{
		claim(s.State(id).Epoch+1, session.CauseStart), &session.TurnStart{Turn: turn},
		&session.StepStart{Turn: turn, Step: 1}, m,
	}
	for i, tool := range tools {
		m.Calls = append(m.Calls, i)
		events = append(events, &session.ToolCall{
			Turn: turn, Step: 1, Index: i, CallID: session.MakeCallID(turn, 1, i), Name: tool, Arguments: "{}",
		})
	}
	s.Write(id, session.ClassTurn, events...)
}
