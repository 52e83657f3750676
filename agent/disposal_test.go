package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

func (w *world) cancel(id session.ID) {
	w.t.Helper()
	w.must(w.api.Call(w.t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: id, RequestID: ulid.Make().String()}, nil))
}

// losePlace gives this process a temp directory and returns what makes nothing in it
// removable: its place is taken by a file.
func losePlace(t *testing.T) (lose func()) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tmp")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	return func() {
		if err := os.Rename(dir, dir+"-moved"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A child whose private temp directory cannot be removed has failed, whatever it
// came to: its last turn and its session say so and why, and the parent is told so
// and not what the child said.
func TestSET10_ADisposalThatFailsIsAFailure(t *testing.T) { //nolint:paralleltest // it changes the environment
	lose := losePlace(t)
	w := newWorld(t)
	w.work("w1", 2)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, label: child, prompt: go}}]
    - text: heard
  child:
    - calls: [{id: b, tool: bash, args: {command: %q}}]
    - text: all went well
`, hold))
	eventually(t, "the child's call runs", func() bool { return w.ran() == 1 })
	lose()
	w.letGo()
	w.idle(id)
	events := w.open(id).Events()
	s, _ := w.open(children(events)[0]).State()
	if s.Ended == nil || s.Ended.Outcome != session.OutcomeFailed || !strings.Contains(s.Ended.Reason, "could not be given up") {
		t.Errorf("the child ended %+v, want failed and why", s.Ended)
	}
	if r := s.LastEnd.Reason; r.Kind != session.EndError || r.By != session.ByDisposal {
		t.Errorf("its turn ended %+v, want an error of its disposal", r)
	}
	r := resultOf(t, events, "1.1.0")
	if !r.IsError || !strings.Contains(r.Content, "could not be given up") || strings.Contains(r.Content, "all went well") {
		t.Errorf("the parent is told %+v, want the failure without what the child said", r)
	}
}

// A cancel does not hide that what the session held is still there.
func TestSPEC7_7_ACancelDoesNotHideAFailedDisposal(t *testing.T) { //nolint:paralleltest // it changes the environment
	lose := losePlace(t)
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(fmt.Sprintf("sessions:\n  root:\n    - calls: [{id: b, tool: bash, args: {command: %q}}]\n", hold))
	eventually(t, "the call runs", func() bool { return w.ran() == 1 })
	lose()
	w.cancel(id)
	s := w.until(id, "ended", func(s session.State) bool { return s.Ended != nil })
	if s.Ended.Outcome != session.OutcomeFailed || s.LastEnd.Reason.By != session.ByDisposal {
		t.Errorf("the session ended %+v after a turn that ended %+v, want failed", s.Ended, s.LastEnd.Reason)
	}
	onceEach(t, w.open(id).Events())
}

// The place where a turn waits is left empty as well: a turn that cannot leave it so
// does not wait, and its child goes on.
func TestSPEC7_7_ATurnThatCannotParkCleanlyFails(t *testing.T) { //nolint:paralleltest // it changes the environment
	lose := losePlace(t)
	w := newWorld(t)
	w.work("w1", 2)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: b, tool: bash, args: {command: %q}}, {id: c, tool: delegate, args: {kind: spawn, label: child, prompt: go}}]
    - text: never
  child: [{text: done}]
`, hold))
	eventually(t, "the call runs", func() bool { return w.ran() == 1 })
	lose()
	w.letGo()
	w.until(id, "turn 1 ended", func(s session.State) bool { return s.LastEnd != nil })
	events := w.open(id).Events()
	if r := payloads[*session.TurnEnd](events)[0].Reason; r.By != session.ByDisposal || len(payloads[*session.TurnPark](events)) != 0 {
		t.Errorf("the turn ended %+v, parked %d times, want a failed disposal and no park", r, len(payloads[*session.TurnPark](events)))
	}
	onceEach(t, events)
	w.until(children(events)[0], "ended", func(s session.State) bool { return s.Ended != nil && s.Ended.Outcome == session.OutcomeCompleted })
}

// slowModel answers when it is told to, whoever has given up on it meanwhile, as an
// endpoint does whose answer was on its way.
type slowModel struct {
	asked  chan struct{} // sent to once for each request
	answer chan struct{} // closed
	late   atomic.Int64  // answers that were given to somebody who had left
}

func (m *slowModel) Step(ctx context.Context, _ model.Request, _ func(string)) (model.Response, error) {
	m.asked <- struct{}{}
	<-m.answer
	if ctx.Err() != nil {
		m.late.Add(1)
	}
	return model.Response{Text: "too late", Finish: model.FinishStop}, nil
}

