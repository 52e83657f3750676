//go:build linux && (amd64 || arm64)

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

// writable is find for what will be changed.
func (o *operation) writable(path string) (*place, error) {
	p, err := o.find(path)
	if err != nil {
		return nil, err
	}
	if !o.bounds.MayWrite {
		return nil, faultf(wire.CodeDenied, "%s may not be changed", p.path)
	}
	return p, nil
}

// enter returns p as seen from its own directory, which it holds: whatever its
// path leads to from now on, a file is made, renamed and removed in one place.
func (p *place) enter() (*place, error) {
	dir, err := p.root.OpenRoot(filepath.Dir(p.rel))
	if err != nil {
		return nil, err
	}
	return &place{root: dir, rel: filepath.Base(p.rel), path: p.path}, nil
}

func (p *place) leave() { _ = p.root.Close() }

// write replaces or creates a file.
func (o *operation) write(w *wire.Write) error {
	p, err := o.writable(w.Path)
	if err != nil {
		return err
	}
	made, err := p.makeParents()
	if err == nil {
		err = o.writeAt(p, []byte(w.Content))
	}
	if err != nil {
		p.remove(made)
	}
	return err
}

func (o *operation) writeAt(p *place, data []byte) error {
	p, err := p.enter()
	if err != nil {
		return err
	}
	defer p.leave()
	old, err := p.replaceable()
	if err != nil {
		return err
	}
	if err := o.replace(p, old, data); err != nil {
		return err
	}
	verb := "replaced"
	if old == nil {
		verb = "created"
	}
	fmt.Fprintf(&o.output, "%s %s, %d bytes%s", verb, o.show(p.path), len(data), otherNames(old))
	return nil
}

// replaceable returns what stands at p now, nil for nothing.
func (p *place) replaceable() (fs.FileInfo, error) {
	info, err := p.root.Lstat(p.rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing there is an answer
	}
	if err != nil {
		return nil, err
	}
	return info, regular(p.path, info)
}

// otherNames says what a replacement leaves behind. The names of a file may lie
// anywhere, outside as well, so only the one that was asked for is changed.
func otherNames(old fs.FileInfo) string {
	if old == nil || stat(old).Nlink < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d other hard link(s) of the old file keep the old content)", stat(old).Nlink-1)
}

// makeParents makes the directories on the way to p and returns those that it
// made, the outermost first.
func (p *place) makeParents() (made []string, err error) {
	dir, at := filepath.Dir(p.rel), ""
	if _, err := p.root.Stat(dir); err == nil {
		return nil, nil
	}
	for part := range strings.SplitSeq(dir, "/") {
		at = filepath.Join(at, part)
		err := p.root.Mkdir(at, 0o755)
		switch {
		case err == nil:
			made = append(made, at)
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
	}
	return made, nil
}

// remove removes directories that hold nothing, the innermost first.
func (p *place) remove(made []string) {
	for _, dir := range slices.Backward(made) {
		if p.root.Remove(dir) != nil {
			return // somebody uses it by now
		}
	}
}

// replace writes data beside the target and renames it there, so that nobody
// ever sees half of it and no other name of the old file changes. p was entered.
func (o *operation) replace(p *place, old fs.FileInfo, data []byte) (err error) {
	if err := o.goOn(); err != nil {
		return err
	}
	temp, err := tempName()
	if err != nil {
		return err
	}
	f, err := p.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.root.Remove(temp))
		}
	}()
	_, err = f.Write(data)
	if err == nil && old != nil {
		err = inherit(f, old)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := o.goOn(); err != nil { // the last moment
		return err
	}
	return p.root.Rename(temp, p.rel)
}

// tempName makes a name that nobody guesses. NB: crypto/rand would have every launcher
// test its cryptography when it comes up.
func tempName() (string, error) {
	var b [16]byte
	if _, err := unix.Getrandom(b[:], 0); err != nil {
		return "", fmt.Errorf("make a name: %w", err)
	}
	return fmt.Sprintf(".entail-%x.tmp", b), nil
}

// inherit gives f the owner and mode of the file it replaces. Only root can give
// files away; others keep what they make.
func inherit(f *os.File, old fs.FileInfo) error {
	st := stat(old)
	if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil && !errors.Is(err, unix.EPERM) {
		return err
	}
	return f.Chmod(old.Mode())
}
