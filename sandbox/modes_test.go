//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// verdict is how one operation ends under one mode.
type verdict int

const (
	done verdict = iota + 1
	denied
)

// TestModes runs every operation, inside and outside, under every mode.
func TestModes(t *testing.T) {
	t.Parallel()
	const ro, ww, full = session.ReadOnly, session.WorkspaceWrite, session.DangerFullAccess
	tests := []struct {
		name string
		op   func(p *place) sandbox.Op
		want map[session.SandboxMode]verdict
	}{
		{
			"read inside", func(*place) sandbox.Op { return sandbox.Op{Read: &sandbox.Read{Path: "in.txt"}} },
			map[session.SandboxMode]verdict{ro: done, ww: done, full: done},
		},
		{
			"read inside by absolute path", func(p *place) sandbox.Op { return sandbox.Op{Read: &sandbox.Read{Path: p.root + "/in.txt"}} },
			map[session.SandboxMode]verdict{ro: done, ww: done, full: done},
		},
		{
			"read outside", func(p *place) sandbox.Op { return sandbox.Op{Read: &sandbox.Read{Path: p.outside + "/old.txt"}} },
			map[session.SandboxMode]verdict{ro: denied, ww: denied, full: done},
		},
		{
			"read outside by dots", func(*place) sandbox.Op { return sandbox.Op{Read: &sandbox.Read{Path: "../outside/old.txt"}} },
			map[session.SandboxMode]verdict{ro: denied, ww: denied, full: done},
		},
		{
			"write inside", func(*place) sandbox.Op { return sandbox.Op{Write: &sandbox.Write{Path: "in.txt", Content: "x"}} },
			map[session.SandboxMode]verdict{ro: denied, ww: done, full: done},
		},
		{
			"create inside", func(*place) sandbox.Op { return sandbox.Op{Write: &sandbox.Write{Path: "a/b/new.txt", Content: "x"}} },
			map[session.SandboxMode]verdict{ro: denied, ww: done, full: done},
		},
		{
			"write outside", func(p *place) sandbox.Op {
				return sandbox.Op{Write: &sandbox.Write{Path: p.outside + "/old.txt", Content: "x"}}
			},
			map[session.SandboxMode]verdict{ro: denied, ww: denied, full: done},
		},
		{
			"create outside by dots", func(*place) sandbox.Op { return sandbox.Op{Write: &sandbox.Write{Path: "../outside/n", Content: "x"}} },
			map[session.SandboxMode]verdict{ro: denied, ww: denied, full: done},
		},
		{
			"edit inside", func(*place) sandbox.Op {
				return sandbox.Op{Edit: &sandbox.Edit{Path: "in.txt", Old: "inside", New: "x"}}
			},
			map[session.SandboxMode]verdict{ro: denied, ww: done, full: done},
		},
		{
			"edit outside", func(*place) sandbox.Op {
				return sandbox.Op{Edit: &sandbox.Edit{Path: "../outside/old.txt", Old: "outside", New: "x"}}
			},
			map[session.SandboxMode]verdict{ro: denied, ww: denied, full: done},
		},
		{
			"list inside", func(*place) sandbox.Op { return sandbox.Op{List: &sandbox.List{}} },
			map[session.SandboxMode]verdict{ro: done, ww: done, full: done},
		},
		{
			"list outside", func(*place) sandbox.Op { return sandbox.Op{List: &sandbox.List{Path: "../outside"}} },
			map[session.SandboxMode]verdict{ro: denied, ww: denied, full: done},
		},
		{
			"glob inside", func(*place) sandbox.Op { return sandbox.Op{Glob: &sandbox.Glob{Pattern: "*.txt"}} },
			map[session.SandboxMode]verdict{ro: done, ww: done, full: done},
		},
		{
			"glob outside", func(p *place) sandbox.Op { return sandbox.Op{Glob: &sandbox.Glob{Pattern: p.outside + "/*"}} },
			map[session.SandboxMode]verdict{ro: denied, ww: denied, full: done},
		},
		{
			"grep inside", func(*place) sandbox.Op { return sandbox.Op{Grep: &sandbox.Grep{Pattern: "content"}} },
			map[session.SandboxMode]verdict{ro: done, ww: done, full: done},
		},
		{
			"grep outside", func(*place) sandbox.Op {
				return sandbox.Op{Grep: &sandbox.Grep{Pattern: "content", Path: "../outside"}}
			},
			map[session.SandboxMode]verdict{ro: denied, ww: denied, full: done},
		},
		{
			"shell reads outside", func(*place) sandbox.Op { return shell("cat ../outside/old.txt") },
			map[session.SandboxMode]verdict{ro: done, ww: done, full: done},
		},
		{
			"shell writes inside", func(*place) sandbox.Op { return shell("mkdir d && echo x >d/f && mv d/f g && rm -r d") },
			map[session.SandboxMode]verdict{ro: denied, ww: done, full: done},
		},
		{
			"shell writes to TMPDIR", func(*place) sandbox.Op { return shell(`echo x >"$TMPDIR/f"`) },
			map[session.SandboxMode]verdict{ro: denied, ww: done, full: done},
		},
		{
			"shell writes to /dev/null", func(*place) sandbox.Op { return shell("echo x >/dev/null") },
			map[session.SandboxMode]verdict{ro: done, ww: done, full: done},
		},
		{
			"shell writes outside", func(*place) sandbox.Op { return shell("echo x >>../outside/old.txt") },
			map[session.SandboxMode]verdict{ro: denied, ww: denied, full: done},
		},
	}
	for _, tt := range tests {
		for mode, want := range tt.want {
			t.Run(tt.name+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				before := snapshot(t, filepath.Dir(p.root))
				res := perform(t, p.ws, mode, tt.op(p))
				if want == done {
					wantDone(t, res)
					return
				}
				wantDenied(t, res, mode)
				if diff := cmp.Diff(before, snapshot(t, filepath.Dir(p.root))); diff != "" {
					t.Errorf("a denied call left a trace (-before +after):\n%s", diff)
				}
			})
		}
	}
}

