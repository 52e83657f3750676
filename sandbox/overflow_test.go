//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// kept finds the files that a result names as holding its output.
func kept(t *testing.T, res sandbox.Result, want int) []string {
	t.Helper()
	var paths []string
	for _, m := range regexp.MustCompile(`bytes left out; the whole is in (\S+) until this turn ends or waits\]`).FindAllStringSubmatch(res.Output, -1) {
		paths = append(paths, m[1])
	}
	if len(paths) != want || !res.Truncated {
		t.Fatalf("truncated %v, names %d files, want %d: %q", res.Truncated, len(paths), want, res.Output)
	}
	return paths
}

// TestWholeOutputIsKept reads an output that was shown in part with every tool of
// the same workspace, and looks for it when the workspace is closed.
func TestWholeOutputIsKept(t *testing.T) {
	t.Parallel()
	for _, mode := range session.SandboxModes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r, err := sandbox.New(sandbox.Config{OutputCap: 1000})
			if err != nil {
				t.Fatal(err)
			}
			ws, err := r.Workspace(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			res := perform(t, ws, mode, shell("seq 5000; seq 10001 15000 >&2"))
			files := kept(t, res, 2)
			for i, first := range []int{1, 10001} {
				var want strings.Builder
				for n := first; n < first+5000; n++ {
					fmt.Fprintln(&want, n)
				}
				if got := read(t, files[i]); got != want.String() {
					t.Errorf("%s holds %d bytes, want %d that count from %d", files[i], len(got), want.Len(), first)
				}
				op := sandbox.Op{Read: &sandbox.Read{Path: files[i], Offset: 2500, Limit: 1}}
				line := fmt.Sprintf("%d\n", first+2499)
				if got := perform(t, ws, mode, op); !strings.HasPrefix(got.Output, line) || got.Failed {
					t.Errorf("read %s: got %+v, want line %q", files[i], got, line)
				}
				if got := perform(t, ws, mode, shell("sed -n 2500p "+files[i])); got.Output != line {
					t.Errorf("a command that reads %s: got %+v, want %q", files[i], got, line)
				}
			}
			if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode of the file: %v, %v", info.Mode(), err)
			}
			if err := ws.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Dir(files[0])); !os.IsNotExist(err) {
				t.Errorf("the directory of a closed workspace: %v", err)
			}
		})
	}
}

// TestKeptOutputIsBounded fills the room for one output and that for all.
func TestKeptOutputIsBounded(t *testing.T) {
	t.Parallel()
	const each, all = 3000, 4000
	ws := openWorkspace(t, sandbox.Config{OutputCap: 1000}.WithMaxOutputs(each, all), t.TempDir())
	line := "head -c 10000 /dev/zero | tr '\\0' x"
	for _, want := range []string{
		"; the first 3000 bytes are in ",
		"; the first 1000 bytes are in ",
		"; the first 0 bytes are in ",
	} {
		res := perform(t, ws, session.ReadOnly, shell(line))
		if !strings.Contains(res.Output, "[9000 bytes left out"+want) || res.Failed {
			t.Errorf("got %+v, want %q", res, want)
		}
	}
	dir := strings.TrimSpace(perform(t, ws, session.ReadOnly, shell("echo $TMPDIR")).Output)
	var sum int64
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	if sum != all {
		t.Errorf("%d files of %d bytes are kept, want %d bytes", len(entries), sum, all)
	}
}

// TestOutputThatCannotBeKept has a command take away the directory that its
// output should go to. It is shown in part all the same.
func TestOutputThatCannotBeKept(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{OutputCap: 1000}, t.TempDir())
	res := perform(t, ws, session.DangerFullAccess, shell("rmdir $TMPDIR; seq 5000; exit 1"))
	if !strings.HasPrefix(res.Output, "1\n2\n") || !strings.HasSuffix(res.Output, "4999\n5000\n") ||
		!strings.Contains(res.Output, " bytes left out; the whole could not be kept: no such file or directory]") {
		t.Errorf("got %+v", res)
	}
}

// TestKeptOutputIsPrivate has another session read it: by a call that began before
// there was anything to read, and by one that begins after. Without a fence both
// can, which shows that the fence is what stops the others.
func TestKeptOutputIsPrivate(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sandbox.Config{"mounts": {}, "no mounts": sandbox.Config{}.WithBest(session.TierLandlock)} {
		cfg.OutputCap = 1000
		for _, mode := range session.SandboxModes() {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				root := t.TempDir()
				other := openWorkspace(t, cfg, root)
				early, pipe := readLater(t, other, mode, filepath.Join(root, "pipe"))
				mine := openWorkspace(t, cfg, t.TempDir())
				path := kept(t, perform(t, mine, session.ReadOnly, shell("seq 5000")), 1)[0]
				if _, err := pipe.WriteString(path); err != nil {
					t.Fatal(err)
				}
				if err := pipe.Close(); err != nil {
					t.Fatal(err)
				}
				for when, res := range map[string]sandbox.Result{
					"before": <-early,
					"after":  perform(t, other, mode, shell("cat "+path)),
					"read":   perform(t, other, mode, sandbox.Op{Read: &sandbox.Read{Path: path}}),
				} {
					if mode == session.DangerFullAccess {
						if res.Failed || !strings.HasPrefix(res.Output, "1\n2\n") {
							t.Errorf("%s, without a fence: got %+v, want the output", when, res)
						}
						continue
					}
					wantDenied(t, res, mode)
				}
			})
		}
	}
}

// readLater starts a call that waits for a path from a pipe and shows that file.
// It returns when the call waits.
func readLater(t *testing.T, ws *sandbox.Workspace, mode session.SandboxMode, pipe string) (<-chan sandbox.Result, *os.File) {
	t.Helper()
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan sandbox.Result, 1)
	permit := policytest.Permit(t, mode)
	go func() {
		res, err := ws.Run(t.Context(), permit, shell(`cat "$(cat pipe)"`), nil)
		if err != nil {
			t.Errorf("the call that began before: %v", err)
		}
		done <- res
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0) // no error once it is read from
		switch {
		case err == nil:
			return done, f
		case !errors.Is(err, syscall.ENXIO):
			t.Fatal(err)
		}
		select {
		case res := <-done:
			t.Fatalf("the call did not wait: %+v", res)
		case <-tick.C:
		}
	}
}

// TestGoneOutputIsNoDenial asks for an output of an earlier turn. That it is gone
// is an ordinary failure (SPEC 5.8), and says nothing about who may read what.
func TestGoneOutputIsNoDenial(t *testing.T) {
	t.Parallel()
	r, err := sandbox.New(sandbox.Config{OutputCap: 1000})
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	earlier, err := r.Workspace(root, "")
	if err != nil {
		t.Fatal(err)
	}
	path := kept(t, perform(t, earlier, session.ReadOnly, shell("seq 5000")), 1)[0]
	ws := openWorkspace(t, sandbox.Config{}, root)
	op := sandbox.Op{Read: &sandbox.Read{Path: path}}
	wantDenied(t, perform(t, ws, session.ReadOnly, op), session.ReadOnly) // while it is there
	if err := earlier.Close(); err != nil {
		t.Fatal(err)
	}
	if res := perform(t, ws, session.ReadOnly, op); res.Code != sandbox.CodeNotFound || res.Denied() || !res.Failed {
		t.Errorf("got %+v, want %s", res, sandbox.CodeNotFound)
	}
}
