//go:build linux && (amd64 || arm64)

package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileAttempts change what lies outside.
func fileAttempts() []Attempt {
	return []Attempt{
		{"fs/write", func(t *Target) error { return overwrite(t.out(File)) }},
		{"fs/truncate-by-opening", func(t *Target) error { return open(t.out(File), unix.O_RDONLY|unix.O_TRUNC) }},
		{"fs/truncate", func(t *Target) error { return unix.Truncate(t.out(File), 0) }},
		{"fs/create", func(t *Target) error { return open(t.out("new"), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL) }},
		{"fs/create-without-name", createWithoutName},
		{"fs/make-directory", func(t *Target) error { return unix.Mkdir(t.out("new"), 0o700) }},
		{RemoveDirectory, func(t *Target) error { return unix.Rmdir(t.out(Empty)) }},
		{"fs/remove", func(t *Target) error { return unix.Unlink(t.out(File)) }},
		{"fs/make-symlink", func(t *Target) error { return unix.Symlink(File, t.out("new")) }},
		{"fs/make-fifo", func(t *Target) error { return unix.Mkfifo(t.out("new"), 0o600) }},
		{"fs/link-in-and-write", linkInAndWrite},
		{"fs/link-out", func(t *Target) error { return unix.Link(t.in(File), t.out("new")) }},
		{"fs/rename-over", func(t *Target) error { return unix.Rename(t.in(File), t.out(File)) }},
		{"fs/rename-in", func(t *Target) error { return unix.Rename(t.out(File), t.in("new")) }},
		{"fs/exchange", exchange},
		{LinkWrite, func(t *Target) error { return overwrite(t.in(ToFile)) }},
		{LinkedDirWrite, func(t *Target) error { return overwrite(filepath.Join(t.in(ToDir), File)) }},
		{"fs/write-by-dots", writeByDots},
		{HardWrite, func(t *Target) error { return overwrite(t.in(Hard)) }},
		{BoundWrite, func(t *Target) error { return overwrite(filepath.Join(t.in(Bound), File)) }},
		{"fs/write-by-own-root", func(t *Target) error { return overwrite("/proc/self/root" + t.out(File)) }},
		{"fs/write-by-victims-root", func(t *Target) error { return overwrite(t.victim("root") + t.out(File)) }},
		{"fs/chmod-by-victims-root", func(t *Target) error { return unix.Chmod(t.victim("root")+t.out(File), 0o600) }},
		{"fs/write-by-victims-cwd", func(t *Target) error { return overwrite(filepath.Join(t.victim("cwd"), t.Name, File)) }},
		{HeldWrite, func(t *Target) error { return overwrite(fmt.Sprintf("%s/%d", t.victim("fd"), VictimFD)) }},
		{"fs/open-by-handle", openByHandle},
	}
}

func (t *Target) victim(name string) string { return fmt.Sprintf("/proc/%d/%s", t.Victim, name) }

// overwrite opens what exists and writes to it.
func overwrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close())
}

// open opens and closes.
func open(path string, flags int) error {
	return closed(unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600))
}

func createWithoutName(t *Target) error {
	fd, err := unix.Open(t.out(""), unix.O_TMPFILE|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, t.out("new"), unix.AT_SYMLINK_FOLLOW)
}

func linkInAndWrite(t *Target) error {
	if err := unix.Link(t.out(File), t.in("new")); err != nil {
		return err
	}
	return overwrite(t.in("new"))
}

func exchange(t *Target) error {
	return unix.Renameat2(unix.AT_FDCWD, t.in(File), unix.AT_FDCWD, t.out(File), unix.RENAME_EXCHANGE)
}

// writeByDots goes up from the workspace.
func writeByDots(t *Target) error {
	rel, err := filepath.Rel(t.in(""), t.out(File))
	if err != nil {
		return err
	}
	return overwrite(t.in("") + "/" + rel)
}

func openByHandle(t *Target) error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, t.out(File), 0)
	if err != nil {
		return err
	}
	dir, err := unix.Open(t.out(""), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	fd, err := unix.OpenByHandleAt(dir, handle, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte("x"))
	return err
}

// descriptorAttempts use what the worker leaked.
func descriptorAttempts() []Attempt {
	return []Attempt{
		{"fd/open-below-directory", inherited(func(fd int) error {
			below, err := unix.Openat(fd, File, unix.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = unix.Write(below, []byte("x"))
			return err
		})},
		{"fd/reopen-for-writing", inherited(func(fd int) error { return overwrite(fmt.Sprintf("/proc/self/fd/%d", fd)) })},
		{"fd/write", inherited(func(fd int) error { _, err := unix.Write(fd, []byte("x")); return err })},
		{"fd/truncate", inherited(func(fd int) error { return unix.Ftruncate(fd, 0) })},
		{"fd/chmod", inherited(func(fd int) error { return unix.Fchmod(fd, 0o600) })},
	}
}

func inherited(use func(fd int) error) func(*Target) error {
	return func(t *Target) error {
		fd := Leaks()[t.Name].FD
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return err
		}
		return use(fd)
	}
}

// readAttempts read what is nobody's secret but root's.
func readAttempts() []Attempt {
	return []Attempt{
		{"read/shadow", func(*Target) error { return open("/etc/shadow", unix.O_RDONLY) }},
		{"read/outside", func(t *Target) error { return find(t.out(File), Content) }},
	}
}

// find reads path and looks for what is wanted.
func find(path, want string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !contains(data, want) {
		return errNothing
	}
	return nil
}
