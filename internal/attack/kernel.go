//go:build linux && (amd64 || arm64)

package attack

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelAttempts go round the calls that a fence looks at, or to what concerns the
// whole machine.
func kernelAttempts() []Attempt {
	return []Attempt{
		{"kern/ring", func(*Target) error { _, err := newRing(); return err }},
		{"kern/ring-open-and-write", ringWrite},
		{"kern/ring-socket", ringSocket},
		{"kern/load-program", makeMap},
		{"kern/count-events", countEvents},
		{"kern/account-processes", accountProcesses},
		{"kern/set-host-name", setHostName},
		{"kern/handle-page-faults", func(*Target) error {
			_, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0) // 1 is UFFD_USER_MODE_ONLY
			return orNil(errno)
		}},
		{"kern/watch-file-systems", func(*Target) error {
			_, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, unix.O_RDONLY)
			return err
		}},
		{"kern/read-log", func(*Target) error { _, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil); return err }},
		{"kern/run-from-memory-and-write", runFromMemory},
	}
}

// bpfMap is the part of union bpf_attr that BPF_MAP_CREATE reads.
type bpfMap struct{ kind, keySize, valueSize, entries uint32 }

func makeMap(*Target) error {
	attr := bpfMap{kind: unix.BPF_MAP_TYPE_ARRAY, keySize: 4, valueSize: 4, entries: 1}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)) //nolint:gosec // the call takes a struct
	return orNil(errno)
}

func countEvents(*Target) error {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	_, err := unix.PerfEventOpen(&attr, 0, -1, -1, 0)
	return err
}

// accountProcesses has the kernel write to a file, for a moment. Afterwards nothing is
// accounted for, as on nearly every machine.
func accountProcesses(t *Target) error {
	if err := unix.Acct(t.out(File)); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_ACCT, 0, 0, 0)
	return orNil(errno)
}

func setHostName(*Target) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	return unix.Sethostname([]byte(name))
}

// runFromMemory executes a program that no path names. It writes outside.
func runFromMemory(t *Target) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("attack", 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "attack")
	if _, err := f.Write(self); err != nil {
		return err
	}
	p, err := start(fmt.Sprintf("/proc/self/fd/%d", fd), []*os.File{nil, nil, os.Stderr}, nil, memoryArg, t)
	if err != nil {
		return err
	}
	return errors.Join(finish(p), f.Close())
}

// ring is an io_uring, of which one operation is asked.
type ring struct {
	fd              int
	params          ringParams
	submit, entries []byte
}

// ringParams is struct io_uring_params.
type ringParams struct {
	sqEntries, cqEntries, flags, threadCPU, threadIdle, features, wqFD uint32
	_                                                                  [3]uint32
	sq                                                                 sqOffsets
	cq                                                                 cqOffsets
}

type sqOffsets struct {
	head, tail, mask, entries, flags, dropped, array, _ uint32
	_                                                   uint64
}

type cqOffsets struct {
	head, tail, mask, entries, overflow, cqes, flags, _ uint32
	_                                                   uint64
}

// operation is struct io_uring_sqe.
type operation struct {
	code, flags uint8
	priority    uint16
	fd          int32
	off, addr   uint64
	length      uint32
	opFlags     uint32
	_           [4]uint64
}

// The operations that are tried: IORING_OP_OPENAT and IORING_OP_SOCKET.
const (
	opOpenAt = 18
	opSocket = 45

	offSubmit  = 0
	offEntries = 0x10000000
	getEvents  = 1 // IORING_ENTER_GETEVENTS
)

// newRing makes a ring whose two queues lie in one mapping, as all kernels since
// 5.4 have them.
func newRing() (*ring, error) {
	r := &ring{}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&r.params)), 0) //nolint:gosec // the call takes a struct
	if errno != 0 {
		return nil, errno
	}
	r.fd = int(fd)
	size := int(r.params.cq.cqes) + 16*int(r.params.cqEntries)
	var err error
	if r.submit, err = unix.Mmap(r.fd, offSubmit, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, err
	}
	r.entries, err = unix.Mmap(r.fd, offEntries, 64, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return r, err
}

// do submits an operation as the first one and waits for what it gives.
func (r *ring) do(op operation) (int, error) {
	*(*operation)(unsafe.Pointer(&r.entries[0])) = op                      //nolint:gosec // the kernel's layout
	(*atomic.Uint32)(unsafe.Pointer(&r.submit[r.params.sq.tail])).Store(1) //nolint:gosec // the kernel's layout
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 1, 1, getEvents, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	res := *(*int32)(unsafe.Pointer(&r.submit[r.params.cq.cqes+8])) //nolint:gosec // the kernel's layout
	if res < 0 {
		return 0, unix.Errno(-res)
	}
	return int(res), nil
}

func ringWrite(t *Target) error {
	r, err := newRing()
	if err != nil {
		return err
	}
	path, err := unix.BytePtrFromString(t.out(File))
	if err != nil {
		return err
	}
	fd, err := r.do(operation{
		code: opOpenAt, fd: unix.AT_FDCWD, opFlags: unix.O_WRONLY,
		addr: uint64(uintptr(unsafe.Pointer(path))), //nolint:gosec // the kernel takes it so
	})
	runtime.KeepAlive(path)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte("x"))
	return err
}

func ringSocket(*Target) error {
	r, err := newRing()
	if err != nil {
		return err
	}
	_, err = r.do(operation{code: opSocket, fd: unix.AF_INET, off: unix.SOCK_STREAM})
	return err
}
