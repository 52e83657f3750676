//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

//go:generate go run ../internal/mklauncher

// embedded returns the launcher. It is made once, by whoever needs it first, and stays
// for as long as this process lives.
var embedded = sync.OnceValues(func() (program, error) {
	f, err := sealed(launcherBinary)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		// vm.memfd_noexec, or a container's profile.
		f, err = nameless(launcherBinary)
	}
	if err != nil {
		return program{}, fmt.Errorf("make the launcher's binary: %w", err)
	}
	return programIn(f), nil
})

// programIn is the program in an open file.
func programIn(f *os.File) program {
	return program{path: descriptorPath(int(f.Fd())), file: f}
}

func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// runBy has cmd start the program, with its control socket. A file without a name is
// handed down: a child moves its descriptors about before it executes a program, and
// can lose the one that this process knows the file by.
func (p program) runBy(cmd *exec.Cmd, control *os.File) {
	cmd.Path, cmd.ExtraFiles = p.path, []*os.File{control}
	if p.file != nil {
		cmd.Path, cmd.ExtraFiles = descriptorPath(wire.ControlFD+1), append(cmd.ExtraFiles, p.file)
	}
}

// sealed returns a file in memory that nobody can change any more.
func sealed(binary string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(wire.LauncherName, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 every such file may be executed
		fd, err = unix.MemfdCreate(wire.LauncherName, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), wire.LauncherName)
	if _, err := f.WriteString(binary); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("seal a file in memory: %w", err), f.Close())
	}
	return f, nil
}

// nameless returns a file of the temp directory that has lost its name.
func nameless(binary string) (_ *os.File, err error) {
	dir, err := os.MkdirTemp("", wire.LauncherName+"-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "launcher")
	if err := writeProgram(path, binary); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// writeProgram holds off every fork meanwhile: a child that was born with the open
// file would keep it from being executed.
func writeProgram(path, binary string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(binary), 0o555) //nolint:gosec // a tree's own user executes it, too
}
