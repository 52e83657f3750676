package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/session"
)

// execIn runs a command behind the fence in a directory.
func execIn(dir string, words ...string) ran {
	return command{args: append([]string{"sandbox", "exec", "--dir", filepath.Join(dir, "no-data"), "--cwd", dir}, words...)}.run()
}

// The exit code is the command's, and what held it is told beside its output.
func TestSandboxExec(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "made")
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		words []string
		exit  int
		out   string
		says  []string
	}{
		{[]string{"--", "echo", "a  b"}, 0, "a  b\n", []string{"exit code 0", "held by read-only, network deny"}},
		{[]string{"--mode=workspace-write", "sh", "-c", "echo x >f && cat f; exit 5"}, 5, "x\n", []string{"exit code 5", "held by workspace-write, network allow"}},
		{[]string{"--mode=workspace-write", "--network=deny", "true"}, 0, "", []string{"network deny"}},
		{[]string{"--", "touch", "f"}, 1, "", []string{"touch:", "read-only"}},
		{[]string{"--mode=workspace-write", "touch", outside}, 1, "", []string{"touch:"}},
		{[]string{"--", "sh", "-c", "kill -KILL $$"}, 137, "", []string{"signal SIGKILL"}},
		{[]string{"--timeout=300ms", "sleep", "60"}, 137, "", []string{"timed out"}},
		{[]string{"--", "no-such-program"}, 127, "", []string{`start "no-such-program"`, "no such file"}},
		{[]string{"--", "./plain"}, 126, "", []string{"permission denied"}},
		{[]string{"--", "true", strings.Repeat("x", 3<<20)}, 126, "", []string{"argument list too long"}},
		{[]string{"--tier-at-most=landlock", "true"}, 0, "", []string{"tier landlock"}},
		{[]string{"--tier-at-most=landlock", "--mode=workspace-write", "--network=loopback", "true"}, exitUnheld, "", []string{"not run", "loopback"}},
		{[]string{"--tier-at-most=landlock", "--require=uid", "true"}, exitUsage, "", []string{"--tier-at-most landlock is weaker"}},
		{[]string{"--mode=danger-full-access", "--network=deny", "true"}, exitUsage, "", []string{"--network deny", "another --mode"}},
		{[]string{"--mode=danger-full-access", "touch", outside}, 0, "", []string{"enforcement none"}}, // the control
	} {
		got := execIn(dir, tt.words...)
		if got.exit != tt.exit || got.out != tt.out {
			t.Errorf("%.60q: exit %d, output %q, want %d and %q: %s", tt.words, got.exit, got.out, tt.exit, tt.out, got.err)
		}
		for _, word := range tt.says {
			if !strings.Contains(got.err, word) {
				t.Errorf("%.60q does not say %q: %s", tt.words, word, got.err)
			}
		}
		if _, err := os.Lstat(outside); (err == nil) != (tt.words[0] == "--mode=danger-full-access" && tt.exit == 0) {
			t.Errorf("%.60q: the outside file: %v", tt.words, err)
		}
	}
}

// Programs read facts from a file, or with -o json from standard error.
func TestSandboxExecTellsFacts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "facts")
	read := func(text []byte) (f execFacts) {
		if err := json.Unmarshal(text, &f); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return f
	}
	got := execIn(dir, "--facts", file, "sh", "-c", "echo err >&2; exit 3")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if f := read(text); got.err != "err\n" || !f.Ran || f.ExitCode != 3 || f.Sandbox == nil || f.Sandbox.Mode != session.ReadOnly {
		t.Errorf("facts are %s, and on standard error stands %q", text, got.err)
	}
	got = execIn(dir, "-o", "json", "true")
	if f := read([]byte(got.err)); !f.Ran || f.ExitCode != 0 || got.out != "" {
		t.Errorf("with -o json: %+v", got)
	}
	got = execIn(dir, "-o", "json", "--tier-at-most=uid", "--mode=workspace-write", "--network=loopback", "true")
	if f := read([]byte(got.err)); f.Ran || f.Error == "" || !strings.Contains(got.out, "SANDBOX_UNAVAILABLE") || got.exit != exitUnheld {
		t.Errorf("refused: %+v", got)
	}
}

