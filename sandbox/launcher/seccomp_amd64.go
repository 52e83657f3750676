//go:build linux

package main

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// archMetadataCalls lists the old spellings that only amd64 has.
func archMetadataCalls() []uint32 {
	return []uint32{
		unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN,
		unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
	}
}

// archDeniedCalls lists the calls that only amd64 has: access to I/O ports.
func archDeniedCalls() []uint32 {
	return []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_KEXEC_FILE_LOAD}
}

// archOpen returns the old spelling of openat.
func archOpen() (nr uint32, there bool) { return unix.SYS_OPEN, true }
