//go:build linux && (amd64 || arm64) && !mutate_signal

package main

import "golang.org/x/sys/unix"

// signalCalls are the calls that name whom they signal first.
func signalCalls() []uint32 {
	return []uint32{
		unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_PIDFD_OPEN, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	}
}
