package model_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/agent/model/modeltest"
)

// asError returns the *Error in err and fails the test if its text or any form
// of it holds the key.
func asError(t *testing.T, err error) *model.Error {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		t.Fatalf("got %v, want an *Error", err)
	}
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
		if strings.Contains(text, testKey) {
			t.Errorf("the key is in the error %s", text)
		}
	}
	return e
}

func TestStepRetriesWhatMayPass(t *testing.T) {
	t.Parallel()
	story := modeltest.Reply{Text: []string{"once ", "upon ", "a time"}}
	tests := []struct {
		name     string
		first    modeltest.Step
		status   int
		streamed string
		reason   string
	}{
		{"429", modeltest.TooManyRequests(""), 429, "once upon a time", "Rate limit reached"},
		{"500", modeltest.ServerError(), 500, "once upon a time", "The server had an error"},
		{"502 with a page", func(w http.ResponseWriter, _ *http.Request, _ modeltest.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("<html>bad gateway</html>"))
		}, 502, "once upon a time", "gave no reason"},
		{"408", modeltest.Status(408, "timeout", "", "too slow"), 408, "once upon a time", "too slow"},
		{"cut before the first token", modeltest.Cut(1, story), 0, "once upon a time", "unexpected EOF"},
		{"cut in mid-stream", modeltest.Cut(3, story), 0, "once upon once upon a time", "unexpected EOF"},
		{"ended in mid-stream", modeltest.End(3, story), 0, "once upon once upon a time", "cut off before its end"},
		{"cut in mid-call", modeltest.Cut(3, modeltest.Reply{Calls: []modeltest.Call{{ID: "a", Name: "bash", Arguments: `{"command":"rm -rf /tmp/a/b"}`}}}), 0, "once upon a time", "unexpected EOF"},
		{"no answer", modeltest.Silent(), 0, "once upon a time", "no answer within 500ms"},
		{"stall in mid-stream", modeltest.Stall(2, story), 0, "once once upon a time", "no more of the answer within 500ms"},
		{"error in mid-stream", modeltest.Frames(story.Frames(modeltest.Request{})[1], `{"error":{"message":"overloaded","type":"server_error"}}`), 0, "once once upon a time", "overloaded"},
		{"gave up", modeltest.Reply{Finish: "insufficient_system_resource"}.Step(), 0, "once upon a time", "insufficient_system_resource"},
		{"nothing", modeltest.Frames(modeltest.Done), 0, "once upon a time", "the answer is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := modeltest.NewServer(t, tt.first, story.Step())
			var retries []int
			var cause error
			client := newClient(t, srv.URL, func(c *model.OpenAIConfig) {
				c.FirstByte, c.Idle = 500*time.Millisecond, 500*time.Millisecond
				c.OnRetry = func(n int, err error) { retries, cause = append(retries, n), err }
			})
			var streamed strings.Builder
			res, err := client.Step(t.Context(), question(), func(s string) { streamed.WriteString(s) })
			if err != nil {
				t.Fatal(err)
			}
			if res.Text != "once upon a time" || len(res.Calls) != 0 {
				t.Errorf("response %+v, want the second attempt's alone", res)
			}
			if streamed.String() != tt.streamed {
				t.Errorf("streamed %q, want %q", streamed.String(), tt.streamed)
			}
			if diff := cmp.Diff([]int{1}, retries); diff != "" {
				t.Errorf("retries (-want +got):\n%s", diff)
			}
			if e := asError(t, cause); e.Kind != model.KindTransient || e.Status != tt.status {
				t.Errorf("cause %s %d, want transient %d: %v", e.Kind, e.Status, tt.status, e)
			} else if !strings.Contains(e.Error(), tt.reason) {
				t.Errorf("cause %v, want …%s…", e, tt.reason)
			}
			if n := len(srv.Requests()); n != 2 {
				t.Errorf("%d requests, want 2", n)
			}
		})
	}
}

