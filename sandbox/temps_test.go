//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// tempOf is the temp directory that a driver was given.
func tempOf(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	for _, kv := range cmd.Env {
		if dir, ok := strings.CutPrefix(kv, "TMPDIR="); ok {
			return dir
		}
	}
	t.Fatal("the driver has no temp directory of its own")
	return ""
}

// The temp directory of a worker that was killed is removed by the next one, as soon
// as the worker and what it started are gone and not before (SPEC 7.7). Nothing else
// in the directory is.
func TestSPEC7_7_TempsOfTheDeadAreRemoved(t *testing.T) {
	t.Parallel()
	r, err := sandbox.New(sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	cmd := startDriver(t, errand{
		Root: root, Mode: session.WorkspaceWrite, Op: shell(brood + "mkdir -p $TMPDIR/a/b; echo x >$TMPDIR/a/b/c; sleep 1000"), Lease: time.Second,
	})
	dir := tempOf(t, cmd)
	others := []string{
		filepath.Join(dir, "entail-call-held-file"), filepath.Join(dir, "entail-call-held-link"),
		filepath.Join(dir, "entail-call-123"), filepath.Join(dir, "other"),
	}
	write(t, others[0], "")
	target := filepath.Join(t.TempDir(), "target")
	mkdir(t, target)
	write(t, filepath.Join(target, "kept"), "")
	if err := os.Symlink(target, others[1]); err != nil {
		t.Fatal(err)
	}
	mkdir(t, others[2])
	mkdir(t, others[3])
	eventually(t, "the brood is born", func() bool { return born(t, root) == broodSize })
	remove := func() int {
		n, err := r.RemoveLeftIn(dir)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := remove(); n != 0 {
		t.Fatalf("%d directories of a worker that lives were removed", n)
	}
	// A worker that does nothing more is not gone.
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the brood is gone", func() bool { return len(alive(t, root)) == 0 })
	if n := remove(); n != 0 {
		t.Fatalf("%d directories of a worker that is stopped were removed", n)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	eventually(t, "what it left is removed", func() bool { return remove() == 1 })
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != len(others) {
		t.Errorf("left are %v (%v), want %v", left, err, others)
	}
	if _, err := os.Lstat(filepath.Join(target, "kept")); err != nil {
		t.Errorf("what a link leads to: %v", err)
	}
}

// What a command did to its temp directory's modes does not keep it from being
// removed, also where the worker is not root.
func TestSPEC7_7_TempsAreRemovedWhateverTheirModes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	temp := p.ws.Temp()
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, shell(
		"mkdir -p $TMPDIR/a/b/c && echo x >$TMPDIR/a/b/c/d && chmod 000 $TMPDIR/a/b/c && chmod 555 $TMPDIR/a/b && chmod 000 $TMPDIR/a $TMPDIR")))
	if err := p.ws.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := os.Lstat(temp); !os.IsNotExist(err) {
		t.Errorf("the temp directory: %v", err)
	}
}

// Without its rule, the directory of a worker that lives is removed.
func TestHeldTempsAreGuarded(t *testing.T) {
	t.Parallel()
	const guard = "TestSPEC7_7_TempsOfTheDeadAreRemoved"
	out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-ldflags=-w", "-count=1", "-tags", "mutate_held",
		"-run", "^"+guard+"$", ".").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: "+guard+" ") {
		t.Errorf("it passes without its rule, or did not run: %v\n%s", err, out)
	}
}
