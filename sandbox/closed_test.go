//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

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

// notADirectory is what the kernel says of a link where a directory is to be opened.
const notADirectory = "not a directory"

// TestWorkspaceReplaced has a workspace taken away between two calls, with nothing or
// something else in its place. No call follows it anywhere.
func TestWorkspaceReplaced(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		replace func(p *place) error
		why     string
	}{
		"by nothing":               {func(*place) error { return nil }, "no such file or directory"},
		"by another directory":     {func(p *place) error { return os.Mkdir(p.root, 0o755) }, "another directory"},
		"by a link out":            {func(p *place) error { return os.Symlink(p.outside, p.root) }, notADirectory},
		"by a link to where it is": {func(p *place) error { return os.Symlink(p.root+".old", p.root) }, notADirectory},
		"by a file":                {func(p *place) error { return os.WriteFile(p.root, nil, 0o600) }, notADirectory},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			wantDone(t, perform(t, p.ws, session.WorkspaceWrite, shell("true")))
			if err := errors.Join(os.Rename(p.root, p.root+".old"), tt.replace(p)); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, filepath.Dir(p.root))
			for _, op := range []sandbox.Op{shell("echo x >f"), {Write: &sandbox.Write{Path: "f", Content: "x"}}, {List: &sandbox.List{}}} {
				for _, mode := range []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite} {
					wantUnavailable(t, perform(t, p.ws, mode, op), tt.why)
				}
				if _, err := p.ws.Perform(t.Context(), session.DangerFullAccess, op, nil); !errors.Is(err, sandbox.ErrNotStarted) {
					t.Errorf("without a fence: got %v, want %v", err, sandbox.ErrNotStarted)
				}
			}
			if diff := cmp.Diff(before, snapshot(t, filepath.Dir(p.root))); diff != "" {
				t.Errorf("something ran (-before +after):\n%s", diff)
			}
		})
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

// TestWorkerStaysFree runs many calls at once and looks whether any thread of this
// process was restricted on the way.
func TestWorkerStaysFree(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const calls, atOnce = 200, 20
	var callers sync.WaitGroup
	left := make(chan session.SandboxMode)
	for range atOnce {
		callers.Go(func() {
			for mode := range left {
				if res, err := p.ws.Perform(t.Context(), mode, shell("true"), nil); err != nil || res.Failed {
					t.Errorf("got %+v, %v", res, err)
				}
			}
		})
	}
	for i := range calls {
		left <- session.SandboxModes()[i%3]
	}
	close(left)
	callers.Wait()
	if restricted := restrictedThreads(t); len(restricted) > 0 {
		t.Errorf("this process was born with\n%sand has threads with\n%s", untouched, restricted)
	}
	write(t, filepath.Join(p.outside, "free"), "")
	// A thread that is restricted is noticed, or the look shows nothing.
	onFreshThread(func() {
		if err := (withheld{Call: unix.SYS_ACCT, Errno: unix.ENOSYS}).install(); err != nil {
			t.Error(err)
		}
		if len(restrictedThreads(t)) != 1 {
			t.Error("a restricted thread is not noticed")
		}
	})
}

// onFreshThread runs f on a thread that ends with it.
func onFreshThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the first thread does not end
			onFreshThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// restrictedThreads returns what the threads of this process that have restrictions
// it was not born with say of them.
func restrictedThreads(t *testing.T) []string {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(tasks) == 0 {
		t.Errorf("threads: %v, %v", tasks, err)
	}
	var restricted []string
	for _, task := range tasks {
		if got := restrictions(task); got != "" && got != untouched {
			restricted = append(restricted, got)
		}
	}
	return restricted
}

// untouched is what this process was restricted by before any call.
var untouched = restrictions("/proc/self/status")

// restrictions returns what a thread's status says of its restrictions, or nothing
// when it has ended.
func restrictions(path string) string {
	status, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return ""
	}
	if err != nil {
		return err.Error()
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

// A launcher that hangs does not hold up its call for ever: it is killed when its
// time is long over, and what the call did is unknown.
func TestALauncherThatHangsIsKilled(t *testing.T) {
	t.Parallel()
	for _, tier := range here(t).tiers() {
		t.Run(string(tier), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			ws := openWorkspace(t, sandbox.Config{Best: tier}.WithGrace(time.Second), root)
			ended := make(chan error, 1)
			go func() {
				_, err := ws.Perform(t.Context(), session.WorkspaceWrite, sandbox.Op{Shell: &sandbox.Shell{
					Command: "echo x >started; sleep 1000", Timeout: 2 * time.Second,
				}}, nil)
				ended <- err
			}()
			launcher := 0
			eventually(t, "the command works", func() bool {
				// It has left the workspace to what it started.
				at := alive(t, root)
				for _, pid := range children(t, os.Getpid()) {
					if slices.ContainsFunc(at, func(p int) bool { return parent(p) == pid }) {
						launcher = pid
					}
				}
				_, err := os.Lstat(filepath.Join(root, "started"))
				return err == nil && launcher != 0
			})
			if err := syscall.Kill(launcher, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, sandbox.ErrLost) {
				t.Errorf("got %v, want %v", err, sandbox.ErrLost)
			}
			for _, pid := range alive(t, root) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // as documented: nobody swept
			}
		})
	}
}
