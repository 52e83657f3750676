//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

// kind is what of a launcher is settled by its birth. All else comes with the order.
type kind struct {
	spaces namespaces
	net    bool // a network namespace
}

// kindOf is the kind of launcher that an order is for.
func (r *Runner) kindOf(o *wire.Order) kind {
	if !o.Namespaces {
		return kind{}
	}
	return kind{spaces: r.host.spaces, net: o.Loopback}
}

// attr is how a launcher of the kind is started.
func (k kind) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if k.spaces == noNamespaces {
		return attr
	}
	attr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC
	if k.net {
		attr.Cloneflags |= unix.CLONE_NEWNET
	}
	if k.spaces == userNamespaces {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN} // dropped before the command starts
	}
	return attr
}

// launcher is a process of the launcher's binary. It waits for its order, or
// carries it out. No goroutine is about one that waits.
type launcher struct {
	cmd  *exec.Cmd
	conn *net.UnixConn // the control socket
	// out and errs are what it writes, when its streams are not the caller's own.
	out, errs *os.File
	// mounts tells whether those of this process have changed since the launcher was
	// born with a copy of them; nil without a copy.
	mounts *mountWatch
	ends   *sync.WaitGroup // of those that were left
}

// bear starts a launcher, on the caller's streams if there are any.
func (r *Runner) bear(k kind, s *Streams) (_ *launcher, err error) {
	// Not where this process works: that may be gone by the time of the order.
	l := &launcher{ends: &r.ends, cmd: &exec.Cmd{
		Args: []string{wire.LauncherName}, Env: wire.LauncherEnv(), Dir: "/", WaitDelay: pipeGrace, SysProcAttr: k.attr(),
	}}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			l.close()
			err = fmt.Errorf("%w: start launcher: %w", ErrNotStarted, err)
		}
	}()
	conn, control, err := socketPair()
	if err != nil {
		return nil, err
	}
	l.conn, theirs = conn, append(theirs, control)
	r.launcher.runBy(l.cmd, control)
	if s != nil {
		l.cmd.Stdin, l.cmd.Stdout, l.cmd.Stderr = s.In, s.Out, s.Err
	} else {
		out, outs, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		l.out, theirs, l.cmd.Stdout = out, append(theirs, outs), outs
		errs, errss, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		l.errs, theirs, l.cmd.Stderr = errs, append(theirs, errss), errss
	}
	if k.spaces != noNamespaces {
		if l.mounts, err = watchMounts(); err != nil {
			return nil, err
		}
	}
	return l, l.cmd.Start()
}

// stale reports whether a launcher that waited has another view of the file system
// than one that is born now.
func (l *launcher) stale() bool { return l.mounts != nil && l.mounts.changed() }

// read copies what the launcher writes until it has no more.
func (l *launcher) read(stdout, stderr io.Writer) *sync.WaitGroup {
	var all sync.WaitGroup
	if l.out == nil {
		return &all
	}
	// A stream that ends with an error has been told to end.
	all.Go(func() { _, _ = io.Copy(stdout, l.out) })
	all.Go(func() { _, _ = io.Copy(stderr, l.errs) })
	return &all
}

// wait waits for the launcher's end and, but not for long, for that of its streams.
func (l *launcher) wait(streams *sync.WaitGroup) error {
	err := l.cmd.Wait()
	l.drain(streams)
	l.close()
	return err
}

// leave waits for the end of its streams alone. The launcher has said that all it had
// to do with the call is gone: it holds no stream and no directory any more, and its
// end, which is slow with namespaces to take down, is nobody's concern.
func (l *launcher) leave(streams *sync.WaitGroup) {
	l.drain(streams)
	l.ends.Go(func() {
		_ = l.cmd.Wait()
		l.close()
	})
}

// drain waits, but not for long, for the end of the streams.
func (l *launcher) drain(streams *sync.WaitGroup) {
	if l.out != nil {
		late := time.Now().Add(pipeGrace)
		_, _ = l.out.SetReadDeadline(late), l.errs.SetReadDeadline(late)
	}
	streams.Wait()
}

// close closes what this process has of the launcher.
func (l *launcher) close() {
	if l.conn != nil {
		_ = l.conn.Close()
	}
	for _, f := range []*os.File{l.out, l.errs} {
		if f != nil {
			_ = f.Close()
		}
	}
	if l.mounts != nil {
		l.mounts.close()
	}
}

// end ends a launcher that has no order.
func (l *launcher) end() {
	_ = l.cmd.Process.Kill()
	_ = l.cmd.Wait()
	l.close()
}

// mountWatch tells whether the mounts of this process have changed since it was made.
type mountWatch struct{ fd int }

// watchMounts begins a watch. NB: the file must not become one of os, which would
// have the runtime poll it, and who polls first takes the news away.
func watchMounts() (*mountWatch, error) {
	fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("watch the mounts: %w", err)
	}
	return &mountWatch{fd}, nil
}

// changed says so once.
func (m *mountWatch) changed() bool {
	fds := []unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLPRI}} //nolint:gosec // descriptors are small
	n, err := unix.Poll(fds, 0)
	return err != nil || n > 0
}

func (m *mountWatch) close() { _ = unix.Close(m.fd) }
