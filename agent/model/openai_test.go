package model_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/agent/model/modeltest"
)

// testKey is a key that no text contains by chance.
const testKey = "sk-test-7f3a9c"

// newClient returns a client whose pauses are short.
func newClient(t *testing.T, url string, change ...func(*model.OpenAIConfig)) model.Client {
	t.Helper()
	cfg := model.OpenAIConfig{BaseURL: url, Key: model.NewKey(testKey), Backoff: time.Millisecond}
	for _, f := range change {
		f(&cfg)
	}
	client, err := model.NewOpenAI(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.(io.Closer).Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

func question() model.Request {
	return model.Request{
		Model:    "gpt-test",
		System:   "be brief",
		Messages: []model.Message{{Role: model.RoleUser, Text: "hello"}},
	}
}

func TestStepReadsWhatTheEndpointStreams(t *testing.T) {
	t.Parallel()
	call := func(id, name, args string) modeltest.Call { return modeltest.Call{ID: id, Name: name, Arguments: args} }
	stop := func(r model.Response) model.Response {
		r.Model = "gpt-test"
		if r.Finish == "" {
			r.Finish = "stop"
		}
		return r
	}
	tests := []struct {
		name  string
		reply modeltest.Reply
		want  model.Response
	}{
		{
			"text with usage in the last chunk",
			modeltest.Reply{Text: []string{"Hel", "lo ", "wörld"}, Usage: modeltest.Usage{Prompt: 20, Completion: 3, Cached: 12}},
			stop(model.Response{Text: "Hello wörld", Usage: model.Usage{InputTokens: 20, OutputTokens: 3, CachedTokens: 12}}),
		},
		{
			"call in fragments",
			modeltest.Reply{Calls: []modeltest.Call{call("call_9", "read", `{"path":"a/ü.txt"}`)}, Fragment: 1},
			stop(model.Response{Calls: []model.Call{{ID: "call_9", Name: "read", Arguments: `{"path":"a/ü.txt"}`}}, Finish: "tool_calls"}),
		},
		{
			"text and several calls",
			modeltest.Reply{Text: []string{"both"}, Calls: []modeltest.Call{call("a", "read", `{"path":"1"}`), call("b", "read", `{"path":"2"}`)}},
			stop(model.Response{Text: "both", Calls: []model.Call{{ID: "a", Name: "read", Arguments: `{"path":"1"}`}, {ID: "b", Name: "read", Arguments: `{"path":"2"}`}}, Finish: "tool_calls"}),
		},
		{
			"the same id twice",
			modeltest.Reply{Calls: []modeltest.Call{call("call_0", "list", `{"path":"1"}`), call("call_0", "list", `{"path":"2"}`)}},
			stop(model.Response{Calls: []model.Call{{ID: "call_0", Name: "list", Arguments: `{"path":"1"}`}, {ID: "call_0", Name: "list", Arguments: `{"path":"2"}`}}, Finish: "tool_calls"}),
		},
		{
			"no ids",
			modeltest.Reply{Calls: []modeltest.Call{call("", "list", `{"path":"1"}`), call("", "list", `{"path":"2"}`)}},
			stop(model.Response{Calls: []model.Call{{Name: "list", Arguments: `{"path":"1"}`}, {Name: "list", Arguments: `{"path":"2"}`}}, Finish: "tool_calls"}),
		},
		{
			"unknown tool and arguments that are not JSON",
			modeltest.Reply{Calls: []modeltest.Call{call("x", "make coffee", `{"path": `)}},
			stop(model.Response{Calls: []model.Call{{ID: "x", Name: "make coffee", Arguments: `{"path": `}}, Finish: "tool_calls"}),
		},
		{
			"no arguments",
			modeltest.Reply{Calls: []modeltest.Call{call("x", "list", "")}},
			stop(model.Response{Calls: []model.Call{{ID: "x", Name: "list"}}, Finish: "tool_calls"}),
		},
		{"cut at the length", modeltest.Reply{Text: []string{"once upon"}, Finish: "length"}, stop(model.Response{Text: "once upon", Finish: "length"})},
		{"content filter", modeltest.Reply{Finish: "content_filter"}, stop(model.Response{Finish: "content_filter"})},
		{"refusal", modeltest.Reply{Refusal: "I cannot help with that."}, stop(model.Response{Refusal: "I cannot help with that."})},
		{
			"says stop after calls",
			modeltest.Reply{Calls: []modeltest.Call{call("x", "list", "{}")}, Finish: "stop"},
			stop(model.Response{Calls: []model.Call{{ID: "x", Name: "list", Arguments: "{}"}}, Finish: "tool_calls"}),
		},
		{"a reason of its own", modeltest.Reply{Text: []string{"ok"}, Finish: "eos"}, stop(model.Response{Text: "ok"})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := modeltest.NewServer(t, tt.reply.Step())
			srv.Key = testKey
			var streamed strings.Builder
			got, err := newClient(t, srv.URL).Step(t.Context(), question(), func(s string) { streamed.WriteString(s) })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
			if streamed.String() != tt.want.Text {
				t.Errorf("streamed %q, want %q", streamed.String(), tt.want.Text)
			}
		})
	}
}

func TestStepReadsEndpointsThatStray(t *testing.T) {
	t.Parallel()
	const finish = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	tests := []struct {
		name   string
		frames []string
		want   model.Response
	}{
		{
			"calls without an index",
			[]string{
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","type":"function","function":{"name":"read","arguments":"{\"p\""}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":":1}"}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"b","type":"function","function":{"name":"read","arguments":"{}"}}]}}]}`,
				finish, modeltest.Done,
			},
			model.Response{Calls: []model.Call{{ID: "a", Name: "read", Arguments: `{"p":1}`}, {ID: "b", Name: "read", Arguments: "{}"}}, Finish: "tool_calls"},
		},
		{
			"calls without an index and an id",
			[]string{
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"read","arguments":"{\"p\""}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":":1}"}},{"function":{"name":"read","arguments":"{}"}}]}}]}`,
				finish, modeltest.Done,
			},
			model.Response{Calls: []model.Call{{Name: "read", Arguments: `{"p":1}`}, {Name: "read", Arguments: "{}"}}, Finish: "tool_calls"},
		},
		{
			"the index 0 for every call",
			[]string{
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}},{"index":0,"id":"b","function":{"name":"list","arguments":"{}"}}]}}]}`,
				finish, modeltest.Done,
			},
			model.Response{Calls: []model.Call{{ID: "a", Name: "read", Arguments: "{}"}, {ID: "b", Name: "list", Arguments: "{}"}}, Finish: "tool_calls"},
		},
		{
			"name and id in every fragment",
			[]string{
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{"}}]}}]}`,
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"}"}}]}}]}`,
				finish, modeltest.Done,
			},
			model.Response{Calls: []model.Call{{ID: "a", Name: "read", Arguments: "{}"}}, Finish: "tool_calls"},
		},
		{
			"calls out of order",
			[]string{
				`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"list","arguments":"{}"}},{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}}]}`,
				finish, modeltest.Done,
			},
			model.Response{Calls: []model.Call{{ID: "a", Name: "read", Arguments: "{}"}, {ID: "b", Name: "list", Arguments: "{}"}}, Finish: "tool_calls"},
		},
		{"no last frame", []string{`{"choices":[{"index":0,"delta":{"content":"ok"}}]}`, finish}, model.Response{Text: "ok", Finish: "stop"}},
		{"no finish reason", []string{`{"choices":[{"index":0,"delta":{"content":"ok"}}]}`, modeltest.Done}, model.Response{Text: "ok", Finish: "stop"}},
		{"an error that is null", []string{`{"error":null,"choices":[{"index":0,"delta":{"content":"ok"}}]}`, finish, modeltest.Done}, model.Response{Text: "ok", Finish: "stop"}},
		{"a second choice", []string{`{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"ok"}}]}`, finish, modeltest.Done}, model.Response{Text: "ok", Finish: "stop"}},
		{
			"cache hits by another name",
			[]string{finish, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_cache_hit_tokens":4}}`, modeltest.Done},
			model.Response{Finish: "stop", Usage: model.Usage{InputTokens: 9, OutputTokens: 2, CachedTokens: 4}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := modeltest.NewServer(t, modeltest.Frames(tt.frames...))
			got, err := newClient(t, srv.URL).Step(t.Context(), question(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStepSendsTheConversation(t *testing.T) {
	t.Parallel()
	srv := modeltest.NewServer(t, modeltest.Reply{Text: []string{"ok"}}.Step())
	req := question()
	req.Tools = []model.Tool{{Name: "read", Description: "Reads.", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)}, {Name: "list"}}
	req.Messages = append(req.Messages,
		model.Message{Role: model.RoleAssistant, Text: "looking", Calls: []model.Call{
			{ID: "1.1.0", Name: "read", Arguments: `{"path": "a"}`},
			{ID: "1.1.1", Name: "make coffee", Arguments: `{"path": `},
			{ID: "1.1.2", Name: "", Arguments: ""},
		}},
		model.Message{Role: model.RoleTool, CallID: "1.1.0", Text: "A"},
		model.Message{Role: model.RoleTool, CallID: "1.1.1", Text: "no such tool", IsError: true},
		model.Message{Role: model.RoleTool, CallID: "1.1.2", Text: "no such tool", IsError: true},
		model.Message{Role: model.RoleAssistant, Calls: []model.Call{{ID: "1.2.0", Name: "list", Arguments: "[1]"}}},
		model.Message{Role: model.RoleTool, CallID: "1.2.0"},
		model.Message{Role: model.RoleAssistant},
		model.Message{Role: model.RoleSystem, Text: "the mode has changed"},
	)
	if _, err := newClient(t, srv.URL).Step(t.Context(), req, nil); err != nil {
		t.Fatal(err)
	}
	got := srv.Requests()[0]
	want := []modeltest.Message{
		{Role: "system", Content: "be brief"},
		{Role: "user", Content: "hello"},
		{Role: "assistant", Content: "looking", Calls: []modeltest.Call{
			{ID: "1.1.0", Name: "read", Arguments: `{"path": "a"}`},
			{ID: "1.1.1", Name: "make_coffee", Arguments: `{"not_a_json_object":"{\"path\": "}`},
			{ID: "1.1.2", Name: "_", Arguments: "{}"},
		}},
		{Role: "tool", ToolCallID: "1.1.0", Content: "A"},
		{Role: "tool", ToolCallID: "1.1.1", Content: "no such tool"},
		{Role: "tool", ToolCallID: "1.1.2", Content: "no such tool"},
		{Role: "assistant", Calls: []modeltest.Call{{ID: "1.2.0", Name: "list", Arguments: `{"not_a_json_object":"[1]"}`}}},
		{Role: "tool", ToolCallID: "1.2.0"},
		{Role: "assistant"},
		{Role: "system", Content: "the mode has changed"},
	}
	if diff := cmp.Diff(want, got.Messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if got.Model != "gpt-test" || !got.Stream || !got.IncludeUsage {
		t.Errorf("model %q, stream %t, include_usage %t, want gpt-test, true, true", got.Model, got.Stream, got.IncludeUsage)
	}
	if diff := cmp.Diff([]string{"read", "list"}, got.Tools); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if !strings.Contains(string(got.Body), `"parameters":{"properties":{"path":{"type":"string"}},"type":"object"}`) {
		t.Errorf("body %s does not hold the tool's schema", got.Body)
	}
	if auth := got.Header.Get("Authorization"); auth != "Bearer "+testKey {
		t.Errorf("Authorization = %q, want the key", auth)
	}
}

func TestStepRefusesWhatItCannotSend(t *testing.T) {
	t.Parallel()
	srv := modeltest.NewServer(t)
	tests := []struct {
		name   string
		change func(*model.Request)
	}{
		{"role", func(r *model.Request) { r.Messages[0].Role = "narrator" }},
		{"schema", func(r *model.Request) { r.Tools = []model.Tool{{Name: "a", Parameters: json.RawMessage(`[]`)}} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req := question()
			tt.change(&req)
			if _, err := newClient(t, srv.URL).Step(t.Context(), req, nil); err == nil {
				t.Error("Step succeeded, want an error")
			}
			if n := len(srv.Requests()); n != 0 {
				t.Errorf("%d requests were sent, want none", n)
			}
		})
	}
}

// TestConversationsChooseTheirAnswers drives a parent and its child, both with an
// endpoint that gives every call the id call_0.
func TestConversationsChooseTheirAnswers(t *testing.T) {
	t.Parallel()
	srv := modeltest.NewServerFunc(t, func(r modeltest.Request) modeltest.Step {
		who := r.First("user")
		if r.Steps() < 2 {
			return modeltest.Reply{Calls: []modeltest.Call{{ID: "call_0", Name: "read", Arguments: `{"path":"` + who + `"}`}}}.Step()
		}
		return modeltest.Reply{Text: []string{who, " has read ", r.Last().Content}}.Step()
	})
	client := newClient(t, srv.URL)
	for _, who := range []string{"parent", "child"} {
		req := model.Request{Model: "m", Messages: []model.Message{{Role: model.RoleUser, Text: who}}}
		for step := range 2 {
			res, err := client.Step(t.Context(), req, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := []model.Call{{ID: "call_0", Name: "read", Arguments: `{"path":"` + who + `"}`}}
			if diff := cmp.Diff(want, res.Calls); diff != "" {
				t.Fatalf("calls of %s (-want +got):\n%s", who, diff)
			}
			own := "1." + string(rune('1'+step)) + ".0"
			res.Calls[0].ID = own
			req.Messages = append(req.Messages,
				model.Message{Role: model.RoleAssistant, Calls: res.Calls},
				model.Message{Role: model.RoleTool, CallID: own, Text: own})
		}
		res, err := client.Step(t.Context(), req, nil)
		if want := who + " has read 1.2.0"; err != nil || res.Text != want {
			t.Errorf("last step of %s: %q, %v, want %q", who, res.Text, err, want)
		}
	}
}

// TestEnvironmentIsNotRead cannot be parallel: it changes the environment.
func TestEnvironmentIsNotRead(t *testing.T) {
	other := modeltest.NewServer(t)
	for name, value := range map[string]string{
		"OPENAI_BASE_URL":       other.URL,
		"OPENAI_API_KEY":        "from-the-environment",
		"OPENAI_ADMIN_KEY":      "from-the-environment",
		"OPENAI_ORG_ID":         "from-the-environment",
		"OPENAI_PROJECT_ID":     "from-the-environment",
		"OPENAI_CUSTOM_HEADERS": "X-Custom: from-the-environment",
	} {
		t.Setenv(name, value)
	}
	for _, key := range []model.Key{nil, model.NewKey(testKey)} {
		srv := modeltest.NewServer(t, modeltest.Reply{Text: []string{"ok"}}.Step())
		client := newClient(t, srv.URL, func(c *model.OpenAIConfig) { c.Key = key })
		if _, err := client.Step(t.Context(), question(), nil); err != nil {
			t.Fatal(err)
		}
		for name, values := range srv.Requests()[0].Header {
			if strings.Contains(strings.Join(values, " "), "from-the-environment") {
				t.Errorf("header %s: %q comes from the environment", name, values)
			}
		}
		if auth := srv.Requests()[0].Header.Get("Authorization"); key == nil && auth != "" {
			t.Errorf("Authorization = %q without a key, want none", auth)
		}
	}
	if n := len(other.Requests()); n != 0 {
		t.Errorf("%d requests went to the environment's address, want none", n)
	}
}

func TestProxyIsTheCallersChoice(t *testing.T) {
	t.Parallel()
	proxy := modeltest.NewServer(t, modeltest.Reply{Text: []string{"ok"}}.Step())
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := newClient(t, "http://model.invalid/v1", func(c *model.OpenAIConfig) { c.Proxy = http.ProxyURL(address) })
	if _, err := client.Step(t.Context(), question(), nil); err != nil {
		t.Errorf("Step through the proxy: %v", err)
	}
}
