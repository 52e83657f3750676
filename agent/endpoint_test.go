package agent_test

import (
	"os"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/agent/model/modeltest"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// endpoint is the model of sessions that a local server answers.
func endpoint(in *client.CreateRequest) { in.Model = client.Model{Provider: "openai", Model: "local"} }

// at gives a worker the client of a local server.
func at(t *testing.T, srv *modeltest.Server) func(*agent.Config) {
	t.Helper()
	c, err := model.NewOpenAI(model.OpenAIConfig{BaseURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if closer, ok := c.(interface{ Close() error }); ok {
			_ = closer.Close()
		}
	})
	return func(cfg *agent.Config) {
		cfg.Models = func(session.ModelSelected) (model.Client, error) { return c, nil }
	}
}

// A whole task with an endpoint that calls every call call_0, names a tool that
// does not exist and writes arguments that are no JSON: the work is done, two
// delegations make two children, and the server, which checks every history,
// refuses none.
func TestWholeTaskOverAnEndpoint(t *testing.T) {
	t.Parallel()
	call := func(name, arguments string) modeltest.Call {
		return modeltest.Call{ID: "call_0", Name: name, Arguments: arguments}
	}
	spawn := func(label string) modeltest.Call {
		return call("delegate", `{"kind":"spawn","label":"`+label+`","prompt":"check it"}`)
	}
	steps := [][]modeltest.Call{
		{call("read", `{"path":"sum.sh"}`), call("sing", `{}`), call("list", `not json`)},
		{call("edit", `{"path":"sum.sh","old":"1 - 1","new":"1 + 1"}`), call("bash", `{"command":"sh sum.sh"}`)},
		{spawn("one"), spawn("two")},
	}
	srv := modeltest.NewServerFunc(t, func(r modeltest.Request) modeltest.Step {
		child := false
		for _, m := range r.Messages {
			child = child || m.Role == "user" && m.Content == "check it"
		}
		switch n := r.Steps(); {
		case child && n == 0:
			return modeltest.Reply{Calls: []modeltest.Call{call("bash", `{"command":"sh sum.sh"}`)}}.Step()
		case child || n == len(steps):
			return modeltest.Reply{Text: []string{"it ", "works"}, Usage: modeltest.Usage{Prompt: 7, Completion: 2}}.Step()
		default:
			return modeltest.Reply{Calls: steps[n]}.Step()
		}
	})
	w := newWorld(t)
	w.must(os.WriteFile(w.path("sum.sh"), []byte("echo $((1 - 1))\n"), 0o600))
	w.work("w1", 2, at(t, srv))
	id := w.root("", endpoint)
	s := w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if s.LastEnd.Reason.Kind != session.EndCompleted || s.Steps != 4 {
		t.Errorf("the turn ended %+v after %d steps, want completed after 4:\n%s", s.LastEnd.Reason, s.Steps, list(events))
	}
	if r := resultOf(t, events, "1.2.1"); strings.TrimSpace(r.Content) != "2" {
		t.Errorf("the edited script printed %q, want 2", r.Content)
	}
	ids := children(events)
	if len(ids) != 2 || ids[0] == ids[1] {
		t.Fatalf("children %v, want two", ids)
	}
	for i, r := range srv.Requests() {
		if err := r.Check(); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
		if r.First("system") != srv.Requests()[0].First("system") {
			t.Errorf("request %d has another system prompt than the first", i)
		}
	}
	answers := payloads[*session.AssistantMessage](events)
	if u := answers[len(answers)-1].Usage; u == nil || u.InputTokens != 7 || u.OutputTokens != 2 {
		t.Errorf("usage %+v, want 7 and 2", u)
	}
}

// An answer that is too long or a refusal ends the turn and says so.
func TestHowAnAnswerEndsTheTurn(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		step modeltest.Step
		want session.EndKind
	}{
		{"too long", modeltest.Reply{Text: []string{"and then"}, Finish: "length"}.Step(), session.EndMaxTokens},
		{"filtered", modeltest.Reply{Text: []string{"x"}, Finish: "content_filter"}.Step(), session.EndRefusal},
		{"refused", modeltest.Reply{Refusal: "I would rather not"}.Step(), session.EndRefusal},
		{"a web page", modeltest.HTML(), session.EndError},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.work("w1", 1, at(t, modeltest.NewServer(t, tt.step)))
			s := w.idle(w.root("", endpoint))
			if got := s.LastEnd.Reason; got.Kind != tt.want {
				t.Errorf("the turn ended %+v, want %q", got, tt.want)
			}
		})
	}
}
