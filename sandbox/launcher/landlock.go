//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

// floorABI is the oldest Landlock that is a fence: below it an outside file can
// be truncated through a descriptor opened for reading.
const floorABI = 3

const (
	readRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_READ_DIR
	// writeRights is what a writable directory gets. MAKE_CHAR, MAKE_BLOCK and
	// IOCTL_DEV are handled and never granted: root could otherwise make a node
	// for the disk and write to that.
	writeRights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_REFER
	// changeRights is all that changes a file system at the floor ABI.
	changeRights = writeRights | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	// fileRights is the part of all rights that a rule on a file may name.
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// ruleset is a Landlock ruleset under construction.
type ruleset struct{ fd int }

// newRuleset handles everything the kernel knows, so that what is not granted is
// denied.
func newRuleset(o *wire.Order) (*ruleset, error) {
	abi, err := landlockABI(o.MaxABI)
	if err != nil {
		return nil, err
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: changeRights | readRights}
	if abi >= 4 && !o.Sockets && !o.Loopback { // the filter is the fence; this is a second one
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	if abi >= 9 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	if abi >= 10 && !o.Sockets && !o.Loopback {
		attr.Handled_access_net |= unix.LANDLOCK_ACCESS_NET_BIND_UDP | unix.LANDLOCK_ACCESS_NET_CONNECT_SEND_UDP
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0) //nolint:gosec // the call takes a struct
	if errno != 0 {
		return nil, fmt.Errorf("create landlock ruleset: %w", errno)
	}
	return &ruleset{fd: int(fd)}, nil
}

// landlockABI asks the kernel and refuses what is no fence.
func landlockABI(most int) (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("ask for landlock: %w", errno)
	}
	abi := int(v)
	if most != 0 {
		abi = min(abi, most)
	}
	if abi < floorABI {
		return 0, fmt.Errorf("landlock ABI %d is below %d: %w", abi, floorABI, unix.EOPNOTSUPP)
	}
	return abi, nil
}

// build grants what the order's mode allows.
func (r *ruleset) build(o *wire.Order, root, temp int) error {
	if err := r.allowPath("/dev/null", unix.LANDLOCK_ACCESS_FS_WRITE_FILE|unix.LANDLOCK_ACCESS_FS_TRUNCATE); err != nil {
		return err
	}
	inside := uint64(readRights)
	if o.MayWrite {
		inside |= writeRights
	}
	if err := errors.Join(r.allow(root, inside), r.allow(temp, inside)); err != nil {
		return err
	}
	if o.Namespaces && o.MayWrite { // its own, empty
		if err := r.allowPath(shmDir, inside); err != nil {
			return err
		}
	}
	if o.Op.Shell == nil {
		if err := r.allowSelf(); err != nil {
			return err
		}
	}
	private, err := tempDirs(o.Temp)
	if err != nil {
		return err
	}
	// Names may be listed everywhere: rules reach downwards only, so "/" itself
	// could not be listed otherwise.
	if err := r.allowPath("/", unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
		return err
	}
	return r.allowAround("/", append(private, o.Hidden...))
}

// allowSelf grants this program, which performs file operations. Rules are not about
// files in memory: those may be executed as they are.
func (r *ruleset) allowSelf() error {
	fd, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the launcher for landlock: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := r.allow(fd, readRights); err != nil && !errors.Is(err, unix.EBADFD) {
		return fmt.Errorf("allow the launcher: %w", err)
	}
	return nil
}

// tempDirs lists the private temp directories beside own, and own itself, which
// is granted apart: naming it has the directory around it granted entry by entry,
// so that what another session makes there later is unreadable as well.
func tempDirs(own string) ([]string, error) {
	found := []string{own}
	entries, err := os.ReadDir(filepath.Dir(own))
	if errors.Is(err, fs.ErrPermission) {
		return found, nil // then nothing beside own is granted
	}
	if err != nil {
		return nil, fmt.Errorf("list temp directories for landlock: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), wire.TempPrefix) {
			found = append(found, filepath.Join(filepath.Dir(own), e.Name()))
		}
	}
	return found, nil
}

// allowAround grants reading of everything in dir but the hidden paths. Landlock
// cannot subtract, so it grants each sibling on the way down. What appears in
// one of those directories later is unreadable: it fails closed.
func (r *ruleset) allowAround(dir string, hidden []string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // nothing there that a grant could open
	}
	if err != nil {
		return fmt.Errorf("list %s for landlock: %w", dir, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		below, itself := beneath(path, hidden)
		switch {
		case itself || e.Type()&fs.ModeSymlink != 0: // a link's target is judged where it is
			continue
		case len(below) > 0:
			err = r.allowAround(path, below)
		default:
			err = r.allowPath(path, readRights)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beneath returns which of the paths lie below path, and whether path is one.
func beneath(path string, paths []string) (below []string, itself bool) {
	for _, p := range paths {
		if p == path {
			itself = true
		} else if strings.HasPrefix(p, path+"/") {
			below = append(below, p)
		}
	}
	return below, itself
}

// allowPath grants rights on what path names now. What is gone needs no grant.
func (r *ruleset) allowPath(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s for landlock: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := r.allow(fd, rights); err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	return nil
}

// allow grants rights on the file or tree behind fd.
func (r *ruleset) allow(fd int, rights uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat for landlock: %w", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		return nil
	default:
		rights &= fileRights
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)} //nolint:gosec // descriptors are small
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd),
		unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0) //nolint:gosec // the call takes a struct
	if errno != 0 {
		return fmt.Errorf("add landlock rule: %w", errno)
	}
	return nil
}

// enforce puts the calling thread, and all it will start, under the rules.
func (r *ruleset) enforce() error {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r.fd), 0, 0); errno != 0 {
		return fmt.Errorf("enforce landlock: %w", errno)
	}
	return nil
}
