//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// unlimited are terms under which nothing ends a call but its time.
func unlimited() policy.Confinement {
	terms := policy.DefaultConfinement()
	terms.Limits = policy.Limits{Time: terms.Limits.Time}
	return terms
}

// limited changes one limit of those terms.
func limited(change func(*policy.Limits)) policy.Confinement {
	terms := unlimited()
	change(&terms.Limits)
	return terms
}

// performOn runs an operation, on terms, that must come to a result.
func performOn(t *testing.T, ws *sandbox.Workspace, mode session.SandboxMode, terms policy.Confinement, op sandbox.Op) sandbox.Result {
	t.Helper()
	res, err := ws.PerformOn(t.Context(), mode, terms, op)
	if err != nil {
		t.Fatalf("perform %s: %v", mode, err)
	}
	return res
}

// everyFence runs a test in each tier that there is on this host, in the tree's own
// workspace, and without a fence.
func everyFence(t *testing.T, test func(t *testing.T, ws *sandbox.Workspace, mode session.SandboxMode)) {
	t.Helper()
	for _, tier := range session.Tiers() {
		for _, mode := range []session.SandboxMode{session.WorkspaceWrite, session.DangerFullAccess} {
			t.Run(string(tier)+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				g := newGrove(t)
				test(t, g.open(runner(t, tier), g.dir("ws"), oak), mode)
			})
		}
	}
}

// Each limit ends a call that without it goes on, and its result says which it was.
func TestLimitsEndCalls(t *testing.T) {
	t.Parallel()
	const (
		cpu     = "while :; do :; done"
		write   = "exec head -c 2000000 /dev/zero >big"
		openAll = "for i in $(seq 100); do exec {f}</dev/null || exit 1; done; echo open"
	)
	tests := []struct {
		name, line string
		change     func(*policy.Limits)
		want       sandbox.Result
		without    sandbox.Result // what the same command comes to without the limit
	}{
		{
			"cpu", cpu, func(l *policy.Limits) { l.CPU = policy.Duration(time.Second) },
			sandbox.Result{Limit: session.LimitCPU, ExitCode: 152, Signal: "SIGXCPU"},
			sandbox.Result{Limit: session.LimitTime, ExitCode: 137, Signal: "SIGKILL", TimedOut: true},
		},
		{
			"file size", write, func(l *policy.Limits) { l.FileSize = 1 << 20 },
			sandbox.Result{Limit: session.LimitFileSize, ExitCode: 153, Signal: "SIGXFSZ"},
			sandbox.Result{},
		},
		{
			"file size without the signal", "trap '' XFSZ; " + write, func(l *policy.Limits) { l.FileSize = 1 << 20 },
			sandbox.Result{Limit: session.LimitFileSize, ExitCode: 1},
			sandbox.Result{},
		},
		{
			"open files", openAll, func(l *policy.Limits) { l.OpenFiles = 64 },
			sandbox.Result{Limit: session.LimitOpenFiles, ExitCode: 1},
			sandbox.Result{},
		},
		{
			"time", "sleep 1000", func(l *policy.Limits) { l.Time = policy.Duration(time.Second) },
			sandbox.Result{Limit: session.LimitTime, ExitCode: 137, Signal: "SIGKILL", TimedOut: true},
			sandbox.Result{Limit: session.LimitTime, ExitCode: 137, Signal: "SIGKILL", TimedOut: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			everyFence(t, func(t *testing.T, ws *sandbox.Workspace, mode session.SandboxMode) {
				t.Helper()
				compare := func(want sandbox.Result, terms policy.Confinement, timeout time.Duration) {
					t.Helper()
					want.Failed = want.ExitCode != 0
					got := performOn(t, ws, mode, terms, sandbox.Op{Shell: &sandbox.Shell{Command: tt.line, Timeout: timeout}})
					want.Output, want.Swept = got.Output, got.Swept
					if diff := diffResults(want, got); diff != "" {
						t.Errorf("%s (-want +got):\n%s%s", tt.line, diff, got.Output)
					}
				}
				compare(tt.want, limited(tt.change), 0)
				compare(tt.without, unlimited(), 2*time.Second)
			})
		})
	}
}

