//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// executed is what an Exec came to.
type executed struct {
	res      sandbox.Result
	out, err string
}

// execute runs a program under a mode with a standard input.
func (p *place) execute(t *testing.T, mode session.SandboxMode, in io.Reader, argv ...string) executed {
	t.Helper()
	var out, errs bytes.Buffer
	res, err := p.ws.Exec(t.Context(), policytest.Permit(t, mode), sandbox.Shell{Argv: argv}, nil, sandbox.Streams{In: in, Out: &out, Err: &errs})
	if err != nil {
		t.Fatalf("exec %.80q: %v", argv, err)
	}
	return executed{res, out.String(), errs.String()}
}

// A program gets the caller's streams and its arguments as they are.
func TestExecPassesStreams(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, mode := range session.SandboxModes() {
		got := p.execute(t, mode, strings.NewReader("what comes in"), "sh", "-c", `cat; echo "$1" >&2; exit 7`, "sh", "$HOME `id` '")
		if got.out != "what comes in" || got.err != "$HOME `id` '\n" || got.res.ExitCode != 7 || got.res.Output != "" {
			t.Errorf("%s: got %+v", mode, got)
		}
		if s := got.res.Sandbox; s.Mode != mode {
			t.Errorf("%s: it says %+v of what held it", mode, s)
		}
	}
	got := p.execute(t, session.ReadOnly, nil, "sh", "-c", "wc -c; kill -TERM $$")
	if strings.TrimSpace(got.out) != "0" || got.res.Signal != "SIGTERM" || got.res.ExitCode != 128+int(syscall.SIGTERM) {
		t.Errorf("without an input, ended by a signal: got %+v", got)
	}
}

// A file among the streams is the command's own, without a copy in between.
func TestExecHandsFilesOver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f, err := os.Create(filepath.Join(p.outside, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	res, err := p.ws.Exec(t.Context(), policytest.Permit(t, session.ReadOnly), sandbox.Shell{Argv: []string{"stat", "-L", "-c", "%i", "/proc/self/fd/1"}},
		nil, sandbox.Streams{Out: f})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("got %+v, %v", res, err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var inode uint64
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	if got := strings.TrimSpace(read(t, f.Name())); got != strconv.FormatUint(inode, 10) {
		t.Errorf("standard output is inode %s, want %d", got, inode)
	}
}

// The fence is that of every other call, and the permit is the only way in.
func TestExecIsFenced(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	target := filepath.Join(p.outside, "made")
	for _, mode := range []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite} {
		if got := p.execute(t, mode, nil, "touch", target); got.res.ExitCode == 0 {
			t.Errorf("%s: got %+v", mode, got)
		}
		if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s: a file was made outside: %v", mode, err)
		}
	}
	if got := p.execute(t, session.DangerFullAccess, nil, "touch", target); got.res.ExitCode != 0 {
		t.Errorf("without a fence it fails too, so the fence stopped nothing: %+v", got)
	}
	if _, err := p.ws.Exec(t.Context(), policy.Permit{}, sandbox.Shell{Argv: []string{"true"}}, nil, sandbox.Streams{}); !errors.Is(err, sandbox.ErrNotPermitted) {
		t.Errorf("the zero permit: got %v", err)
	}
}

// What cannot be started ends as a shell would end.
func TestExecOfWhatIsNoProgram(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	write(t, filepath.Join(p.root, "plain"), "#!/bin/sh\n")
	write(t, filepath.Join(p.root, "mine"), "#!/bin/sh\necho ran\n")
	if err := os.Chmod(filepath.Join(p.root, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		argv []string
		exit int
		says string
	}{
		{[]string{"no-such-program"}, 127, "no such file"},
		{[]string{"mine"}, 127, "no such file"}, // the workspace is in no PATH
		{[]string{"./none"}, 127, "no such file"},
		{[]string{"./plain"}, 126, "permission denied"},
		{[]string{p.root}, 126, "permission denied"},
		{[]string{"true", strings.Repeat("x", 3<<20)}, 126, "argument list too long"},
		{[]string{"./mine"}, 0, ""},
	} {
		got := p.execute(t, session.WorkspaceWrite, nil, tt.argv...)
		if got.res.ExitCode != tt.exit || !strings.Contains(got.res.Output, tt.says) || (tt.exit != 0) != got.res.Failed {
			t.Errorf("%.40q: got %+v, want exit %d and %q", tt.argv, got, tt.exit, tt.says)
		}
	}
}

// What no program can be given is refused before anything is started.
func TestExecRefusesArguments(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, tt := range []struct {
		shell sandbox.Shell
		says  string
	}{
		{sandbox.Shell{Argv: []string{}}, "name no program"},
		{sandbox.Shell{Argv: []string{""}}, "name no program"},
		{sandbox.Shell{Argv: []string{"echo", "a\x00b"}}, "NUL"},
		{sandbox.Shell{Argv: []string{"true"}, Command: "true"}, "not both"},
	} {
		_, err := p.ws.Exec(t.Context(), policytest.Permit(t, session.ReadOnly), tt.shell, nil, sandbox.Streams{})
		if !errors.Is(err, sandbox.ErrNotStarted) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: got %v", tt.shell, err)
		}
	}
	for _, cfg := range []sandbox.Config{{Env: []string{"A=b\x00c"}}, {Best: session.TierNone}, {Best: "best"}} {
		if r, err := sandbox.New(cfg); err == nil || r != nil {
			t.Errorf("New(%+v) = %v, %v", cfg, r, err)
		}
	}
}
