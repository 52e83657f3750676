package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

var head = client.Head{Version: client.APIVersion}

// drains is a fleet with a coordinator and a session that makes calls.
type drains struct {
	*fleet
	api *client.Client
	ws  string
}

// newDrains has a lease that no test waits for: what happens sooner was not left to
// a lease that ran out.
func newDrains(t *testing.T) *drains {
	t.Helper()
	f := newFleet(t)
	f.lease = 40 * time.Second
	return &drains{fleet: f, api: f.coordinate(), ws: t.TempDir()}
}

// root starts a session that makes the given calls, one a step.
func (d *drains) root(commands ...string) session.ID {
	d.t.Helper()
	return d.rootIn("", commands...)
}

// rootIn starts a session in a workspace of a label.
func (d *drains) rootIn(workspace string, commands ...string) session.ID {
	d.t.Helper()
	id, err := session.RootID(ulid.Make().String(), 1)
	d.must(err)
	var script strings.Builder
	script.WriteString("sessions:\n  root:\n")
	for i, c := range commands {
		fmt.Fprintf(&script, "    - calls: [{id: c%d, tool: bash, args: {command: %q}}]\n", i, c)
	}
	script.WriteString("    - text: fine\n    - text: again\n")
	d.must(d.api.Call(d.t.Context(), client.MethodCreate, client.CreateRequest{
		Head: head, ID: id, Cwd: d.ws, Workspace: workspace, Prompt: "go", Sandbox: session.WorkspaceWrite,
		Model: client.Model{Provider: "scripted", Model: "script", Script: script.String()},
	}, nil))
	return id
}

// gate is a command that says it runs, and ends once it is opened.
func (d *drains) gate(name string) string {
	return fmt.Sprintf("touch %[1]s.runs; while [ ! -e %[1]s.opened ]; do sleep 0.02; done; echo %[1]s done", name)
}

// said is what the result of a gate holds.
func said(name string) string { return fmt.Sprintf(`"content":"%s done`, name) }

func (d *drains) open(name string) {
	d.t.Helper()
	d.must(writeFile(filepath.Join(d.ws, name+".opened")))
}

func (d *drains) runs(name string) {
	d.t.Helper()
	d.eventually(name+" runs", func() bool {
		_, err := os.Stat(filepath.Join(d.ws, name+".runs"))
		return err == nil
	})
}

func (d *drains) eventually(what string, ok func() bool) {
	d.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second) // less than the lease
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			d.t.Fatalf("never: %s", what)
		}
	}
}

// log is a session's log as one text, a line for each event.
func (d *drains) log(id session.ID) string {
	d.t.Helper()
	return strings.Join(types(d.t, d.api, id), "\n") + "\n"
}

func (d *drains) logged(id session.ID, what string) {
	d.t.Helper()
	d.eventually(what, func() bool { return strings.Contains(d.log(id), what) })
}

func (d *drains) worker(name string) client.WorkerSummary {
	d.t.Helper()
	var out client.WorkerListReply
	d.must(d.api.Call(d.t.Context(), client.MethodWorkerList, head, &out))
	i := slices.IndexFunc(out.Workers, func(w client.WorkerSummary) bool { return w.Name == name })
	if i < 0 {
		return client.WorkerSummary{}
	}
	return out.Workers[i]
}

func (d *drains) order(name string, state client.WorkerState) client.WorkerSetReply {
	d.t.Helper()
	var out client.WorkerSetReply
	d.must(d.api.Call(d.t.Context(), client.MethodWorkerSet, client.WorkerSetRequest{Head: head, Worker: name, State: state, Reason: "test"}, &out))
	return out
}

// ended waits for a worker's process.
func (d *drains) ended(cmd *exec.Cmd) {
	d.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		d.t.Fatal("the worker does not end")
	}
}

