//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/internal/wire"
)

// shmDir holds POSIX shared memory. A call in namespaces has one of its own.
const shmDir = "/dev/shm"

// shmSize bounds it.
const shmSize = "64m"

// separate makes the namespaces that this process was born into what a call may
// see: every file system read-only but for the islands that it may write, its own
// processes alone, and nothing where something is hidden.
func separate(o *wire.Order) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	islands, err := lift(o)
	if err != nil {
		return err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make mounts read-only: %w", err)
	}
	for _, is := range islands {
		if err := is.drop(); err != nil {
			return err
		}
	}
	if err := private(o); err != nil {
		return err
	}
	if err := hide(o); err != nil {
		return err
	}
	if o.Loopback {
		return raiseLoopback()
	}
	return nil
}

// island is a copy of a writable tree of mounts, taken from them before they became
// read-only. What was mounted read-only in it stays so.
type island struct {
	path string
	fd   int
}

// lift copies the trees that the order lets a call write.
func lift(o *wire.Order) ([]island, error) {
	if !o.MayWrite {
		return nil, nil
	}
	var all []island
	for _, path := range []string{o.Root, o.Temp} {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return nil, fmt.Errorf("copy the mounts of %s: %w", path, err)
		}
		all = append(all, island{path, fd})
	}
	return all, nil
}

// drop puts the copy where it was taken.
func (is island) drop() error {
	if err := unix.MoveMount(is.fd, "", unix.AT_FDCWD, is.path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", is.path, err)
	}
	return unix.Close(is.fd)
}

// private mounts what is a call's own: its processes, and its shared memory if it
// may write at all.
func private(o *wire.Order) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if !o.MayWrite {
		return nil
	}
	err := unix.Mount("shm", shmDir, "tmpfs", flags, "mode=1777,size="+shmSize)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount %s: %w", shmDir, err)
	}
	return nil
}

// raiseLoopback brings up the only interface of a network namespace.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	return nil
}

// hide covers the order's hidden paths: a directory by an empty read-only file
// system, a file by /dev/null. A mount point can be neither renamed nor removed, so
// a directory between the workspace root and a hidden path is made one too: else a
// command could move it aside with its content and a later call would find the
// content under another name.
func hide(o *wire.Order) error {
	for _, path := range o.Hidden {
		for _, dir := range between(o.Root, path) {
			if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
				return fmt.Errorf("pin %s: %w", dir, err)
			}
		}
		err := cover(path)
		if errors.Is(err, os.ErrNotExist) && !paths.Within(path, o.Root) {
			continue // the sibling rules keep it unreadable should it appear
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cover puts nothing in the place of path.
func cover(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if info.IsDir() {
		err = unix.Mount("none", path, "tmpfs", flags, "size=4k,mode=0555")
	} else {
		err = unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}

// between lists the directories below root on the way to path, without either.
func between(root, path string) []string {
	rel, ok := strings.CutPrefix(path, root+"/")
	if !ok {
		return nil
	}
	var dirs []string
	parts := strings.Split(rel, "/")
	for i := 1; i < len(parts); i++ {
		dirs = append(dirs, filepath.Join(root, filepath.Join(parts[:i]...)))
	}
	return dirs
}
