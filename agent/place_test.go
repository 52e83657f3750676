package agent_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

const markAttr = "user.entail.workspace"

// markOf reads a directory's mark.
func markOf(dir string) string {
	var buf [64]byte
	n, err := syscall.Getxattr(dir, markAttr, buf[:])
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// swap puts an empty directory in the place of the workspace, as when a volume is
// not mounted, and returns a function that puts the workspace back.
func (w *world) swap() func() {
	w.must(os.Rename(w.dir, w.dir+".away"))
	w.must(os.Mkdir(w.dir, 0o755))
	return func() {
		w.must(os.RemoveAll(w.dir))
		w.must(os.Rename(w.dir+".away", w.dir))
	}
}

const oneWrite = `
sessions:
  root:
    - calls: [{id: a, tool: bash, args: {command: "echo ran >> ledger"}}]
    - text: done
    - calls: [{id: b, tool: bash, args: {command: "echo ran >> ledger"}}]
    - text: done again
`

// A session that has been driven waits while its directory is another one, and
// goes on when it is back.
func TestSPEC7_9_UnmarkedWorkspaceIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	said := w.listen("w1")
	id := w.root(oneWrite)
	s := w.idle(id)
	if got := markOf(w.dir); got == "" || got != s.Header.Workspace.ID {
		t.Fatalf("the workspace is marked %q, want %q", got, s.Header.Workspace.ID)
	}
	w.drained() // whoever drove it may still hold its claim
	back := w.swap()
	w.send(id, "again")
	said.wait(t, id, w.dir+" has no mark")
	w.untouched()
	if now, _ := w.open(id).State(); now.Epoch != s.Epoch || now.Open != nil {
		t.Errorf("the session was claimed: epoch %d, was %d", now.Epoch, s.Epoch)
	}
	back()
	w.until(id, "a second turn", func(s session.State) bool { return s.Open == nil && s.LastEnd != nil && s.LastEnd.Turn == 2 })
	if w.ran() != 2 {
		t.Errorf("%d calls ran in the workspace, want 2", w.ran())
	}
}

// A new session waits where the directory is marked as another place, until
// somebody marks it as this one.
func TestSPEC7_9_AnotherPlaceIsNotTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(syscall.Setxattr(w.dir, markAttr, []byte("elsewhere"), 0))
	said := w.listen("w1")
	id := w.root(oneWrite)
	said.wait(t, id, `is marked \"elsewhere\"`)
	s, _ := w.open(id).State()
	if s.Epoch != 0 || exists(w.path("ledger")) || markOf(w.dir) != "elsewhere" {
		t.Errorf("the session was driven: epoch %d, mark %q", s.Epoch, markOf(w.dir))
	}
	w.must(syscall.Setxattr(w.dir, markAttr, []byte(s.Header.Workspace.ID), 0))
	w.idle(id)
	if w.ran() != 1 {
		t.Errorf("%d calls ran in the workspace, want 1", w.ran())
	}
}

// A child is not the first in its workspace, so it marks nothing. A cancel ends it
// all the same.
func TestSPEC7_9_ChildMarksNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	free := filepath.Join(t.TempDir(), "free")
	said := w.listen("w1")
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: child, prompt: go, background: true}}]
    - {text: done, wait_for: %q}
  child:
    - calls: [{id: b, tool: bash, args: {command: "echo ran >> ledger"}}]
    - text: done
`, free))
	s := w.until(id, "a child", func(s session.State) bool { return len(s.Children) == 1 })
	w.swap() // the only slot waits with the root, so the child is still untouched
	w.must(os.WriteFile(free, nil, 0o600))
	child := s.Children[0].ID
	said.wait(t, child, w.dir+" has no mark")
	w.untouched()
	if now, _ := w.open(child).State(); now.Epoch != 0 {
		t.Errorf("the child was claimed: epoch %d", now.Epoch)
	}
	w.must(w.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: id, RequestID: ulid.Make().String()}, nil))
	for _, id := range []session.ID{child, id} {
		w.until(id, "ended", func(s session.State) bool { return s.Ended != nil })
	}
	w.untouched()
}

// A workspace that goes away after the claim is noticed before the first effect.
func TestSPEC7_9_MarkIsLookedForBeforeAnEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	free := filepath.Join(t.TempDir(), "free")
	w.work("w1", 1)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - {calls: [{id: a, tool: bash, args: {command: "echo ran >> ledger"}}], wait_for: %q}
    - text: done
`, free))
	w.until(id, "a request", func(s session.State) bool { return s.Open != nil && s.Open.StepOpen })
	w.swap()
	w.must(os.WriteFile(free, nil, 0o600))
	w.idle(id)
	r := resultOf(t, w.open(id).Events(), "1.1.0")
	if r.Code != session.CodeSandboxUnavailable || !r.IsError || !strings.Contains(r.Content, "has no mark") {
		t.Errorf("the call's result is %+v", r)
	}
	w.untouched()
}

// untouched checks that nobody worked in the directory that swap made.
func (w *world) untouched() {
	w.t.Helper()
	entries, err := os.ReadDir(w.dir)
	if err != nil || len(entries) > 0 || markOf(w.dir) != "" {
		w.t.Errorf("the directory that is not the workspace holds %v, mark %q, %v", entries, markOf(w.dir), err)
	}
}

// complaints are what a worker says of sessions that wait for their workspace.
type complaints struct {
	mu  sync.Mutex
	all strings.Builder
}

func (c *complaints) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.Write(p)
}

// listen starts a worker with one slot and returns what it complains of.
func (w *world) listen(name string) *complaints {
	c := &complaints{}
	w.work(name, 1, func(cfg *agent.Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	return c
}

// wait waits until a session is said to wait for its workspace, and why.
func (c *complaints) wait(t *testing.T, id session.ID, why string) {
	t.Helper()
	eventually(t, "session "+string(id)+" waits: "+why, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for line := range strings.Lines(c.all.String()) {
			if strings.Contains(line, "waits for its workspace") && strings.Contains(line, string(id)) && strings.Contains(line, why) {
				return true
			}
		}
		return false
	})
}
