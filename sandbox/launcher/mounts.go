//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/internal/wire"
)

// hide covers the order's hidden paths in this process's own mount namespace:
// a directory by an empty read-only file system, a file by /dev/null. A mount
// point can be neither renamed nor removed, so a directory between the workspace
// root and a hidden path is made one too: else a command could move it aside
// with its content and a later call would find the content under another name.
func hide(o *wire.Order) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, path := range o.Hidden {
		for _, dir := range between(o.Root, path) {
			if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
				return fmt.Errorf("pin %s: %w", dir, err)
			}
		}
		err := cover(path)
		if errors.Is(err, os.ErrNotExist) && !paths.Within(path, o.Root) {
			continue // the sibling rules keep it unreadable should it appear
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cover puts nothing in the place of path.
func cover(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if info.IsDir() {
		err = unix.Mount("none", path, "tmpfs", flags, "size=4k,mode=0555")
	} else {
		err = unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}

// between lists the directories below root on the way to path, without either.
func between(root, path string) []string {
	rel, ok := strings.CutPrefix(path, root+"/")
	if !ok {
		return nil
	}
	var dirs []string
	parts := strings.Split(rel, "/")
	for i := 1; i < len(parts); i++ {
		dirs = append(dirs, filepath.Join(root, filepath.Join(parts[:i]...)))
	}
	return dirs
}
