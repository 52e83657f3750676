//go:build linux && (amd64 || arm64)

// Package paths reads paths as the kernel does, for both sides of the fence.
package paths

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxLinks is how many links a path may lead through, as in the kernel.
const maxLinks = 40

// Resolve follows every link in an absolute path, one component after the other,
// so that ".." means the parent of what was reached. From the first component
// that does not exist, the rest is taken as it stands. The answer can be out of
// date when it is used: it names things and picks the directory to work in, and
// the fence, which looks again, holds either way.
func Resolve(path string) (string, error) { return ResolveFrom("/", path) }

// ResolveFrom resolves a path that begins in a directory, which is resolved.
func ResolveFrom(dir, path string) (string, error) {
	done, todo := dir, strings.Split(path, "/")
	links := 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			done = filepath.Dir(done)
			continue
		}
		next := strings.TrimSuffix(done, "/") + "/" + name
		var st syscall.Stat_t
		err := syscall.Lstat(next, &st)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			if slices.Contains(todo, "..") {
				return "", fmt.Errorf("%s does not exist: %w", next, fs.ErrNotExist)
			}
			return filepath.Join(append([]string{next}, todo...)...), nil
		case err != nil:
			return "", &fs.PathError{Op: "lstat", Path: next, Err: err}
		case st.Mode&syscall.S_IFMT != syscall.S_IFLNK:
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: %w", path, syscall.ELOOP)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			done = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
}

// Within reports whether path is dir or lies below it. Both are resolved.
func Within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
