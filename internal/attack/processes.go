//go:build linux && (amd64 || arm64)

package attack

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processAttempts are on the victim, and on who one is.
func processAttempts() []Attempt {
	return []Attempt{
		{"proc/signal", func(t *Target) error { return unix.Kill(t.Victim, unix.SIGUSR1) }},
		{"proc/signal-by-descriptor", signalByDescriptor},
		{"proc/own-a-signal", ownSignal},
		{"proc/trace", func(t *Target) error { return unix.PtraceSeize(t.Victim) }},
		{"proc/read-memory", readMemory},
		{"proc/open-memory-for-writing", func(t *Target) error { return open(t.victim("mem"), unix.O_WRONLY) }},
		{"proc/read-memory-by-file", readMemoryFile},
		{"proc/read-environment", func(t *Target) error { return find(t.victim("environ"), t.Witness) }},
		{"proc/read-arguments", func(t *Target) error { return find(t.victim("cmdline"), VictimArg) }},
		{"proc/take-descriptor", takeDescriptor},
		{"proc/set-limit", func(t *Target) error {
			return unix.Prlimit(t.Victim, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
		}},
		{"proc/set-priority", func(t *Target) error { return unix.Setpriority(unix.PRIO_PROCESS, t.Victim, leastPriority) }},
		{"proc/set-processors", setProcessors},
		{"proc/become-root", func(*Target) error {
			return onThread(func() error {
				_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0)
				return orNil(errno)
			})
		}},
		{RunAsRoot, runAsRoot},
	}
}

// leastPriority is what anybody may give his own processes.
const leastPriority = 19

func orNil(errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

func signalByDescriptor(t *Target) error {
	fd, err := unix.PidfdOpen(t.Victim, 0)
	if err != nil {
		return err
	}
	return unix.PidfdSendSignal(fd, unix.SIGUSR1, nil, 0)
}

// ownSignal has the kernel signal the victim when something happens. Whether it
// would is another matter: that it can be asked to is what is tried.
func ownSignal(t *Target) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	_, err = unix.FcntlInt(r.Fd(), unix.F_SETOWN, t.Victim)
	return errors.Join(err, r.Close(), w.Close())
}

func readMemory(t *Target) error {
	buf := make([]byte, len(t.Witness))
	local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
	remote := []unix.RemoteIovec{{Base: uintptr(t.Address), Len: len(buf)}}
	if _, err := unix.ProcessVMReadv(t.Victim, local, remote, 0); err != nil {
		return err
	}
	if string(buf) != t.Witness {
		return errNothing
	}
	return nil
}

func readMemoryFile(t *Target) error {
	f, err := os.Open(t.victim("mem"))
	if err != nil {
		return err
	}
	buf := make([]byte, len(t.Witness))
	if _, err := f.ReadAt(buf, int64(t.Address)); err != nil { //nolint:gosec // of user memory
		return errors.Join(err, f.Close())
	}
	if string(buf) != t.Witness {
		return errNothing
	}
	return f.Close()
}

func takeDescriptor(t *Target) error {
	fd, err := unix.PidfdOpen(t.Victim, 0)
	if err != nil {
		return err
	}
	_, err = unix.PidfdGetfd(fd, VictimFD, 0)
	return err
}

func setProcessors(t *Target) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(t.Victim, &set); err != nil {
		return err
	}
	return unix.SchedSetaffinity(t.Victim, &set)
}

// runAsRoot has id(1) say as whom a set-user-id program of root's runs.
func runAsRoot(t *Target) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	p, err := os.StartProcess(t.in(SetUID), []string{"id", "-u"}, &os.ProcAttr{Files: []*os.File{nil, w, os.Stderr}})
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	buf := make([]byte, 64)
	n, err := r.Read(buf)
	if err = errors.Join(err, finish(p)); err != nil {
		return err
	}
	uid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err == nil && uid != 0 {
		err = errNothing
	}
	return err
}

// ipcAttempts use what has no name in the file system.
func ipcAttempts() []Attempt {
	return []Attempt{
		{"ipc/write-shared-segment", writeSegment},
		{"ipc/add-key", addKey},
	}
}

func writeSegment(t *Target) error {
	id, err := unix.SysvShmGet(t.Segment, segmentSize, 0)
	if err != nil {
		return err
	}
	segment, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return err
	}
	segment[0] = 'x'
	return unix.SysvShmDetach(segment)
}

func addKey(*Target) error {
	id, err := unix.AddKey("user", "entail-attack", []byte("x"), unix.KEY_SPEC_USER_KEYRING)
	if err != nil {
		return err
	}
	_, err = unix.KeyctlInt(unix.KEYCTL_INVALIDATE, id, 0, 0, 0)
	return err
}

// addressOf says where the bytes are in this process.
func addressOf(b []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(&b[0]))) //nolint:gosec // only ever used from outside
}
