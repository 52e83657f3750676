package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
)

// Request is a request as the server received it.
type Request struct {
	// Header holds the headers, Authorization among them.
	Header http.Header
	// Body is the request's body as it came.
	Body []byte
	// Model is the model asked for.
	Model string
	// Stream and IncludeUsage are the options of streaming.
	Stream, IncludeUsage bool
	// Messages is the conversation.
	Messages []Message
	// Tools names the tools offered.
	Tools []string
}

// Message is one message of a request.
type Message struct {
	Role       string
	Content    string
	Calls      []Call
	ToolCallID string
}

// Call is a tool call, of a request's history or of a [Reply].
type Call struct {
	// ID is the call's id. A reply leaves an empty one out.
	ID string
	// Name is the tool's name.
	Name string
	// Arguments is sent as it is, JSON or not.
	Arguments string
}

// toolName is the published form of a function's name.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Steps returns how many messages of the conversation the model wrote.
func (r Request) Steps() int {
	n := 0
	for _, m := range r.Messages {
		if m.Role == "assistant" {
			n++
		}
	}
	return n
}

// First returns the content of the first message of a role, or "".
func (r Request) First(role string) string {
	for _, m := range r.Messages {
		if m.Role == role {
			return m.Content
		}
	}
	return ""
}

// Last returns the last message, or the zero message.
func (r Request) Last() Message {
	if len(r.Messages) == 0 {
		return Message{}
	}
	return r.Messages[len(r.Messages)-1]
}

// Check returns what is wrong with the history: each call of an assistant
// message has exactly one tool message, these follow it at once, no tool
// message answers anything else, and no call's id occurs twice. It also wants
// the names and arguments of calls in the form that strict endpoints demand.
func (r Request) Check() error {
	if r.Model == "" || len(r.Messages) == 0 {
		return errors.New("you must provide a model and messages")
	}
	seen := map[string]bool{}
	open := map[string]bool{}
	for i, m := range r.Messages {
		if m.Role == "tool" {
			if !open[m.ToolCallID] {
				return fmt.Errorf("messages[%d]: tool_call_id %q answers no open call", i, m.ToolCallID)
			}
			delete(open, m.ToolCallID)
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("messages[%d]: %d calls before it have no tool message", i, len(open))
		}
		for _, c := range m.Calls {
			if err := c.check(seen); err != nil {
				return fmt.Errorf("messages[%d]: %w", i, err)
			}
			open[c.ID] = true
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%d calls at the end have no tool message", len(open))
	}
	return nil
}

func (c Call) check(seen map[string]bool) error {
	if c.ID == "" || seen[c.ID] {
		return fmt.Errorf("call id %q is empty or was there before", c.ID)
	}
	seen[c.ID] = true
	if !toolName.MatchString(c.Name) {
		return fmt.Errorf("function name %q does not match %s", c.Name, toolName)
	}
	var object map[string]any
	if json.Unmarshal([]byte(c.Arguments), &object) != nil || object == nil {
		return fmt.Errorf("arguments %q are not a JSON object", c.Arguments)
	}
	return nil
}

// wireRequest is the published form of a request, as far as it is used here.
type wireRequest struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages []struct {
		Role       string  `json:"role"`
		Content    *string `json:"content"`
		ToolCallID string  `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string `json:"id"`
			Type     string `json:"type"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools []struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

// decode reads the published form of a request.
func decode(header http.Header, body []byte) (Request, error) {
	r := Request{Header: header.Clone(), Body: body}
	var w wireRequest
	if err := json.Unmarshal(body, &w); err != nil {
		return r, fmt.Errorf("could not parse the JSON body of your request: %w", err)
	}
	r.Model, r.Stream, r.IncludeUsage = w.Model, w.Stream, w.StreamOptions.IncludeUsage
	for i, m := range w.Messages {
		msg := Message{Role: m.Role, ToolCallID: m.ToolCallID}
		if m.Content != nil {
			msg.Content = *m.Content
		} else if len(m.ToolCalls) == 0 {
			return r, fmt.Errorf("messages[%d]: content is required", i)
		}
		for _, c := range m.ToolCalls {
			if c.Type != "function" {
				return r, fmt.Errorf("messages[%d]: tool call type %q, want function", i, c.Type)
			}
			msg.Calls = append(msg.Calls, Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		r.Messages = append(r.Messages, msg)
	}
	for i, t := range w.Tools {
		if t.Type != "function" {
			return r, fmt.Errorf("tools[%d]: type %q, want function", i, t.Type)
		}
		r.Tools = append(r.Tools, t.Function.Name)
	}
	return r, nil
}
