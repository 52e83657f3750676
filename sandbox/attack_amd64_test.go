//go:build linux

package sandbox_test

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// archTruncations has the old spelling of openat, which the standard library does
// not use.
func archTruncations() map[string]func(target) error {
	return map[string]func(target) error{
		"truncate by open of old": func(g target) error {
			path, err := unix.BytePtrFromString(g.outside)
			if err != nil {
				return err
			}
			fd, _, errno := unix.Syscall(unix.SYS_OPEN, uintptr(unsafe.Pointer(path)), unix.O_TRUNC, 0)
			if errno != 0 {
				return errno
			}
			return unix.Close(int(fd))
		},
	}
}
