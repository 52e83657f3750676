package scenario_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/entail-fleet/entail/agent/model/modeltest"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// A request stands in the log before it is sent, and a call with its decision before
// it has an effect: whoever dies right after left a trace.
func TestPER13_IntentStandsBeforeItsEffect(t *testing.T) {
	t.Parallel()
	w := own(t)
	w.must(w.coordinate())
	var root atomic.Value
	var asked atomic.Int64
	_, endpoints := serve(t, func(r modeltest.Request) modeltest.Step {
		id, _ := root.Load().(session.ID)
		requests := payloads[*session.RequestHeader](w.events(id))
		if want := r.Steps() + 1; len(requests) != want || requests[want-1].Step != want {
			t.Errorf("the endpoint has request %d, the log holds %d", want, len(requests))
		}
		asked.Add(1)
		if r.Steps() == 0 {
			return modeltest.Reply{Calls: []modeltest.Call{{
				ID: "a", Name: "bash", Arguments: `{"command":"touch began; until test -e go; do sleep 0.02; done"}`,
			}}}.Step()
		}
		return modeltest.Reply{Text: []string{"over"}}.Step()
	})
	id := w.root("", endpointModel)
	root.Store(id)
	w.must(w.work("w1", 1, endpoints))
	w.seen(w.at("began"))
	events := w.events(id)
	if d := decision(t, events, "1.1.0"); d.Verdict != session.Allow || d.Mode != session.WorkspaceWrite {
		t.Errorf("the call runs, its decision is %+v", d)
	}
	if calls := payloads[*session.ToolCall](events); len(calls) != 1 || len(payloads[*session.ToolResult](events)) != 0 {
		t.Errorf("the call runs, the log holds %d calls and %d results", len(calls), len(payloads[*session.ToolResult](events)))
	}
	w.file(w.at("go"), "")
	w.turns(id, 1)
	if asked.Load() != 2 {
		t.Errorf("the endpoint was asked %d times, want 2", asked.Load())
	}
}

// A continuable child that is driven again by processes that never saw it is who it
// was: one descriptor, its persona told, its filter in force, its model the same.
func TestDSC05_AResumedChildIsWhoItWas(t *testing.T) {
	t.Parallel()
	w := own(t)
	c, k := w.startCoordinator(), w.startWorker("w1", nil)
	parent := w.root(`
sessions:
  root:
    - calls: [{tool: delegate, args: {kind: spawn, mode: continuable, label: child, prompt: look, persona: a terse helper, tools: {deny: [write]}}}]
    - text: over
  child:
    - text: seen
    - calls: [{tool: write, args: {path: a.txt, content: x}}]
    - text: over
`)
	child := w.child(parent, "1.1.0")
	w.turns(child, 1)
	w.turns(parent, 1)
	before := lines(w.events(child))
	k.kill()
	c.kill()
	w.startCoordinator()
	w.startWorker("w2", nil)
	w.send(child, "and now write")
	w.turns(child, 2)
	events := w.events(child)
	for i, line := range before {
		if string(events[i].Line) != line {
			t.Fatalf("event %d has changed from %s to %s", i, line, events[i].Line)
		}
	}
	if d := payloads[*session.Descriptor](events); len(d) != 1 || d[0].Persona != "a terse helper" {
		t.Errorf("descriptors %+v, want the one", d)
	}
	if m := payloads[*session.ModelSelected](events); len(m) != 1 {
		t.Errorf("the model was selected %d times", len(m))
	}
	if d := decision(t, events, "2.1.0"); d.Verdict != session.Deny || d.By != session.StageFilter {
		t.Errorf("the filtered call was decided %s by %s", d.Verdict, d.By)
	}
	w.absent(w.at("a.txt"))
	told := where(events, func(m *session.UserMessage) bool {
		return m.Source.Kind == session.FromPlugin && strings.Contains(m.Content, "a terse helper")
	})
	if len(told) == 0 {
		t.Error("its persona was never told")
	}
	requests := payloads[*session.RequestHeader](events)
	for _, r := range requests {
		if strings.Contains(fmt.Sprint(r.Tools), "write") || r.Model != requests[0].Model {
			t.Errorf("a request offers %v of model %s", r.Tools, r.Model)
		}
	}
}

