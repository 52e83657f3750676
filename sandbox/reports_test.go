//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// What is created inside the workspace is inside, however the workspace is spelled,
// and though the temp directory is a link. A path that is not absolute is refused here;
// commands make theirs absolute.
func TestB3_NewFilesAreInsideHoweverTheRootIsSpelled(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{"real", "x", "tmp"} {
		mkdir(t, filepath.Join(base, dir))
	}
	for name, target := range map[string]string{"link": "real", "linked-tmp": "tmp"} {
		if err := os.Symlink(target, filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(base, "linked-tmp"))
	root := filepath.Join(base, "real")
	for i, spelled := range []string{base + "/link", base + "/real/", root + "/.", base + "/x/../real", base + "/link/"} {
		ws := openWorkspace(t, sandbox.Config{}, spelled)
		for _, name := range []string{fmt.Sprintf("out%d.txt", i), fmt.Sprintf("a%d/b/c.txt", i)} {
			for step, op := range []sandbox.Op{
				{Write: &sandbox.Write{Path: name, Content: "old\n"}},
				{Edit: &sandbox.Edit{Path: name, Old: "old", New: "new"}},
				shell("echo more >>" + name + ` && echo x >"$TMPDIR/f"`),
			} {
				res := perform(t, ws, session.WorkspaceWrite, op)
				if wantDone(t, res); step < 2 && strings.Contains(res.Output, "link") {
					t.Errorf("root %s: %q does not name the file as it is", spelled, res.Output)
				}
			}
			if got := read(t, filepath.Join(root, name)); got != "new\nmore\n" {
				t.Errorf("root %s: %s holds %q", spelled, name, got)
			}
		}
	}
}

// Another name by way of /proc is no other file: the worker's environment, and what
// is hidden, are read under none.
func TestB4_NamesInProcLeadNowhereElse(t *testing.T) {
	const canary = "canary-in-the-workers-environment"
	t.Setenv("ENTAIL_TEST_CANARY", canary)
	p := newPlace(t)
	names := map[string]string{ // all of these are denied to the file tools
		"hidden":       p.hidden + "/token",
		"root":         "/proc/self/root" + p.hidden + "/token",
		"cwd":          "/proc/self/cwd/../data/entail/token",
		"environ":      "/proc/self/environ",
		"environ-root": fmt.Sprintf("/proc/self/root/proc/%d/environ", os.Getpid()),
		"worker":       fmt.Sprintf("/proc/%d/environ", os.Getpid()),
		"descriptor":   "/proc/self/fd/3",
	}
	for name, target := range names {
		if err := os.Symlink(target, filepath.Join(p.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, mode := range []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite} {
		for name, target := range names {
			for _, path := range []string{target, name} {
				res := perform(t, p.ws, mode, sandbox.Op{Read: &sandbox.Read{Path: path}})
				if wantDenied(t, res, mode); leaks(res, canary) {
					t.Errorf("read of %s under %s: %+v", path, mode, res)
				}
				// A command sees its own environment and descriptors by these names.
				if res := perform(t, p.ws, mode, shell("timeout 5 cat "+path+" </dev/null | tr '\\0' '\\n'")); leaks(res, canary) {
					t.Errorf("cat %s under %s: %+v", path, mode, res)
				}
			}
		}
	}
	// What was sought is there.
	if !strings.Contains(read(t, p.hidden+"/token"), "the token") || os.Getenv("ENTAIL_TEST_CANARY") != canary {
		t.Error("there is nothing to leak")
	}
}

func leaks(res sandbox.Result, canary string) bool {
	return strings.Contains(res.Output, canary) || strings.Contains(res.Output, "the token")
}

// What a workspace has git run is run in the fence of the call that runs git. A worker
// itself runs no git, nor any other program that a workspace could choose.
func TestB5_ProgramsOfAWorkspaceStayInItsFence(t *testing.T) {
	t.Parallel()
	if !*withPrograms {
		t.Log("NOT RUN: make programs runs it")
		return
	}
	const gitActions = `
		cd r; export GIT_PAGER=cat; echo two >>f; echo "f filter=trap" >.gitattributes
		git status; git diff; git add .; git commit -m second; true`
	p := newPlace(t)
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, shell("set -e"+repository+`
		printf '#!/bin/sh\necho ran >>ran 2>/dev/null; echo ran >>'"`+p.root+`"'/ran; echo x >"`+p.outside+`/canary"\nexec cat\n' >trap; chmod +x trap
		mkdir hooks; cp trap hooks/pre-commit
		git config core.hooksPath hooks; git config core.fsmonitor ./trap; git config diff.external ./trap; git config filter.trap.clean ./trap`)))
	before := snapshot(t, p.outside)
	for _, mode := range []session.SandboxMode{session.WorkspaceWrite, session.ReadOnly} {
		perform(t, p.ws, mode, shell(gitActions)) // how it ends is git's affair
		for _, op := range []sandbox.Op{
			{List: &sandbox.List{Path: "r"}},
			{Glob: &sandbox.Glob{Pattern: "r/*"}},
			{Grep: &sandbox.Grep{Path: "r", Pattern: "one"}},
			{Read: &sandbox.Read{Path: "r/f"}},
		} {
			wantDone(t, perform(t, p.ws, mode, op))
		}
	}
	if diff := cmp.Diff(before, snapshot(t, p.outside)); diff != "" {
		t.Errorf("outside changed (-before +after):\n%s", diff)
	}
	if got := read(t, p.root+"/ran"); strings.Count(got, "ran") < 3 {
		t.Errorf("git ran %q: it shows nothing", got)
	}
	// Without a fence they do their harm.
	perform(t, p.ws, session.DangerFullAccess, shell(gitActions))
	if _, err := os.Lstat(p.outside + "/canary"); err != nil {
		t.Errorf("not even unconfined: %v", err)
	}
}

// A linked worktree has its git directory outside of the workspace: a commit there is
// a denial that names it, and with the repository inside it works.
func TestB6_ALinkedWorktreeIsADenialThatSaysWhere(t *testing.T) {
	t.Parallel()
	if !*withPrograms {
		t.Log("NOT RUN: make programs runs it")
		return
	}
	base := t.TempDir()
	r := openWorkspace(t, sandbox.Config{}, base)
	wantDone(t, perform(t, r, session.WorkspaceWrite, shell("set -e"+repository+"git worktree add -q ../w -b side; echo two >../w/g")))
	before := snapshot(t, base)
	w := openWorkspace(t, sandbox.Config{}, filepath.Join(base, "w"))
	for _, line := range []string{"git add g", "git commit -qam second"} {
		res := perform(t, w, session.WorkspaceWrite, shell(line))
		if wantDenied(t, res, session.WorkspaceWrite); !strings.Contains(res.Output, filepath.Join(base, "r", ".git")) {
			t.Errorf("%s: %q does not name the git directory", line, res.Output)
		}
	}
	if diff := cmp.Diff(before, snapshot(t, base)); diff != "" {
		t.Errorf("a denied commit left a trace (-before +after):\n%s", diff)
	}
	wantDone(t, perform(t, r, session.WorkspaceWrite, shell("cd w && git add g && git commit -qm second")))
}

// A call whose worker is killed in the middle leaves nothing in its workspace.
func TestB8_AKilledCallLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite} {
		root := t.TempDir()
		before := snapshot(t, root)
		driver := startDriver(t, errand{Root: root, Mode: mode, Op: shell("exec sleep 1000")})
		eventually(t, "the command runs", func() bool { return runs(t, root, "sleep") })
		if err := driver.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = driver.Wait() // it was killed
		eventually(t, "nothing of the call is left", func() bool { return len(alive(t, root)) == 0 })
		if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
			t.Errorf("%s left something (-before +after):\n%s", mode, diff)
		}
	}
}

// runs reports whether a call in a workspace executes a program.
func runs(t *testing.T, root, name string) bool {
	t.Helper()
	for _, pid := range alive(t, root) {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(comm) == name+"\n" {
			return true
		}
	}
	return false
}
