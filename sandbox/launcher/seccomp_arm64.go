//go:build linux

package main

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archMetadataCalls lists the old spellings; arm64 has none.
func archMetadataCalls() []uint32 { return nil }

// archDeniedCalls lists the calls that only this machine denies.
func archDeniedCalls() []uint32 { return []uint32{unix.SYS_KEXEC_FILE_LOAD} }

// archOpen returns the old spelling of openat; arm64 has none.
func archOpen() (nr uint32, there bool) { return 0, false }
