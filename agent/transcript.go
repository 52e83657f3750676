package agent

import (
	"fmt"

	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/session"
)

// Messages turns a log into the conversation that the model sees, a fork's prefix
// included: messages where they were consumed, every call with exactly one
// result, under ids of ours. The notice that answers a waiting call appears as
// that call's result alone.
func Messages(events []session.Event) []model.Message {
	t := transcript{accepted: map[session.Seq]*session.UserMessage{}}
	for i, e := range events {
		switch p := e.Payload.(type) {
		case *session.UserMessage:
			if e.Class == session.ClassTurn {
				t.say(p.Content)
			} else {
				t.accepted[e.Seq] = p
			}
		case *session.Consumed:
			t.consume(p, events[i+1:])
		case *session.AssistantMessage:
			t.answer(p)
		case *session.ToolCall:
			t.call(p)
		case *session.ToolResult:
			t.result(p)
		}
	}
	t.flush()
	return t.out
}

// transcript is a conversation in the making. Between an answer with calls and
// the last of their results nothing else may stand, so it is held back.
type transcript struct {
	out      []model.Message
	accepted map[session.Seq]*session.UserMessage
	calls    []model.Call // of the last answer, until all have results
	results  map[string]model.Message
	held     []string
}

func (t *transcript) say(text string) {
	if len(t.calls) > 0 {
		t.held = append(t.held, text)
		return
	}
	t.out = append(t.out, model.Message{Role: model.RoleUser, Text: text})
}

func (t *transcript) consume(p *session.Consumed, rest []session.Event) {
	for _, seq := range p.Seqs {
		m := t.accepted[seq]
		if m == nil || answersCall(m, rest) {
			continue
		}
		t.say(messageText(m))
	}
}

// answersCall reports whether a notice is the result of a call: the result stands
// in the record that consumes it.
func answersCall(m *session.UserMessage, rest []session.Event) bool {
	if m.Source.Kind != session.FromSettled {
		return false
	}
	for _, e := range rest {
		r, ok := e.Payload.(*session.ToolResult)
		if !ok {
			return false
		}
		if r.Child == m.Source.SenderSessionID && r.Content == clip(m.Content, maxNotice) {
			return true
		}
	}
	return false
}

func messageText(m *session.UserMessage) string {
	switch m.Source.Kind {
	case session.FromAgent:
		return fmt.Sprintf("[entail] message from session %s:\n%s", m.Source.SenderSessionID, m.Content)
	case session.FromReport:
		return fmt.Sprintf("[entail] report from session %s:\n%s", m.Source.SenderSessionID, m.Content)
	case session.FromSettled:
		return "[entail] " + m.Content
	case session.FromUser, session.FromPlugin:
	}
	return m.Content
}

func (t *transcript) answer(p *session.AssistantMessage) {
	t.flush()
	if p.Content == "" && len(p.Calls) == 0 {
		return
	}
	t.out = append(t.out, model.Message{Role: model.RoleAssistant, Text: p.Content})
}

func (t *transcript) call(p *session.ToolCall) {
	c := model.Call{ID: string(p.CallID), Name: p.Name, Arguments: p.Arguments}
	t.calls = append(t.calls, c)
	last := &t.out[len(t.out)-1]
	last.Calls = append(last.Calls, c)
}

func (t *transcript) result(p *session.ToolResult) {
	if t.results == nil {
		t.results = map[string]model.Message{}
	}
	text := p.Content
	if p.Code != "" {
		text = fmt.Sprintf("[%s] %s", p.Code, text)
	}
	t.results[string(p.CallID)] = model.Message{Role: model.RoleTool, CallID: string(p.CallID), Text: text, IsError: p.IsError}
	if len(t.results) == len(t.calls) {
		t.flush()
	}
}

// flush writes the results of the last answer in the order of its calls, and then
// what was held back.
func (t *transcript) flush() {
	for _, c := range t.calls {
		r, ok := t.results[c.ID]
		if !ok {
			r = model.Message{Role: model.RoleTool, CallID: c.ID, Text: "[" + session.CodeToolOutcomeUnknown + "] no result", IsError: true}
		}
		t.out = append(t.out, r)
	}
	for _, text := range t.held {
		t.out = append(t.out, model.Message{Role: model.RoleUser, Text: text})
	}
	t.calls, t.results, t.held = nil, nil, nil
}

// request is the model request of the open step.
func (f Facts) modelRequest() model.Request {
	s := f.State
	r := model.Request{
		System: systemPrompt, Messages: Messages(f.Events), Tools: offered(s.Filter()),
		Position: s.Steps, Label: model.RootLabel,
	}
	if s.Model != nil {
		r.Model = s.Model.Model
	}
	if s.Header.IsChild() && s.Descriptor != nil {
		r.Label = s.Descriptor.Label
	}
	return r
}
