package scenario_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// world is a deployment as one test sees it.
type world struct {
	*deployment
	t  *testing.T
	ws string // the workspace of the test's sessions
}

var head = client.Head{Version: client.APIVersion}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// call asks the coordinator as somebody who may do anything.
func (w *world) call(method string, in, out any) {
	w.t.Helper()
	w.must(w.api.Call(w.t.Context(), method, in, out))
}

// root starts a root session on a script of package model.
func (w *world) root(script string, change ...func(*client.CreateRequest)) session.ID {
	w.t.Helper()
	id, err := session.RootID(ulid.Make().String(), 1)
	w.must(err)
	in := client.CreateRequest{
		Head: head, ID: id, Cwd: w.ws, Label: "root", Prompt: "go", Surface: session.SurfaceAny,
		Model: client.Model{Provider: "scripted", Model: "test", Script: script},
	}
	for _, fn := range change {
		fn(&in)
	}
	w.call(client.MethodCreate, in, nil)
	return id
}

func readOnly(in *client.CreateRequest) { in.Sandbox = session.ReadOnly }

func (w *world) send(id session.ID, content string) {
	w.t.Helper()
	w.call(client.MethodSend, client.SendRequest{Head: head, ID: id, MessageID: ulid.Make().String(), Content: content}, nil)
}

// set changes one knob of a session as a person.
func (w *world) set(id session.ID, change func(*client.PolicySetRequest)) client.PolicyReply {
	w.t.Helper()
	in := client.PolicySetRequest{Head: head, ID: id}
	change(&in)
	var out client.PolicyReply
	w.call(client.MethodPolicySet, in, &out)
	return out
}

func sandboxTo(m session.SandboxMode) func(*client.PolicySetRequest) {
	return func(in *client.PolicySetRequest) { in.Sandbox = m }
}

func approvalsTo(p session.ApprovalPolicy) func(*client.PolicySetRequest) {
	return func(in *client.PolicySetRequest) { in.Approvals = p }
}

func (w *world) policy(id session.ID) client.PolicyReply {
	w.t.Helper()
	var out client.PolicyReply
	w.call(client.MethodPolicyGet, client.SessionRequest{Head: head, ID: id}, &out)
	return out
}

// open reads a session's log from the raw stream.
func (w *world) open(id session.ID) *agent.Replica {
	w.t.Helper()
	r, err := agent.OpenReplica(w.t.Context(), w.log, id, "", nil)
	w.must(err)
	return r
}

func (w *world) events(id session.ID) []session.Event {
	w.t.Helper()
	return w.open(id).Events()
}

// until waits until a session's log folds to what ok says, and returns it.
func (w *world) until(id session.ID, what string, ok func(session.State) bool) session.State {
	w.t.Helper()
	r := w.open(id)
	var s session.State
	eventually(w.t, func() string { return fmt.Sprintf("session %s came to: %s; its log:\n%s", id, what, list(r.Events())) }, func() bool {
		w.must(r.Refresh(w.t.Context(), 0))
		s, _ = r.State()
		return ok(s)
	})
	return s
}

// turns waits until a session has ended so many turns and has nothing to do.
func (w *world) turns(id session.ID, n int) session.State {
	w.t.Helper()
	return w.until(id, fmt.Sprintf("turn %d ended", n), func(s session.State) bool {
		return s.Open == nil && s.LastEnd != nil && s.LastEnd.Turn == n && !s.Runnable()
	})
}

// ended waits until a session has ended.
func (w *world) ended(id session.ID) session.State {
	w.t.Helper()
	return w.until(id, "its end", func(s session.State) bool { return s.Ended != nil })
}

// child waits for the child that a call of a session starts.
func (w *world) child(parent session.ID, call session.CallID) session.ID {
	w.t.Helper()
	id := session.ChildID(parent, call)
	w.until(parent, "child of "+string(call), func(session.State) bool {
		return slices.Contains(children(w.events(parent)), id)
	})
	return id
}

// eventually waits until ok holds.
func eventually(t *testing.T, what func() string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never: %s", what())
		}
	}
}

// at is a path in the test's workspace.
func (w *world) at(name string) string { return filepath.Join(w.ws, name) }

func (w *world) file(path, content string) {
	w.t.Helper()
	w.must(os.MkdirAll(filepath.Dir(path), 0o755))
	w.must(os.WriteFile(path, []byte(content), 0o644))
}

// seen waits until a file is there.
func (w *world) seen(path string) {
	w.t.Helper()
	eventually(w.t, func() string { return "there is " + path }, func() bool { return exists(path) })
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// absent wants nothing at a path.
func (w *world) absent(path string) {
	w.t.Helper()
	if exists(path) {
		w.t.Errorf("%s is there: a refused call had its effect", path)
	}
}

// tree is all that stands below a directory: names, modes, link targets, bytes.
func (w *world) tree(dir string) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	w.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " " + to
		}
		out[strings.TrimPrefix(path, dir)] = text
		return nil
	}))
	return out
}
