package scenario_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/agent/model/modeltest"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// tale is what an endpoint answers in the story of interrupted calls, by how often
// it has answered in the conversation that it is shown. It holds the second answer
// until held says so, as long as the worker lives that asks.
type tale struct {
	held atomic.Bool
	asks atomic.Int64 // for the second answer
}

func (s *tale) step(r modeltest.Request) modeltest.Step {
	calls := func(calls ...modeltest.Call) modeltest.Step { return modeltest.Reply{Calls: calls}.Step() }
	bash := func(id, command string) modeltest.Call {
		return modeltest.Call{ID: id, Name: "bash", Arguments: `{"command":"` + command + `"}`}
	}
	switch r.Steps() {
	case 0: // ids that say nothing, as some endpoints give
		return calls(bash("call_0", "echo done >> ledger"), bash("call_0", "echo hangs >> ledger"+forever), bash("call_0", "echo late >> ledger"))
	case 1:
		if s.asks.Add(1); s.held.Load() {
			return func(_ http.ResponseWriter, r *http.Request, _ modeltest.Request) { <-r.Context().Done() }
		}
	case 2:
		return calls(bash("call_0", "echo stopped >> ledger"+forever))
	}
	return modeltest.Reply{Text: []string{"over"}}.Step()
}

// A call that a crash or an interrupt ended gets one result, once, and the history
// stays one that an endpoint takes: after the takeover, after a second one, in a
// new turn, and in a fork. The endpoint refuses any other with an error.
func TestE4_AnInterruptedCallPoisonsNothing(t *testing.T) {
	t.Parallel()
	w := own(t)
	w.must(w.coordinate())
	var story tale
	story.held.Store(true)
	srv, endpoints := serve(t, story.step)
	w.file(w.at("ledger"), "")
	counted := func(name string) {
		t.Helper()
		eventually(t, func() string { return "the ledger names " + name }, func() bool { return w.ledger()[name] == 1 })
	}

	k := w.startWorker("w1", endpoints)
	root := w.root("", endpointModel)
	counted("hangs")
	k.kill()
	k = w.startWorker("w2", endpoints)
	eventually(t, func() string { return "the second request" }, func() bool { return story.asks.Load() == 1 })
	counted("late")
	k.kill()
	story.held.Store(false)
	w.startWorker("w1", endpoints)
	w.turns(root, 1)

	w.send(root, "go on")
	counted("stopped")
	w.call(client.MethodInterrupt, client.StopRequest{Head: head, ID: root, RequestID: ulid.Make().String()}, nil)
	if s := w.turns(root, 2); s.LastEnd.Reason.Kind != session.EndAborted {
		t.Errorf("the interrupted turn ended %q", s.LastEnd.Reason.Kind)
	}
	w.send(root, "and now?")
	w.turns(root, 3)
	eventually(t, func() string { return "the mirror has seen turn 3 end" }, func() bool {
		seen := w.show(root, 0)
		return !seen.Open && seen.LastEnd != nil && seen.LastEnd.Turn == 3
	})
	fork, err := session.ForkID(root, ulid.Make().String())
	w.must(err)
	w.call(client.MethodFork, client.ForkRequest{Head: head, ID: fork, Source: root, Prompt: "elsewhere"}, nil)
	w.turns(fork, 4)

	events := w.events(root)
	onceEach(t, events)
	if r := result(t, events, "1.1.1"); r.Code != session.CodeToolOutcomeUnknown || !r.IsError {
		t.Errorf("the call that the crash ended has code %q, want %q", r.Code, session.CodeToolOutcomeUnknown)
	}
	done(t, events, "1.1.0")
	done(t, events, "1.1.2")
	if r := result(t, events, "2.1.0"); !r.IsError {
		t.Errorf("the interrupted call ended well: %q", r.Content)
	}
	for name, n := range w.ledger() {
		if n != 1 {
			t.Errorf("%s had its effect %d times", name, n)
		}
	}
	wantHistories(t, srv.Requests())
}

// wantHistories wants every request to be one that a strict endpoint takes, and
// the unknown outcome to be told in each after the crash.
func wantHistories(t *testing.T, requests []modeltest.Request) {
	t.Helper()
	for i, r := range requests {
		if err := r.Check(); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
		unknown := 0
		for _, m := range r.Messages {
			if m.Role == "tool" && strings.Contains(m.Content, session.CodeToolOutcomeUnknown) {
				unknown++
			}
		}
		if want := min(r.Steps(), 1); unknown != want {
			t.Errorf("request %d tells of %d unknown outcomes, want %d", i, unknown, want)
		}
	}
}
