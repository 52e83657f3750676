//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Both supported machines are little-endian, so
// the low half of an argument comes first.
const (
	offNr   = 0
	offArch = 4
	offArg0 = 16
	offArg1 = 24
	offArg2 = 32
)

// x32Bit marks a call of the x32 ABI, whose numbers a filter written for amd64
// would not recognise. On arm64 no call has it.
const x32Bit = 0x40000000

const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// fsIocFSSetXattr is FS_IOC_FSSETXATTR, which x/sys does not define.
const fsIocFSSetXattr = 0x401c5820

// program is a classic BPF program under construction.
type program []unix.SockFilter

func (p *program) stmt(code uint16, k uint32) {
	*p = append(*p, unix.SockFilter{Code: code, K: k})
}

// jump appends a conditional jump over yes or no instructions.
func (p *program) jump(code uint16, k uint32, yes, no uint8) {
	*p = append(*p, unix.SockFilter{Code: code, K: k, Jt: yes, Jf: no})
}

func (p *program) load(off uint32) { p.stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, off) }

func (p *program) fail(errno unix.Errno) {
	p.stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(errno)) //nolint:gosec // errnos are below 4096
}

func (p *program) allow() { p.stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW) }

// deny makes each of the calls fail. The number must be loaded.
func (p *program) deny(errno unix.Errno, calls ...uint32) {
	for _, nr := range calls {
		p.jump(jeq, nr, 0, 1)
		p.fail(errno)
	}
}

const (
	jeq  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jge  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	jset = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
)

// onCall appends body for one call only. A body may clobber the accumulator; it
// must end in a return.
func (p *program) onCall(nr uint32, body program) {
	p.jump(jeq, nr, 0, uint8(len(body))) //nolint:gosec // bodies are a dozen instructions
	*p = append(*p, body...)
}

// calls says what becomes of calls, by their numbers.
type calls map[uint32]program

// on says what becomes of one call, unless something was said of it before.
func (c calls) on(nr uint32, body program) {
	if _, said := c[nr]; !said {
		c[nr] = body
	}
}

// deny makes each of the calls fail.
func (c calls) deny(errno unix.Errno, numbers ...uint32) {
	var body program
	body.fail(errno)
	for _, nr := range numbers {
		c.on(nr, body)
	}
}

// program looks the number up that is loaded, and allows what nothing was said of. It
// halves: the kernel runs a new filter once for every call there is, and a confined
// program for each that it makes.
func (c calls) program() program { return c.among(slices.Sorted(maps.Keys(c))) }

func (c calls) among(numbers []uint32) program {
	const few = 3
	var p program
	if len(numbers) <= few {
		for _, nr := range numbers {
			p.onCall(nr, c[nr])
		}
		p.allow()
		return p
	}
	half := len(numbers) / 2
	below, above := c.among(numbers[:half]), c.among(numbers[half:])
	p.jump(jge, numbers[half], 0, 1)
	p.stmt(unix.BPF_JMP|unix.BPF_JA, uint32(len(below))) //nolint:gosec // some hundreds of instructions
	return append(append(p, below...), above...)
}

// filter builds the program that every confined call runs under. What it names
// fails; all else is left to Landlock and to the ordinary rights.
func filter(readOnly, sockets, helper bool) program {
	var p program
	p.load(offArch)
	p.jump(jeq, auditArch, 1, 0)
	p.stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_KILL_PROCESS) // foreign numbers mean other calls
	p.load(offNr)
	p.jump(jge, x32Bit, 0, 1)
	p.fail(unix.ENOSYS)

	c := calls{}
	if readOnly {
		c.deny(unix.EROFS, metadataCalls()...)
	}
	// Their flags are out of a filter's reach; all fall back to clone and openat.
	c.deny(unix.ENOSYS, unix.SYS_CLONE3, unix.SYS_OPENAT2)
	c.deny(unix.EPERM, deniedCalls()...)
	if sockets {
		c.on(unix.SYS_SOCKET, inet())
	} else {
		c.on(unix.SYS_SOCKET, noSocket())
	}
	if !helper { // a helper is this process, and signals its own threads
		for _, nr := range signalCalls() {
			c.on(nr, notMe())
		}
	}
	c.on(unix.SYS_CLONE, failIfSet(offArg0, namespaceFlags))
	c.on(unix.SYS_UNSHARE, failIfSet(offArg0, namespaceFlags))
	c.on(unix.SYS_PRLIMIT64, failUnlessZero(offArg0))
	c.on(unix.SYS_IOCTL, ioctls())
	c.on(unix.SYS_SOCKETPAIR, socketpairs())
	c.on(unix.SYS_OPENAT, failIfTruncated(offArg2))
	if sysOpen, there := archOpen(); there {
		c.on(sysOpen, failIfTruncated(offArg1))
	}
	return append(p, c.program()...)
}

