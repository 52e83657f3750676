package session

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// writer holds what was written. Altered says that some value was not written as
// it is, because the form has no place for the difference.
type writer struct {
	b       []byte
	altered bool
}

// reader reads a form from its front.
type reader struct {
	data []byte
	at   int
}

// fail names the place.
func (r *reader) fail(what string) error {
	return fmt.Errorf("%w: at byte %d: %s", errNotCanonical, r.at, what)
}

// take reads s if it comes next.
func (r *reader) take(s string) bool {
	if rest := r.data[r.at:]; len(rest) < len(s) || string(rest[:len(s)]) != s {
		return false
	}
	r.at += len(s)
	return true
}

func (r *reader) want(s string) error {
	if !r.take(s) {
		return r.fail("want " + s)
	}
	return nil
}

// key reads a member's key if it comes next, with the comma that belongs there.
func (r *reader) key(key string) bool {
	from := r.at
	if r.data[r.at-1] != '{' && !r.take(",") {
		return false
	}
	if !r.take(key) {
		r.at = from
		return false
	}
	return true
}

// number reads the bytes of a whole number; whether it has its one form is for
// its reader to say.
func (r *reader) number() []byte {
	from := r.at
	for r.at < len(r.data) && (r.data[r.at] == '-' || ('0' <= r.data[r.at] && r.data[r.at] <= '9')) {
		r.at++
	}
	return r.data[from:r.at]
}

func writeInt(w *writer, v reflect.Value) { w.b = strconv.AppendInt(w.b, v.Int(), 10) }

func readInt(r *reader, v reflect.Value) error {
	n, err := r.int()
	if err == nil && v.OverflowInt(n) {
		err = r.fail("the number is too large")
	}
	v.SetInt(n)
	return err
}

func (r *reader) int() (int64, error) {
	digits := r.number()
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || !oneForm(bytes.TrimPrefix(digits, []byte("-"))) || (n == 0 && len(digits) > 1) {
		return 0, r.fail("want a whole number")
	}
	return n, nil
}

func writeUint(w *writer, v reflect.Value) { w.b = strconv.AppendUint(w.b, v.Uint(), 10) }

func readUint(r *reader, v reflect.Value) error {
	n, err := r.uint()
	v.SetUint(n)
	return err
}

func (r *reader) uint() (uint64, error) {
	digits := r.number()
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil || !oneForm(digits) {
		return 0, r.fail("want a whole number from 0 on")
	}
	return n, nil
}

// oneForm reports whether digits do not start with a zero that could be left out.
func oneForm(digits []byte) bool { return len(digits) == 1 || digits[0] != '0' }

func writeBool(w *writer, v reflect.Value) { w.b = strconv.AppendBool(w.b, v.Bool()) }

func readBool(r *reader, v reflect.Value) error {
	switch {
	case r.take("true"):
		v.SetBool(true)
	case !r.take("false"):
		return r.fail("want true or false")
	}
	return nil
}

func writeLink(w *writer, v reflect.Value) {
	w.b = append(hex.AppendEncode(append(w.b, '"'), v.Bytes()), '"')
}

func readLink(r *reader, v reflect.Value) error {
	text, err := r.text()
	if err != nil {
		return err
	}
	l, err := ParseLink(text)
	copy(v.Bytes(), l[:])
	return err
}

func writeText(w *writer, v reflect.Value) { w.text(v.String()) }

func readText(r *reader, v reflect.Value) error {
	s, err := r.text()
	v.SetString(s)
	return err
}

// short are the escapes of two characters.
const (
	shortEscaped = "\"\\\b\f\n\r\t"
	shortLetters = `"\bfnrt`
)

// text writes a text as encoding/json does, bytes that are no UTF-8 as U+FFFD.
func (w *writer) text(s string) {
	w.b = append(w.b, '"')
	from := 0
	for i := 0; i < len(s); {
		c, n := rune(s[i]), 1
		if c >= utf8.RuneSelf {
			c, n = utf8.DecodeRuneInString(s[i:])
		}
		switch {
		case mustEscape(c):
			w.b = appendEscape(append(w.b, s[from:i]...), c)
			from = i + n
		case c == utf8.RuneError && n == 1:
			w.b, w.altered = utf8.AppendRune(append(w.b, s[from:i]...), utf8.RuneError), true
			from = i + n
		}
		i += n
	}
	w.b = append(append(w.b, s[from:]...), '"')
}

// mustEscape reports whether a character does not stand for itself.
func mustEscape(r rune) bool {
	return r < ' ' || r == '"' || r == '\\' || r == '\u2028' || r == '\u2029'
}

func appendEscape(b []byte, r rune) []byte {
	for i := range len(shortEscaped) {
		if rune(shortEscaped[i]) == r {
			return append(b, '\\', shortLetters[i])
		}
	}
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// text reads a quoted text.
func (r *reader) text() (string, error) {
	if err := r.want(`"`); err != nil {
		return "", err
	}
	plain := r.run()
	if r.take(`"`) {
		return string(plain), nil
	}
	b := bytes.Clone(plain)
	for !r.take(`"`) {
		c, err := r.escape()
		if err != nil {
			return "", err
		}
		b = append(utf8.AppendRune(b, c), r.run()...)
	}
	return string(b), nil
}

// run reads the characters that stand for themselves.
func (r *reader) run() []byte {
	from := r.at
	for r.at < len(r.data) {
		c, n := rune(r.data[r.at]), 1
		if c >= utf8.RuneSelf {
			c, n = utf8.DecodeRune(r.data[r.at:])
		}
		if mustEscape(c) || (c == utf8.RuneError && n == 1) {
			break
		}
		r.at += n
	}
	return r.data[from:r.at]
}

// escape reads an escape, if it is the one that its character is written with.
func (r *reader) escape() (rune, error) {
	rest := r.data[r.at:]
	if len(rest) >= 2 && rest[0] == '\\' {
		if i := strings.IndexByte(shortLetters, rest[1]); i >= 0 {
			r.at += 2
			return rune(shortEscaped[i]), nil
		}
	}
	if len(rest) >= 6 && rest[1] == 'u' {
		var form [6]byte
		n, err := strconv.ParseUint(string(rest[2:6]), 16, 16)
		c := rune(n)
		if err == nil && mustEscape(c) && string(appendEscape(form[:0], c)) == string(rest[:6]) {
			r.at += 6
			return c, nil
		}
	}
	return 0, r.fail("neither a character of a text nor its escape")
}
