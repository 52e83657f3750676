//go:build linux && (amd64 || arm64)

package attack

import (
	"bytes"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func contains(data []byte, want string) bool { return bytes.Contains(data, []byte(want)) }

// metadataAttempts change what is known of a file outside and not what is in it.
func metadataAttempts() []Attempt {
	return []Attempt{
		{"meta/chmod", func(t *Target) error { return unix.Chmod(t.out(File), 0o600) }},
		{"meta/chmod-opened", func(t *Target) error {
			return opened(t, unix.O_RDONLY, func(fd int) error { return unix.Fchmod(fd, 0o600) })
		}},
		{"meta/chmod-named-by-descriptor", chmodByDescriptor},
		{"meta/chown", chown},
		{"meta/set-times", func(t *Target) error { return unix.Utimes(t.out(File), make([]unix.Timeval, 2)) }},
		{"meta/set-attribute", func(t *Target) error { return unix.Setxattr(t.out(File), "user.x", []byte("x"), 0) }},
		{"meta/set-flags", setFlags},
		{"meta/set-flags-by-name", setFlagsByName},
		{"meta/lock", func(t *Target) error {
			return opened(t, unix.O_RDONLY, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
		}},
	}
}

// opened uses a descriptor of the outside file.
func opened(t *Target, flags int, use func(fd int) error) error {
	fd, err := unix.Open(t.out(File), flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return use(fd)
}

func chmodByDescriptor(t *Target) error {
	return opened(t, unix.O_PATH, func(fd int) error { return unix.Fchmodat(fd, "", 0o600, unix.AT_EMPTY_PATH) })
}

func chown(t *Target) error {
	id := newOwner()
	return unix.Chown(t.out(File), id, id)
}

// newOwner is somebody else for root, who alone can give files away; others only say
// who they are.
func newOwner() int {
	if os.Getuid() == 0 {
		return 1
	}
	return os.Getuid()
}

// noDump is a flag that anybody may set on his own file: FS_NODUMP_FL.
const noDump = 0x40

func setFlags(t *Target) error {
	return opened(t, unix.O_RDONLY, func(fd int) error {
		flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|noDump)
	})
}

// fileAttr is struct file_attr, which x/sys does not have.
type fileAttr struct {
	xflags                                uint64
	extsize, nextents, projid, cowExtsize uint32
}

// xNoDump is FS_XFLAG_NODUMP.
const xNoDump = 0x80

func setFlagsByName(t *Target) error {
	path, err := unix.BytePtrFromString(t.out(File))
	if err != nil {
		return err
	}
	attr := fileAttr{xflags: xNoDump}
	dir := unix.AT_FDCWD
	_, _, errno := unix.Syscall6(unix.SYS_FILE_SETATTR, uintptr(dir), uintptr(unsafe.Pointer(path)), //nolint:gosec // the call takes pointers
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0, 0) //nolint:gosec // the call takes pointers
	if errno != 0 {
		return errno
	}
	return nil
}
