//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// brood starts four processes that each try to outlive the call in another way,
// and writes their numbers to the file pids: a background child, one in a session
// of its own, a daemon forked twice, and one that ignores signals. It then waits.
const brood = `
export note='echo $$ >>pids; exec sleep 1000'
sh -c "$note" &
setsid sh -c "$note" &
(setsid sh -c 'sh -c "$note" & exit' &)
sh -c "trap '' TERM HUP INT; $note" >/dev/null 2>&1 </dev/null &
`

const broodSize = 4

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never: %s", what)
		}
	}
}

// born counts how many of the brood have written so far. The numbers that they write
// are those of their own namespace.
func born(t *testing.T, root string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "pids"))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(string(data)))
}

// alive lists the processes of this host that work in a workspace: those of its
// calls.
func alive(t *testing.T, root string) []int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, name := range names {
		at, err := os.Readlink(name + "/cwd")
		if err != nil || at != root {
			continue // gone meanwhile, dead, or another's
		}
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, pid)
	}
	return found
}

// wantGone checks that the whole brood was born and that none of it is left.
func wantGone(t *testing.T, root string) {
	t.Helper()
	if n := born(t, root); n != broodSize {
		t.Errorf("%d of %d processes were started: the test is void", n, broodSize)
	}
	if left := alive(t, root); len(left) > 0 {
		t.Errorf("still alive: %v", left)
	}
}

// awaitBrood makes a shell wait until the brood has written its numbers.
const awaitBrood = "; while [ $(wc -l <pids) -lt 4 ]; do sleep 0.01; done"

func TestNothingOutlivesACall(t *testing.T) {
	t.Parallel()
	for _, mode := range []session.SandboxMode{session.WorkspaceWrite, session.DangerFullAccess} {
		t.Run("normal exit "+string(mode), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			res := perform(t, p.ws, mode, shell(brood+"touch pids"+awaitBrood))
			wantDone(t, res)
			wantGone(t, p.root)
			if res.Swept < broodSize {
				t.Errorf("swept %d, want at least %d", res.Swept, broodSize)
			}
		})
		t.Run("timeout "+string(mode), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			res := perform(t, p.ws, mode, sandbox.Op{Shell: &sandbox.Shell{
				Command: brood + "touch pids" + awaitBrood + "; echo born; sleep 1000", Timeout: 3 * time.Second,
			}})
			if !res.TimedOut || !res.Failed || res.Denied() || res.Output != "born\n" {
				t.Errorf("got %+v, want a timeout with output", res)
			}
			wantGone(t, p.root)
		})
		t.Run("cancel "+string(mode), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan sandbox.Result, 1)
			permit := policytest.Permit(t, mode)
			go func() {
				res, err := p.ws.Run(ctx, permit, shell(brood+"sleep 1000"), nil)
				if !errors.Is(err, context.Canceled) || errors.Is(err, sandbox.ErrNotStarted) {
					t.Errorf("Run: got %v, want %v", err, context.Canceled)
				}
				ended <- res
			}()
			eventually(t, "the brood is born", func() bool { return born(t, p.root) == broodSize })
			cancel()
			if res := <-ended; !res.Failed || res.TimedOut {
				t.Errorf("got %+v, want a failure that is no timeout", res)
			}
			wantGone(t, p.root)
			if _, err := p.ws.Run(ctx, permit, shell("echo x >late"), nil); !errors.Is(err, sandbox.ErrNotStarted) {
				t.Errorf("Run with a context that is over: got %v, want %v", err, sandbox.ErrNotStarted)
			}
		})
	}
}

// startDriver starts another process that runs an operation.
func startDriver(t *testing.T, e errand) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	arg, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, driveArg, string(arg))
	cmd.Env = []string{secret, "TMPDIR=" + t.TempDir()}
	cmd.Stderr = os.Stderr
	cmd.Stdout = &bytes.Buffer{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// TestCallEndsWithItsDriver kills the driver, or stops it so that its lease runs
// out, and looks for what it started.
func TestCallEndsWithItsDriver(t *testing.T) {
	t.Parallel()
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			cmd := startDriver(t, errand{
				Root: root, Mode: session.WorkspaceWrite, Op: shell(brood + "sleep 1000"), Lease: time.Second,
			})
			eventually(t, "the brood is born", func() bool { return born(t, root) == broodSize })
			// The driver renews: the call lives longer than one lease.
			later := sandbox.BootTime() + 2*time.Second
			eventually(t, "two leases pass", func() bool { return sandbox.BootTime() > later })
			if left := alive(t, root); len(left) < broodSize {
				t.Fatalf("only %v live while the lease is renewed", left)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the brood is gone", func() bool { return len(alive(t, root)) == 0 })
			_ = cmd.Process.Kill()
			if err := cmd.Wait(); err == nil {
				t.Error("the driver ended well")
			}
		})
	}
}

// TestDriversEnvironmentIsOutOfReach runs a call in a process whose environment
// holds a secret, and looks for that secret from inside.
func TestDriversEnvironmentIsOutOfReach(t *testing.T) {
	t.Parallel()
	const line = `env; for d in /proc/[0-9]*; do tr '\0' '\n' <$d/environ; done 2>/dev/null | grep hunter2; echo end`
	for _, mode := range session.SandboxModes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			cmd := startDriver(t, errand{Root: t.TempDir(), Mode: mode, Op: shell(line)})
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			out := cmd.Stdout.(*bytes.Buffer).String() //nolint:forcetypeassert // startDriver set it
			if !strings.Contains(out, "end") {
				t.Fatalf("the look did not finish: %s", out)
			}
			// In the mode without a fence it is found, or the look is void.
			if got, want := strings.Contains(out, "hunter2"), mode == session.DangerFullAccess; got != want {
				t.Errorf("secret found: %v, want %v, in %s", got, want, out)
			}
		})
	}
}

func TestLeaseThatIsOver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, err := p.ws.Perform(t.Context(), session.WorkspaceWrite, shell("echo x >ran"), fixed(sandbox.BootTime()-1))
	if !errors.Is(err, sandbox.ErrNotStarted) || !errors.Is(err, sandbox.ErrLeaseOver) {
		t.Errorf("got %v, want not started, lease over", err)
	}
	if _, err := os.Lstat(filepath.Join(p.root, "ran")); err == nil {
		t.Error("it ran")
	}
	res, err := p.ws.Perform(t.Context(), session.WorkspaceWrite, shell("echo x >ran; sleep 1000"),
		fixed(sandbox.BootTime()+3*time.Second))
	if errors.Is(err, sandbox.ErrNotStarted) || !errors.Is(err, sandbox.ErrLeaseOver) || res.Limit != session.LimitLease {
		t.Errorf("got %+v, %v, want lease over", res, err)
	}
	if _, err := os.Lstat(filepath.Join(p.root, "ran")); err != nil {
		t.Errorf("it did not run: %v", err)
	}
}