// notMe refuses what is aimed at this process or at the calling thread. For a moment
// that thread lives on beside the command, behind the same fence, and Landlock lets
// those who share one signal each other.
func notMe() program {
	var p program
	p.load(offArg0)
	p.deny(unix.EPERM, uint32(unix.Getpid()), uint32(unix.Gettid())) //nolint:gosec // numbers of processes are positive
	p.allow()
	return p
}

func failIfSet(off, bits uint32) program {
	var p program
	p.load(off)
	p.jump(jset, bits, 0, 1)
	p.fail(unix.EPERM)
	p.allow()
	return p
}

func failUnlessZero(off uint32) program {
	var p program
	p.load(off)
	p.jump(jeq, 0, 1, 0)
	p.fail(unix.EPERM)
	p.allow()
	return p
}

// failIfTruncated refuses to truncate by a descriptor that cannot write. FUSE
// truncates while it opens, and Landlock, which takes such an opening for no writing,
// refuses only afterwards. Opening for neither reading nor writing is such an
// opening too.
func failIfTruncated(flags uint32) program {
	var p program
	p.load(flags)
	p.stmt(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, unix.O_TRUNC|unix.O_ACCMODE)
	p.deny(unix.EACCES, unix.O_TRUNC|unix.O_RDONLY, unix.O_TRUNC|unix.O_ACCMODE)
	p.allow()
	return p
}

// ioctls refuses typing into a terminal and changing a file's flags, which works
// through a descriptor opened for reading.
func ioctls() program {
	var p program
	p.load(offArg1)
	p.deny(unix.EPERM, unix.TIOCSTI, unix.TIOCLINUX, unix.FS_IOC_SETFLAGS, fsIocFSSetXattr)
	p.allow()
	return p
}

// noSocket refuses every socket. AF_VSOCK is said not to be there, which is what
// programs that probe for it expect.
func noSocket() program {
	var p program
	p.load(offArg0)
	p.deny(unix.EAFNOSUPPORT, unix.AF_VSOCK)
	p.fail(unix.EPERM)
	return p
}

// inet allows sockets of IPv4 and IPv6, and those of rtnetlink, by which programs learn of
// interfaces and addresses: it changes nothing without a capability. Unix sockets
// are refused: a server outside would write files for whoever asks it to.
func inet() program {
	var p program
	p.load(offArg0)
	p.deny(unix.EAFNOSUPPORT, unix.AF_VSOCK)
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		p.jump(jeq, family, 0, 1)
		p.allow()
	}
	p.jump(jeq, unix.AF_NETLINK, 1, 0)
	p.fail(unix.EPERM)
	return append(p, failUnlessZero(offArg2)...) // NETLINK_ROUTE
}

// socketpairs allows connected pairs only: one of datagrams could still send to
// any named socket.
func socketpairs() program {
	var p program
	p.load(offArg0)
	p.jump(jeq, unix.AF_UNIX, 1, 0)
	p.fail(unix.EPERM)
	p.load(offArg1)
	p.stmt(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xf) // the type without its flags
	p.jump(jeq, unix.SOCK_STREAM, 2, 0)
	p.jump(jeq, unix.SOCK_SEQPACKET, 1, 0)
	p.fail(unix.EPERM)
	p.allow()
	return p
}

// install puts the calling thread, and all it will start, under the program.
func (p program) install() error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]} //nolint:gosec // the kernel refuses over 4096
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0,
		uintptr(unsafe.Pointer(&prog))) //nolint:gosec // the call takes a struct
	if errno != 0 {
		return fmt.Errorf("install seccomp filter: %w", errno)
	}
	return nil
}

// deniedCalls lists what no confined call may use: io_uring
// (which opens and connects past a filter), mounts, namespaces, other processes'
// descriptors, and what changes the machine rather than the workspace.
// Landlock has no hook for most of them.
func deniedCalls() []uint32 {
	return append([]uint32{
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOUNT_SETATTR,
		unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOVE_MOUNT,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
		unix.SYS_SETNS,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_PIDFD_GETFD, unix.SYS_FANOTIFY_INIT,
		unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SYSLOG,
		unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
		unix.SYS_FILE_SETATTR,
	}, archDeniedCalls()...)
}

// metadataCalls lists what changes mode, owner, times or attributes. Landlock
// has no hook for them; read-only mode refuses them all.
func metadataCalls() []uint32 {
	return append([]uint32{
		unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2,
		unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
		unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
		unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT,
		unix.SYS_FILE_SETATTR,
	}, archMetadataCalls()...)
}
