//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

// maxEdit is the largest file that is edited in memory.
const maxEdit = 32 << 20

// read shows lines as they stand, from r.Offset, for as long as they fit.
func (w *worksite) read(r *wire.Read) error {
	p, err := w.find(r.Path)
	if err != nil {
		return err
	}
	defer p.close()
	f, _, err := p.open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewReader(f)
	if head, _ := in.Peek(512); bytes.IndexByte(head, 0) >= 0 {
		return faultf(wire.CodeInvalid, "%s is not a text file", w.show(p.path))
	}
	first := max(r.Offset, 1)
	if err := skipLines(in, first-1); err != nil {
		return fmt.Errorf("read %s: %w", w.show(p.path), err)
	}
	for n := 0; r.Limit <= 0 || n < r.Limit; {
		chunk, err := in.ReadSlice('\n') // a line, or as much of it as the buffer holds
		if room := w.Cap - w.output.Len(); len(chunk) > room {
			next := first + n
			if n == 0 { // a line that never fits is shown in part
				w.output.Write(chunk[:room])
				next++
			}
			w.more(next)
			return nil
		}
		w.output.Write(chunk)
		switch {
		case err == nil:
			n++
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read %s: %w", w.show(p.path), err)
		}
	}
	if _, err := in.Peek(1); err == nil {
		w.more(first + r.Limit)
	}
	return nil
}

// more says where a file goes on.
func (w *worksite) more(offset int) {
	w.truncated = true
	if s := w.output.String(); s != "" && !strings.HasSuffix(s, "\n") {
		w.output.WriteByte('\n')
	}
	fmt.Fprintf(&w.output, "[there is more: read again with offset %d]", offset)
}

// skipLines reads past n lines or to the end.
func skipLines(in *bufio.Reader, n int) error {
	for n > 0 {
		_, err := in.ReadSlice('\n')
		switch {
		case err == nil:
			n--
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
	return nil
}

// write replaces or creates a file.
func (w *worksite) write(o *wire.Write) error {
	p, err := w.writable(o.Path)
	if err != nil {
		return err
	}
	defer p.close()
	old, err := w.replaceable(p)
	if err != nil {
		return err
	}
	if err := p.root.MkdirAll(filepath.Dir(p.rel), 0o755); err != nil {
		return err
	}
	if err := p.replace(old, []byte(o.Content)); err != nil {
		return err
	}
	verb := "replaced"
	if old == nil {
		verb = "created"
	}
	fmt.Fprintf(&w.output, "%s %s, %d bytes", verb, w.show(p.path), len(o.Content))
	return nil
}

// edit replaces text in a file.
func (w *worksite) edit(o *wire.Edit) error {
	if o.Old == "" || o.Old == o.New {
		return faultf(wire.CodeInvalid, "the old text must be given and must differ from the new")
	}
	p, err := w.writable(o.Path)
	if err != nil {
		return err
	}
	defer p.close()
	old, err := w.replaceable(p)
	if err != nil {
		return err
	}
	f, _, err := p.open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxEdit+1))
	if err != nil {
		return err
	}
	if len(data) > maxEdit {
		return faultf(wire.CodeInvalid, "%s is larger than %d bytes", w.show(p.path), maxEdit)
	}
	n := bytes.Count(data, []byte(o.Old))
	switch {
	case n == 0:
		return faultf(wire.CodeNoMatch, "the old text does not occur in %s", w.show(p.path))
	case n > 1 && !o.All:
		return faultf(wire.CodeAmbiguous, "the old text occurs %d times in %s: give more of it, or set all", n, w.show(p.path))
	}
	if err := p.replace(old, bytes.ReplaceAll(data, []byte(o.Old), []byte(o.New))); err != nil {
		return err
	}
	fmt.Fprintf(&w.output, "replaced %d occurrence(s) in %s", n, w.show(p.path))
	return nil
}

// writable is find for what will be changed.
func (w *worksite) writable(path string) (*place, error) {
	p, err := w.find(path)
	if err != nil {
		return nil, err
	}
	if !w.MayWrite {
		p.close()
		return nil, faultf(wire.CodeDenied, "%s may not be changed", p.path)
	}
	return p, nil
}

// replaceable returns what stands at p now, nil for nothing. A file with several
// names is refused where there is a fence: the other names may lie outside, and
// replacing one name would silently part it from the others.
func (w *worksite) replaceable(p *place) (fs.FileInfo, error) {
	info, err := p.root.Lstat(p.rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing there is an answer
	}
	if err != nil {
		return nil, err
	}
	if err := regular(p.path, info); err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 && !w.Unconfined {
		return nil, faultf(wire.CodeDenied, "%s is a file with %d hard links", p.path, st.Nlink)
	}
	return info, nil
}

// replace writes data beside the target and renames it there, so that nobody
// ever sees half of it and no other name of the old file changes.
func (p *place) replace(old fs.FileInfo, data []byte) (err error) {
	temp := filepath.Join(filepath.Dir(p.rel), ".entail-"+rand.Text()+".tmp")
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
	return p.root.Rename(temp, p.rel)
}

// inherit gives f the owner and mode of the file it replaces. Only root can give
// files away; others keep what they make.
func inherit(f *os.File, old fs.FileInfo) error {
	if st, ok := old.Sys().(*syscall.Stat_t); ok {
		err := f.Chown(int(st.Uid), int(st.Gid))
		if err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	return f.Chmod(old.Mode())
}

// list shows the entries of a directory, directories with a slash.
func (w *worksite) list(o *wire.List) error {
	p, err := w.find(orRoot(o.Path))
	if err != nil {
		return err
	}
	defer p.close()
	entries, err := fs.ReadDir(p.root.FS(), p.rel)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !w.emit(entryName(e) + "\n") {
			break
		}
	}
	return nil
}

func entryName(e fs.DirEntry) string {
	switch {
	case e.IsDir():
		return e.Name() + "/"
	case e.Type()&fs.ModeSymlink != 0:
		return e.Name() + "@"
	}
	return e.Name()
}

func orRoot(path string) string {
	if path == "" {
		return "."
	}
	return path
}

// emit adds to the output and reports whether there was room.
func (w *worksite) emit(s string) bool {
	if w.output.Len()+len(s) > w.Cap {
		if !w.truncated {
			w.output.WriteString("[there is more: narrow the request]\n")
		}
		w.truncated = true
		return false
	}
	w.output.WriteString(strings.ToValidUTF8(s, "\uFFFD"))
	return true
}
