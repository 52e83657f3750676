//go:build linux

package attack

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// x32Bit marks the calls of the x32 ABI, in which all have other numbers.
const x32Bit = 0x40000000

// i386Socket is the number of socket(2) in the 32-bit ABI.
const i386Socket = 359

// int80 makes a call of the 32-bit ABI.
func int80(nr, a, b, c uint32) int32

// byOldCall changes metadata of the outside file by a call that has a newer spelling,
// which the standard library uses. Times become those of now.
func byOldCall(nr, a, b uintptr) func(*Target) error {
	return func(t *Target) error {
		path, err := unix.BytePtrFromString(t.out(File))
		if err != nil {
			return err
		}
		_, _, errno := unix.Syscall(nr, uintptr(unsafe.Pointer(path)), a, b) //nolint:gosec // the call takes a pointer
		return orNil(errno)
	}
}

// archAttempts are on what this architecture alone has.
func archAttempts() []Attempt {
	return []Attempt{
		{"arch/32-bit-socket", func(*Target) error {
			if res := int80(i386Socket, unix.AF_INET, unix.SOCK_STREAM, 0); res < 0 {
				return unix.Errno(-res)
			}
			return nil
		}},
		{"arch/x32-socket", func(*Target) error {
			_, _, errno := unix.RawSyscall(unix.SYS_SOCKET|x32Bit, unix.AF_INET, unix.SOCK_STREAM, 0)
			return orNil(errno)
		}},
		// The standard library spells it openat.
		{"arch/truncate-by-old-open", func(t *Target) error {
			path, err := unix.BytePtrFromString(t.in(File))
			if err != nil {
				return err
			}
			fd, _, errno := unix.Syscall(unix.SYS_OPEN, uintptr(unsafe.Pointer(path)), unix.O_TRUNC, 0) //nolint:gosec // the call takes a pointer
			if errno != 0 {
				return errno
			}
			return unix.Close(int(fd))
		}},
		{"arch/old-chmod", byOldCall(unix.SYS_CHMOD, 0o600, 0)},
		{"arch/old-chown", byOldCall(unix.SYS_CHOWN, uintptr(newOwner()), uintptr(newOwner()))},
		{"arch/old-lchown", byOldCall(unix.SYS_LCHOWN, uintptr(newOwner()), uintptr(newOwner()))},
		{"arch/old-utime", byOldCall(unix.SYS_UTIME, 0, 0)},
		{"arch/old-utimes", byOldCall(unix.SYS_UTIMES, 0, 0)},
		{"arch/reach-ports", func(*Target) error { return onThread(func() error { return unix.Ioperm(0x80, 1, 1) }) }},
	}
}
