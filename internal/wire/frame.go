package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Between a worker and its helper go frames: a head, which is JSON, and a body,
// which is bytes as they are. What a file holds is the body, since it would take
// longer to quote it than to read it.
const (
	frameSizes = 8
	// maxFrame bounds each part: the largest file that is edited, quoted.
	maxFrame = 256 << 20
)

// WriteFrame writes a frame in one piece.
func WriteFrame(w io.Writer, head any, body string) error {
	text, err := json.Marshal(head)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if len(text) > maxFrame || len(body) > maxFrame {
		return fmt.Errorf("a frame of %d and %d bytes is too large", len(text), len(body))
	}
	buf := make([]byte, frameSizes, frameSizes+len(text)+len(body))
	binary.LittleEndian.PutUint32(buf, uint32(len(text)))     //nolint:gosec // checked above
	binary.LittleEndian.PutUint32(buf[4:], uint32(len(body))) //nolint:gosec // checked above
	buf = append(append(buf, text...), body...)
	_, err = w.Write(buf)
	return err
}

// ReadFrame reads a frame, its head into head. io.EOF says that there is none.
func ReadFrame(r *bufio.Reader, head any) (body string, err error) {
	var sizes [frameSizes]byte
	if _, err := io.ReadFull(r, sizes[:]); err != nil {
		return "", err
	}
	n, m := binary.LittleEndian.Uint32(sizes[:]), binary.LittleEndian.Uint32(sizes[4:])
	if n > maxFrame || m > maxFrame {
		return "", fmt.Errorf("a frame of %d and %d bytes is too large", n, m)
	}
	buf := make([]byte, n+m)
	if _, err := io.ReadFull(r, buf); err != nil {
		return "", fmt.Errorf("a frame was cut off: %w", err)
	}
	if err := json.Unmarshal(buf[:n], head); err != nil {
		return "", fmt.Errorf("decode frame: %w", err)
	}
	return string(buf[n:]), nil
}

// FileID tells files apart, whatever they are named.
type FileID struct{ Dev, Ino uint64 }

// Post is the first frame that a helper gets: where it works and within what bounds.
type Post struct {
	Bounds

	RootID FileID
	TempID FileID
}

// Job is every later frame: an operation, or what the helper has asked for.
type Job struct {
	// Number counts the helper's jobs, from 1. A renewal is for one of them.
	Number   uint64
	Op       Op
	Cap      int
	Deadline time.Duration // on the boot clock; zero means none

	// Linked are the files at and below hidden paths that have several names, and
	// Unsure says why nobody can tell.
	Linked []FileID `json:",omitempty"`
	Unsure string   `json:",omitempty"`
}

// Answer is every frame that a helper sends, with the output as its body. It answers
// the post, too.
type Answer struct {
	Code      string `json:",omitempty"`
	Denied    bool   `json:",omitempty"`
	Truncated bool   `json:",omitempty"`
	// Cause says that the helper ends, in the middle of the job.
	Cause string `json:",omitempty"`
	// WantsLinked is no answer yet: Linked is wanted.
	WantsLinked bool `json:",omitempty"`
}
