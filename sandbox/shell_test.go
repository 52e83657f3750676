//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// TestShellResults covers how a command can end, in the fence and out of it.
func TestShellResults(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const launcherLike = `echo '{"Failure":{"Stage":"confine","Message":"no"}}'; echo 'launcher: cannot confine' >&2; exit 125`
	tests := []struct {
		name, line string
		want       sandbox.Result
	}{
		{"success", "echo out; echo err >&2", sandbox.Result{Output: "out\nerr\n"}},
		{"no newline between streams", "printf out; printf err >&2", sandbox.Result{Output: "out\nerr"}},
		{"failure", "exit 3", sandbox.Result{ExitCode: 3, Failed: true}},
		{"like a launcher's failure", launcherLike, sandbox.Result{ExitCode: 125, Failed: true, Output: "" +
			`{"Failure":{"Stage":"confine","Message":"no"}}` + "\nlauncher: cannot confine\n"}},
		{"no such command", "exec nonesuch 2>/dev/null", sandbox.Result{ExitCode: 127, Failed: true}},
		{"signal", "kill -KILL $$", sandbox.Result{ExitCode: 137, Signal: "SIGKILL", Failed: true}},
		{"exit code of a signal", "exit 137", sandbox.Result{ExitCode: 137, Failed: true}},
		{
			"denial words on stdout", "echo Permission denied; exit 1",
			sandbox.Result{ExitCode: 1, Failed: true, Output: "Permission denied\n"},
		},
		{"denial words and success", "echo Permission denied >&2", sandbox.Result{Output: "Permission denied\n"}},
		{"the word sandbox", "echo sandbox >&2; exit 1", sandbox.Result{ExitCode: 1, Failed: true, Output: "sandbox\n"}},
		{"standard input is empty", "cat; echo end", sandbox.Result{Output: "end\n"}},
		{"umask", "umask", sandbox.Result{Output: "0022\n"}},
		{"core dumps", "ulimit -c", sandbox.Result{Output: "0\n"}},
		{"working directory", "pwd", sandbox.Result{Output: p.root + "\n"}},
		{"no terminal", "tty", sandbox.Result{ExitCode: 1, Failed: true, Output: "not a tty\n"}},
	}
	for _, tt := range tests {
		for _, mode := range session.SandboxModes() {
			t.Run(tt.name+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				if diff := diffResults(tt.want, perform(t, p.ws, mode, shell(tt.line))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tt.line, diff)
				}
			})
		}
	}
	// Outside of the fence there is nothing to suspect.
	res := perform(t, p.ws, session.DangerFullAccess, shell("echo Permission denied >&2; exit 1"))
	if res.Denied() || strings.Contains(res.Output, "[sandbox") {
		t.Errorf("unconfined: got %+v", res)
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	ws := openWorkspace(t, sandbox.Config{Env: []string{"GOCACHE=/c", "TERM=xterm"}}, root)
	for _, mode := range session.SandboxModes() {
		res := perform(t, ws, mode, shell("exec env -u PWD -u OLDPWD -u SHLVL -u _ | cut -d= -f1 | sort | tr '\n' ' '; echo $GOCACHE $TERM $HOME"))
		want := "GOCACHE HOME LANG PATH TERM TMPDIR USER /c xterm " + root + "\n"
		if res.Output != want {
			t.Errorf("%s: got %q, want %q", mode, res.Output, want)
		}
	}
	if _, err := sandbox.New(sandbox.Config{Env: []string{"NOVALUE"}}); err == nil {
		t.Error("an entry without a value was taken")
	}
}

// TestInheritedDescriptors opens a descriptor that exec does not close, as a
// careless library or service manager would.
func TestInheritedDescriptors(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	fd, err := syscall.Open(filepath.Join(p.outside, "old.txt"), syscall.O_RDWR, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Close(fd); err != nil {
			t.Error(err)
		}
	}()
	for _, mode := range session.SandboxModes() {
		res := perform(t, p.ws, mode, shell("cd /proc/self/fd && echo *"))
		for f := range strings.FieldsSeq(res.Output) {
			if n, err := strconv.Atoi(f); err != nil || n > 3 { // 3 is the directory that is being listed
				t.Errorf("%s: descriptors %s", mode, res.Output)
			}
		}
	}
}

func TestOutputIsCapped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	ws := openWorkspace(t, sandbox.Config{OutputCap: 1000}, root)
	res := perform(t, ws, session.ReadOnly, shell("echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last"))
	if !res.Truncated || len(res.Output) > 1200 ||
		!strings.HasPrefix(res.Output, "first\n") || !strings.HasSuffix(res.Output, "last\n") ||
		!strings.Contains(res.Output, "\n[999012 bytes left out; the whole is in ") {
		t.Errorf("got %d bytes, truncated %v: %q", len(res.Output), res.Truncated, res.Output)
	}
	write(t, filepath.Join(root, "long"), strings.Repeat("line\n", 1000))
	res = perform(t, ws, session.ReadOnly, sandbox.Op{Read: &sandbox.Read{Path: "long"}})
	if !res.Truncated || !strings.HasSuffix(res.Output, "line\n[there is more: read again with offset 201]") {
		t.Errorf("read: got %+v", res)
	}
}

func TestMarkerAndHint(t *testing.T) {
	t.Parallel()
	if got, want := sandbox.Marker(session.ReadOnly), "[sandbox: file access denied under read-only mode]"; got != want {
		t.Errorf("Marker = %q, want %q", got, want)
	}
	const prefix = "[sandbox: escalation available — retry this exact operation once with sandbox_permissions"
	for mode, want := range map[session.SandboxMode][]string{
		session.ReadOnly:         {`"workspace-write"`, `"danger-full-access"`},
		session.WorkspaceWrite:   {`"danger-full-access"`},
		session.DangerFullAccess: nil,
	} {
		got := sandbox.Hint(mode)
		if strings.HasPrefix(got, prefix) != (want != nil) {
			t.Errorf("Hint(%s) = %q", mode, got)
		}
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("Hint(%s) = %q lacks %s", mode, got, w)
			}
		}
	}
}

// TestLauncherShowsNothing looks for the command and the policy where anybody can
// look, from outside.
func TestLauncherShowsNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	res := perform(t, p.ws, session.DangerFullAccess, shell(
		": hunter2; tr '\\0' ' ' </proc/$PPID/cmdline; (tr '\\0' ' ' </proc/$PPID/environ) 2>/dev/null || printf 'not for this user'"))
	want := "entail-sandbox-launcher GOGC=off GOMEMLIMIT=64MiB GOMAXPROCS=2 "
	if os.Getuid() != 0 || !here(t).namespaces { // then it takes CAP_SYS_PTRACE, since the launcher cannot be traced
		want = "entail-sandbox-launcher not for this user"
	}
	if res.Output != want {
		t.Errorf("got %q, want %q", res.Output, want)
	}
}
