//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// warmPlace is a workspace whose runner keeps so many launchers, of which all that it
// keeps have come up.
func warmPlace(t *testing.T, best session.Tier, warm int) (*sandbox.Runner, *sandbox.Workspace) {
	t.Helper()
	r, err := sandbox.New(sandbox.Config{Best: best, Warm: warm})
	if err != nil {
		t.Fatal(err)
	}
	ws, err := r.Workspace(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(ws.Close(), r.Close()); err != nil {
			t.Error(err)
		}
	})
	wantDone(t, perform(t, ws, session.WorkspaceWrite, shell("true")))
	awaitWaiting(t, r, warm)
	return r, ws
}

// awaitWaiting waits until so many launchers wait, and returns them.
func awaitWaiting(t *testing.T, r *sandbox.Runner, n int) []int {
	t.Helper()
	eventually(t, fmt.Sprintf("%d launchers wait", n), func() bool { return len(r.Waiting()) == n })
	return r.Waiting()
}

// children lists the launchers that a process has started and that are not dead.
func children(t *testing.T, parent int) []int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // gone meanwhile
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(parent) {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err != nil || string(cmdline) != "entail-sandbox-launcher\x00" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, pid)
	}
	return found
}

// parent is a process's, or 0 if there is no such process any more.
func parent(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	var state string
	var parent int
	_, _ = fmt.Sscan(rest, &state, &parent)
	return parent
}

// A call is the same on a launcher that waited as on one of its own: what it may do,
// what it sees, and what is told of it.
func TestAWaitingLauncherIsLikeANewOne(t *testing.T) {
	t.Parallel()
	for _, best := range []session.Tier{session.TierNamespaces, session.TierLandlock} {
		_, cold := warmPlace(t, best, 0)
		r, warm := warmPlace(t, best, 1)
		for _, mode := range session.SandboxModes() {
			wantDone(t, perform(t, warm, mode, shell("true"))) // it may be of another kind
			for _, line := range []string{
				"umask; ulimit -a; env | grep -v -e HOME -e TMPDIR -e PWD | sort; echo /proc/self/fd/*; cat /proc/self/status | grep -e ^Cap -e Seccomp -e NoNewPrivs",
				"echo x >f && cat f && rm f", "echo x >/etc/entail-was-here", "exit 125", "kill -9 $$", "no-such-command", "echo out; echo err >&2",
			} {
				want := perform(t, cold, mode, shell(line))
				eventually(t, "launchers of every kind wait", r.Ready)
				were := r.Waiting()
				got := perform(t, warm, mode, shell(line))
				if diff := diffResults(want, got); diff != "" {
					t.Errorf("%s %s %q (-new +waiting):\n%s", best, mode, line, diff)
				}
				if fmt.Sprint(got.Sandbox) != fmt.Sprint(want.Sandbox) {
					t.Errorf("%s %s: held by %+v, want %+v", best, mode, got.Sandbox, want.Sandbox)
				}
				if now := r.Waiting(); !slices.ContainsFunc(were, func(pid int) bool { return !slices.Contains(now, pid) }) {
					t.Errorf("%s %s: the launcher that waited was not used: the test is void", best, mode)
				}
			}
		}
	}
	_ = os.Remove("/etc/entail-was-here") // of danger-full-access
}

// What waits has nothing of a call, and nothing of this process.
func TestAWaitingLauncherHoldsNothing(t *testing.T) {
	t.Parallel()
	r, _ := warmPlace(t, session.TierNamespaces, 2)
	for _, pid := range awaitWaiting(t, r, 2) {
		proc := "/proc/" + strconv.Itoa(pid)
		if at, err := os.Readlink(proc + "/cwd"); err != nil || at != "/" {
			t.Errorf("it works in %q, %v", at, err)
		}
		env, err := os.ReadFile(proc + "/environ")
		if want := "GOGC=off\x00GOMEMLIMIT=64MiB\x00GOMAXPROCS=2\x00"; err != nil || string(env) != want {
			t.Errorf("its environment is %q, %v", env, err)
		}
		fds, err := filepath.Glob(proc + "/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			to, err := os.Readlink(fd)
			// It is handed its program, and the runtime of Go keeps files of its control group.
			if err == nil && to != "/dev/null" && !strings.HasPrefix(to, "/memfd:entail-sandbox-launcher") && !strings.HasPrefix(to, "/sys/fs/cgroup/") && !strings.HasPrefix(to, "pipe:") && !strings.HasPrefix(to, "socket:") {
				t.Errorf("it holds %s", to)
			}
		}
	}
}

