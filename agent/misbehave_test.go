package agent_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/agent/model/modeltest"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// impatient is at for an endpoint that will fail: little is waited for.
func impatient(t *testing.T, srv *modeltest.Server) func(*agent.Config) {
	t.Helper()
	c, err := model.NewOpenAI(model.OpenAIConfig{
		BaseURL: srv.URL, FirstByte: 2 * time.Second, Idle: 500 * time.Millisecond, Retries: 2, Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
	})
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

// leave is a call that leaves a line in the ledger, under a model's id.
func leave(id string) modeltest.Call {
	return modeltest.Call{ID: id, Name: "bash", Arguments: `{"command":"echo ran >>ledger"}`}
}

func calling(calls ...modeltest.Call) modeltest.Reply { return modeltest.Reply{Calls: calls} }

func saying(text string) modeltest.Step {
	return modeltest.Reply{Text: []string{text}}.Step()
}

// checked wants every request that an endpoint was sent to have a history that it
// could take: every call answered once.
func checked(t *testing.T, srv *modeltest.Server) {
	t.Helper()
	for i, r := range srv.Requests() {
		if err := r.Check(); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

// An endpoint that fails, stays silent, stalls, or breaks off in the middle of an
// answer with a call is asked again: the call runs once, and nothing of the broken
// answer is left. One that does so every time ends the turn with the reason, and the
// session goes on with the next message.
func TestAModelThatBreaksOff(t *testing.T) {
	t.Parallel()
	half := calling(leave("c1"))
	half.Text = []string{"I will ", "do it"}
	for name, broken := range map[string]modeltest.Step{
		"fails": modeltest.ServerError(), "is silent": modeltest.Silent(), "stalls": modeltest.Stall(3, half),
		"is cut off": modeltest.Cut(3, half), "ends early": modeltest.End(3, half), "is busy": modeltest.TooManyRequests("0"),
	} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, always %t", name, always), func(t *testing.T) {
				t.Parallel()
				var asked atomic.Int64
				srv := modeltest.NewServerFunc(t, func(r modeltest.Request) modeltest.Step {
					switch n := asked.Add(1); {
					case n == 1, always && n <= 3: // the first attempt, and its two retries
						return broken
					case r.Steps() == 0:
						return half.Step()
					}
					return saying("done")
				})
				w := newWorld(t)
				w.work("w1", 1, impatient(t, srv))
				id := w.root("", endpoint)
				s := w.idle(id)
				if always {
					if r := s.LastEnd.Reason; r.Kind != session.EndError || r.Message == "" || w.ran() != 0 {
						t.Errorf("the turn ended %+v and %d calls ran, want an error with its reason and none:\n%s", r, w.ran(), list(w.open(id).Events()))
					}
					w.send(id, "try again")
					s = w.until(id, "a second turn", func(s session.State) bool { return s.Open == nil && s.LastEnd.Turn == 2 })
				}
				events := w.open(id).Events()
				onceEach(t, events)
				if s.LastEnd.Reason.Kind != session.EndCompleted || w.ran() != 1 || len(payloads[*session.ToolCall](events)) != 1 {
					t.Errorf("the turn ended %+v, %d calls ran, want completed and one:\n%s", s.LastEnd.Reason, w.ran(), list(events))
				}
				checked(t, srv)
			})
		}
	}
}

// A worker that dies while the model is silent, or in the middle of its answer, leaves
// nothing of that answer: the next one asks again, and the call runs once.
func TestAModelThatStallsThroughATakeover(t *testing.T) {
	t.Parallel()
	for name, stalled := range map[string]modeltest.Step{"silent": modeltest.Silent(), "half an answer": modeltest.Stall(2, calling(leave("c1")))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			srv := modeltest.NewServerFunc(t, func(r modeltest.Request) modeltest.Step {
				switch n := asked.Add(1); {
				case n == 1:
					return stalled
				case r.Steps() == 0:
					return calling(leave("c1")).Step()
				}
				return saying("done")
			})
			w := newWorld(t)
			first := w.work("w1", 1, at(t, srv)) // which waits for a minute
			id := w.root("", endpoint)
			eventually(t, "the model is asked", func() bool { return asked.Load() == 1 })
			first.die(t)
			w.work("w2", 1, at(t, srv))
			s := w.idle(id)
			events := w.open(id).Events()
			onceEach(t, events)
			if s.LastEnd.Reason.Kind != session.EndCompleted || w.ran() != 1 || len(payloads[*session.AssistantMessage](events)) != 2 || s.Epoch < 2 {
				t.Errorf("the turn ended %+v in epoch %d, %d calls ran, want completed after a takeover and one:\n%s", s.LastEnd.Reason, s.Epoch, w.ran(), list(events))
			}
			checked(t, srv)
		})
	}
}