// An answer of the model that comes after its turn was stopped or its session
// cancelled is dropped, also when the driver is told of both at once (SPEC 7.7).
func TestSPEC7_7_LateAnswersAreDropped(t *testing.T) {
	t.Parallel()
	for _, stop := range []string{"interrupt", "cancel"} {
		t.Run(stop, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			m := &slowModel{asked: make(chan struct{}, 8), answer: make(chan struct{})}
			w.work("w1", 1, func(c *agent.Config) {
				c.Models = func(session.ModelSelected) (model.Client, error) { return m, nil }
			})
			letAnswer := sync.OnceFunc(func() { close(m.answer) })
			t.Cleanup(letAnswer) // before the worker is waited for
			id := w.root("", endpoint)
			select {
			case <-m.asked:
			case <-time.After(patience):
				t.Fatal("the model was never asked")
			}
			eventually(t, "the coordinator has seen the turn", func() bool { e, err := w.store.Session(id); return err == nil && e.State.Open != nil })
			if stop == "cancel" {
				w.cancel(id)
			} else {
				w.interrupt(id)
			}
			eventually(t, "the driver has seen it", func() bool { // it looks once a second, and when poked
				s, _ := w.open(id).State()
				return s.Stopping()
			})
			letAnswer()
			s := w.until(id, "the end of turn 1", func(s session.State) bool { return s.LastEnd != nil })
			events := w.open(id).Events()
			if n := len(payloads[*session.AssistantMessage](events)); n != 0 || s.LastEnd.Reason.Kind != session.EndAborted {
				t.Errorf("%d answers are in the log, the turn ended %+v, want none and aborted:\n%s", n, s.LastEnd.Reason, list(events))
			}
		})
	}
}

// A worker that has driven sessions to every kind of end runs as much as before it
// came to the first.
func TestSPEC7_7_AWorkerKeepsNothingOfWhatItDrove(t *testing.T) { //nolint:paralleltest // it counts goroutines
	w := newWorld(t)
	w.work("w1", 4)
	js, err := jetstream.New(w.broker.Conn(t, broker.Provisioner, "provisioner"))
	w.must(err)
	queue, err := js.Consumer(t.Context(), stream.StreamName(0), "work")
	w.must(err)
	once := func() {
		done := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: write, args: {path: one, content: x}}, {id: d, tool: delegate, args: {kind: spawn, label: child, prompt: go}}]
    - text: done
  child:
    - calls: [{id: b, tool: bash, args: {command: "echo x"}}]
    - text: done
`)
		const endless = "sessions:\n  root:\n    - calls: [{id: b, tool: bash, args: {command: \"sleep 1000\"}}]\n"
		cut, cancelled := w.root(endless), w.root(endless)
		for _, id := range []session.ID{cut, cancelled} {
			w.until(id, "a call that runs", func(s session.State) bool { c, ok := s.Call("1.1.0"); return ok && c.State == session.CallAllowed })
		}
		w.interrupt(cut)
		w.cancel(cancelled)
		w.idle(done)
		w.idle(cut)
		w.until(cancelled, "ended", func(s session.State) bool { return s.Ended != nil })
		eventually(t, "the queue is empty", func() bool {
			info, err := queue.Info(t.Context())
			w.must(err)
			return info.NumAckPending == 0 && info.NumPending == 0
		})
	}
	const rounds, sessions = 4, 4 // each starts a child as well
	once()                        // launchers that wait for calls come with the first
	before, all := workers(), runtime.NumGoroutine()
	for range rounds {
		once()
	}
	eventually(t, "the worker has the goroutines that it had", func() bool { return workers() <= before })
	// A broker and a coordinator run here, too, whose number goes up and down a little.
	eventually(t, "the process has about the goroutines that it had", func() bool { return runtime.NumGoroutine() < all+rounds*sessions/2 })
	t.Logf("%d goroutines of the worker, %d in all, before; %d and %d after", before, all, workers(), runtime.NumGoroutine())
	if before < 4 {
		t.Errorf("only %d goroutines are taken for the worker's, which has 4 slots", before)
	}
}

// workers counts the goroutines that run a worker's code.
func workers() int {
	buf := make([]byte, 4<<20)
	n := 0
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "entail/agent.(") || strings.Contains(stack, "entail/sandbox.(") {
			n++
		}
	}
	return n
}
