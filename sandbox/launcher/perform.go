//go:build linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/internal/wire"
)

// performStage is the life of the second stage: one file operation, in a process
// that was confined before it began.
func performStage() int {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 1
	}
	var r wire.Request
	if err := json.Unmarshal(data, &r); err != nil {
		return 1
	}
	w := &worksite{Request: r}
	done := w.perform()
	if err := json.NewEncoder(os.Stdout).Encode(done); err != nil {
		return 1
	}
	return 0
}

// worksite does one file operation.
type worksite struct {
	wire.Request

	output    strings.Builder
	truncated bool
}

// fault is an operation's error with the code the model is shown.
type fault struct {
	code string
	text string
}

func (f *fault) Error() string { return f.text }

func faultf(code, format string, args ...any) error {
	return &fault{code: code, text: fmt.Sprintf(format, args...)}
}

// perform turns the outcome into what is shown. A denial is exact: it comes from
// the rules in place and writable, or from os.Root finding that a path escapes.
// Any other refusal by the system has an ordinary reason, since within those
// rules the kernel's fence refuses nothing.
func (w *worksite) perform() wire.Performance {
	err := w.dispatch()
	if err == nil {
		return wire.Performance{Output: w.output.String(), Truncated: w.truncated}
	}
	code := wire.CodeFailed
	var f *fault
	switch {
	case errors.As(err, &f):
		code = f.code
	case errors.Is(err, fs.ErrNotExist):
		code = wire.CodeNotFound
	case escapes(err):
		code = wire.CodeDenied
	}
	return wire.Performance{Output: err.Error(), Code: code, Denied: code == wire.CodeDenied}
}

// escapes recognises os.Root's refusal, for which the library exports no value.
func escapes(err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe) && pe.Err.Error() == "path escapes from parent"
}

func (w *worksite) dispatch() error {
	switch o := w.Op; {
	case o.Read != nil:
		return w.read(o.Read)
	case o.Write != nil:
		return w.write(o.Write)
	case o.Edit != nil:
		return w.edit(o.Edit)
	case o.List != nil:
		return w.list(o.List)
	case o.Glob != nil:
		return w.glob(o.Glob)
	case o.Grep != nil:
		return w.grep(o.Grep)
	}
	return faultf(wire.CodeInvalid, "no operation")
}

// place is where a path leads: a directory that operations cannot leave, and the
// way from there.
type place struct {
	root *os.Root
	rel  string // relative to root, without links
	path string // resolved and absolute
}

func (p *place) close() { _ = p.root.Close() }

// find resolves path and says whether it may be worked on: inside the workspace
// or the private temp directory, and not hidden. Under danger-full-access there
// are no such bounds.
func (w *worksite) find(path string) (*place, error) {
	switch {
	case path == "":
		return nil, faultf(wire.CodeInvalid, "the path is empty")
	case strings.ContainsRune(path, 0):
		return nil, faultf(wire.CodeInvalid, "the path contains a zero byte")
	case !filepath.IsAbs(path):
		path = w.Root + "/" + path
	}
	resolved, err := paths.Resolve(path)
	if err != nil {
		return nil, err
	}
	base := "/"
	if !w.Unconfined {
		if base, err = w.bounds(path, resolved); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(base, resolved)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &place{root: root, rel: rel, path: resolved}, nil
}

// bounds returns the directory that a resolved path lies in.
func (w *worksite) bounds(path, resolved string) (string, error) {
	for _, h := range w.Hidden {
		if paths.Within(resolved, h) {
			return "", faultf(wire.CodeDenied, "%s is out of bounds for every tool", resolved)
		}
	}
	for _, base := range []string{w.Root, w.Temp} {
		if paths.Within(resolved, base) {
			return base, nil
		}
	}
	if w.goneTemp(resolved) {
		return "", faultf(wire.CodeNotFound, "%s is gone: a private temp directory goes when a turn ends or waits", path)
	}
	return "", faultf(wire.CodeDenied, "%s leads to %s, outside of the workspace %s", path, resolved, w.Root)
}

// goneTemp reports whether a resolved path was in a private temp directory that is
// no more. A session may remember such a path from an earlier turn; that it names
// nothing is an ordinary failure.
func (w *worksite) goneTemp(path string) bool {
	prefix := filepath.Join(filepath.Dir(w.Temp), wire.TempPrefix)
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok {
		return false
	}
	name, _, _ := strings.Cut(rest, "/")
	_, err := os.Lstat(prefix + name)
	return errors.Is(err, fs.ErrNotExist)
}

// show returns a resolved path as the model should use it.
func (w *worksite) show(path string) string {
	if rel, err := filepath.Rel(w.Root, path); err == nil && paths.Within(path, w.Root) {
		return rel
	}
	return path
}

// open opens an ordinary file for reading. Anything else is refused without
// waiting for it: opening a FIFO would block, opening a device may act.
func (p *place) open() (*os.File, fs.FileInfo, error) {
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
