package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// nobody is an ordinary user: root may write everywhere.
const nobody = 65534

// ordinary is a place of an ordinary user, and this command to be run there.
type ordinary struct {
	t    *testing.T
	base string
	self string
}

func newOrdinary(t *testing.T) *ordinary {
	t.Helper()
	base, err := os.MkdirTemp("", "ordinary-") //nolint:usetesting // t.TempDir lies below a private directory
	if err != nil {
		t.Fatal(err)
	}
	o := &ordinary{t: t, base: base, self: filepath.Join(base, "entail")}
	t.Cleanup(func() { o.must(os.RemoveAll(base)) })
	o.must(os.Chmod(base, 0o755))
	o.copySelf()
	return o
}

func (o *ordinary) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// copySelf writes this test's binary to where the user may execute it. While it is
// open for writing no other test may fork: its child would hold the descriptor
// until it executes, and the file be busy as long (golang/go#22315).
func (o *ordinary) copySelf() {
	o.t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	o.must(err)
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	o.must(os.WriteFile(o.self, data, 0o755))
}

// dir makes a directory: the user's own, or somebody else's.
func (o *ordinary) dir(mode fs.FileMode, own bool, path ...string) string {
	o.t.Helper()
	dir := filepath.Join(append([]string{o.base}, path...)...)
	o.must(os.MkdirAll(dir, 0o755))
	o.must(os.Chmod(dir, mode))
	o.give(dir, own)
	return dir
}

func (o *ordinary) file(mode fs.FileMode, own bool, text string, path ...string) string {
	o.t.Helper()
	name := filepath.Join(append([]string{o.base}, path...)...)
	o.must(os.WriteFile(name, []byte(text), mode))
	o.must(os.Chmod(name, mode))
	o.give(name, own)
	return name
}

func (o *ordinary) give(path string, own bool) {
	o.t.Helper()
	if own && os.Getuid() == 0 {
		o.must(os.Chown(path, nobody, nobody))
	}
}

// run runs a command as the user.
func (o *ordinary) run(args ...string) (out string, exit int) {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), o.self, args...)
	cmd.Dir, cmd.Env = o.base, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + o.base, "TMPDIR=" + o.base}
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	text, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		o.t.Fatalf("entail %v: %v", args, err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// list names everything in the place.
func (o *ordinary) list() []string {
	o.t.Helper()
	var out []string
	o.must(filepath.WalkDir(o.base, func(path string, _ fs.DirEntry, err error) error {
		out = append(out, path)
		return err
	}))
	return out
}

// TestDirectoriesOfSomebodyElse runs commands as an ordinary user where the user
// may not write or read: each says which directory, and how to choose another. One
// looks at what the other left, so none is parallel.
func TestDirectoriesOfSomebodyElse(t *testing.T) {
	o := newOrdinary(t)
	o.give(o.base, true)
	foreign := o.dir(0o755, false, "foreign")
	for _, part := range []string{"nats", "store"} {
		o.dir(0o700, true, part+"-data")
		o.dir(0o755, false, part+"-data", part)
	}
	story := o.file(0o644, true, "sessions:\n  root:\n    - text: fine\n", "story.yaml")
	secret := o.file(0o600, os.Getuid() != 0, "sk-secret", "secret")
	if os.Getuid() != 0 { // somebody else's are then such that nobody may use them
		for _, dir := range []string{foreign, filepath.Join(o.base, "nats-data", "nats"), filepath.Join(o.base, "store-data", "store")} {
			o.must(os.Chmod(dir, 0o500))
		}
		o.must(os.Chmod(secret, 0))
	}
	run := func(flags ...string) []string {
		return append([]string{"run", "--model", "scripted:" + story, "--cwd", o.base}, append(flags, "go")...)
	}
	tests := []struct {
		name string
		args []string
		exit int
		says []string
	}{
		{"up below it", []string{"up", "--dir", filepath.Join(foreign, "data")}, exitUnavailable, []string{filepath.Join(foreign, "data"), "permission denied", "name another with --dir"}},
		{"run below it", run("--dir", filepath.Join(foreign, "data")), exitUnavailable, []string{filepath.Join(foreign, "data"), "permission denied", "name another with --dir"}},
		{"up in it", []string{"up", "--dir", foreign}, exitUnavailable, []string{foreign, "not permitted", "name another with --dir"}},
		{"a broker's", run("--dir", filepath.Join(o.base, "nats-data")), exitUnavailable, []string{filepath.Join("nats-data", "nats"), "permission denied", "--dir"}},
		{"a mirror's", run("--dir", filepath.Join(o.base, "store-data")), exitUnavailable, []string{filepath.Join("store-data", "store"), "permission denied", "--dir"}},
		{"a workspace", run("--cwd", foreign, "--dir", filepath.Join(o.base, "data")), exitUsage, []string{foreign, "cannot mark", "a directory that is yours"}},
		{"keys in it", []string{"keys", "init", filepath.Join(foreign, "keys")}, exitUsage, []string{foreign, "permission denied", "name a new directory"}},
		{"a token file", []string{"session", "ls", "--token-file", secret}, exitUnavailable, []string{secret, "permission denied", "--token-file"}},
		{"a script", []string{"run", "--model", "scripted:" + secret, "go"}, exitUsage, []string{secret, "permission denied", "scripted:FILE"}},
		{"a key", run("--api-key-file", secret), exitUsage, []string{secret, "permission denied", "name the file"}},
		{"a configuration", []string{"version", "--config", secret}, exitUsage, []string{secret, "permission denied", "--config"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := o.list()
			out, exit := o.run(tt.args...)
			if exit != tt.exit || strings.Contains(out, "sk-secret") {
				t.Errorf("exit %d, want %d: %s", exit, tt.exit, out)
			}
			for _, word := range tt.says {
				if !strings.Contains(out, word) {
					t.Errorf("it does not say %q: %s", word, out)
				}
			}
			if after := o.list(); !slices.Equal(after, before) {
				t.Errorf("it left %v, before it there was %v", after, before)
			}
		})
	}
	// In a place of the user's own the same is done.
	if out, exit := o.run(run("--dir", filepath.Join(o.base, "data"), "--workers", "1")...); exit != exitDone {
		t.Errorf("in an own directory: exit %d: %s", exit, out)
	}
}
