package model

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

// maxToolName is the greatest length of a function's name in the protocol.
const maxToolName = 64

// newParams returns the body of a request.
func newParams(req Request) (openai.ChatCompletionNewParams, error) {
	params := openai.ChatCompletionNewParams{
		Model:         req.Model,
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	if req.System != "" {
		params.Messages = append(params.Messages, openai.SystemMessage(req.System))
	}
	for i, m := range req.Messages {
		p, err := messageParam(m)
		if err != nil {
			return params, fmt.Errorf("message %d: %w", i, err)
		}
		params.Messages = append(params.Messages, p)
	}
	for _, t := range req.Tools {
		p, err := toolParam(t)
		if err != nil {
			return params, err
		}
		params.Tools = append(params.Tools, p)
	}
	return params, nil
}

func messageParam(m Message) (openai.ChatCompletionMessageParamUnion, error) {
	switch m.Role {
	case RoleSystem:
		return openai.SystemMessage(m.Text), nil
	case RoleUser:
		return openai.UserMessage(m.Text), nil
	case RoleTool:
		return openai.ToolMessage(m.Text, m.CallID), nil
	case RoleAssistant:
		return assistantParam(m), nil
	default:
		return openai.ChatCompletionMessageParamUnion{}, fmt.Errorf("unknown role %q", m.Role)
	}
}

func assistantParam(m Message) openai.ChatCompletionMessageParamUnion {
	p := openai.AssistantMessage(m.Text)
	if m.Text == "" && len(m.Calls) > 0 {
		p.OfAssistant.Content = openai.ChatCompletionAssistantMessageParamContentUnion{}
	}
	for _, c := range m.Calls {
		p.OfAssistant.ToolCalls = append(p.OfAssistant.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
			OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
				ID: c.ID,
				Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
					Name:      historyName(c.Name),
					Arguments: historyArguments(c.Arguments),
				},
			},
		})
	}
	return p
}

// historyName returns a name that an endpoint accepts in a history. A model can
// make up a name that the endpoint would then refuse in every later request of
// the session.
func historyName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		default:
			return '_'
		}
	}, name)
	if name == "" {
		return "_"
	}
	return name[:min(len(name), maxToolName)]
}

// historyArguments returns arguments that an endpoint accepts in a history, for
// the same reason: some parse them. What is no JSON object is shown to the
// model as a string, so that it sees what it wrote.
func historyArguments(raw string) string {
	if strings.TrimSpace(raw) == "" {
		return "{}"
	}
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(raw), &object) == nil && object != nil {
		return raw
	}
	// A map of strings always has a JSON form.
	wrapped, _ := json.Marshal(map[string]string{"not_a_json_object": raw})
	return string(wrapped)
}

func toolParam(t Tool) (openai.ChatCompletionToolUnionParam, error) {
	fn := shared.FunctionDefinitionParam{Name: t.Name}
	if t.Description != "" {
		fn.Description = openai.String(t.Description)
	}
	if len(t.Parameters) > 0 {
		if err := json.Unmarshal(t.Parameters, &fn.Parameters); err != nil {
			return openai.ChatCompletionToolUnionParam{}, fmt.Errorf("parameters of tool %s: %w", t.Name, err)
		}
	}
	return openai.ChatCompletionFunctionTool(fn), nil
}
