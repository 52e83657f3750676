//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

// keptCaps is what root keeps while confined: what build tools and package
// managers need on their own files. CAP_SYS_ADMIN would undo the mounts, and it
// or CAP_PERFMON alone opens /proc/PID/environ of any process past Landlock.
func keptCaps() uint64 {
	var set uint64
	for _, c := range []int{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID,
		unix.CAP_KILL, unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_NET_BIND_SERVICE,
	} {
		set |= 1 << c
	}
	return set
}

// thread is one that is never used for anything else and is not the process's first
// one. It dies with what is done on it, since it is never unlocked: whatever that does
// to the thread stays there. The first thread must stay as it is because the kernel
// takes it for the whole process when it decides who may signal or inspect the launcher.
type thread struct {
	work chan func()
	done chan struct{} // closed by the thread's goroutine
}

// newThread makes a thread. To make one takes longer than most of what a launcher does
// after its order has come, so it is made before.
func newThread() thread {
	t := thread{work: make(chan func()), done: make(chan struct{})}
	made := make(chan struct{})
	go t.run(made)
	<-made
	return t
}

func (t thread) run(made chan<- struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		other := make(chan struct{})
		go t.run(other) // this goroutine keeps the first thread occupied meanwhile
		<-other
		close(made)
		<-t.done
		return
	}
	defer close(t.done)
	close(made)
	(<-t.work)()
}

// do runs f on the thread and waits for it. It is called once.
func (t thread) do(f func()) {
	t.work <- f
	<-t.done
}

// restrict makes the calling thread, for good, what the order says. Everything it
// starts from then on is that too, and nothing else is.
func restrict(o *wire.Order, d dirs) error {
	if o.Unconfined {
		return become(o.User)
	}
	rules, err := newRuleset(o)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(rules.fd) }()
	// Paths are opened as who this is now.
	if err := rules.build(o, d.root, d.temp); err != nil {
		return err
	}
	keep := uint64(0)
	if o.User == nil && unix.Getuid() == 0 {
		keep = keptCaps()
	}
	if err := dropBounding(keep); err != nil {
		return err
	}
	if err := become(o.User); err != nil {
		return err
	}
	if err := dropCaps(keep); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := rules.enforce(); err != nil {
		return err
	}
	return filter(!o.MayWrite, o.Sockets || o.Loopback, o.Serve).install()
}

// become makes the calling thread the user, in no other group, for good. The
// functions of the standard library would do so with every thread.
func become(u *wire.User) error {
	if u == nil {
		return nil
	}
	gid, uid := uintptr(u.GID), uintptr(u.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("leave groups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("become group %d: %w", u.GID, errno)
	}
	// From root to anybody else, this drops every capability.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("become user %d: %w", u.UID, errno)
	}
	return nil
}

// dropBounding takes from the calling thread what exec could give back to it: root
// gets what the bounding set leaves, and others get nothing.
func dropBounding(keep uint64) error {
	for c := 0; ; c++ {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // past the last one
		}
		if err != nil {
			return fmt.Errorf("read bounding set: %w", err)
		}
		if held == 0 || keep&(1<<c) != 0 {
			continue
		}
		err = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		// Without CAP_SETPCAP it cannot be dropped, and need not be unless we are
		// root: no_new_privs keeps others from ever drawing on it.
		if err != nil && (unix.Getuid() == 0 || !errors.Is(err, unix.EPERM)) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

// dropCaps leaves the calling thread at most the set that is kept.
func dropCaps(keep uint64) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	for i := range data {
		half := uint32(keep >> (32 * i)) //nolint:gosec // the kernel takes the set in halves
		data[i].Effective &= half
		data[i].Permitted &= half
		data[i].Inheritable = 0
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
