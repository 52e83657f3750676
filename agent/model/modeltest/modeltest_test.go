package modeltest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/agent/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends a body and returns the status and the whole answer.
func post(t *testing.T, url, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// TestReplyIsThePublishedStream compares whole answers with the form that the
// protocol's reference shows.
func TestReplyIsThePublishedStream(t *testing.T) {
	t.Parallel()
	const head = `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1694268190,"model":"m","system_fingerprint":"fp_44709d6fcb","choices":[`
	choice := func(delta, finish string) string {
		return `{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + finish + `}]`
	}
	tests := []struct {
		name, body string
		reply      modeltest.Reply
		want       []string
	}{
		{
			"text", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
			modeltest.Reply{Text: []string{"Hel\"", "lo"}},
			[]string{
				head + choice(`{"role":"assistant","content":"","refusal":null}`, "null") + "}",
				head + choice(`{"content":"Hel\""}`, "null") + "}",
				head + choice(`{"content":"lo"}`, "null") + "}",
				head + choice(`{}`, `"stop"`) + "}",
				"data: [DONE]",
			},
		},
		{
			"calls with usage", `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`,
			modeltest.Reply{
				Calls:    []modeltest.Call{{ID: "call_1", Name: "read", Arguments: `{"p":1}`}, {Name: "list", Arguments: ""}},
				Fragment: 4, Usage: modeltest.Usage{Prompt: 3, Completion: 2, Cached: 1},
			},
			[]string{
				head + choice(`{"role":"assistant","content":"","refusal":null}`, "null") + `,"usage":null}`,
				head + choice(`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"read","arguments":""}}]}`, "null") + `,"usage":null}`,
				head + choice(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"p\""}}]}`, "null") + `,"usage":null}`,
				head + choice(`{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`, "null") + `,"usage":null}`,
				head + choice(`{"tool_calls":[{"index":1,"type":"function","function":{"name":"list","arguments":""}}]}`, "null") + `,"usage":null}`,
				head + choice(`{}`, `"tool_calls"`) + `,"usage":null}`,
				head + `],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}}}`,
				"data: [DONE]",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := modeltest.NewServer(t, tt.reply.Step())
			status, got := post(t, srv.URL+"/chat/completions", "", tt.body)
			if diff := cmp.Diff(strings.Join(tt.want, "\n\n")+"\n\n", got); diff != "" || status != 200 {
				t.Errorf("status %d, stream (-want +got):\n%s", status, diff)
			}
		})
	}
}

func TestServerIsStrictAboutTheHistory(t *testing.T) {
	t.Parallel()
	const (
		user = `{"role":"user","content":"hi"}`
		call = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"read","arguments":"{}"}}]}`
		tool = `{"role":"tool","tool_call_id":"a","content":"A"}`
	)
	tests := []struct {
		name, messages string
		status         int
		want           string
	}{
		{"good", user + "," + call + "," + tool, 200, "[DONE]"},
		{"no tool message at the end", user + "," + call, 400, "1 calls at the end have no tool message"},
		{"no tool message", call + "," + user, 400, "1 calls before it have no tool message"},
		{"two tool messages", call + "," + tool + "," + tool, 400, "answers no open call"},
		{"tool message for nothing", user + "," + tool, 400, "answers no open call"},
		{"the same id in two steps", call + "," + tool + "," + call + "," + tool, 400, "was there before"},
		{"empty id", strings.Replace(call, `"id":"a"`, `"id":""`, 1), 400, "is empty"},
		{"bad name", strings.Replace(call, "read", "make coffee", 1), 400, "does not match"},
		{"bad arguments", strings.Replace(call, "{}", "[]", 1), 400, "not a JSON object"},
		{"no content", `{"role":"user"}`, 400, "content is required"},
		{"nothing", "", 400, "must provide"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := modeltest.NewServer(t, modeltest.Reply{}.Step())
			status, got := post(t, srv.URL+"/chat/completions", "", `{"model":"m","messages":[`+tt.messages+`]}`)
			if status != tt.status || !strings.Contains(got, tt.want) {
				t.Errorf("status %d: %s, want %d: …%s…", status, got, tt.status, tt.want)
			}
		})
	}
}

func TestServerServesItsKeyAndPathOnly(t *testing.T) {
	t.Parallel()
	const body = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	srv := modeltest.NewServer(t, modeltest.Reply{}.Step())
	srv.Key = "good"
	tests := []struct {
		name, path, key string
		status          int
	}{
		{"wrong key", "/chat/completions", "bad", http.StatusUnauthorized},
		{"wrong path", "/responses", "good", http.StatusNotFound},
		{"right", "/chat/completions", "good", http.StatusOK},
		{"no step left", "/chat/completions", "good", http.StatusBadRequest},
	}
	for _, tt := range tests {
		if status, got := post(t, srv.URL+tt.path, tt.key, body); status != tt.status {
			t.Errorf("%s: status %d: %s, want %d", tt.name, status, got, tt.status)
		}
	}
	if n := len(srv.Requests()); n != 3 {
		t.Errorf("%d requests kept, want the 3 of the protocol", n)
	}
}