// One that died while it waited is not missed, and what its call does is done once.
func TestADeadWaitingLauncherIsReplaced(t *testing.T) {
	t.Parallel()
	for _, best := range []session.Tier{session.TierNamespaces, session.TierLandlock} {
		for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGABRT} {
			r, ws := warmPlace(t, best, 2)
			for _, pid := range awaitWaiting(t, r, 2) {
				if err := unix.Kill(pid, sig); err != nil {
					t.Fatal(err)
				}
				eventually(t, "it is dead", func() bool { return !slices.Contains(children(t, os.Getpid()), pid) })
			}
			for range 3 {
				res := perform(t, ws, session.WorkspaceWrite, shell("echo x >>ran; echo out"))
				if wantDone(t, res); res.Output != "out\n" {
					t.Errorf("%s %v: got %+v", best, sig, res)
				}
			}
			if got := read(t, filepath.Join(ws.Root(), "ran")); got != "x\nx\nx\n" {
				t.Errorf("%s %v: three calls ran %d times", best, sig, len(got)/2)
			}
		}
	}
}

// One that is killed when it has its order is lost with its call: nobody tries again.
func TestALauncherThatBeganIsNotReplaced(t *testing.T) {
	t.Parallel()
	r, ws := warmPlace(t, session.TierLandlock, 1)
	pid := awaitWaiting(t, r, 1)[0]
	ran := filepath.Join(ws.Root(), "ran")
	lost := make(chan error, 1)
	go func() {
		_, err := ws.Perform(t.Context(), session.WorkspaceWrite, shell("echo $PPID >>ran; sleep 1000"), nil)
		lost <- err
	}()
	eventually(t, "it runs", func() bool { info, err := os.Stat(ran); return err == nil && info.Size() > 0 })
	if got := read(t, ran); got != fmt.Sprintln(pid) {
		t.Errorf("%q started it, want the launcher that waited, %d", got, pid)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// What it had started holds its streams, and is nobody's now.
	for _, left := range alive(t, ws.Root()) {
		_ = unix.Kill(left, unix.SIGKILL)
	}
	if err := <-lost; !errors.Is(err, sandbox.ErrLost) {
		t.Errorf("got %v, want %v", err, sandbox.ErrLost)
	}
	if got := read(t, ran); strings.Count(got, "\n") != 1 {
		t.Errorf("it ran more than once: %q", got)
	}
}

// More calls at once than launchers wait.
func TestABurstEmptiesThePool(t *testing.T) {
	t.Parallel()
	const warm, calls = 2, 12
	r, ws := warmPlace(t, session.TierNamespaces, warm)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			res, err := ws.Perform(t.Context(), session.WorkspaceWrite, shell(fmt.Sprintf("echo %d", i)), nil)
			if want := fmt.Sprintln(i); err != nil || res.Output != want {
				t.Errorf("got %+v, %v, want %q", res, err, want)
			}
			if n := len(r.Waiting()); n > warm {
				t.Errorf("%d launchers wait, want at most %d", n, warm)
			}
		})
	}
	all.Wait()
	awaitWaiting(t, r, warm)
}

// A runner that is closed keeps no process, and still runs calls.
func TestAClosedRunnerKeepsNothing(t *testing.T) {
	t.Parallel()
	r, ws := warmPlace(t, session.TierNamespaces, 2)
	was := awaitWaiting(t, r, 2)
	if mine := children(t, os.Getpid()); !slices.Contains(mine, was[0]) || !slices.Contains(mine, was[1]) {
		t.Fatalf("%v wait, and of %v nobody is seen: the test is void", was, mine)
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantDone(t, perform(t, ws, session.WorkspaceWrite, shell("true")))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if left := r.Waiting(); len(left) > 0 {
		t.Errorf("%v wait in a runner that is closed", left)
	}
	for _, pid := range was {
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("launcher %d: %v, want it gone", pid, err)
		}
	}
}

// A worker that is killed takes with it what waits for it.
func TestWaitingLaunchersEndWithTheirWorker(t *testing.T) {
	t.Parallel()
	cmd := startDriver(t, errand{Root: t.TempDir(), Mode: session.WorkspaceWrite, Op: shell("sleep 1000"), Warm: 2})
	var were []int
	eventually(t, "one works and two wait", func() bool {
		were = children(t, cmd.Process.Pid)
		return len(were) == 3
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "all are gone", func() bool {
		return !slices.ContainsFunc(were, func(pid int) bool { return unix.Kill(pid, 0) == nil })
	})
}

// A launcher has a copy of the mounts of its birth. When these have changed it is not
// used: a call sees what is mounted when it begins.
func TestAWaitingLauncherWithOldMountsIsNotUsed(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	r, ws := warmPlace(t, session.TierNamespaces, 1)
	was := awaitWaiting(t, r, 1)
	at := t.TempDir()
	if err := unix.Mount("none", at, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	write(t, filepath.Join(at, "new"), "mounted\n")
	res := perform(t, ws, session.WorkspaceWrite, shell("cat "+filepath.Join(at, "new")))
	if wantDone(t, res); res.Output != "mounted\n" {
		t.Errorf("got %+v", res)
	}
	if err := unix.Kill(was[0], 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the launcher with the old mounts is left: %v", err)
	}
}
