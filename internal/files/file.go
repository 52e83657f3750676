//go:build linux && (amd64 || arm64)

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

// open opens an ordinary file for reading. Anything else is refused without
// waiting for it: opening a FIFO would block, opening a device may act.
func (o *operation) open(p *place) (*os.File, fs.FileInfo, error) {
	info, err := p.root.Lstat(p.rel)
	if err != nil {
		return nil, nil, err
	}
	if err := regular(p.path, info); err != nil {
		return nil, nil, err
	}
	f, err := p.root.OpenFile(p.rel, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	// Look again at what was opened: the name may have changed hands.
	if info, err = f.Stat(); err == nil {
		err = regular(p.path, info)
	}
	if err == nil {
		err = refuseKernelFile(p.path, f)
	}
	if err == nil {
		err = o.refuseHidden(p.path, info)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

func regular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	kind := "not a regular file"
	if info.IsDir() {
		kind = "a directory"
	}
	return faultf(wire.CodeNotRegular, "%s is %s", path, kind)
}

// refuseKernelFile refuses what only looks like a file: procfs speaks of the
// very process that reads it.
func refuseKernelFile(path string, f *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	if st.Type == unix.PROC_SUPER_MAGIC || st.Type == unix.SYSFS_MAGIC {
		return faultf(wire.CodeNotRegular, "%s belongs to the kernel and is not a regular file", path)
	}
	return nil
}

// errUnsure says that nobody could tell whether a file is a hidden one.
var errUnsure = errors.New("it has several names, and whether one of them is hidden cannot be told")

// refuseHidden refuses another name of a hidden file. Paths cannot tell: the name
// lies in the workspace.
func (o *operation) refuseHidden(path string, info fs.FileInfo) error {
	if o.bounds.Unconfined || len(o.bounds.Hidden) == 0 || stat(info).Nlink < 2 {
		return nil
	}
	if !o.asked {
		var err error
		if o.hidden, err = o.linked(); err != nil {
			return fmt.Errorf("%s: %w: %w", path, errUnsure, err)
		}
		o.asked = true
	}
	if slices.Contains(o.hidden, identify(info)) {
		return faultf(wire.CodeDenied, "%s is another name of a file that is out of bounds for every tool", path)
	}
	return nil
}
