//go:build linux && (amd64 || arm64)

// Package files does the operations of the file tools, wherever it runs: in a
// process that confined itself, or in the worker's own.
//
// Every file is reached through an [os.Root], so that a path which is changed
// between a look and its use leads nowhere else. A file is written by making a
// new one beside it and renaming that, so that nobody sees half of it and no
// other name of the old file changes. Only ordinary files are opened, and without
// waiting: not a FIFO, a device, a socket or a file of the kernel.
//
// The package knows its bounds and nothing of who set them or of any fence
// around it.
package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/internal/wire"
)

// Site is where operations are done: a workspace and its private temp directory,
// within bounds. It is safe for concurrent use.
type Site struct {
	bounds wire.Bounds
	root   *dir
	temp   *dir
	linked func() ([]wire.FileID, error)
}

// dir is a directory that operations do not leave.
type dir struct {
	*os.Root

	id wire.FileID
}

// errMoved says that a path no longer leads to the directory that is meant.
var errMoved = errors.New("is another directory than when the workspace was opened")

// Open opens the directories of a post. linked says which files at and below the
// hidden paths have more than one name; it is asked when an operation meets a file
// that has. Linked answers it for whoever can look there.
func Open(p wire.Post, linked func() ([]wire.FileID, error)) (*Site, error) {
	s := &Site{bounds: p.Bounds, linked: linked}
	var err error
	if s.root, err = openDir(p.Root, p.RootID); err != nil {
		return nil, err
	}
	if s.temp, err = openDir(p.Temp, p.TempID); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openDir opens path and checks that it is the directory meant.
func openDir(path string, meant wire.FileID) (*dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil && identify(info) != meant {
		err = fmt.Errorf("%s %w", path, errMoved)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &dir{Root: root, id: meant}, nil
}

// Close closes what the site holds. Operations must have ended.
func (s *Site) Close() error {
	var errs []error
	for _, d := range []*dir{s.root, s.temp} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}

// check makes sure that the name still leads to the directory held. Without it an
// operation would go on in a directory that was moved away, where no shell command
// of the session would find what it wrote.
func (d *dir) check() error {
	var st unix.Stat_t
	if err := unix.Lstat(d.Name(), &st); err != nil {
		return fmt.Errorf("%s %w: %w", d.Name(), errMoved, err)
	}
	if (wire.FileID{Dev: st.Dev, Ino: st.Ino}) != d.id {
		return fmt.Errorf("%s %w", d.Name(), errMoved)
	}
	return nil
}

// place is where a path leads: a directory that operations cannot leave, and the
// way from there.
type place struct {
	root *os.Root
	rel  string // relative to root, without links
	path string // resolved and absolute
}

// find resolves path and says whether it may be worked on: inside the workspace
// or the private temp directory, and not hidden. Under danger-full-access there
// are no such bounds.
func (o *operation) find(path string) (*place, error) {
	switch {
	case path == "":
		return nil, faultf(wire.CodeInvalid, "the path is empty")
	case strings.ContainsRune(path, 0):
		return nil, faultf(wire.CodeInvalid, "the path contains a zero byte")
	case !utf8.ValidString(path):
		return nil, faultf(wire.CodeInvalid, "the path %q is not UTF-8", path)
	case !filepath.IsAbs(path):
		path = o.bounds.Root + "/" + path
	}
	resolved, err := o.resolve(path)
	if err != nil {
		return nil, err
	}
	root, err := o.within(path, resolved)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root.Name(), resolved)
	if err != nil {
		return nil, err
	}
	return &place{root: root, rel: rel, path: resolved}, nil
}

// resolve is paths.Resolve, short for what is named through the workspace.
func (s *Site) resolve(path string) (string, error) {
	if below, ok := strings.CutPrefix(path, s.bounds.Root+"/"); ok {
		return paths.ResolveFrom(s.bounds.Root, below)
	}
	return paths.Resolve(path)
}

// within returns the directory that a resolved path lies in.
func (o *operation) within(path, resolved string) (*os.Root, error) {
	if !o.bounds.Unconfined && o.hides(resolved) {
		return nil, faultf(wire.CodeDenied, "%s is out of bounds for every tool", resolved)
	}
	for _, d := range []*dir{o.root, o.temp} {
		if paths.Within(resolved, d.Name()) {
			return d.Root, d.check()
		}
	}
	if o.bounds.Unconfined {
		root, err := around(resolved)
		if err == nil {
			o.opened = append(o.opened, root)
		}
		return root, err
	}
	if o.goneTemp(resolved) {
		return nil, faultf(wire.CodeNotFound, "%s is gone: a private temp directory goes when a turn ends or waits", path)
	}
	return nil, faultf(wire.CodeDenied, "%s leads to %s, outside of the workspace %s", path, resolved, o.bounds.Root)
}

// around opens the deepest directory on the way to a resolved path: those above it
// may let this user pass and not look.
func around(resolved string) (*os.Root, error) {
	at := filepath.Dir(resolved)
	for {
		info, err := os.Stat(at)
		if err == nil && info.IsDir() {
			break
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return nil, err
		}
		at = filepath.Dir(at)
	}
	return os.OpenRoot(at)
}

// hides reports whether a resolved path is hidden.
func (s *Site) hides(path string) bool {
	return slices.ContainsFunc(s.bounds.Hidden, func(h string) bool { return paths.Within(path, h) })
}

// goneTemp reports whether a resolved path was in a private temp directory that is
// no more. A session may remember such a path from an earlier turn; that it names
// nothing is an ordinary failure.
func (s *Site) goneTemp(path string) bool {
	prefix := filepath.Join(filepath.Dir(s.bounds.Temp), wire.TempPrefix)
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok {
		return false
	}
	name, _, _ := strings.Cut(rest, "/")
	_, err := os.Lstat(prefix + name)
	return errors.Is(err, fs.ErrNotExist)
}

// show returns a resolved path as the model should use it.
func (s *Site) show(path string) string {
	if rel, err := filepath.Rel(s.bounds.Root, path); err == nil && paths.Within(path, s.bounds.Root) {
		return rel
	}
	return path
}

// Identify returns what tells an open file from all others.
func Identify(f *os.File) (wire.FileID, error) {
	info, err := f.Stat()
	if err != nil {
		return wire.FileID{}, err
	}
	return identify(info), nil
}

// identify returns what tells a file from all others.
func identify(info fs.FileInfo) wire.FileID {
	st := stat(info)
	return wire.FileID{Dev: st.Dev, Ino: st.Ino}
}

func stat(info fs.FileInfo) *syscall.Stat_t {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		panic("unreachable: on Linux files have a Stat_t")
	}
	return st
}

// Linked lists the files at and below paths that have more than one name. What is
// not there has none.
func Linked(paths []string) ([]wire.FileID, error) {
	var found []wire.FileID
	for _, path := range paths {
		err := filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				var info fs.FileInfo
				if info, err = d.Info(); err == nil && stat(info).Nlink > 1 {
					found = append(found, identify(info))
				}
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // gone since it was listed
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look for hidden files with several names: %w", err)
		}
	}
	return found, nil
}
