//go:build linux && (amd64 || arm64) && linger

package main

import "golang.org/x/sys/unix"

// linger keeps the thread that started the command beside it until the command has
// ended, as a machine that is busy might for a moment.
func linger(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1) //nolint:gosec // descriptors are small
		if n > 0 || err != unix.EINTR {                                              //nolint:errorlint // it is an Errno
			return
		}
	}
}
