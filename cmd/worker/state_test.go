package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

func (d *drains) show(id session.ID) client.Summary {
	d.t.Helper()
	var s client.Summary
	d.must(d.api.Call(d.t.Context(), client.MethodShow, client.SessionRequest{Head: head, ID: id}, &s))
	return s
}

// becomes waits until a session has a state, and returns how long that took.
func (d *drains) becomes(id session.ID, want client.Status) time.Duration {
	d.t.Helper()
	began := time.Now()
	d.eventually(fmt.Sprintf("%s is %s", id, want), func() bool { return d.show(id).Status == want })
	return time.Since(began)
}

// The state of a session is right within one heartbeat of its driver, a sixth of a
// lease, of when it can be known: that a worker is stopped from the second sign of
// life that is missing on, that it is dead or cut off when its lease is over.
func TestSPEC7_5_StateFollowsItsDriver(t *testing.T) {
	t.Parallel()
	const lease, beat = 12 * time.Second, 2 * time.Second
	for what, tt := range map[string]struct {
		signal  syscall.Signal
		stalled bool
	}{
		"SIGSTOP": {syscall.SIGSTOP, true},
		"SIGKILL": {syscall.SIGKILL, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.lease = lease
			d := &drains{fleet: f, api: f.coordinate(), ws: t.TempDir()}
			w1 := d.started()
			id := d.root(d.gate("first"), "echo on")
			d.runs("first")
			d.becomes(id, client.StatusRunning)
			s := d.show(id)
			if len(s.Current) != 1 || s.Current[0].Tool != "bash" || s.Current[0].Call != "1.1.0" || s.Worker != "w1" || s.Since == 0 || s.Elapsed < s.Current[0].Elapsed {
				t.Errorf("while its call runs it is %+v", s)
			}
			d.must(w1.Process.Signal(tt.signal))
			began := time.Now()
			d.becomes(id, client.StatusStalled)
			silent := time.Since(began)
			d.becomes(id, client.StatusLost)
			lost := time.Since(began)
			t.Logf("after %s it is stalled after %v and lost after %v", what, silent, lost)
			if silent < beat-beat/4 || silent > 3*beat {
				t.Errorf("stalled after %v, want two heartbeats of %v after the last one, and at most one more", silent, beat)
			}
			if lost < lease-beat-beat/4 || lost > lease+beat {
				t.Errorf("lost after %v, want a lease of %v after the last heartbeat, and at most one more", lost, lease)
			}
			d.open("first")
			if tt.signal == syscall.SIGSTOP {
				d.must(w1.Process.Signal(syscall.SIGCONT))
			} else {
				d.ended(w1)
				d.startedAs("w2")
			}
			d.becomes(id, client.StatusIdle)
			if s := d.show(id); s.Outcome != session.OutcomeCompleted || s.Current != nil || s.Since != 0 {
				t.Errorf("at its end it is %+v", s)
			}
		})
	}
}

// A session that waits says for what: a worker, the model's answer, a child.
func TestSPEC7_5_WaitingSaysForWhat(t *testing.T) {
	t.Parallel()
	d := newDrains(t)
	id, err := session.RootID(ulid.Make().String(), 1)
	d.must(err)
	d.must(d.api.Call(t.Context(), client.MethodCreate, client.CreateRequest{
		Head: head, ID: id, Cwd: d.ws, Prompt: "go", Sandbox: session.WorkspaceWrite,
		Model: client.Model{Provider: "scripted", Model: "script", Script: fmt.Sprintf(`sessions:
  root:
    - wait_for: %q
      calls: [{id: c1, tool: delegate, args: {kind: spawn, label: child, prompt: wait}}]
    - text: fine
  child:
    - calls: [{id: c1, tool: bash, args: {command: %q}}]
    - text: done
`, filepath.Join(d.ws, "asked"), d.gate("child"))},
	}, nil))
	if s := d.show(id); s.Status != client.StatusWaiting || len(s.WaitsFor) != 1 || s.WaitsFor[0].Kind != client.WaitWorker {
		t.Errorf("without a worker it is %+v", s)
	}
	d.started()
	d.eventually("the model is asked", func() bool {
		s := d.show(id)
		return s.Status == client.StatusRunning && len(s.Current) == 1 && s.Current[0].What == client.DoingModel && s.Current[0].Since > 0
	})
	d.must(writeFile(filepath.Join(d.ws, "asked")))
	d.runs("child")
	s := d.show(id)
	if s.Status != client.StatusWaiting || len(s.WaitsFor) != 1 || s.WaitsFor[0].Kind != session.WaitChild || s.WaitsFor[0].ID != string(s.Children[0]) || s.Elapsed == 0 {
		t.Errorf("while its child runs it is %+v", s)
	}
	if c := d.show(s.Children[0]); c.Status != client.StatusRunning || len(c.Current) != 1 || c.Current[0].Tool != "bash" {
		t.Errorf("the child is %+v", c)
	}
	d.open("child")
	d.becomes(id, client.StatusIdle)
	if c := d.show(s.Children[0]); c.Status != client.StatusEnded || c.Outcome != session.OutcomeCompleted {
		t.Errorf("at its end the child is %+v", c)
	}
}
