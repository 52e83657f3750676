//go:build linux

package main

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// archMetadataCalls lists the old spellings; arm64 has none.
func archMetadataCalls() []uint32 { return nil }

// archDeniedCalls lists the calls that only this machine denies.
func archDeniedCalls() []uint32 { return []uint32{unix.SYS_KEXEC_FILE_LOAD} }
