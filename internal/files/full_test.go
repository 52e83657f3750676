//go:build linux && (amd64 || arm64)

package files_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/files"
	"github.com/entail-fleet/entail/internal/wire"
)

// fillArg makes the test binary the process that fills a disk.
const fillArg = "fill"

// fill mounts a small file system over dir and writes more than it holds.
func fill(dir string) int {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return complain(err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		return complain(err)
	}
	if err := os.WriteFile(dir+"/old", []byte("old content\n"), 0o600); err != nil {
		return complain(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return complain(err)
	}
	id, err := files.Identify(f)
	if err != nil {
		return complain(err)
	}
	s, err := files.Open(wire.Post{Bounds: wire.Bounds{MayWrite: true, Root: dir, Temp: dir}, RootID: id, TempID: id}, nil)
	if err != nil {
		return complain(err)
	}
	big := strings.Repeat("x", 1<<20)
	for _, op := range []wire.Op{writing("a/b/new", big), writing("old", big), editing("old", "content", big)} {
		p := do(s, op)
		fmt.Fprintln(os.Stdout, p.Code, p.Output)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return complain(err)
	}
	data, err := os.ReadFile(dir + "/old")
	if err != nil {
		return complain(err)
	}
	fmt.Fprintf(os.Stdout, "%d %s", len(entries), data)
	return 0
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// TestFullDiskLeavesNothingBehind writes more than a file system of its own has
// room for.
func TestFullDiskLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe", fillArg, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := string(out)
	if strings.Count(got, "no space left on device") != 3 || strings.Count(got, failed) != 3 {
		t.Errorf("the disk was not full: %s", got)
	}
	if !strings.HasSuffix(got, "\n1 old content\n") {
		t.Errorf("something was left behind: %s", got)
	}
}
