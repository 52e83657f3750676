//go:build linux && (amd64 || arm64)

package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

func procPath(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// workerAttempts are on the process that has the call run and holds the keys.
func workerAttempts() []Attempt {
	worker := func(name string, flags int) func(*Target) error {
		return func(t *Target) error { return open(procPath(t.Worker, name), flags) }
	}
	return []Attempt{
		{"worker/environment", func(t *Target) error { return find(procPath(t.Worker, "environ"), t.Witness) }},
		{"worker/maps", worker("maps", unix.O_RDONLY)},
		{"worker/auxiliary-vector", worker("auxv", unix.O_RDONLY)},
		{"worker/memory", worker("mem", unix.O_RDONLY)},
		{"worker/memory-for-writing", worker("mem", unix.O_WRONLY)},
		// Their numbers may be listed; what they are may not be read.
		{"worker/descriptors", func(t *Target) error {
			_, err := os.Readlink(procPath(t.Worker, fmt.Sprintf("fd/%d", Leaks()["fd/write"].FD)))
			return err
		}},
		{"worker/leaked-descriptor", func(t *Target) error {
			return open(procPath(t.Worker, fmt.Sprintf("fd/%d", Leaks()["fd/write"].FD)), unix.O_RDWR)
		}},
		{"worker/root", func(t *Target) error { return find(procPath(t.Worker, "root")+t.hidden(Token), Content) }},
		{"worker/trace", func(t *Target) error { return unix.PtraceSeize(t.Worker) }},
		{"worker/signal", func(t *Target) error { return unix.Kill(t.Worker, unix.SIGCONT) }},
		{"worker/limit", func(t *Target) error {
			return unix.Prlimit(t.Worker, unix.RLIMIT_CORE, nil, &unix.Rlimit{})
		}},
		{"worker/own-environment", func(t *Target) error { return find("/proc/self/environ", t.Witness) }},
	}
}

// launcherAttempts are on the process that holds the call. It is near: the call's
// own parent.
func launcherAttempts() []Attempt {
	return []Attempt{
		{"launcher/environment", func(t *Target) error { return open(procPath(t.Launcher, "environ"), unix.O_RDONLY) }},
		{"launcher/maps", func(t *Target) error { return open(procPath(t.Launcher, "maps"), unix.O_RDONLY) }},
		{"launcher/memory", func(t *Target) error { return open(procPath(t.Launcher, "mem"), unix.O_RDWR) }},
		{"launcher/descriptors", openDescriptors},
		{"launcher/out-by-descriptor", leaveByDescriptor},
		{"launcher/root", func(t *Target) error { return find(procPath(t.Launcher, "root")+t.hidden(Token), Content) }},
		{"launcher/signal", func(t *Target) error { return unix.Kill(t.Launcher, unix.SIGCONT) }},
		{"launcher/trace", func(t *Target) error { return unix.PtraceSeize(t.Launcher) }},
		{"launcher/trace-a-thread", onAnyThread(func(_, tid int) error { return unix.PtraceSeize(tid) })},
		{"launcher/signal-a-thread", onAnyThread(func(pid, tid int) error { return unix.Tgkill(pid, tid, unix.SIGCONT) })},
		{"launcher/memory-of-a-thread", onAnyThread(func(pid, tid int) error {
			return open(procPath(pid, fmt.Sprintf("task/%d/mem", tid)), unix.O_RDWR)
		})},
		{"launcher/environment-of-a-thread", onAnyThread(func(pid, tid int) error {
			return open(procPath(pid, fmt.Sprintf("task/%d/environ", tid)), unix.O_RDONLY)
		})},
		{"launcher/take-descriptor", func(t *Target) error {
			fd, err := unix.PidfdOpen(t.Launcher, 0)
			if err != nil {
				return err
			}
			_, err = unix.PidfdGetfd(fd, 1, 0)
			return err
		}},
		{"launcher/limit", func(t *Target) error {
			return unix.Prlimit(t.Launcher, unix.RLIMIT_CORE, nil, &unix.Rlimit{})
		}},
	}
}

// mostDescriptors is more than a launcher, or a worker in these tests, has.
const mostDescriptors = 32

// openDescriptors opens whatever the launcher holds; guessed, if it may not list.
func openDescriptors(t *Target) error {
	return firstThrough(mostDescriptors, func(fd int) error {
		return open(procPath(t.Launcher, fmt.Sprintf("fd/%d", fd)), unix.O_RDONLY)
	})
}

// leaveByDescriptor goes to the hidden token by way of a directory that the
// launcher holds open, which may stand in another view of the file system.
func leaveByDescriptor(t *Target) error {
	rel, err := filepath.Rel(t.Work, t.hidden(Token))
	if err != nil {
		return err
	}
	return firstThrough(mostDescriptors, func(fd int) error {
		return find(procPath(t.Launcher, fmt.Sprintf("fd/%d/%s", fd, rel)), Content)
	})
}

// firstThrough tries with each number. If none gets through, it gives the refusal
// of the first.
func firstThrough(n int, try func(int) error) error {
	var first error
	for i := range n {
		err := try(i)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// onAnyThread tries with each of the launcher's threads. That there are none to see
// is a refusal too.
func onAnyThread(try func(pid, tid int) error) func(*Target) error {
	return func(t *Target) error {
		entries, err := os.ReadDir(procPath(t.Launcher, "task"))
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return errNothing
		}
		return firstThrough(len(entries), func(i int) error {
			tid, err := strconv.Atoi(entries[i].Name())
			if err != nil {
				return err
			}
			return try(t.Launcher, tid)
		})
	}
}

// dataAttempts are on the worker's data directory, which is hidden, and on what
// belongs to another tree.
func dataAttempts() []Attempt {
	return []Attempt{
		{"data/read-key", func(t *Target) error { return find(t.hidden(Key), "seed") }},
		{"data/read-token", func(t *Target) error { return find(t.hidden(Token), Content) }},
		{"data/list", func(t *Target) error { return listed(t.hidden("")) }},
		{"data/list-store", func(t *Target) error { return listed(t.hidden(Store)) }},
		{"data/read-store", func(t *Target) error { return find(filepath.Join(t.hidden(Store), File), Content) }},
		{"data/write-store", func(t *Target) error { return overwrite(filepath.Join(t.hidden(Store), File)) }},
		{"data/chmod-key", func(t *Target) error { return unix.Chmod(t.hidden(Key), 0o644) }},
		{"data/read-by-own-root", func(t *Target) error { return find("/proc/self/root"+t.hidden(Token), Content) }},
		{"data/link-and-read", func(t *Target) error {
			if err := unix.Link(t.hidden(Token), t.in("new")); err != nil {
				return err
			}
			return find(t.in("new"), Content)
		}},
		{"data/symlink-and-read", func(t *Target) error {
			if err := unix.Symlink(t.hidden(Token), t.in("new")); err != nil {
				return err
			}
			return find(t.in("new"), Content)
		}},
		{"data/rename-file-and-read", func(t *Target) error {
			if err := unix.Rename(t.hidden(Token), t.in("new")); err != nil {
				return err
			}
			return find(t.in("new"), Content)
		}},
		{"data/rename-all-and-read", renameAllAndRead},
		{"data/exchange-and-read", exchangeAndRead},
		{"data/uncover-and-read", func(t *Target) error {
			refused := unix.Unmount(t.Data, unix.MNT_DETACH)
			if err := find(t.hidden(Token), Content); err != nil {
				return errors.Join(err, refused)
			}
			return nil
		}},
		{"data/read-key-as-root", func(t *Target) error {
			return onThread(func() error {
				// Without effect on the other threads, and without the library's help.
				_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0)
				return find(t.hidden(Key), "seed")
			})
		}},
		{"tree/read-workspace", func(t *Target) error { return find(filepath.Join(t.OtherWork, t.Name, Token), Content) }},
		{"tree/write-workspace", func(t *Target) error { return overwrite(filepath.Join(t.OtherWork, t.Name, Token)) }},
		{"tree/chmod-in-workspace", func(t *Target) error { return unix.Chmod(filepath.Join(t.OtherWork, t.Name, Token), 0o600) }},
		{"tree/read-temp", func(t *Target) error { return find(filepath.Join(t.OtherTemp, t.Name, Token), Content) }},
		{"tree/write-temp", func(t *Target) error { return overwrite(filepath.Join(t.OtherTemp, t.Name, Token)) }},
		{"tree/rename-from-temp", func(t *Target) error {
			return unix.Rename(filepath.Join(t.OtherTemp, t.Name, Token), t.in("new"))
		}},
	}
}

// listed wants at least one name.
func listed(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) == 0 {
		return errNothing
	}
	return err
}

// renameAllAndRead moves the whole directory to where it is not hidden, and back.
func renameAllAndRead(t *Target) error {
	moved := t.in("new")
	if err := unix.Rename(t.Data, moved); err != nil {
		return err
	}
	err := find(filepath.Join(moved, t.Name, Token), Content)
	return errors.Join(err, unix.Rename(moved, t.Data))
}

func exchangeAndRead(t *Target) error {
	if err := unix.Renameat2(unix.AT_FDCWD, t.in(File), unix.AT_FDCWD, t.hidden(Token), unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	return find(t.in(File), Content)
}