// A worker that is asked to stop ends the turns that it drives and begins none.
func TestSIGTERMLetsTurnsEnd(t *testing.T) {
	t.Parallel()
	d := newDrains(t)
	w1 := d.started("-drain", "10m")
	id := d.root(d.gate("first"), d.gate("second"))
	d.runs("first")
	d.must(w1.Process.Signal(syscall.SIGTERM))
	d.eventually("it drains", func() bool { return d.worker("w1").State == client.WorkerDraining })
	d.must(d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: id, MessageID: "m1", Content: "more"}, nil))
	other := d.root("true")
	d.open("first")
	d.runs("second")
	d.open("second")
	d.ended(w1)
	if code := w1.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it exits with %d", code)
	}
	text := d.log(id)
	for _, want := range []string{said("first"), said("second"), `"kind":"completed"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the log:\n%s", want, text)
		}
	}
	if strings.Contains(text, `"turn":2`) || strings.Contains(d.log(other), "turn/claim") {
		t.Errorf("it began a turn after it was asked to stop:\n%s%s", text, d.log(other))
	}
	d.startedAs("w2")
	d.logged(other, "turn/end ")
}

// At the deadline a turn is handed over where nothing of it runs, and another worker
// goes on at once, not when the lease is over.
func TestSIGTERMHandsOverAtTheDeadline(t *testing.T) {
	t.Parallel()
	d := newDrains(t)
	w1 := d.started("-drain", "0s", "-grace", "10m")
	id := d.root(d.gate("first"), d.gate("second"))
	d.runs("first")
	d.startedAs("w2")
	d.must(w1.Process.Signal(syscall.SIGTERM))
	d.eventually("it drains", func() bool { return d.worker("w1").State == client.WorkerDraining })
	d.open("first")
	d.runs("second")
	d.open("second")
	d.logged(id, "turn/end ")
	d.ended(w1)
	text := d.log(id)
	for what, count := range map[string]int{
		said("first"): 1, said("second"): 1, "turn/deferred ": 1, `"cause":"takeover"`: 1, "turn/claim ": 2, "TOOL_OUTCOME_UNKNOWN": 0, `"worker":"w2"`: -1,
	} {
		if got := strings.Count(text, what); got != count && (count >= 0 || got == 0) {
			t.Errorf("%d times %s in the log, want %d:\n%s", got, what, count, text)
		}
	}
	if code := w1.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it exits with %d", code)
	}
}

// A call that runs when a worker's grace is over is ended, and so is one that runs
// when a second signal comes. Nothing of it is left, its outcome is unknown, and it is
// not run again (SPEC 5.9).
func TestASecondSignalAborts(t *testing.T) {
	t.Parallel()
	for what, tt := range map[string]struct {
		grace   string
		signals int
		exit    int
	}{
		"the grace is over": {"100ms", 1, 0},
		"a second SIGTERM":  {"10m", 2, 1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := newDrains(t)
			w1 := d.started("-drain", "0s", "-grace", tt.grace)
			mark := ulid.Make().String()
			id := d.root("echo x >> count; : "+mark+"; "+d.gate("first"), "echo on")
			d.runs("first")
			if !alive(t, mark) {
				t.Error("the call cannot be found while it runs: this test sees nothing")
			}
			for n := range tt.signals {
				d.must(w1.Process.Signal(syscall.SIGTERM))
				if n == 0 && tt.signals > 1 {
					d.eventually("it drains", func() bool { return d.worker("w1").State == client.WorkerDraining })
				}
			}
			d.ended(w1)
			if code := w1.ProcessState.ExitCode(); code != tt.exit {
				t.Errorf("it exits with %d, want %d", code, tt.exit)
			}
			if alive(t, mark) {
				t.Error("the call outlives its worker")
			}
			d.startedAs("w2")
			d.logged(id, "turn/end ")
			text := d.log(id)
			if strings.Count(text, "TOOL_OUTCOME_UNKNOWN") != 1 || strings.Count(text, "tool/result ") != 2 {
				t.Errorf("the outcome of the call that was ended is not unknown:\n%s", text)
			}
			if ran, err := os.ReadFile(filepath.Join(d.ws, "count")); err != nil || string(ran) != "x\n" {
				t.Errorf("the call ran as %q (%v)", ran, err)
			}
		})
	}
}

// alive reports whether a process has a word in its arguments.
func alive(t *testing.T, word string) bool {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(lines, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && bytes.Contains(text, []byte(word))
	})
}

// A cordoned worker goes on with what it drives and takes nothing else, also when it
// is started anew, until it is uncordoned.
func TestCordonHoldsAcrossRestarts(t *testing.T) {
	t.Parallel()
	d := newDrains(t)
	w1 := d.started("-drain", "0s")
	d.eventually("it has confirmed the settings", func() bool { return d.worker("w1").Revision > 0 })
	if w := d.worker("w1"); !w.Alive || w.State != client.WorkerReady || w.Incarnation == "" || w.Concurrency != 4 || w.Tier == "" || w.Enforcement == "" || w.Since == 0 {
		t.Errorf("w1 is listed as %+v", w)
	}
	first := d.root(d.gate("first"), "echo still w1")
	d.runs("first")
	if got := d.order("w1", client.WorkerCordoned); !got.Confirmed || got.Worker.State != client.WorkerCordoned {
		t.Fatalf("cordon: %+v", got)
	}
	if w := d.worker("w1"); !slices.Equal(w.Sessions, []session.ID{first}) || w.Order == nil || w.Order.Reason != "test" || w.Order.By.ID != "ann" || w.Order.At == 0 {
		t.Errorf("w1 is listed as %+v", w)
	}
	d.startedAs("w2")
	second := d.root("true")
	d.logged(second, "turn/end ")
	d.open("first")
	d.logged(first, "turn/end ")
	if text := d.log(first); !strings.Contains(text, "still w1") || strings.Count(text, "turn/claim ") != 1 {
		t.Errorf("it did not go on with what it drove:\n%s", text)
	}
	d.must(w1.Process.Signal(syscall.SIGTERM))
	d.ended(w1)
	d.started("-drain", "0s")
	d.eventually("it is cordoned again", func() bool { w := d.worker("w1"); return w.Alive && w.State == client.WorkerCordoned })
	third := d.root("true")
	d.logged(third, "turn/end ")
	for _, id := range []session.ID{second, third} {
		if text := d.log(id); strings.Contains(text, `"worker":"w1"`) {
			t.Errorf("the cordoned worker took a session:\n%s", text)
		}
	}
	d.order("w2", client.WorkerCordoned)
	if got := d.order("w1", client.WorkerReady); !got.Confirmed || got.Worker.State != client.WorkerReady {
		t.Fatalf("uncordon: %+v", got)
	}
	fourth := d.root("true")
	d.logged(fourth, "turn/end ")
	if text := d.log(fourth); !strings.Contains(text, `"worker":"w1"`) {
		t.Errorf("the uncordoned worker takes nothing:\n%s", text)
	}
}

// A drained worker hands over what it drives and stays; uncordoned it works again.
func TestDrainHandsOver(t *testing.T) {
	t.Parallel()
	d := newDrains(t)
	d.started("-grace", "10m")
	id := d.root(d.gate("first"), d.gate("second"))
	d.runs("first")
	d.startedAs("w2")
	if got := d.order("w1", client.WorkerDraining); !got.Confirmed || len(got.Worker.Sessions) != 1 {
		t.Fatalf("drain: %+v", got)
	}
	d.open("first")
	d.runs("second")
	d.eventually("w1 drives nothing, w2 does", func() bool { return len(d.worker("w1").Sessions) == 0 && len(d.worker("w2").Sessions) == 1 })
	d.open("second")
	d.logged(id, "turn/end ")
	if text := d.log(id); strings.Contains(text, "UNKNOWN") || strings.Count(text, `"cause":"takeover"`) != 1 {
		t.Errorf("it was not handed over:\n%s", text)
	}
	d.order("w2", client.WorkerCordoned)
	d.order("w1", client.WorkerReady)
	other := d.root("true")
	d.logged(other, "turn/end ")
}

func writeFile(path string) error { return os.WriteFile(path, nil, 0o666) }
