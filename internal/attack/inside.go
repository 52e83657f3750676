//go:build linux && (amd64 || arm64)

package attack

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// insideAttempts are what a call in its workspace is to do, or would like to.
func insideAttempts() []Attempt {
	return []Attempt{
		{"inside/write", func(t *Target) error { return overwrite(t.in(File)) }},
		{"inside/rename-across", func(t *Target) error { return unix.Rename(t.in(File), filepath.Join(t.Work, "inside", "moved")) }},
		{"inside/link", func(t *Target) error { return unix.Link(t.in(File), filepath.Join(t.Work, "inside", "linked")) }},
		{"inside/chmod", func(t *Target) error { return unix.Chmod(t.in(File), 0o600) }},
		{"inside/set-times", func(t *Target) error { return unix.Utimes(t.in(File), make([]unix.Timeval, 2)) }},
		{"inside/make-fifo", func(t *Target) error { return unix.Mkfifo(t.in("new"), 0o600) }},
		{"inside/write-temp", func(t *Target) error { return createAndRemove(t.Temp) }},
		{"inside/write-hosts-temp", func(*Target) error { return createAndRemove("/tmp") }},
		{"inside/write-shared-memory", func(*Target) error { return createAndRemove("/dev/shm") }},
		{"inside/write-null", func(*Target) error { return overwrite("/dev/null") }},
		{"inside/reopen-stderr", func(*Target) error { return open("/proc/self/fd/2", unix.O_WRONLY) }},
		{"inside/open-terminal", func(*Target) error { return open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY) }},
		{"inside/trace-own-child", traceOwnChild},
		{"inside/talk-to-child", talkOverPair},
		// On a FUSE file system a fence that takes these for reading comes too late. No
		// program needs them.
		{"inside/truncate-for-reading", func(t *Target) error {
			return closed(unix.Openat(unix.AT_FDCWD, t.in(File), unix.O_TRUNC|unix.O_RDONLY, 0))
		}},
		{"inside/truncate-for-neither", func(t *Target) error {
			return closed(unix.Openat(unix.AT_FDCWD, t.in(File), unix.O_TRUNC|unix.O_ACCMODE, 0))
		}},
		{"inside/truncate-by-openat2", func(t *Target) error {
			return closed(unix.Openat2(unix.AT_FDCWD, t.in(File), &unix.OpenHow{Flags: unix.O_TRUNC}))
		}},
	}
}

// createAndRemove leaves nothing behind.
func createAndRemove(dir string) error {
	f, err := os.CreateTemp(dir, "entail-attack-")
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

func closed(fd int, err error) error {
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// traceOwnChild is what debuggers do.
func traceOwnChild(t *Target) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	child, err := start(self, []*os.File{r, nil, os.Stderr}, nil, waitArg, t)
	if err != nil {
		return err
	}
	err = errors.Join(onThread(func() error { return unix.PtraceSeize(child.Pid) }), child.Kill(), w.Close())
	// A stop can be reported before the end.
	for status := unix.WaitStatus(0); err == nil && !status.Exited() && !status.Signaled(); {
		_, err = unix.Wait4(child.Pid, &status, unix.WALL, nil)
	}
	return err
}