// TestLinksDoNotLeadOut covers links of each kind for every tool. The shell
// makes the links itself, in the same workspace.
func TestLinksDoNotLeadOut(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, shell(
		"ln -s ../outside outbox; ln -s outbox hop; ln -s ../outside/old.txt file; mkdir sub; ln -s .. sub/up; "+
			"ln -s "+p.outside+" abs; echo hi >sub/f; ln -s sub good; ln -s "+p.root+"/sub goodabs")))
	before := snapshot(t, p.outside)
	// Not filepath.Dir: it would take the dots out and so name another directory.
	dir := func(path string) string { return path[:max(strings.LastIndex(path, "/"), 0)] }
	for _, path := range []string{"outbox/old.txt", "hop/old.txt", "file", "abs/old.txt", "sub/up/../outside/old.txt"} {
		for name, op := range map[string]sandbox.Op{
			"read":  {Read: &sandbox.Read{Path: path}},
			"write": {Write: &sandbox.Write{Path: path, Content: "x"}},
			"edit":  {Edit: &sandbox.Edit{Path: path, Old: "outside", New: "x"}},
			"grep":  {Grep: &sandbox.Grep{Path: path, Pattern: "."}},
			"list":  {List: &sandbox.List{Path: dir(path)}},
			"glob":  {Glob: &sandbox.Glob{Pattern: path + "/*"}},
			"new":   {Write: &sandbox.Write{Path: dir(path) + "/fresh", Content: "x"}},
		} {
			if dir(path) == "" && (name == "list" || name == "new") {
				continue
			}
			res := perform(t, p.ws, session.WorkspaceWrite, op)
			wantDenied(t, res, session.WorkspaceWrite)
			if !strings.Contains(res.Output, p.outside) {
				t.Errorf("%s %s: %q does not name the resolved path", name, path, res.Output)
			}
		}
		wantDenied(t, perform(t, p.ws, session.WorkspaceWrite, shell("echo x >>"+path)), session.WorkspaceWrite)
	}
	if diff := cmp.Diff(before, snapshot(t, p.outside)); diff != "" {
		t.Errorf("outside changed (-before +after):\n%s", diff)
	}
	for _, path := range []string{"good/f", "goodabs/f"} {
		res := perform(t, p.ws, session.WorkspaceWrite, sandbox.Op{Read: &sandbox.Read{Path: path}})
		if wantDone(t, res); res.Output != "hi\n" {
			t.Errorf("read %s through a link inside: got %q", path, res.Output)
		}
	}
	// A write through a link goes to its target and leaves the link.
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, sandbox.Op{Write: &sandbox.Write{Path: "good/f", Content: "new"}}))
	if got := read(t, filepath.Join(p.root, "sub/f")); got != "new" {
		t.Errorf("sub/f holds %q", got)
	}
	res := perform(t, p.ws, session.WorkspaceWrite, sandbox.Op{Grep: &sandbox.Grep{Pattern: "outside content"}})
	if res.Output != "no line matches" {
		t.Errorf("a search followed a link out: %q", res.Output)
	}
}

// TestOddFiles covers what opens but is no file.
func TestOddFiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, shell("mkfifo fifo; mkdir dir; ln -s /proc/self/environ env")))
	const notRegular, deniedCode = "FS_NOT_REGULAR_FILE", "FS_SANDBOX_DENIED"
	tests := []struct {
		mode session.SandboxMode
		path string
		want string
	}{
		{session.ReadOnly, "fifo", notRegular},
		{session.WorkspaceWrite, "fifo", notRegular},
		{session.WorkspaceWrite, "dir", notRegular},
		{session.WorkspaceWrite, "/proc/self/environ", deniedCode},
		{session.WorkspaceWrite, "env", deniedCode},
		{session.DangerFullAccess, "/proc/self/environ", notRegular},
		{session.DangerFullAccess, "env", notRegular},
		{session.DangerFullAccess, "/sys/kernel/notes", notRegular},
		{session.DangerFullAccess, "/dev/zero", notRegular},
		{session.DangerFullAccess, "missing", "FS_NOT_FOUND"},
	}
	for _, tt := range tests {
		res := perform(t, p.ws, tt.mode, sandbox.Op{Read: &sandbox.Read{Path: tt.path}})
		if res.Code != tt.want || !res.Failed {
			t.Errorf("read %s under %s: got %+v, want code %s", tt.path, tt.mode, res, tt.want)
		}
	}
	res := perform(t, p.ws, session.WorkspaceWrite, sandbox.Op{Write: &sandbox.Write{Path: "fifo", Content: "x"}})
	if res.Code != notRegular {
		t.Errorf("write to a FIFO: got %+v", res)
	}
}
