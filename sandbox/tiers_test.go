//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// ofRoot reports whether this is root, which alone can switch users. The tests of the
// project run as root.
func ofRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("NOT RUN: only root can switch users")
		return false
	}
	return true
}

// grove is a directory that every user can reach, in which trees have workspaces.
type grove struct {
	t    *testing.T
	base string
}

func newGrove(t *testing.T) grove {
	t.Helper()
	base, err := os.MkdirTemp("", "entail-grove-") //nolint:usetesting // t.TempDir lies below a private directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o711); err != nil {
		t.Fatal(err)
	}
	return grove{t, base}
}

// dir makes a directory.
func (g grove) dir(name string) string {
	g.t.Helper()
	path := filepath.Join(g.base, name)
	mkdir(g.t, path)
	return path
}

// runner tries no stronger tier than the one that is asked for, which must be had.
func runner(t *testing.T, best session.Tier) *sandbox.Runner {
	t.Helper()
	r, err := sandbox.New(sandbox.Config{}.WithBest(best))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (g grove) open(r *sandbox.Runner, root string, tree session.ID) *sandbox.Workspace {
	g.t.Helper()
	ws, err := r.Workspace(root, tree)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			g.t.Error(err)
		}
	})
	return ws
}

const (
	oak  session.ID = "0101m8qt5k73k9zm365q9kym9qc3"
	pine session.ID = "0101m8qt5k73k9zm365q9kym9qc4"
)

func userOf(tree session.ID) int { return int(policy.DefaultConfinement().UIDs.Of(tree)) }

func owner(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid) //nolint:forcetypeassert // this is Linux
}

// What each tier says of itself is what it is, for a directory that is the tree's and
// for one that is not.
func TestTiersSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	for _, tt := range []struct {
		best   session.Tier
		filled bool // with somebody's files: not given to the tree
		tier   session.Tier
		degree session.Enforcement
		chmod  bool // whether an outside file's mode can be changed under workspace-write
		asTree bool
	}{
		{session.TierNamespaces, false, session.TierNamespaces, session.EnforcedFully, false, true},
		{session.TierNamespaces, true, session.TierNamespaces, session.EnforcedFully, false, false},
		{session.TierUID, false, session.TierUID, session.EnforcedFully, false, true},
		{session.TierUID, true, session.TierLandlock, session.EnforcedPartly, true, false},
		{session.TierLandlock, false, session.TierLandlock, session.EnforcedPartly, true, false},
	} {
		if !here(t).namespaces && tt.best == session.TierNamespaces {
			tt.tier = session.TierUID // as with the next best
			if tt.filled {
				tt.tier, tt.degree, tt.chmod = session.TierLandlock, session.EnforcedPartly, true
			}
		}
		t.Run(fmt.Sprintf("%s filled %t", tt.best, tt.filled), func(t *testing.T) {
			t.Parallel()
			g := newGrove(t)
			root, outside := g.dir("ws"), filepath.Join(g.base, "outside")
			write(t, outside, "")
			if tt.filled {
				write(t, filepath.Join(root, "mine"), "")
			}
			ws := g.open(runner(t, tt.best), root, oak)
			res := perform(t, ws, session.WorkspaceWrite, shell("id -u >id; chmod 604 ../outside 2>/dev/null; cat id"))
			wantDone(t, res)
			if s := res.Sandbox; s.Tier != tt.tier || s.Enforcement != tt.degree || s.Mode != session.WorkspaceWrite {
				t.Errorf("it ran under %+v", s)
			}
			if said := fmt.Sprint(res.Sandbox.Gaps); strings.Contains(said, "metadata") != tt.chmod {
				t.Errorf("the gaps are %s", said)
			}
			info, err := os.Lstat(outside)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm() == 0o604; got != tt.chmod {
				t.Errorf("an outside file's mode was changed: %t, want %t", got, tt.chmod)
			}
			want := os.Geteuid()
			if tt.asTree {
				want = userOf(oak)
			}
			if got := strings.TrimSpace(res.Output); got != strconv.Itoa(want) {
				t.Errorf("it ran as user %s, want %d", got, want)
			}
			if got := owner(t, filepath.Join(root, "id")); got != want {
				t.Errorf("what it wrote belongs to %d, want %d", got, want)
			}
		})
	}
}