// Calls that are malformed are closed as not started, each with what is wrong; those
// beside them run, once each, also when the model gives several calls one id or none,
// in one step and from step to step.
func TestAModelWithMalformedCalls(t *testing.T) {
	t.Parallel()
	bad := []modeltest.Call{
		{ID: "a", Name: "bash", Arguments: `{"command":`},
		{ID: "b", Name: "bash", Arguments: `["ls"]`},
		{ID: "c", Name: "bash", Arguments: `{"command":"echo ran >>ledger"} {}`},
		{ID: "d", Name: "sing", Arguments: `{}`},
		{ID: "e", Name: "", Arguments: `{}`},
		{ID: "f", Name: "bash", Arguments: ``},
		{ID: "", Name: "write", Arguments: `{"path":1}`},
	}
	steps := [][]modeltest.Call{
		append(append([]modeltest.Call{}, bad...), leave("")),
		{leave("same"), leave("same"), leave("other")},
		{leave("same"), leave("")},
	}
	const want = 1 + 3 + 2
	srv := modeltest.NewServerFunc(t, func(r modeltest.Request) modeltest.Step {
		if n := r.Steps(); n < len(steps) {
			return calling(steps[n]...).Step()
		}
		return saying("done")
	})
	w := newWorld(t)
	w.work("w1", 1, at(t, srv))
	id := w.root("", endpoint)
	s := w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if s.LastEnd.Reason.Kind != session.EndCompleted || w.ran() != want {
		t.Errorf("the turn ended %+v and %d calls ran, want completed and %d:\n%s", s.LastEnd.Reason, w.ran(), want, list(events))
	}
	for i := range bad {
		r := resultOf(t, events, session.MakeCallID(1, 1, i))
		if r.Code != session.CodeToolNotStarted || r.Denied || !strings.HasPrefix(r.Content, "Not started: ") || len(r.Content) < len("Not started: x.") {
			t.Errorf("malformed call %d has the result %+v, want %s and why", i, r, session.CodeToolNotStarted)
		}
	}
	checked(t, srv)
}

// A child whose model never answers ends as failed, and its parent is told so with the
// reason and goes on.
func TestAChildWhoseModelNeverAnswers(t *testing.T) {
	t.Parallel()
	srv := modeltest.NewServerFunc(t, func(r modeltest.Request) modeltest.Step {
		for _, m := range r.Messages {
			if m.Role == "user" && m.Content == "the child's" {
				return modeltest.ServerError()
			}
		}
		if r.Steps() == 0 {
			return calling(modeltest.Call{ID: "d", Name: "delegate", Arguments: `{"kind":"spawn","label":"child","prompt":"the child's"}`}).Step()
		}
		return saying("went on")
	})
	w := newWorld(t)
	w.work("w1", 2, impatient(t, srv))
	id := w.root("", endpoint, func(in *client.CreateRequest) { in.Label = "parent" })
	s := w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	child, _ := w.open(children(events)[0]).State()
	if child.Ended == nil || child.Ended.Outcome != session.OutcomeFailed || child.Ended.Reason == "" {
		t.Fatalf("the child ended %+v, want failed and why", child.Ended)
	}
	r := resultOf(t, events, "1.1.0")
	if !r.IsError || !strings.Contains(r.Content, "failed") || !strings.Contains(r.Content, child.Ended.Reason) || s.LastEnd.Reason.Kind != session.EndCompleted {
		t.Errorf("the parent is told %+v and ended %+v, want the failure with %q, and completed", r, s.LastEnd.Reason, child.Ended.Reason)
	}
	checked(t, srv)
}
