//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/internal/wire"
)

// heldPrefix begins the name of every private temp directory whose maker holds it by
// a lock on it. The lock goes with the descriptor, and so does what launchers of the
// maker were given: as long as one of them lives, the directory is in use.
const heldPrefix = wire.TempPrefix + "held-"

// makeTemp makes a private temp directory, which os.MkdirTemp gives mode 0700, and
// holds it.
func makeTemp(hidden []string) (*os.File, error) {
	for range 16 {
		temp, err := makeHeld(hidden)
		if err != nil {
			return nil, fmt.Errorf("make private temp directory: %w", err)
		}
		if temp != nil {
			return temp, nil
		}
	}
	return nil, errors.New("make private temp directory: each was taken away before it was held")
}

// makeHeld returns nothing if somebody took the directory for one that was left.
func makeHeld(hidden []string) (*os.File, error) {
	made, err := os.MkdirTemp("", heldPrefix)
	if err != nil {
		return nil, err
	}
	path, err := filepath.EvalSymlinks(made)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // said above
	}
	if err == nil && slices.ContainsFunc(hidden, func(h string) bool { return paths.Within(path, h) }) {
		err = errors.New("it lies inside the data directory: choose another TMPDIR")
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(made))
	}
	temp, err := openDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // said above
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(made))
	}
	if held, err := hold(temp, unix.LOCK_SH); err != nil || !held {
		return nil, errors.Join(err, temp.Close())
	}
	return temp, nil
}

// hold takes a lock on a directory without waiting for it, and reports whether it
// has it and the directory still has its name.
func hold(dir *os.File, how int) (bool, error) {
	err := unix.Flock(int(dir.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	held, err := dir.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(dir.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(held, named), err
}

// RemoveLeft removes what workers on this host that are gone left behind: private
// temp directories of this process's user or of its trees' users that nobody holds,
// and cgroups of commands. What lives is never touched, also not the directory of a
// command that outlived its worker: it goes with a later call. RemoveLeft returns how
// many directories it removed, and an error for what should have gone and did not.
func (r *Runner) RemoveLeft() (int, error) { return r.removeLeft(os.TempDir()) }

func (r *Runner) removeLeft(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("look for what earlier workers left: %w", err)
	}
	var removed int
	var all error
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), heldPrefix) {
			continue
		}
		gone, err := r.removeUnheld(filepath.Join(dir, e.Name()))
		if gone {
			removed++
		}
		all = errors.Join(all, err)
	}
	if r.groups != nil {
		all = errors.Join(all, r.groups.tidy())
	}
	return removed, all
}

// removeUnheld removes a temp directory if it is this worker's to remove and nobody
// holds it.
func (r *Runner) removeUnheld(path string) (bool, error) {
	temp, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false, nil // gone meanwhile, or somebody else's
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = temp.Close() }()
	owner, err := ownerOf(temp)
	if err != nil || !r.mine(owner) {
		return false, err
	}
	if free, err := hold(temp, unix.LOCK_EX); sparesHeld && (err != nil || !free) {
		return false, err
	}
	if err := removeTemp(temp); err != nil {
		return false, fmt.Errorf("remove what an earlier worker left: %w", err)
	}
	return true, nil
}

// mine reports whether temp directories of a user are made by workers like this one.
func (r *Runner) mine(uid int) bool {
	switch first := int(r.cfg.UIDs.First); {
	case uid == os.Geteuid():
		return true
	default:
		return os.Geteuid() == 0 && uid >= first && uid < first+int(r.cfg.UIDs.Count)
	}
}

// removeTemp removes a temp directory and all in it. Commands may have left
// directories there that even their owner may not look into; those are opened first.
func removeTemp(temp *os.File) error {
	err := os.RemoveAll(temp.Name())
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := errors.Join(temp.Chmod(0o700), openUp(temp.Name())); err != nil {
		return err
	}
	return os.RemoveAll(temp.Name())
}

// openUp gives every directory below dir a mode that lets its owner empty it.
func openUp(dir string) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == "." {
			return err
		}
		return root.Chmod(path, 0o700)
	})
}