// Parent and child work on each other's files, under every mode, by commands and by
// file tools; no other tree can.
func TestATreeSharesItsUser(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	g := newGrove(t)
	root := g.dir("ws")
	for _, best := range []session.Tier{session.TierUID, session.TierNamespaces} {
		r := runner(t, best)
		parent, child := g.open(r, root, oak), g.open(r, root, oak)
		wantDone(t, perform(t, parent, session.WorkspaceWrite, shell("umask 077; echo a >f; mkdir -p d")))
		wantDone(t, perform(t, child, session.WorkspaceWrite, sandbox.Op{Edit: &sandbox.Edit{Path: "f", Old: "a", New: "b"}}))
		wantDone(t, perform(t, child, session.DangerFullAccess, shell("grep b f && echo c >f && echo x >d/g")))
		wantDone(t, perform(t, parent, session.WorkspaceWrite, shell("grep c f && grep x d/g && rm -r d && chmod 600 f")))
		stranger := g.open(r, g.dir("other-"+string(best)), pine)
		for _, mode := range session.SandboxModes() {
			for _, line := range []string{"cat ../ws/f", "echo x >../ws/f", "chmod 666 ../ws/f", "rm ../ws/f"} {
				if res := perform(t, stranger, mode, shell(line)); res.ExitCode == 0 {
					t.Errorf("another tree did %q under %s: %+v", line, mode, res)
				}
			}
		}
		if got := read(t, filepath.Join(root, "f")); got != "c\n" {
			t.Errorf("f holds %q", got)
		}
	}
}

// Two workers give a tree the same user.
func TestEveryWorkerGivesATreeTheSameUser(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	g := newGrove(t)
	root := g.dir("ws")
	for range 2 {
		ws := g.open(runner(t, session.TierUID), root, oak)
		res := perform(t, ws, session.WorkspaceWrite, shell("id -u; id -g; id -G"))
		if want := strings.Repeat(fmt.Sprintln(userOf(oak)), 3); res.Output != want {
			t.Errorf("got %q, want %q", res.Output, want)
		}
	}
}

// A danger-full-access call runs as the tree's user, whoever owns the workspace,
// unless the deployment says otherwise.
func TestFullAccessIsNotTheWorkers(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	g := newGrove(t)
	root := g.dir("ws")
	write(t, filepath.Join(root, "mine"), "")
	write(t, filepath.Join(g.base, "key"), "the key")
	if err := os.Chmod(filepath.Join(g.base, "key"), 0o600); err != nil {
		t.Fatal(err)
	}
	ws := g.open(runner(t, session.TierNamespaces), root, oak)
	res := perform(t, ws, session.DangerFullAccess, shell("id -u; cat ../key; cat /proc/$PPID/environ; echo x >mine"))
	if !strings.HasPrefix(res.Output, fmt.Sprintln(userOf(oak))) || strings.Contains(res.Output, "the key") || res.ExitCode == 0 {
		t.Errorf("got %+v", res)
	}
	if !strings.Contains(res.Output, "confinement.fullAccessAs") {
		t.Errorf("nothing says why it may not write: %+v", res)
	}
	if s := res.Sandbox; s.Tier != session.TierNone || s.Enforcement != session.NotEnforced || s.Network != session.NetworkAllow || len(s.Gaps) > 0 {
		t.Errorf("it ran under %+v", s)
	}
	terms := policy.DefaultConfinement()
	terms.FullAccessAs = policy.AsWorker
	res, err := ws.PerformOn(t.Context(), session.DangerFullAccess, terms, shell("id -u; cat ../key"))
	if err != nil || res.Output != "0\nthe key" {
		t.Errorf("as the worker: got %+v, %v", res, err)
	}
}

// A deployment can refuse what is weaker than it wants.
func TestRequireRefusesWeakerTiers(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	for _, best := range session.Tiers() {
		for _, require := range session.Tiers() {
			g := newGrove(t)
			ws := g.open(runner(t, best), g.dir("ws"), oak)
			terms := policy.DefaultConfinement()
			terms.Require = require
			res, err := ws.PerformOn(t.Context(), session.WorkspaceWrite, terms, shell("echo x >f"))
			if err != nil {
				t.Fatal(err)
			}
			refused := res.Code == sandbox.CodeUnavailable && strings.Contains(res.Output, "confinement.require")
			if want := here(t).best(best).Weaker(require); refused != want {
				t.Errorf("%s where %s is required: got %+v", best, require, res)
			}
			if _, err := os.Lstat(filepath.Join(ws.Root(), "f")); errors.Is(err, os.ErrNotExist) != refused {
				t.Errorf("%s where %s is required: the file: %v", best, require, err)
			}
		}
	}
}

