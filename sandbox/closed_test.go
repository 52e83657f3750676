//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// TestFailClosed takes away what confinement needs. Confined calls must be
// refused; the mode that needs no fence must go on.
func TestFailClosed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg    sandbox.Config
		starts bool // whether a call without a fence can be started
	}{
		"no landlock":            {sandbox.Config{}.WithMaxABI(-1), true},
		"landlock ABI too old":   {sandbox.Config{}.WithMaxABI(2), true},
		"no launcher in program": {sandbox.Config{}.WithLauncher("/bin/true"), false},
		"no program":             {sandbox.Config{}.WithLauncher("/nowhere"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			r, err := sandbox.New(tt.cfg)
			if !errors.Is(err, sandbox.ErrUnavailable) {
				t.Fatalf("New: got %v, want %v", err, sandbox.ErrUnavailable)
			}
			ws, err := r.Workspace(root, "")
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := ws.Close(); err != nil {
					t.Error(err)
				}
			}()
			for _, mode := range []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite} {
				for _, op := range []sandbox.Op{
					shell("echo x >f"),
					{Write: &sandbox.Write{Path: "f", Content: "x"}},
					{List: &sandbox.List{}},
				} {
					res := perform(t, ws, mode, op)
					if res.Code != "SANDBOX_UNAVAILABLE" || !res.Failed || res.Denied() {
						t.Errorf("%s: got %+v", mode, res)
					}
				}
			}
			if got := snapshotNames(t, root); len(got) > 0 {
				t.Errorf("something ran: %v", got)
			}
			if tt.starts {
				wantDone(t, perform(t, ws, session.DangerFullAccess, shell("echo x >f")))
				return
			}
			if _, err := ws.Perform(t.Context(), session.DangerFullAccess, shell("echo x >f"), nil); !errors.Is(err, sandbox.ErrNotStarted) {
				t.Errorf("a call without a fence: got %v, want %v", err, sandbox.ErrNotStarted)
			}
		})
	}
}

// TestOlderLandlock runs the fence with what each kernel since the floor has.
func TestOlderLandlock(t *testing.T) {
	t.Parallel()
	for abi := 3; abi <= 7; abi++ {
		p := newPlace(t)
		ws := openWorkspace(t, sandbox.Config{Hidden: []string{p.hidden}}.WithMaxABI(abi), p.root)
		wantDone(t, perform(t, ws, session.WorkspaceWrite, shell("echo x >f")))
		wantDenied(t, perform(t, ws, session.WorkspaceWrite, shell("echo x >../outside/f")), session.WorkspaceWrite)
	}
}

func snapshotNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestZeroPermit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, err := p.ws.Run(t.Context(), policy.Permit{}, shell("echo x >f"), nil)
	if !errors.Is(err, sandbox.ErrNotPermitted) {
		t.Errorf("got %v, want %v", err, sandbox.ErrNotPermitted)
	}
	if diff := cmp.Diff([]string{"in.txt"}, snapshotNames(t, p.root)); diff != "" {
		t.Errorf("something ran: %s", diff)
	}
}

// TestUnknownModeIsNarrow covers a mode outside of the vocabulary.
func TestUnknownModeIsNarrow(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	res, err := p.ws.Perform(t.Context(), "wide-open", shell("echo x >f"), nil)
	if err != nil || !res.Denied() {
		t.Errorf("got %+v, %v, want a denial", res, err)
	}
}

// TestWorkspaceMovedAway puts another directory in the place of the workspace.
func TestWorkspaceMovedAway(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if err := os.Rename(p.root, p.root+".old"); err != nil {
		t.Fatal(err)
	}
	mkdir(t, p.root)
	res := perform(t, p.ws, session.WorkspaceWrite, shell("echo x >f"))
	if res.Code != "SANDBOX_UNAVAILABLE" || !strings.Contains(res.Output, "another directory") {
		t.Errorf("got %+v", res)
	}
}

func TestWorkspaceRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	mkdir(t, filepath.Join(dir, "data", "sub"))
	r, err := sandbox.New(sandbox.Config{Hidden: []string{filepath.Join(dir, "data")}})
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{
		"", "/", "relative", filepath.Join(dir, "missing"), filepath.Join(dir, "file"),
		filepath.Join(dir, "data"), filepath.Join(dir, "data", "sub"),
	} {
		if ws, err := r.Workspace(root, ""); err == nil {
			t.Errorf("Workspace(%q) succeeded", root)
			_ = ws.Close()
		}
	}
}

// TestWorkspaceThroughLink opens a workspace by a link and by dots: the calls
// work in the directory behind it (no false denial).
func TestWorkspaceThroughLink(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	mkdir(t, filepath.Join(base, "real"))
	link := filepath.Join(base, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	ws := openWorkspace(t, sandbox.Config{}, link)
	if got, want := ws.Root(), filepath.Join(base, "real"); got != want {
		t.Errorf("Root() = %s, want %s", got, want)
	}
	for _, path := range []string{link + "/a", base + "/real/../link/b", "c"} {
		wantDone(t, perform(t, ws, session.WorkspaceWrite, sandbox.Op{Write: &sandbox.Write{Path: path, Content: "x"}}))
	}
	wantDone(t, perform(t, ws, session.WorkspaceWrite, shell("echo x >"+link+"/d")))
}

// TestWorkerStaysFree runs calls at once and looks whether any thread of this
// process was restricted on the way.
func TestWorkerStaysFree(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	before := restrictions(t, "/proc/self/status")
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if res, err := p.ws.Perform(t.Context(), session.ReadOnly, shell("true"), nil); err != nil || res.Failed {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
	calls.Wait()
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("threads: %v, %v", tasks, err)
	}
	for _, task := range tasks {
		if got := restrictions(t, task); got != "" && got != before {
			t.Errorf("%s: got %q, want %q", task, got, before)
		}
	}
	write(t, filepath.Join(p.outside, "free"), "")
}

// restrictions returns what a thread's status says of its restrictions, or ""
// when it has ended.
func restrictions(t *testing.T, path string) string {
	t.Helper()
	status, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "NoNewPrivs") || strings.HasPrefix(line, "Seccomp") || strings.HasPrefix(line, "Cap") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// TestCloseRemovesTemp checks that the private temp directory goes, whatever a
// call left in it, and that closing twice is harmless.
func TestCloseRemovesTemp(t *testing.T) {
	t.Parallel()
	r, err := sandbox.New(sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ws, err := r.Workspace(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	res := perform(t, ws, session.WorkspaceWrite, shell(`mkdir -p "$TMPDIR/d" && echo x >"$TMPDIR/d/f" && stat -c %a "$TMPDIR" && echo "$TMPDIR"`))
	mode, temp, _ := strings.Cut(strings.TrimSpace(res.Output), "\n")
	if mode != "700" {
		t.Errorf("the temp directory has mode %s", mode)
	}
	if err := errors.Join(ws.Close(), ws.Close()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := os.Lstat(temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", temp, err)
	}
}
