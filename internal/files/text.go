//go:build linux && (amd64 || arm64)

package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/entail-fleet/entail/internal/wire"
)

const (
	maxEdit = 32 << 20  // the largest file that is edited in memory
	maxSkip = 256 << 20 // how far into a file a read may begin
)

// read shows lines as they stand, from r.Offset, for as long as they fit.
func (o *operation) read(r *wire.Read) error {
	p, err := o.find(r.Path)
	if err != nil {
		return err
	}
	f, info, err := o.open(p)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	o.output.Grow(int(min(info.Size(), int64(o.limit))))
	in := bufio.NewReader(f)
	if head, _ := in.Peek(512); bytes.IndexByte(head, 0) >= 0 {
		return faultf(wire.CodeInvalid, "%s is not a text file", o.show(p.path))
	}
	if err := o.skipLines(in, max(r.Offset, 1)-1); err != nil {
		return fmt.Errorf("read %s: %w", o.show(p.path), err)
	}
	return o.readLines(in, r, o.show(p.path))
}

// readLines shows lines from where in stands.
func (o *operation) readLines(in *bufio.Reader, r *wire.Read, shown string) error {
	first := max(r.Offset, 1)
	for n := 0; r.Limit <= 0 || n < r.Limit; {
		chunk, err := in.ReadSlice('\n') // a line, or as much of it as the buffer holds
		if room := o.limit - o.output.Len(); len(chunk) > room {
			next := first + n
			if n == 0 { // a line that never fits is shown in part
				o.output.Write(chunk[:room])
				next++
			}
			o.more(next)
			return nil
		}
		o.output.Write(chunk)
		switch {
		case err == nil:
			n++
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read %s: %w", shown, err)
		}
	}
	if _, err := in.Peek(1); err == nil {
		o.more(first + r.Limit)
	}
	return nil
}

// more says where a file goes on.
func (o *operation) more(offset int) {
	o.truncated = true
	if s := o.output.String(); s != "" && !strings.HasSuffix(s, "\n") {
		o.output.WriteByte('\n')
	}
	fmt.Fprintf(&o.output, "[there is more: read again with offset %d]", offset)
}

// skipLines reads past n lines or to the end.
func (o *operation) skipLines(in *bufio.Reader, n int) error {
	for skipped := 0; n > 0; {
		chunk, err := in.ReadSlice('\n')
		switch {
		case err == nil:
			n--
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
		if skipped += len(chunk); skipped > maxSkip {
			return faultf(wire.CodeInvalid, "the line lies more than %d bytes into the file: use a shell command", maxSkip)
		}
		if err := o.goOn(); err != nil {
			return err
		}
	}
	return nil
}

// edit replaces text in a file.
func (o *operation) edit(e *wire.Edit) error {
	if e.Old == "" || e.Old == e.New {
		return faultf(wire.CodeInvalid, "the old text must be given and must differ from the new")
	}
	p, err := o.writable(e.Path)
	if err != nil {
		return err
	}
	if p, err = p.enter(); err != nil {
		return err
	}
	defer p.leave()
	f, old, err := o.open(p)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxEdit+1))
	if err != nil {
		return err
	}
	if len(data) > maxEdit {
		return faultf(wire.CodeInvalid, "%s is larger than %d bytes", o.show(p.path), maxEdit)
	}
	n := bytes.Count(data, []byte(e.Old))
	switch {
	case n == 0:
		return faultf(wire.CodeNoMatch, "the old text does not occur in %s", o.show(p.path))
	case n > 1 && !e.All:
		return faultf(wire.CodeAmbiguous, "the old text occurs %d times in %s: give more of it, or set all", n, o.show(p.path))
	}
	if err := o.replace(p, old, bytes.ReplaceAll(data, []byte(e.Old), []byte(e.New))); err != nil {
		return err
	}
	fmt.Fprintf(&o.output, "replaced %d occurrence(s) in %s%s", n, o.show(p.path), otherNames(old))
	return nil
}
