//go:build linux && (amd64 || arm64)

package sandbox

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// snippet keeps the head and the tail of a stream, and takes the rest so that
// the writer never waits. A stream that does not fit goes to a file as well, from
// its first byte. One goroutine writes; it is read when that has ended.
type snippet struct {
	half    int
	head    []byte
	tail    []byte // a ring once it is full
	next    int    // where the ring goes on
	skipped int64
	all     overflow
}

func newSnippet(keep int, s *shelf) *snippet {
	return &snippet{half: max(keep/2, 1), all: overflow{shelf: s}}
}

// Write keeps what there is room for and never fails.
func (s *snippet) Write(p []byte) (int, error) {
	n := len(p)
	if over := s.skipped > 0; over || n > 2*s.half-len(s.head)-len(s.tail) {
		if !over {
			s.all.write(s.head)
			s.all.write(s.tail)
		}
		s.all.write(p)
	}
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

// Close ends the stream: nothing is written after it.
func (s *snippet) Close() { s.all.close() }

// String returns what was kept, as valid UTF-8, and where the whole is.
func (s *snippet) String() string {
	head, tail := s.ends()
	if s.skipped == 0 {
		return valid(head + tail)
	}
	return valid(head) + fmt.Sprintf("\n[%d bytes left out; %v]\n", s.skipped, &s.all) + valid(tail)
}

// ends returns what was kept as it was written.
func (s *snippet) ends() (head, tail string) {
	return string(s.head), string(s.tail[s.next:]) + string(s.tail[:s.next])
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// meter counts what a command writes to both of its streams, and lets through as much
// as its limit is. It is safe for concurrent use.
type meter struct {
	limit int64         // zero is none
	over  chan struct{} // closed by take, when there is more

	mu   sync.Mutex // guards what follows
	used int64
}

func newMeter(limit int64) *meter { return &meter{limit: limit, over: make(chan struct{})} }

// take counts n bytes and returns how many of them are within the limit.
func (m *meter) take(n int) int {
	if m.limit == 0 {
		return n
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.used
	m.used += int64(n)
	if before <= m.limit && m.used > m.limit {
		close(m.over)
	}
	return int(max(min(m.limit-before, int64(n)), 0))
}

// passed says whether there was more than the limit.
func (m *meter) passed() bool {
	select {
	case <-m.over:
		return true
	default:
		return false
	}
}

// metered is a stream that is counted.
type metered struct {
	meter *meter
	to    io.Writer
}

// Write takes what is beyond the limit, so that the writer never waits.
func (s metered) Write(p []byte) (int, error) {
	_, err := s.to.Write(p[:s.meter.take(len(p))])
	return len(p), err
}
