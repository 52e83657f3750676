//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// homes are the places where file operations are done.
func homes() map[string]sandbox.Config {
	return map[string]sandbox.Config{"confined": {}, "in process": {FilesInProcess: true}}
}

// The ways to change a file that must agree.
const (
	byWrite = "write"
	byEdit  = "edit"
	byShell = "shell"
)

// changeBy changes path, and makes the directories on the way where it creates.
func changeBy(tool, path string) sandbox.Op {
	switch tool {
	case byWrite:
		return sandbox.Op{Write: &sandbox.Write{Path: path, Content: "changed content\n"}}
	case byEdit:
		return sandbox.Op{Edit: &sandbox.Edit{Path: path, Old: "content", New: "changed"}}
	}
	return shell("mkdir -p $(dirname " + path + ") && echo changed >>" + path)
}

// agreement is one path, and what becomes of a change there.
type agreement struct {
	name  string
	path  func(p *place) string
	fresh bool // there is no file yet, so nothing to edit
	// wide is how a change ends under workspace-write.
	wide verdict
	// veiled is what a shell command may find missing where the fence covers it.
	veiled bool
	// inode names a file that the change must go to under workspace-write, when it
	// is not the path itself, relative to the workspace.
	inode string
}

func at(path string) func(*place) string { return func(*place) string { return path } }

func agreements() []agreement {
	return []agreement{
		{name: "plain", path: at("in.txt"), wide: done},
		{name: "new", path: at("new"), fresh: true, wide: done},
		{name: "new in new directories", path: at("a/b/c"), fresh: true, wide: done},
		{name: "dots that stay inside", path: at("sub/../in.txt"), wide: done, inode: "in.txt"},
		{name: "dots that lead out", path: at("../outside/old.txt"), wide: denied},
		{name: "dots behind a link that lead out", path: at("good/../../outside/old.txt"), wide: denied},
		{name: "absolute inside", path: func(p *place) string { return p.root + "/in.txt" }, wide: done, inode: "in.txt"},
		{name: "absolute outside", path: func(p *place) string { return p.outside + "/old.txt" }, wide: denied},
		{name: "new outside", path: func(p *place) string { return p.outside + "/new" }, fresh: true, wide: denied},
		{name: "link to a directory inside", path: at("good/f"), wide: done, inode: "sub/f"},
		{name: "absolute link to a directory inside", path: at("goodabs/f"), wide: done, inode: "sub/f"},
		{name: "link to a directory outside", path: at("outbox/old.txt"), wide: denied},
		{name: "new below a link outside", path: at("outbox/new"), fresh: true, wide: denied},
		{name: "link to a link outside", path: at("hop/old.txt"), wide: denied},
		{name: "link to a file inside", path: at("file"), wide: done, inode: "in.txt"},
		{name: "link to a file outside", path: at("fileout"), wide: denied},
		{name: "link to nothing inside", path: at("dangling"), fresh: true, wide: done, inode: "sub/none"},
		{name: "link to nothing outside", path: at("danglingout"), fresh: true, wide: denied},
		{name: "temp directory", path: func(p *place) string { return p.ws.Temp() + "/t" }, fresh: true, wide: done},
		{name: "hidden", path: func(p *place) string { return p.hidden + "/token" }, wide: denied, veiled: true},
		{name: "link to hidden", path: at("secret"), wide: denied, veiled: true},
	}
}

// shared is a runner for many places, which hides what is in one directory.
type shared struct {
	*sandbox.Runner

	hidden string
}

func newShared(t *testing.T, cfg sandbox.Config) shared {
	t.Helper()
	hidden := t.TempDir()
	cfg.Hidden = []string{hidden}
	r, err := sandbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return shared{r, hidden}
}

