//go:build linux && (amd64 || arm64)

package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/entail-fleet/entail/internal/wire"
)

// operation is one operation on a site.
type operation struct {
	*Site

	limit     int          // bytes that are shown
	over      func() error // says why the operation may not go on
	opened    []*os.Root   // for this operation alone
	output    strings.Builder
	truncated bool
	bad       bool          // a name was shown that is not UTF-8
	hidden    []wire.FileID // what Site.linked said
	asked     bool          // whether it was asked
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

// errOver says that an operation was ended from outside.
var errOver = errors.New("the operation was ended before it was done")

// Perform does one operation and shows at most about limit bytes. It asks over
// before it changes anything, and as it goes; from the first error on it does
// nothing more.
//
// A denial is exact: it comes from the bounds, or from [os.Root] finding that a
// path escapes. Any other refusal by the system has an ordinary reason.
func (s *Site) Perform(op wire.Op, limit int, over func() error) wire.Performance {
	o := &operation{Site: s, limit: limit, over: over}
	defer func() {
		for _, root := range o.opened {
			_ = root.Close()
		}
	}()
	err := o.dispatch(op)
	if err == nil {
		return wire.Performance{Output: strings.ToValidUTF8(o.output.String(), badByte), Truncated: o.truncated}
	}
	code := wire.CodeFailed
	var f *fault
	switch {
	case errors.As(err, &f):
		code = f.code
	case errors.Is(err, errMoved):
		code = wire.CodeUnavailable
	case errors.Is(err, fs.ErrNotExist):
		code = wire.CodeNotFound
	case escapes(err):
		code = wire.CodeDenied
	}
	text := strings.ToValidUTF8(err.Error(), badByte)
	if code == wire.CodeNotFound && strings.Contains(text, badByte) {
		text += "\n" + badNames
	}
	return wire.Performance{Output: text, Code: code, Denied: code == wire.CodeDenied}
}

// escapes recognises os.Root's refusal, for which the library exports no value.
func escapes(err error) bool {
	var pe *fs.PathError
	return errors.As(err, &pe) && pe.Err.Error() == "path escapes from parent"
}

func (o *operation) dispatch(op wire.Op) error {
	if err := o.goOn(); err != nil {
		return err
	}
	switch {
	case op.Read != nil:
		return o.read(op.Read)
	case op.Write != nil:
		return o.write(op.Write)
	case op.Edit != nil:
		return o.edit(op.Edit)
	case op.List != nil:
		return o.list(op.List)
	case op.Glob != nil:
		return o.glob(op.Glob)
	case op.Grep != nil:
		return o.grep(op.Grep)
	}
	return faultf(wire.CodeInvalid, "no operation")
}

// goOn says why the operation may not go on, if it may not.
func (o *operation) goOn() error {
	if err := o.over(); err != nil {
		return fmt.Errorf("%w: %w", errOver, err)
	}
	return nil
}

const (
	// badByte stands for bytes that are not UTF-8.
	badByte = "\uFFFD"
	// badNames follows names that were shown with it.
	badNames = "[a name with " + badByte + " is not UTF-8: file tools cannot name it, a shell command can, by a pattern]"
)

// emit adds to the output and reports whether there was room.
func (o *operation) emit(s string) bool {
	if o.output.Len()+len(s) > o.limit {
		if !o.truncated {
			o.output.WriteString("[there is more: narrow the request]\n")
		}
		o.truncated = true
		return false
	}
	o.output.WriteString(s)
	return true
}

// emitName is emit for a line that begins with a path.
func (o *operation) emitName(path, rest string) bool {
	o.bad = o.bad || !utf8.ValidString(path)
	return o.emit(path + rest + "\n")
}

// explain ends an output that names files.
func (o *operation) explain() {
	if o.bad {
		o.output.WriteString(badNames + "\n")
	}
}
