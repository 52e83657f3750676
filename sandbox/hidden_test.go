//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// TestHiddenIsUnreadable looks for a hidden token by every way in, with each
// combination of fence and place.
func TestHiddenIsUnreadable(t *testing.T) {
	t.Parallel()
	type layout struct{ ws, data string }
	outside, inside, deep := layout{"ws", "data/entail"}, layout{"ws", "ws/.entail"}, layout{"ws", "ws/a/b/.entail"}
	tests := []struct {
		name string
		layout
		cfg sandbox.Config
	}{
		{"outside, rules alone", outside, sandbox.Config{}.WithBest(session.TierLandlock)},
		{"outside, mounts too", outside, sandbox.Config{}},
		{"inside", inside, sandbox.Config{}},
		{"deep inside", deep, sandbox.Config{}},
	}
	for _, tt := range tests {
		for _, mode := range []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite} {
			t.Run(tt.name+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				base := t.TempDir()
				root, data := filepath.Join(base, tt.ws), filepath.Join(base, tt.data)
				mkdir(t, root)
				mkdir(t, data)
				token := filepath.Join(data, "token")
				write(t, token, "hunter2\n")
				tt.cfg.Hidden = []string{data, token, filepath.Join(base, "not", "there")}
				ws := openWorkspace(t, tt.cfg, root)
				if strings.HasPrefix(data, root) && !here(t).namespaces {
					wantUnavailable(t, perform(t, ws, mode, shell("cat "+token)), cannotHide)
					return
				}
				for _, line := range []string{
					"cat " + token,
					"cat /proc/self/root" + token,
					"cat /proc/$PPID/root" + token,
					"cd " + data + " && cat token",
					"cd " + filepath.Dir(data) + " && cat " + filepath.Base(data) + "/token",
					"ln -s " + token + " l; cat l",
					"ln " + token + " h && cat h",
					"mv " + data + " moved && cat moved/token",
					"mv a moved && cat moved/b/.entail/token",
					"mv a/b moved && cat moved/.entail/token",
					"umount " + data + "; cat " + token,
					"grep -r hunter2 " + base,
					"echo x >" + token + " && exit 0",
				} {
					res := perform(t, ws, mode, shell(line))
					if strings.Contains(res.Output, "hunter2") || res.ExitCode == 0 {
						t.Errorf("%s: got %+v", line, res)
					}
				}
				for _, op := range []sandbox.Op{
					{Read: &sandbox.Read{Path: token}},
					{Grep: &sandbox.Grep{Pattern: "hunter2", Path: data}},
					{List: &sandbox.List{Path: data}},
					{Write: &sandbox.Write{Path: token, Content: "x"}},
					{Write: &sandbox.Write{Path: filepath.Join(data, "new"), Content: "x"}},
				} {
					wantDenied(t, perform(t, ws, mode, op), mode)
				}
				res := perform(t, ws, mode, sandbox.Op{Grep: &sandbox.Grep{Pattern: "hunter2"}})
				if strings.Contains(res.Output, "token") {
					t.Errorf("a search found it: %q", res.Output)
				}
				if got := read(t, token); got != "hunter2\n" {
					t.Errorf("the token holds %q", got)
				}
				// Unconfined it is there, so the attempts above were real.
				if res := perform(t, ws, session.DangerFullAccess, shell("cat "+token)); res.Output != "hunter2\n" {
					t.Errorf("unconfined: got %+v", res)
				}
			})
		}
	}
}

// cannotHide is what a host without namespaces says of what is inside.
const cannotHide = "choose another with --dir"

// TestWorkspaceAroundHidden checks that hiding something inside the workspace
// leaves the rest of it as usable as before.
func TestWorkspaceAroundHidden(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	data := filepath.Join(root, ".entail")
	mkdir(t, data)
	ws := openWorkspace(t, sandbox.Config{Hidden: []string{data}}, root)
	if !here(t).namespaces {
		wantUnavailable(t, perform(t, ws, session.WorkspaceWrite, shell("echo a >top")), cannotHide)
		return
	}
	wantDone(t, perform(t, ws, session.WorkspaceWrite, shell("echo a >top && mkdir dir && mv top dir/ && cat dir/top")))
	wantDone(t, perform(t, ws, session.WorkspaceWrite, sandbox.Op{Write: &sandbox.Write{Path: "new", Content: "x"}}))
	if got := read(t, filepath.Join(root, "new")); got != "x" {
		t.Errorf("new holds %q", got)
	}
}

// TestHiddenInsideFailsClosed covers the hosts and states where what is inside the
// workspace cannot be hidden.
func TestHiddenInsideFailsClosed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		make  bool
		cfg   sandbox.Config
		wants string
	}{
		{"no mount namespace", true, sandbox.Config{}.WithBest(session.TierLandlock), cannotHide},
		{"not there yet", false, sandbox.Config{}, "must exist to be hidden"},
	}
	if !here(t).namespaces {
		tests[1].wants = cannotHide
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			data := filepath.Join(root, ".entail")
			if tt.make {
				mkdir(t, data)
			}
			tt.cfg.Hidden = []string{data}
			ws := openWorkspace(t, tt.cfg, root)
			res := perform(t, ws, session.WorkspaceWrite, shell("echo x >f"))
			wantUnavailable(t, res, tt.wants)
			if _, err := os.Lstat(filepath.Join(root, "f")); err == nil {
				t.Error("the command ran")
			}
		})
	}
}

// TestHiddenInsideWithoutRoot runs the whole as an ordinary user, for whom a user
// namespace has to do.
func TestHiddenInsideWithoutRoot(t *testing.T) {
	t.Parallel()
	const nobody = 65534
	base, err := os.MkdirTemp("", "nobody-") //nolint:usetesting // t.TempDir lies below a private directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	root, data, temp := filepath.Join(base, "ws"), filepath.Join(base, "ws", ".entail"), filepath.Join(base, "tmp")
	for _, dir := range []string{root, data, temp} {
		mkdir(t, dir)
	}
	write(t, filepath.Join(data, "token"), "hunter2\n")
	self := filepath.Join(base, "self")
	copySelf(t, self)
	for _, path := range []string{base, root, data, temp, self, filepath.Join(data, "token")} {
		if os.Getuid() != 0 {
			break // this is an ordinary user already
		}
		if err := os.Chown(path, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	arg, err := json.Marshal(errand{Root: root, Hidden: []string{data}, Mode: session.WorkspaceWrite, Op: shell(
		"id -u; echo x >new; cat .entail/token; mv .entail moved; cat moved/token; cat /proc/$PPID/environ; grep Eff /proc/self/status")})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, driveArg, string(arg))
	cmd.Env = []string{secret, "TMPDIR=" + temp}
	cmd.Dir = base
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if here(t).users {
		if !strings.Contains(string(out), `CapEff:\t0000000000000000`) || strings.Contains(string(out), "hunter2") {
			t.Errorf("got %s", out)
		}
		if got := read(t, filepath.Join(root, "new")); got != "x\n" {
			t.Errorf("new holds %q", got)
		}
	} else if !strings.Contains(string(out), cannotHide) {
		t.Errorf("got %s, want %q", out, cannotHide)
	}
	if got := read(t, filepath.Join(data, "token")); got != "hunter2\n" {
		t.Errorf("the token holds %q", got)
	}
}

// copySelf writes this test's binary to a file that is to be executed. While it is
// open for writing no other test may fork: its child would hold the descriptor
// until it executes, and the file be busy as long (golang/go#22315).
func copySelf(t *testing.T, to string) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}