// arrange makes a place of its own.
func (r shared) arrange(t *testing.T) *place {
	t.Helper()
	base := t.TempDir()
	p := &place{
		root: filepath.Join(base, "ws"), outside: filepath.Join(base, "outside"),
		hidden: filepath.Join(r.hidden, strings.ReplaceAll(base, "/", "-")),
	}
	for _, dir := range []string{p.root + "/sub", p.outside, p.hidden} {
		mkdir(t, dir)
	}
	for path, content := range map[string]string{
		p.root + "/in.txt": "inside content\n", p.root + "/sub/f": "deep content\n",
		p.outside + "/old.txt": "outside content\n", p.outside + "/hard": "hard content\n", p.hidden + "/token": "the token content\n",
	} {
		write(t, path, content)
	}
	for name, target := range map[string]string{
		"good": "sub", "goodabs": p.root + "/sub", "outbox": p.outside, "hop": "outbox", "file": "in.txt",
		"fileout": "../outside/old.txt", "dangling": "sub/none", "danglingout": "../outside/none", "secret": p.hidden + "/token",
	} {
		if err := os.Symlink(target, filepath.Join(p.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"hard": p.outside + "/hard", "known": p.hidden + "/token"} {
		if err := os.Link(target, filepath.Join(p.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(p.root+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	ws, err := r.Workspace(p.root, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	p.ws = ws
	return p
}

// TestToolsAgree changes each path by each tool, in each home and under each mode:
// one path has one verdict.
func TestToolsAgree(t *testing.T) {
	t.Parallel()
	judged := 0
	for home, cfg := range homes() {
		r := newShared(t, cfg)
		for _, a := range agreements() {
			for _, mode := range session.SandboxModes() {
				for _, tool := range []string{byWrite, byEdit, byShell} {
					judged++
					t.Run(home+"/"+a.name+"/"+string(mode)+"/"+tool, func(t *testing.T) {
						t.Parallel()
						a.judge(t, r.arrange(t), mode, tool)
					})
				}
			}
		}
	}
	if want := 2 * 21 * 3 * 3; judged != want {
		t.Errorf("%d cases, want %d", judged, want)
	}
}

func (a agreement) judge(t *testing.T, p *place, mode session.SandboxMode, tool string) {
	t.Helper()
	path := a.path(p)
	outside := snapshot(t, p.outside) + read(t, p.hidden+"/token")
	all := snapshot(t, p.root)
	res := perform(t, p.ws, mode, changeBy(tool, path))
	want := map[session.SandboxMode]verdict{
		session.ReadOnly: denied, session.WorkspaceWrite: a.wide, session.DangerFullAccess: done,
	}[mode]
	switch {
	case want == denied:
		if !a.veiled || tool != byShell {
			wantDenied(t, res, mode)
		} else if !res.Failed {
			t.Errorf("got %+v, want a failure", res)
		}
		if diff := cmp.Diff(all, snapshot(t, p.root)); diff != "" {
			t.Errorf("a refused change left a trace (-before +after):\n%s", diff)
		}
	case a.fresh && tool == byEdit:
		if res.Code != sandbox.CodeNotFound {
			t.Errorf("edit of nothing: got %+v", res)
		}
	default:
		wantDone(t, res)
		if a.inode != "" {
			path = a.inode
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.root, path)
		}
		if got := read(t, path); !strings.Contains(got, "changed") {
			t.Errorf("%s holds %q", path, got)
		}
	}
	if mode != session.DangerFullAccess {
		if diff := cmp.Diff(outside, snapshot(t, p.outside)+read(t, p.hidden+"/token")); diff != "" {
			t.Errorf("outside changed (-before +after):\n%s", diff)
		}
	}
}

// TestHardLinksMadeBefore is where the tools differ. The file tools replace one
// name and never change the file behind the others; they do not read another name
// of a hidden file. To the kernel's fence the name in the workspace is a file of
// the workspace, so a shell command goes through it.
func TestHardLinksMadeBefore(t *testing.T) {
	t.Parallel()
	for home, cfg := range homes() {
		t.Run(home, func(t *testing.T) {
			t.Parallel()
			r := newShared(t, cfg)
			for _, tool := range []string{byWrite, byEdit} {
				for _, mode := range session.SandboxModes() {
					p := r.arrange(t)
					res := perform(t, p.ws, mode, changeBy(tool, "hard"))
					if mode == session.ReadOnly {
						wantDenied(t, res, mode)
						continue
					}
					if wantDone(t, res); !strings.Contains(res.Output, "1 other hard link(s) of the old file keep the old content") {
						t.Errorf("%s: %q does not speak of the other name", tool, res.Output)
					}
					if in, out := read(t, p.root+"/hard"), read(t, p.outside+"/hard"); !strings.Contains(in, "changed") || out != "hard content\n" {
						t.Errorf("%s under %s: inside %q, outside %q", tool, mode, in, out)
					}
				}
			}
			p := r.arrange(t)
			for _, op := range []sandbox.Op{reading("known"), changeBy(byEdit, "known")} {
				res := perform(t, p.ws, session.WorkspaceWrite, op)
				if wantDenied(t, res, session.WorkspaceWrite); strings.Contains(res.Output, "the token") {
					t.Errorf("read by another name: %q", res.Output)
				}
			}
			if res := perform(t, p.ws, session.DangerFullAccess, reading("known")); res.Output != "the token content\n" {
				t.Errorf("unconfined: got %+v", res)
			}
			wantDone(t, perform(t, p.ws, session.WorkspaceWrite, changeBy(byShell, "hard")))
			if got := read(t, p.outside+"/hard"); got != "hard content\nchanged\n" {
				t.Errorf("after the shell's change the file holds %q", got)
			}
		})
	}
}

// TestFIFOIsNoFile changes a FIFO, which a shell command may use and the file tools
// do not wait for.
func TestFIFOIsNoFile(t *testing.T) {
	t.Parallel()
	for home, cfg := range homes() {
		t.Run(home, func(t *testing.T) {
			t.Parallel()
			r := newShared(t, cfg)
			for _, mode := range session.SandboxModes() {
				p := r.arrange(t)
				want := sandbox.CodeNotRegular
				if mode == session.ReadOnly {
					want = sandbox.CodeDenied
				}
				for _, tool := range []string{byWrite, byEdit} {
					if res := perform(t, p.ws, mode, changeBy(tool, "fifo")); res.Code != want {
						t.Errorf("%s under %s: got %+v, want %s", tool, mode, res, want)
					}
				}
				if res := perform(t, p.ws, mode, sandbox.Op{Read: &sandbox.Read{Path: "fifo"}}); res.Code != sandbox.CodeNotRegular {
					t.Errorf("read under %s: got %+v", mode, res)
				}
			}
		})
	}
}