// The network is all or nothing, but for a network of the call's own.
func TestNetworkIsAKnobOfItsOwn(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	const (
		inet  = `exec 3<>/dev/udp/127.0.0.1/9 && echo inet`
		serve = `timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/1' 2>&1 | grep -o 'Connection refused' | sort -u`
	)
	workers, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range session.Tiers() {
		for network, want := range map[session.Network]string{
			session.NetworkDeny: "", session.NetworkLoopback: "inet\nConnection refused\n", session.NetworkAllow: "inet\nConnection refused\n",
		} {
			g := newGrove(t)
			ws := g.open(runner(t, tier), g.dir("ws"), oak)
			terms := policy.DefaultConfinement()
			terms.Network.WorkspaceWrite = network
			res, err := ws.PerformOn(t.Context(), session.WorkspaceWrite, terms, shell("("+inet+") 2>/dev/null; "+serve+"; true"))
			if err != nil {
				t.Fatal(err)
			}
			if network == session.NetworkLoopback && here(t).best(tier) != session.TierNamespaces {
				if res.Code != sandbox.CodeUnavailable || !strings.Contains(res.Output, "confinement.network") {
					t.Errorf("%s %s: got %+v", tier, network, res)
				}
				continue
			}
			if res.Output != want || res.Sandbox.Network != network {
				t.Errorf("%s %s: got %+v, want output %q", tier, network, res, want)
			}
			res, err = ws.PerformOn(t.Context(), session.WorkspaceWrite, terms, shell("readlink /proc/self/ns/net"))
			if own := strings.TrimSpace(res.Output) != workers; err != nil || res.Failed || own != (network == session.NetworkLoopback) {
				t.Errorf("%s %s: a network of its own: %+v, %v", tier, network, res, err)
			}
		}
	}
}

// What a call without a fence reaches, as its tree's user and as the worker's.
// SECURITY.md has this table.
func TestWhatFullAccessReaches(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	g := newGrove(t)
	write(t, filepath.Join(g.base, "key"), "")
	write(t, filepath.Join(g.base, "public"), "")
	if err := os.Chmod(filepath.Join(g.base, "key"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := runner(t, session.TierUID)
	ws, other := g.open(r, g.dir("ws"), oak), g.open(r, g.dir("other"), pine)
	wantDone(t, perform(t, other, session.WorkspaceWrite, shell("echo x >shown; (umask 077; echo x >kept)")))
	worker := strconv.Itoa(os.Getpid())
	for _, tt := range []struct {
		what, line string
		tree       bool // whether its tree's user reaches it; the worker's user always does
	}{
		{"its own workspace", "echo x >f", true},
		{"a file that everybody may read", "cat ../public", true},
		{"a file of the worker's that others may not read", "cat ../key", false},
		{"a file of the worker's that others may read, to change it", "echo x >>../public", false},
		{"another tree's file that everybody may read", "cat ../other/shown", true},
		{"another tree's file that others may not read", "cat ../other/kept", false},
		{"another tree's file, to change it", "echo y >>../other/shown", false},
		{"the worker's environment", "cat /proc/" + worker + "/environ", false},
		{"the worker's memory", "head -c 0 /proc/" + worker + "/mem", false},
		{"the worker, to signal it", "kill -0 " + worker, false},
		{"the network", "exec 3<>/dev/udp/127.0.0.1/9", true},
	} {
		for _, as := range []policy.FullAccessUser{policy.AsTree, policy.AsWorker} {
			terms := policy.DefaultConfinement()
			terms.FullAccessAs = as
			res, err := ws.PerformOn(t.Context(), session.DangerFullAccess, terms, shell(tt.line))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := res.ExitCode == 0, tt.tree || as == policy.AsWorker; got != want {
				t.Errorf("%s, as the %s: reached %t, want %t: %+v", tt.what, as, got, want, res)
			}
		}
	}
}