// What a turn writes does not grow with the turns before it.
func TestH4_TurnsCostTheSame(t *testing.T) {
	t.Parallel()
	w := shared(t)
	const turns = 16
	root := w.root("sessions:\n  root:\n" + strings.Repeat("    - text: this is all there is to say\n", turns))
	size := make([]int, turns+1)
	total := func() (n int) {
		_, err := w.log.Read(t.Context(), root, 0, func(r session.Raw) error {
			n += len(r.Body)
			for name, value := range r.Headers {
				n += len(name) + len(value)
			}
			return nil
		})
		w.must(err)
		return n
	}
	w.turns(root, 1)
	size[1] = total()
	for turn := 2; turn <= turns; turn++ {
		w.send(root, "and what else is there?")
		w.turns(root, turn)
		size[turn] = total()
	}
	first, last := size[3]-size[2], size[turns]-size[turns-1]
	if first < 500 || last > first+first/10 {
		t.Errorf("turn 3 wrote %d bytes, turn %d wrote %d: want at most a tenth more", first, turns, last)
	}
}

// A stream that lost its end, as a loss of power leaves it, is noticed by the mirror
// that knew more: what was acknowledged is not silently gone, and nothing is written on
// top of the older history.
func TestF3_AStreamThatLostItsEndIsNotServed(t *testing.T) {
	t.Parallel()
	cfg := config{dir: t.TempDir(), wishes: wishes, logger: slog.New(slog.DiscardHandler)}
	data, saved := filepath.Join(cfg.dir, "data"), filepath.Join(t.TempDir(), "saved")
	run := func(use func(*world)) {
		t.Helper()
		d, err := deploy(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := d.close(); err != nil {
				t.Logf("close the deployment: %v", err)
			}
		}()
		use(&world{t: t, deployment: d, ws: cfg.dir})
	}
	var root session.ID
	run(func(w *world) {
		w.must(w.coordinate())
		root = w.root("sessions: {root: [{text: over}]}")
	})
	if err := os.CopyFS(saved, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	var last uint64
	run(func(w *world) {
		w.must(w.coordinate())
		w.set(root, sandboxTo(session.ReadOnly)) // acknowledged
		info, err := w.log.Info(t.Context(), 0)
		w.must(err)
		last = info.LastSeq
		w.show(root, last)
	})
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(data, os.DirFS(saved)); err != nil {
		t.Fatal(err)
	}
	run(func(w *world) {
		info, err := w.log.Info(t.Context(), 0)
		w.must(err)
		if info.LastSeq >= last {
			t.Fatalf("the stream ends at %d, the case needs it below %d", info.LastSeq, last)
		}
		w.must(w.coordinate())
		var shown client.Summary
		err = w.api.Call(t.Context(), client.MethodShow, client.SessionRequest{Head: head, ID: root}, &shown)
		if client.CodeOf(err) != client.CodeLoss && (err != nil || shown.Status != client.StatusStopped || shown.Stopped == "") {
			t.Errorf("the session is shown as %s (%q), %v; want it stopped", shown.Status, shown.Stopped, err)
		}
		for method, in := range map[string]any{
			client.MethodSend:      client.SendRequest{Head: head, ID: root, MessageID: "m", Content: "go on"},
			client.MethodPolicySet: client.PolicySetRequest{Head: head, ID: root, Sandbox: session.DangerFullAccess},
		} {
			if err := w.api.Call(t.Context(), method, in, nil); client.CodeOf(err) != client.CodeLoss {
				t.Errorf("%s on a stream that lost its end: %v, want %s", method, err, client.CodeLoss)
			}
		}
		after, err := w.log.Info(t.Context(), 0)
		if w.must(err); after.LastSeq != info.LastSeq {
			t.Errorf("%d records were written on top of the older history", after.LastSeq-info.LastSeq)
		}
	})
}