// TestSlowIsNotStalled streams for longer than either limit, but never pauses for
// as long.
func TestSlowIsNotStalled(t *testing.T) {
	t.Parallel()
	const limit = 1500 * time.Millisecond
	reply := modeltest.Reply{Text: strings.Split("as slow as it may be", "")}
	srv := modeltest.NewServer(t, func(w http.ResponseWriter, r *http.Request, req modeltest.Request) {
		ticker := time.NewTicker(limit / 10)
		defer ticker.Stop()
		w.Header().Set("Content-Type", "text/event-stream")
		for _, frame := range reply.Frames(req) {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", frame)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-ticker.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	client := newClient(t, srv.URL, func(c *model.OpenAIConfig) { c.FirstByte, c.Idle, c.Retries = limit, limit, -1 })
	if _, err := client.Step(t.Context(), question(), nil); err != nil {
		t.Errorf("Step: %v", err)
	}
}

func TestStepGivesUpAtOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		step modeltest.Step
		want model.ErrorKind
		text string
	}{
		{"400", modeltest.Status(400, "invalid_request_error", "", "too long"), model.KindRefused, "400 Bad Request: too long"},
		{"404", modeltest.Status(404, "invalid_request_error", "model_not_found", "no such model"), model.KindRefused, "no such model"},
		{"402", modeltest.Status(402, "", "", "Insufficient Balance"), model.KindRefused, "Insufficient Balance"},
		{"no credit", modeltest.Status(429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota"), model.KindRefused, "exceeded your current quota"},
		{"key in the reason", modeltest.Status(401, "", "", "Incorrect API key provided: "+testKey), model.KindRefused, "provided: [key]"},
		{"key at the cut of a long reason", modeltest.Status(400, "", "", strings.Repeat("x", 495)+testKey), model.KindRefused, "xx[key]"},
		{"reason that drives the terminal", modeltest.Status(400, "", "", "a\x1b[31m\nb"), model.KindRefused, "a [31m b"},
		{"HTML", modeltest.HTML(), model.KindMalformed, "check the base URL"},
		{"JSON", modeltest.Raw("application/json", `{"choices":[]}`), model.KindMalformed, "application/json"},
		{"frame that is no JSON", modeltest.Frames("hello"), model.KindMalformed, "not a chunk"},
		{"frame that is no object", modeltest.Frames("[]"), model.KindMalformed, "not a chunk"},
		{"refused in mid-stream", modeltest.Frames(`{"error":{"message":"bad","code":400}}`), model.KindRefused, "bad"},
		{"too large", modeltest.Raw("text/event-stream", strings.Repeat(": filler\n", model.MaxResponseBytes/9+1)), model.KindMalformed, "larger than 8388608 bytes"},
		{"redirect", modeltest.Redirect("http://elsewhere.invalid/v1?token=x"), model.KindRefused, "redirects to http://elsewhere.invalid, which is not followed"},
		{"asks for too long a pause", modeltest.TooManyRequests("3600"), model.KindTransient, "Rate limit reached"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := modeltest.NewServer(t, tt.step)
			_, err := newClient(t, srv.URL).Step(t.Context(), question(), nil)
			e := asError(t, err)
			if e.Kind != tt.want || !strings.Contains(e.Error(), tt.text) {
				t.Errorf("got %s: %v, want %s: …%s…", e.Kind, e, tt.want, tt.text)
			}
			if e.Transient() != (tt.want == model.KindTransient) {
				t.Errorf("Transient() = %t of kind %s", e.Transient(), e.Kind)
			}
			if n := len(srv.Requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

func TestRedirectCarriesNothingElsewhere(t *testing.T) {
	t.Parallel()
	other := modeltest.NewServer(t)
	srv := modeltest.NewServer(t, modeltest.Redirect(other.URL+"/chat/completions"))
	if _, err := newClient(t, srv.URL).Step(t.Context(), question(), nil); err == nil {
		t.Error("Step succeeded, want an error")
	}
	if n := len(other.Requests()); n != 0 {
		t.Errorf("%d requests followed the redirect, want none", n)
	}
}

func TestRetriesAreCounted(t *testing.T) {
	t.Parallel()
	for retries, want := range map[int]int{0: 5, 2: 3, -1: 1} {
		t.Run(strconv.Itoa(retries), func(t *testing.T) {
			t.Parallel()
			srv := modeltest.NewServerFunc(t, func(modeltest.Request) modeltest.Step { return modeltest.ServerError() })
			client := newClient(t, srv.URL, func(c *model.OpenAIConfig) { c.Retries = retries })
			_, err := client.Step(t.Context(), question(), nil)
			if e := asError(t, err); e.Status != 500 || !e.Transient() {
				t.Errorf("got %v, want a transient 500", err)
			}
			if n := len(srv.Requests()); n != want {
				t.Errorf("%d requests, want %d", n, want)
			}
		})
	}
}

func TestRetryAfterIsKeptTo(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, header, value string }{
		{"seconds", "Retry-After", "1"},
		{"milliseconds", "Retry-After-Ms", "1000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			busy := func(w http.ResponseWriter, r *http.Request, req modeltest.Request) {
				w.Header().Set(tt.header, tt.value)
				modeltest.TooManyRequests("")(w, r, req)
			}
			srv := modeltest.NewServer(t, busy, modeltest.Reply{Text: []string{"ok"}}.Step())
			begin := time.Now()
			if _, err := newClient(t, srv.URL).Step(t.Context(), question(), nil); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took < time.Second {
				t.Errorf("came back after %s, want at least 1s", took)
			}
		})
	}
	t.Run("date", func(t *testing.T) {
		t.Parallel()
		srv := modeltest.NewServer(t, modeltest.TooManyRequests(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)))
		_, err := newClient(t, srv.URL).Step(t.Context(), question(), nil)
		if e := asError(t, err); e.RetryAfter < 50*time.Minute || e.RetryAfter > time.Hour {
			t.Errorf("RetryAfter = %s, want about 1h", e.RetryAfter)
		}
	})
}

func TestStepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	gone := errors.New("the worker stops")
	tests := []struct {
		name string
		step modeltest.Step
	}{
		{"while nothing answers", modeltest.Silent()},
		{"in mid-stream", modeltest.Stall(2, modeltest.Reply{Text: []string{"once "}})},
		{"in the pause before a retry", modeltest.TooManyRequests("50")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			srv := modeltest.NewServer(t, func(w http.ResponseWriter, r *http.Request, req modeltest.Request) {
				time.AfterFunc(100*time.Millisecond, func() { cancel(gone) })
				tt.step(w, r, req)
			})
			begin := time.Now()
			_, err := newClient(t, srv.URL).Step(ctx, question(), nil)
			if !errors.Is(err, gone) || !errors.Is(err, context.Canceled) {
				t.Errorf("Step: %v, want %v and %v", err, gone, context.Canceled)
			}
			if _, ok := errors.AsType[*model.Error](err); ok {
				t.Errorf("Step: %v is an *Error, want the end of the context", err)
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("took %s to end", took)
			}
		})
	}
}

func TestNoServerIsTransient(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String() + "/v1"
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = newClient(t, url).Step(t.Context(), question(), nil)
	if e := asError(t, err); e.Kind != model.KindTransient || e.Status != 0 {
		t.Errorf("got %s %d: %v, want transient without a status", e.Kind, e.Status, e)
	}
}

func FuzzStream(f *testing.F) {
	reply := modeltest.Reply{Text: []string{"a"}, Calls: []modeltest.Call{{ID: "x", Name: "read", Arguments: "{}"}}}
	var good strings.Builder
	for _, frame := range reply.Frames(modeltest.Request{Model: "m", IncludeUsage: true}) {
		good.WriteString("data: " + frame + "\n\n")
	}
	f.Add(good.String())
	f.Add(strings.ReplaceAll(good.String(), "\n", "\r\n"))
	f.Add(": comment\nevent: error\ndata: {}\n\n")
	f.Add("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":-1},{\"index\":9e99},{}]},\"finish_reason\":\"stop\"}]}\n\n")
	f.Add("data: {\"choices\":{\"a\":1},\"usage\":{\"prompt_tokens\":\"many\"}}\n\ndata: [DONE]\n\n")
	f.Fuzz(func(t *testing.T, body string) {
		var streamed strings.Builder
		res, err := model.ReadStream(strings.NewReader(body), func(s string) { streamed.WriteString(s) })
		if err != nil {
			return
		}
		if res.Text != streamed.String() {
			t.Errorf("text %q, streamed %q", res.Text, streamed.String())
		}
		switch res.Finish {
		case model.FinishStop, model.FinishToolCalls, model.FinishLength, model.FinishContentFilter:
		default:
			t.Errorf("finish %q is not a published one", res.Finish)
		}
	})
}
