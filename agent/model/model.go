package model

import (
	"context"
	"encoding/json"
)

// Client answers one model step.
type Client interface {
	// Step sends the conversation and returns the whole response. The function
	// onText, if not nil, is called with text as it streams, always from the
	// goroutine that called Step. A repeated attempt streams its text from the
	// start again: only the returned response is what the model said.
	Step(ctx context.Context, req Request, onText func(string)) (Response, error)
}

// Request is one model step: the conversation so far and what may be called.
type Request struct {
	// Model is the endpoint's name of the model. The scripted model ignores it.
	Model string
	// System is the system prompt; empty sends none.
	System string
	// Messages is the conversation, oldest first.
	Messages []Message
	// Tools are the tools that the model may call.
	Tools []Tool
	// Position is the number of model steps in the session's own events before
	// this one. Only the scripted model reads it.
	Position int
	// Label is the session's label, "root" for a root. Only the scripted model
	// reads it.
	Label string
}

// Role says who speaks in a message.
type Role string

// The roles of a conversation.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one entry of the conversation.
type Message struct {
	// Role says who speaks.
	Role Role
	// Text is what was said; of a tool message, the result.
	Text string
	// Calls are the calls of an assistant message, under the caller's ids.
	Calls []Call
	// CallID is the caller's id of the call that a tool message answers.
	CallID string
	// IsError marks a tool result that reports a failure. The protocol has no
	// place for it, so Text must say it too.
	IsError bool
}

// Call is one tool call that the model asked for.
type Call struct {
	// ID identifies the call. In a response it is what the model gave, which
	// may be empty or repeated; in a request it is the caller's.
	ID string
	// Name is the tool's name as the model gave it.
	Name string
	// Arguments is the raw text the model gave, which need not be JSON.
	Arguments string
}

// Tool describes a tool to the model.
type Tool struct {
	// Name is what the model calls it by.
	Name string
	// Description tells the model what it does.
	Description string
	// Parameters is the JSON schema of the arguments, an object.
	Parameters json.RawMessage
}

// The values of [Response.Finish].
const (
	FinishStop          = "stop"
	FinishToolCalls     = "tool_calls"
	FinishLength        = "length"
	FinishContentFilter = "content_filter"
)

// Response is what the model answered in one step.
type Response struct {
	// Text is the whole text.
	Text string
	// Calls are the calls it asked for, in the order of the model.
	Calls []Call
	// Usage counts the tokens, as far as the endpoint says.
	Usage Usage
	// Finish is one of the Finish constants. After FinishLength the last call
	// may lack its end.
	Finish string
	// Model is the name under which the endpoint answered.
	Model string
	// Refusal is the text with which the model refused, if it did.
	Refusal string
}

// Usage counts the tokens of one step.
type Usage struct {
	// InputTokens counts the tokens read, those from a cache included.
	InputTokens int64
	// OutputTokens counts the tokens written.
	OutputTokens int64
	// CachedTokens counts those of InputTokens that came from a cache.
	CachedTokens int64
}
