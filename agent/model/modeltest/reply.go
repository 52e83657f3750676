package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Done is the data of the frame that ends a stream.
const Done = "[DONE]"

// Reply is a good answer, streamed as the protocol says: a first chunk with the
// role, the content in deltas, the calls in fragments, a chunk with the finish
// reason, the usage if it was asked for, and [Done].
type Reply struct {
	// Text is the content, one delta each.
	Text []string
	// Calls are the calls. An id is sent with a call's first fragment only.
	Calls []Call
	// Fragment is the number of bytes of arguments per chunk; default 5.
	Fragment int
	// Refusal is sent as the delta of that name.
	Refusal string
	// Finish is the finish reason; default "tool_calls" if there are calls,
	// else "stop".
	Finish string
	// Usage is sent in a last chunk of its own.
	Usage Usage
}

// Usage is the count of tokens of a [Reply].
type Usage struct{ Prompt, Completion, Cached int }

// Step returns the step that streams the reply.
func (p Reply) Step() Step {
	return func(w http.ResponseWriter, _ *http.Request, req Request) {
		startStream(w)
		for _, frame := range p.Frames(req) {
			writeFrame(w, frame)
		}
	}
}

// Frames returns the data of each frame of the stream that answers req.
func (p Reply) Frames(req Request) []string {
	var frames []string
	add := func(delta, finish string) {
		choice := fmt.Sprintf(`{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}`, delta, finish)
		frames = append(frames, chunk(req, choice, "null"))
	}
	add(`{"role":"assistant","content":"","refusal":null}`, "null")
	for _, text := range p.Text {
		add(fmt.Sprintf(`{"content":%s}`, quote(text)), "null")
	}
	if p.Refusal != "" {
		add(fmt.Sprintf(`{"refusal":%s}`, quote(p.Refusal)), "null")
	}
	for i, c := range p.Calls {
		for _, fragment := range p.fragments(i, c) {
			add(fmt.Sprintf(`{"tool_calls":[%s]}`, fragment), "null")
		}
	}
	add(`{}`, quote(p.finish()))
	if req.IncludeUsage {
		frames = append(frames, chunk(req, "", p.Usage.json()))
	}
	return append(frames, Done)
}

func (p Reply) finish() string {
	switch {
	case p.Finish != "":
		return p.Finish
	case len(p.Calls) > 0:
		return "tool_calls"
	default:
		return "stop"
	}
}

// fragments returns the pieces of a call: the first has id, type and name and
// empty arguments, the others have index and arguments only.
func (p Reply) fragments(index int, c Call) []string {
	id := ""
	if c.ID != "" {
		id = fmt.Sprintf(`"id":%s,`, quote(c.ID))
	}
	out := []string{fmt.Sprintf(`{"index":%d,%s"type":"function","function":{"name":%s,"arguments":""}}`, index, id, quote(c.Name))}
	size := p.Fragment
	if size <= 0 {
		size = 5
	}
	// Runes, since a chunk is JSON and cannot hold half a character.
	for rest := []rune(c.Arguments); len(rest) > 0; {
		n := min(size, len(rest))
		out = append(out, fmt.Sprintf(`{"index":%d,"function":{"arguments":%s}}`, index, quote(string(rest[:n]))))
		rest = rest[n:]
	}
	return out
}

// chunk returns one chat.completion.chunk. The member usage is there, as null
// or as the count, only if the request asked for it.
func chunk(req Request, choice, usage string) string {
	tail := ""
	if req.IncludeUsage {
		tail = `,"usage":` + usage
	}
	return fmt.Sprintf(`{"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,`+
		`"model":%s,"system_fingerprint":"fp_44709d6fcb","choices":[%s]%s}`, quote(req.Model), choice, tail)
}

func (u Usage) json() string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,`+
		`"prompt_tokens_details":{"cached_tokens":%d}}`, u.Prompt, u.Completion, u.Prompt+u.Completion, u.Cached)
}

// quote returns s as a JSON string.
func quote(s string) string {
	// Marshalling a string cannot fail.
	b, _ := json.Marshal(s)
	return string(b)
}
