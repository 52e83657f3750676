//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/session"
)

// settle finds out whether the workspace belongs to its tree, having given it to the
// tree if it is nobody's yet, and gives the temp directory to the tree.
func (w *Workspace) settle() error {
	uid := int(w.runner.cfg.UIDs.Of(w.tree))
	w.user = &wire.User{UID: uid, GID: uid}
	w.shelf.user = w.user
	if err := w.temp.Chown(uid, uid); err != nil {
		return fmt.Errorf("give the temp directory to user %d: %w", uid, err)
	}
	if !Reachable(w.Root(), uid) {
		return nil
	}
	owner, err := ownerOf(w.root)
	if err != nil {
		return err
	}
	if owner == os.Geteuid() {
		empty, err := isEmpty(w.Root())
		if err != nil || !empty {
			return err
		}
		if err := w.root.Chown(uid, uid); err != nil {
			return fmt.Errorf("give the workspace to user %d: %w", uid, err)
		}
		owner = uid
	}
	w.owned = owner == uid
	return nil
}

func ownerOf(f *os.File) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("look at the owner of %s: %w", f.Name(), err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		panic("unreachable: on Linux every file has a Stat_t")
	}
	return int(st.Uid), nil
}

// isEmpty reports whether there is nothing in a directory but a mark.
func isEmpty(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, fmt.Errorf("look into the workspace: %w", err)
	}
	defer func() { _ = f.Close() }()
	names, err := f.Readdirnames(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("look into the workspace: %w", err)
	}
	return len(names) == 0 || len(names) == 1 && names[0] == markFile, nil
}

// Reachable reports whether a user that is in no group of anybody's can come to a
// path: a tree's user, who else works as somebody else or not at all. Access lists that say more are not asked: it is then taken as out of reach.
func Reachable(path string, uid int) bool {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		mine := ok && int(st.Uid) == uid
		if mine && info.Mode()&0o100 == 0 || !mine && info.Mode()&0o001 == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
	}
}

// places are the workspaces that a Runner has opened. They stay known after they
// were closed: what a parked session left there is still its own.
type places struct {
	mu    sync.Mutex
	trees map[string]session.ID // by path; guarded by mu
}

// maxPlaces bounds them. A Runner that has opened more forgets some that are closed,
// and then knows them by their marks alone.
const maxPlaces = 4096

func (p *places) add(w *Workspace) {
	if w.tree == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trees == nil {
		p.trees = map[string]session.ID{}
	}
	for path := range p.trees {
		if len(p.trees) < maxPlaces {
			break
		}
		delete(p.trees, path)
	}
	p.trees[w.Root()] = w.tree
}

// others lists the workspaces of other trees that are known: those that were opened
// here, and what lies beside w and has a mark. One that lies around w or in it is
// part of w.
func (p *places) others(w *Workspace) ([]string, error) {
	if w.tree == "" {
		return nil, nil
	}
	found, err := marked(w)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, tree := range p.trees {
		if tree != w.tree && !paths.Within(path, w.Root()) && !paths.Within(w.Root(), path) {
			found = append(found, path)
		}
	}
	return found, nil
}

// marked lists the directories beside a workspace that are marked as workspaces.
func marked(w *Workspace) ([]string, error) {
	parent := filepath.Dir(w.Root())
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil // then a call of the same user cannot look there either
	}
	if err != nil {
		return nil, fmt.Errorf("look for other workspaces: %w", err)
	}
	var found []string
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		if !e.IsDir() || path == w.Root() {
			continue
		}
		if isMarked(path) {
			found = append(found, path)
		}
	}
	return found, nil
}
