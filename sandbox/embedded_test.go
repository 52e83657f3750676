//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// The launcher that is embedded is the one whose source stands beside it.
func TestLauncherIsBuiltFromItsSource(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "run", "../internal/mklauncher", "-check", "-arch", runtime.GOARCH).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Nobody who reaches the launcher's binary through this process can change what the
// next call is started with.
func TestLauncherIsSealed(t *testing.T) {
	t.Parallel()
	path, err := sandbox.Launcher()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const want = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || got&want != want {
		t.Errorf("the seals are %#x, %v, want %#x", got, err, want)
	}
}

// Where files in memory may not be executed the launcher is a file without a name,
// under the same fence, and nothing of it is left to be found.
func TestLauncherWithoutFilesInMemory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	p := newPlace(t)
	cfg, f, err := sandbox.Config{Hidden: []string{p.hidden}}.WithNamelessLauncher()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "entail-sandbox-launcher*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	ws := openWorkspace(t, cfg, p.root)
	wantDone(t, perform(t, ws, session.WorkspaceWrite, shell("echo x >f")))
	wantDone(t, perform(t, ws, session.WorkspaceWrite, sandbox.Op{Write: &sandbox.Write{Path: "g", Content: "x"}}))
	wantDenied(t, perform(t, ws, session.WorkspaceWrite, shell("echo x >../outside/f")), session.WorkspaceWrite)
}

// A call starts whatever numbers its descriptors have. A child moves the pipe by which
// it says why it cannot execute a program to above the highest number that it is given.
func TestLauncherAmongManyDescriptors(t *testing.T) {
	t.Parallel()
	const above = 500 // what other tests have open meanwhile
	if err := sandbox.StartFrom(above); err != nil {
		t.Error(err)
	}
}
