//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

const traceArg = "trace-parent"

// traceParent tries to signal and to trace every thread of its parent, and says how
// many it could.
func traceParent() int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", os.Getppid()))
	if err != nil {
		return complain(err)
	}
	signaled, traced := 0, 0
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			return complain(err)
		}
		if unix.Tgkill(os.Getppid(), tid, unix.SIGCONT) == nil {
			signaled++
		}
		if unix.PtraceSeize(tid) == nil {
			traced++
		}
	}
	fmt.Fprintf(os.Stdout, "threads %d, signaled %d, traced %d\n", len(entries), signaled, traced)
	return 0
}

// buildLauncher builds the launcher with build tags.
func buildLauncher(t *testing.T, tags string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "launcher")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", tags, "-o", out, "./launcher")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the launcher with tags %q: %v\n%s", tags, err, said)
	}
	return out
}

// The thread that confined itself is no way into the launcher, in whichever tier,
// however long it lives on beside the command. Without their rules it can be signaled
// (mutate_signal), and traced (mutate_trace) but where it has become another user.
func TestTheLauncherCannotBeTraced(t *testing.T) {
	t.Parallel()
	for _, tags := range []string{"linger", "linger,mutate_trace", "linger,mutate_signal"} {
		launcher := buildLauncher(t, tags)
		for _, tier := range here(t).tiers() {
			t.Run(tags+" "+string(tier), func(t *testing.T) {
				t.Parallel()
				g := newGrove(t)
				r, err := sandbox.New(sandbox.Config{Best: tier}.WithLauncher(launcher))
				if err != nil {
					t.Fatal(err)
				}
				root := g.dir("ws")
				if tier != session.TierUID {
					write(t, filepath.Join(root, "mine"), "") // so that it is not the tree's
				}
				ws := g.open(r, root, oak)
				program := filepath.Join(g.base, "self")
				copySelf(t, program)
				res := perform(t, ws, session.WorkspaceWrite, shell("exec "+program+" "+traceArg+" x"))
				if !strings.Contains(res.Output, "threads ") {
					t.Fatalf("the attack did not run: %+v", res)
				}
				if got, want := !strings.Contains(res.Output, "signaled 0"), strings.Contains(tags, "mutate_signal"); got != want {
					t.Errorf("signaled: %t, want %t: %s", got, want, res.Output)
				}
				want := strings.Contains(tags, "mutate_trace") && tier != session.TierUID
				if got := !strings.Contains(res.Output, "traced 0"); got != want {
					t.Errorf("traced: %t, want %t: %s", got, want, res.Output)
				}
			})
		}
	}
}
