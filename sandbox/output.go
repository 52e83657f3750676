package sandbox

import (
	"fmt"
	"strings"
)

// snippet keeps the head and the tail of a stream, and takes the rest so that
// the writer never waits. One goroutine writes; it is read when that has ended.
type snippet struct {
	half    int
	head    []byte
	tail    []byte // a ring once it is full
	next    int    // where the ring goes on
	skipped int64
}

func newSnippet(keep int) *snippet { return &snippet{half: max(keep/2, 1)} }

// Write keeps what there is room for and never fails.
func (s *snippet) Write(p []byte) (int, error) {
	n := len(p)
	if room := s.half - len(s.head); room > 0 {
		k := min(room, len(p))
		s.head = append(s.head, p[:k]...)
		p = p[k:]
	}
	if over := len(p) - s.half; over > 0 {
		s.skipped += int64(over)
		p = p[over:]
	}
	if room := s.half - len(s.tail); room > 0 {
		k := min(room, len(p))
		s.tail = append(s.tail, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(s.tail[s.next:], p)
		s.next = (s.next + k) % s.half
		s.skipped += int64(k)
		p = p[k:]
	}
	return n, nil
}

// Truncated says whether anything was left out.
func (s *snippet) Truncated() bool { return s.skipped > 0 }

// String returns what was kept, as valid UTF-8.
func (s *snippet) String() string {
	var b strings.Builder
	b.Write(s.head)
	if s.skipped > 0 {
		fmt.Fprintf(&b, "\n[%d bytes left out]\n", s.skipped)
	}
	b.Write(s.tail[s.next:])
	b.Write(s.tail[:s.next])
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// whole keeps a stream as it is, up to a limit that a correct writer keeps to.
type whole struct {
	strings.Builder
	room int
	over bool
}

// Write keeps what there is room for and never fails.
func (w *whole) Write(p []byte) (int, error) {
	k := min(len(p), w.room-w.Len())
	w.over = w.over || k < len(p)
	_, _ = w.Builder.Write(p[:k])
	return len(p), nil
}

// Truncated says whether anything was left out.
func (w *whole) Truncated() bool { return w.over }