// Standard input is the command's, and the deployment's secrets are out of its reach.
func TestSandboxExecHidesADeployment(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "token"), []byte("the secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	words := []string{"sandbox", "exec", "--cwd", dir, "--dir", data, "--", "sh", "-c", "cat; cat " + data + "/token"}
	got := command{args: words, stdin: "input "}.run()
	if got.out != "input " || got.exit == 0 {
		t.Errorf("got %+v", got)
	}
	words[5] = filepath.Join(data, "none")
	if got := (command{args: words, stdin: "input "}).run(); got.out != "input the secret" {
		t.Errorf("where nothing is hidden: %+v", got)
	}
}

// asRoot reports whether this is root, as the tests of the project are run.
func asRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("NOT RUN: only root can mount and give files away")
		return false
	}
	return true
}

// mounted is a small file system of its own that everybody can come to.
func mounted(t *testing.T, base, name string) string {
	t.Helper()
	dir := filepath.Join(base, name)
	if err := errors.Join(os.Mkdir(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A directory that is somebody else's, full or read-only is a workspace like any
// other: what cannot be done there the command is told.
func TestSandboxExecInStrangePlaces(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	o := newOrdinary(t)
	foreign := o.dir(0o700, true, "foreign")
	full, fixed := mounted(t, o.base, "full"), mounted(t, o.base, "fixed")
	if err := errors.Join(os.WriteFile(filepath.Join(full, "all"), make([]byte, 64<<10), 0o644),
		unix.Mount("", fixed, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	const tree = "--tree=0001m8pgrjs8m9g9qeynnyk2zje7"
	for _, tt := range []struct {
		dir, line, says string
		flags           []string
		exit            int
	}{
		{foreign, "touch f", "exit code 0", nil, 0},
		{foreign, "touch f", "exit code 0", []string{tree}, 0},
		{full, "head -c 1 /dev/zero >f", "No space left", nil, 1},
		{full, "head -c 1 /dev/zero >f", "No space left", []string{tree}, 1},
		{fixed, "touch f", "Read-only file system", nil, 1},
		{fixed, "touch f", "read-only file system", []string{tree}, exitUsage}, // it is empty, and cannot be given away
	} {
		got := execIn(tt.dir, append(slices.Clone(tt.flags), "--mode=workspace-write", "--", "sh", "-c", tt.line)...)
		if got.exit != tt.exit || !strings.Contains(got.err, tt.says) {
			t.Errorf("%s %v: got %+v, want exit %d and %q", tt.dir, tt.flags, got, tt.exit, tt.says)
		}
	}
}

// A directory that takes the workspace's place during a call is not the workspace.
func TestSandboxExecWhereThePlaceIsTaken(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir, old, fifo := filepath.Join(base, "ws"), filepath.Join(base, "old"), filepath.Join(base, "ws", "go")
	if err := errors.Join(os.Mkdir(dir, 0o755), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	done := make(chan ran, 1)
	go func() {
		done <- execIn(dir, "--mode=workspace-write", "--", "sh", "-c", "read line <go; echo x >made")
	}()
	ctx, cancel := context.WithTimeout(t.Context(), awaitLimit)
	defer cancel()
	w := openFIFO(ctx, t, fifo)
	if err := errors.Join(os.Rename(dir, old), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("now\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("in the new directory there is %v (%v)", left, err)
	}
	if _, err := os.Lstat(filepath.Join(old, "made")); got.exit == 0 && err != nil {
		t.Errorf("got %+v, and in the old one: %v", got, err)
	}
}

// openFIFO opens a FIFO for writing once it is read.
func openFIFO(ctx context.Context, t *testing.T, path string) *os.File {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			return f
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("nobody reads %s: %v", path, err)
		}
	}
}
