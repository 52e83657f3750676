//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	inside := uint64(readRights)
	if o.MayWrite {
		inside |= writeRights
	}
	if err := errors.Join(r.allow(root, inside), r.allow(temp, inside)); err != nil {
		return err
	}
	if o.Serve {
		return r.allowSelf() // file operations look nowhere else
	}
	if o.Namespaces && o.MayWrite { // its own, empty
		if err := r.allowPath(shmDir, inside); err != nil {
			return err
		}
	}
	if err := r.allowPath("/dev/null", unix.LANDLOCK_ACCESS_FS_WRITE_FILE|unix.LANDLOCK_ACCESS_FS_TRUNCATE); err != nil {
		return err
	}
	// Names may be listed everywhere: rules reach downwards only, so "/" itself
	// could not be listed otherwise.
	if err := r.allowPath("/", unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
		return err
	}
	return r.allowAround("/", slices.Concat([]string{o.Temp}, o.Hidden, o.Others), filepath.Dir(o.Temp))
}

// allowSelf grants this program, which a helper executes anew. Rules are not about
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

// allowAround grants reading of everything in dir but the hidden paths, and but the
// private temp directories of all in temps. One's own is granted apart and stands
// among the hidden, so that temps is granted entry by entry: what another session
// makes there later is unreadable as well. Landlock cannot subtract, so it grants each
// sibling on the way down. What appears in one of those directories later is
// unreadable: it fails closed.
func (r *ruleset) allowAround(dir string, hidden []string, temps string) error {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil // nothing there that a grant could open
	}
	if err != nil {
		return fmt.Errorf("list %s for landlock: %w", dir, err)
	}
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("list %s for landlock: %w", dir, err)
	}
	below := beneath(dir, hidden)
	for _, e := range entries {
		name := e.Name()
		at := below[name]
		switch {
		case e.Type()&fs.ModeSymlink != 0: // a link's target is judged where it is
			continue
		case at.itself || dir == temps && strings.HasPrefix(name, wire.TempPrefix):
			continue
		case len(at.inside) > 0:
			err = r.allowAround(filepath.Join(dir, name), at.inside, temps)
		default:
			err = r.allowEntry(f, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// allowEntry grants reading of what a directory holds under a name. Most calls are
// short, and this is most of what the fence costs them, so it takes the file's type from
// the listing.
func (r *ruleset) allowEntry(dir *os.File, e fs.DirEntry) error {
	fd, err := unix.Openat(int(dir.Fd()), e.Name(), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil
	}
	path := filepath.Join(dir.Name(), e.Name())
	if err != nil {
		return fmt.Errorf("open %s for landlock: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	rights := uint64(readRights)
	if !e.IsDir() {
		rights &= fileRights
	}
	err = r.add(fd, rights)
	if errors.Is(err, unix.EINVAL) { // it is another file than was listed
		err = r.allow(fd, readRights)
	}
	if err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	return nil
}

// place is what is known of a name in a directory: whether it is hidden itself, and
// which paths are that lie inside.
type place struct {
	itself bool
	inside []string
}

// beneath sorts the paths below dir by the names in dir that they begin with.
func beneath(dir string, paths []string) map[string]place {
	below := map[string]place{}
	for _, p := range paths {
		rest, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
		if !ok {
			continue
		}
		name, more, _ := strings.Cut(rest, "/")
		at := below[name]
		if more == "" {
			at.itself = true
		} else {
			at.inside = append(at.inside, p)
		}
		below[name] = at
	}
	return below
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
	return r.add(fd, rights)
}

// add adds a rule. The rights are ones that the file's type can have.
func (r *ruleset) add(fd int, rights uint64) error {
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
