//go:build linux && (amd64 || arm64)

package attack

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaceAttempts change what a process sees, to see or reach more.
func namespaceAttempts() []Attempt {
	return []Attempt{
		{"ns/mount", func(t *Target) error { return mountAndUndo("none", t.in(""), "tmpfs", 0) }},
		{"ns/mount-outside-in", func(t *Target) error { return mountAndUndo(t.out(""), t.in(""), "", unix.MS_BIND) }},
		{"ns/remount-writable", func(*Target) error {
			return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		}},
		{Unmount, func(t *Target) error { return unix.Unmount(t.out(Bound), 0) }},
		{"ns/open-file-system", func(*Target) error { _, err := unix.Fsopen("tmpfs", 0); return err }},
		{"ns/clone-tree", func(t *Target) error {
			_, err := unix.OpenTree(unix.AT_FDCWD, t.out(""), unix.OPEN_TREE_CLONE)
			return err
		}},
		{"ns/unshare-mounts", func(*Target) error { return onThread(func() error { return unix.Unshare(unix.CLONE_NEWNS) }) }},
		{"ns/clone-user-and-write", cloneAndWrite},
		{"ns/join-victims-mounts", joinMounts},
		{"ns/change-root", func(t *Target) error { return unix.Chroot(t.in("")) }},
	}
}

func mountAndUndo(source, target, kind string, flags uintptr) error {
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		return err
	}
	return unix.Unmount(target, unix.MNT_DETACH)
}

// onThread runs f on a thread that dies with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// cloneAndWrite starts a process in a user namespace, where it has every
// capability, to mount the outside over the workspace and write.
func cloneAndWrite(t *Target) error {
	attr := &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	p, err := start(self, []*os.File{nil, nil, os.Stderr}, attr, cloneArg, t)
	if err != nil {
		return err
	}
	return finish(p)
}

// mountAndWrite is what the process of cloneAndWrite does.
func mountAndWrite(t *Target) error {
	if err := unix.Mount(t.out(""), t.in(""), "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return overwrite(t.in(File))
}

func joinMounts(t *Target) error {
	ns, err := unix.Open(t.victim("ns/mnt"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(onThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		return unix.Setns(ns, unix.CLONE_NEWNS)
	}), unix.Close(ns))
}
