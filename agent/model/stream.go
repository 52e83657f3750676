package model

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// readStream reads a stream of chunks to its end and returns what they add up to.
// Only a stream that says it is complete, by a finish reason or by its last
// frame, is an answer.
func readStream(res *http.Response, onText func(string)) (Response, error) {
	// The library's Stream does not tell a complete stream from one that was
	// cut, and takes "error": null for an error. So only its decoder is used.
	dec := ssestream.NewDecoder(res)
	acc := accumulator{onText: onText}
	for dec.Next() {
		event := dec.Event()
		data := bytes.TrimSpace(event.Data)
		if bytes.Equal(data, []byte("[DONE]")) {
			return acc.response(true)
		}
		if err := streamError(event.Type, data); err != nil {
			return Response{}, err
		}
		var chunk openai.ChatCompletionChunk
		if err := json.Unmarshal(data, &chunk); err != nil {
			return Response{}, &Error{Kind: KindMalformed, Err: fmt.Errorf("a frame is not a chunk: %w", err)}
		}
		acc.add(chunk)
	}
	if err := dec.Err(); err != nil {
		return Response{}, fmt.Errorf("read the answer: %w", err)
	}
	return acc.response(false)
}

// streamError returns the error that a frame in a good response reports, or nil.
func streamError(event string, data []byte) error {
	var shape struct {
		Error  json.RawMessage `json:"error"`
		Object string          `json:"object"`
	}
	// What is not an object is no chunk either and is reported as that.
	_ = json.Unmarshal(data, &shape)
	hasError := len(shape.Error) > 0 && !bytes.Equal(shape.Error, []byte("null"))
	if !hasError && event != "error" && shape.Object != "error" {
		return nil
	}
	text, code := errorText(data)
	e := &Error{Kind: KindTransient, Err: errors.New("the answer broke off: " + text)}
	if status, err := strconv.Atoi(code); err == nil && status >= 400 && status < 600 {
		e.Kind, e.Status = statusKind(status), status
	}
	return e
}

// accumulator adds up the chunks of one answer.
type accumulator struct {
	onText        func(string)
	text, refusal strings.Builder
	calls         []*partialCall
	usage         Usage
	model, finish string
	started       bool
}

// partialCall is a call whose fragments are arriving.
type partialCall struct {
	index     int64
	id, name  string
	arguments strings.Builder
}

func (a *accumulator) add(chunk openai.ChatCompletionChunk) {
	if a.model == "" {
		a.model = chunk.Model
	}
	if chunk.JSON.Usage.Valid() {
		a.usage = usageOf(chunk.Usage)
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue // one was asked for
		}
		a.started = true
		if text := choice.Delta.Content; text != "" {
			a.text.WriteString(text)
			if a.onText != nil {
				a.onText(text)
			}
		}
		a.refusal.WriteString(choice.Delta.Refusal)
		for _, fragment := range choice.Delta.ToolCalls {
			a.addFragment(fragment)
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
}

func (a *accumulator) addFragment(f openai.ChatCompletionChunkChoiceDeltaToolCall) {
	c := a.callOf(f)
	if f.ID != "" {
		c.id = f.ID
	}
	// Some endpoints repeat the name in every fragment.
	if f.Function.Name != c.name {
		c.name += f.Function.Name
	}
	c.arguments.WriteString(f.Function.Arguments)
}

// callOf returns the call that a fragment belongs to. The index says so, except
// with endpoints that leave it out or send the same one for every call: there
// a new id or name begins a new call.
func (a *accumulator) callOf(f openai.ChatCompletionChunkChoiceDeltaToolCall) *partialCall {
	index := f.Index
	if !f.JSON.Index.Valid() {
		index = int64(max(0, len(a.calls)-1))
		if n := len(a.calls); n > 0 && f.Function.Name != "" && (f.ID == "" || f.ID != a.calls[n-1].id) {
			index = int64(n)
		}
	}
	for _, c := range slices.Backward(a.calls) {
		if c.index != index {
			continue
		}
		if f.ID != "" && c.id != "" && f.ID != c.id && f.Function.Name != "" {
			break
		}
		return c
	}
	c := &partialCall{index: index}
	a.calls = append(a.calls, c)
	return c
}

// response returns the whole answer. The flag done says that the stream's last
// frame was seen.
func (a *accumulator) response(done bool) (Response, error) {
	if !done && a.finish == "" {
		return Response{}, &Error{Kind: KindTransient, Err: errors.New("the answer was cut off before its end")}
	}
	if !a.started {
		return Response{}, &Error{Kind: KindTransient, Err: errors.New("the answer is empty")}
	}
	switch a.finish {
	case "error", "insufficient_system_resource":
		return Response{}, &Error{Kind: KindTransient, Err: fmt.Errorf("the endpoint stopped answering: %s", a.finish)}
	}
	res := Response{Text: a.text.String(), Usage: a.usage, Finish: a.finishReason(), Model: a.model, Refusal: a.refusal.String()}
	slices.SortStableFunc(a.calls, func(x, y *partialCall) int { return cmp.Compare(x.index, y.index) })
	for _, c := range a.calls {
		res.Calls = append(res.Calls, Call{ID: c.id, Name: c.name, Arguments: c.arguments.String()})
	}
	return res, nil
}

// finishReason returns one of the published reasons. Endpoints have reasons of
// their own for a normal end, and some say "stop" after calls.
func (a *accumulator) finishReason() string {
	switch {
	case a.finish == FinishLength, a.finish == FinishContentFilter:
		return a.finish
	case len(a.calls) > 0:
		return FinishToolCalls
	default:
		return FinishStop
	}
}

func usageOf(u openai.CompletionUsage) Usage {
	cached := u.PromptTokensDetails.CachedTokens
	if cached == 0 {
		// DeepSeek's name for it.
		cached, _ = strconv.ParseInt(u.JSON.ExtraFields["prompt_cache_hit_tokens"].Raw(), 10, 64)
	}
	return Usage{
		InputTokens:  max(0, u.PromptTokens),
		OutputTokens: max(0, u.CompletionTokens),
		CachedTokens: max(0, cached),
	}
}