// A file ends at its limit.
func TestFilesEndAtTheirLimit(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{}, t.TempDir())
	terms := limited(func(l *policy.Limits) { l.FileSize = 1 << 20 })
	performOn(t, ws, session.WorkspaceWrite, terms, shell("head -c 2000000 /dev/zero >big"))
	if info, err := os.Stat(filepath.Join(ws.Root(), "big")); err != nil || info.Size() != 1<<20 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// A shell whose last command was ended by a limit says so by its exit code.
func TestLimitsOfTheLastCommand(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{}, t.TempDir())
	terms := limited(func(l *policy.Limits) { l.CPU, l.FileSize = policy.Duration(time.Second), 1<<20 })
	for line, want := range map[string]sandbox.Result{
		"sh -c 'while :; do :; done'; exit $?":      {Limit: session.LimitCPU, ExitCode: 152, Failed: true},
		"(head -c 2000000 /dev/zero) >big; exit $?": {Limit: session.LimitFileSize, ExitCode: 153, Failed: true},
	} {
		got := performOn(t, ws, session.WorkspaceWrite, terms, shell(line))
		want.Output = got.Output
		if diff := diffResults(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}

// A program that does not heed the signal is killed a little later.
func TestProcessorTimeEndsTheDeaf(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{}, t.TempDir())
	terms := limited(func(l *policy.Limits) { // on a busy machine a second of its time can take long
		l.CPU, l.Time = policy.Duration(time.Second), policy.Duration(10*time.Minute)
	})
	res := performOn(t, ws, session.WorkspaceWrite, terms, shell("trap '' XCPU; while :; do :; done"))
	if res.Limit != session.LimitCPU || res.Signal != "SIGKILL" || res.TimedOut {
		t.Errorf("got %+v, want the limit of processor time", res)
	}
}

// What looks like a limit is none where there is none.
func TestLimitsAreNotNamedWithoutCause(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{}, t.TempDir())
	for _, line := range []string{
		"exit 152", "exit 153", "kill -XCPU $$", "kill -XFSZ $$",
		"echo Too many open files >&2; exit 1", "echo File too large >&2; exit 1",
	} {
		if res := performOn(t, ws, session.ReadOnly, unlimited(), shell(line)); res.Limit != "" {
			t.Errorf("%s without limits: got %+v", line, res)
		}
	}
	for _, line := range []string{
		"kill -KILL $$", "exit 137", "echo Too many open files in system >&2; exit 1",
		"echo Too many open files; exit 1", "echo Too many open files >&2; exit 0",
	} {
		if res := perform(t, ws, session.ReadOnly, shell(line)); res.Limit != "" {
			t.Errorf("%s: got %+v", line, res)
		}
	}
}

// A call that names its own time is held to that.
func TestACallsOwnTimeGoesFirst(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{}, t.TempDir())
	terms := limited(func(l *policy.Limits) { l.Time = policy.Duration(time.Second) })
	op := sandbox.Op{Shell: &sandbox.Shell{Command: "sleep 2", Timeout: time.Minute}}
	wantDone(t, performOn(t, ws, session.ReadOnly, terms, op))
}

// Limits never raise what the worker's own environment allows, and where that is lower
// it holds.
func TestLimitsOnlyLower(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range session.SandboxModes() {
		arg, err := json.Marshal(errand{Root: t.TempDir(), Mode: mode, Op: shell("ulimit -Sn; ulimit -Hn; ulimit -Ht")})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", `ulimit -n 300 && ulimit -t 100 && exec "$0" "$@"`, self, driveArg, string(arg))
		cmd.Env = []string{"TMPDIR=" + t.TempDir()}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		var res sandbox.Result
		if err := json.Unmarshal(out.Bytes(), &res); err != nil || res.Output != "300\n300\n100\n" {
			t.Errorf("%s: got %+v, %v", mode, res, err)
		}
	}
}

// By default a command is held to what policy says, soft and hard.
func TestDefaultLimits(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{}, t.TempDir())
	for _, mode := range session.SandboxModes() {
		res := perform(t, ws, mode, shell("ulimit -St; ulimit -Ht; ulimit -Sf; ulimit -Hf; ulimit -Sn; ulimit -Hn"))
		if want := "600\n605\n1048576\n1048576\n1024\n1024\n"; res.Output != want {
			t.Errorf("%s: got %q, want %q", mode, res.Output, want)
		}
	}
}

// What a command writes without end ends it, and all that it started.
func TestOutputEndsACall(t *testing.T) {
	t.Parallel()
	everyFence(t, func(t *testing.T, ws *sandbox.Workspace, mode session.SandboxMode) {
		t.Helper()
		terms := limited(func(l *policy.Limits) { l.Output = 64 << 10 })
		res := performOn(t, ws, mode, terms, shell(brood+"touch pids"+awaitBrood+"; echo first; yes; echo never >never"))
		if res.Limit != session.LimitOutput || !res.Failed || res.TimedOut || res.Denied() || !res.Truncated {
			t.Errorf("got %+v, want the limit of output", res)
		}
		if !strings.HasPrefix(res.Output, "first\ny\ny\n") {
			t.Errorf("it begins with %.80q", res.Output)
		}
		if _, err := os.Lstat(filepath.Join(ws.Root(), "never")); err == nil {
			t.Error("it went on")
		}
		wantGone(t, ws.Root())
		res = performOn(t, ws, mode, unlimited(), sandbox.Op{Shell: &sandbox.Shell{Command: "yes", Timeout: 2 * time.Second}})
		if res.Limit != session.LimitTime {
			t.Errorf("without a limit: got %+v", res)
		}
	})
}

// Both streams count together, and the limit itself may be reached. Neither hangs on
// whether the call is over before it can be ended.
func TestOutputIsCountedExactly(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{}, t.TempDir())
	const zeros = "tr '\\0' x </dev/zero | head -c "
	terms := limited(func(l *policy.Limits) { l.Output = 64 << 10 })
	for line, want := range map[string]session.Limit{
		zeros + "65536": "",
		zeros + "65537": session.LimitOutput,
		zeros + "32768; (" + zeros + "32768) >&2": "",
		zeros + "32768; (" + zeros + "32769) >&2": session.LimitOutput,
	} {
		for _, mode := range session.SandboxModes() {
			if res := performOn(t, ws, mode, terms, shell(line)); res.Limit != want || res.Failed != (want != "") {
				t.Errorf("%s %s: limit %q, failed %t, want %q", line, mode, res.Limit, res.Failed, want)
			}
			wantDone(t, performOn(t, ws, mode, unlimited(), shell(line)))
		}
	}
}

// By default a command cannot write for ever.
func TestOutputIsLimitedByDefault(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{}, t.TempDir())
	if res := perform(t, ws, session.ReadOnly, shell("yes")); res.Limit != session.LimitOutput || len(res.Output) > 100_000 {
		t.Errorf("got limit %q and %d bytes", res.Limit, len(res.Output))
	}
}

// counts reports whether this host counts processes, and says so where it does not.
func counts(t *testing.T) bool {
	t.Helper()
	if err := runner(t, session.TierLandlock).Uncounted(); err != nil {
		t.Logf("NOT RUN: %v", err)
		return false
	}
	return true
}

// A bomb ends by the limit of processes, whether it has a process waiting for it or not, and
// nothing is left of it. Without the limit as many are started and the call goes on.
func TestProcessesEndACall(t *testing.T) {
	t.Parallel()
	const many = "for i in $(seq 100); do sleep 1000 & done"
	for name, line := range map[string]string{
		"waiting":     many + "; wait; echo never >never",
		"at once":     many + " 2>/dev/null; exit 0",
		"own session": "setsid sh -c '" + many + "; wait' & wait",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everyFence(t, func(t *testing.T, ws *sandbox.Workspace, mode session.SandboxMode) {
				t.Helper()
				if !counts(t) {
					return
				}
				res := performOn(t, ws, mode, limited(func(l *policy.Limits) { l.Processes = 32 }), shell(line))
				if res.Limit != session.LimitProcesses || !res.Failed || res.TimedOut || res.Denied() || res.Swept > 32 {
					t.Errorf("got %+v, want the limit of processes", res)
				}
				if _, err := os.Lstat(filepath.Join(ws.Root(), "never")); err == nil {
					t.Error("it went on")
				}
				if left := alive(t, ws.Root()); len(left) > 0 {
					t.Errorf("still alive: %v", left)
				}
				for _, enough := range []int64{0, 200} {
					res = performOn(t, ws, mode, limited(func(l *policy.Limits) { l.Processes = enough }), shell(many))
					if wantDone(t, res); res.Swept < 100 || res.Limit != "" {
						t.Errorf("with a limit of %d: got %+v", enough, res)
					}
				}
			})
		})
	}
}
