//go:build linux && (amd64 || arm64)

package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

// shelf is where a workspace keeps the outputs that it shows in part: its private
// temp directory. It bounds them together, since a call that may not write a byte
// itself fills this directory all the same. It is safe for concurrent use.
type shelf struct {
	dir  *os.File
	each int64      // bytes of one output that are kept
	user *wire.User // whom the files belong to; nil for this process's

	mu   sync.Mutex // guards what follows
	room int64      // bytes that are left for all
}

// take sets aside n bytes, or what is left of them.
func (s *shelf) take(n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, s.room)
	s.room -= n
	return n
}

// create makes a file that nothing else has the name of. The directory belongs to
// the calls: it is reached by its descriptor, and no link in it is followed.
func (s *shelf) create() (*os.File, error) {
	name := "output-" + rand.Text()[:10] + ".txt"
	fd, err := unix.Openat(int(s.dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), filepath.Join(s.dir.Name(), name))
	if s.user != nil {
		if err := f.Chown(s.user.UID, s.user.GID); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

var (
	errOutputLarge  = errors.New("one output is not kept beyond that")
	errOutputsLarge = errors.New("the outputs that are kept take all the room there is for them")
)

// overflow holds a whole output in a file, once it has one. One goroutine uses it.
type overflow struct {
	shelf *shelf
	file  *os.File
	path  string
	size  int64
	err   error // why the file ends before the output does
}

// write adds to the file, and makes it with the first byte.
func (o *overflow) write(p []byte) {
	if o.err != nil {
		return
	}
	if o.file == nil {
		if o.file, o.err = o.shelf.create(); o.err != nil {
			return
		}
		o.path = o.file.Name()
	}
	n := min(int64(len(p)), o.shelf.each-o.size)
	taken := o.shelf.take(n)
	written, err := o.file.Write(p[:taken])
	o.size += int64(written)
	switch {
	case err != nil:
		o.err = err
	case taken < n:
		o.err = errOutputsLarge
	case n < int64(len(p)):
		o.err = errOutputLarge
	}
}

// close ends the file.
func (o *overflow) close() {
	if o.file == nil {
		return
	}
	err := o.file.Close()
	if o.err == nil {
		o.err = err
	}
	o.file = nil
}

// String says where the output is, for whoever was shown a part of it.
func (o *overflow) String() string {
	const until = "until this turn ends or waits"
	switch {
	case o.path == "":
		return fmt.Sprintf("the whole could not be kept: %v", o.err)
	case o.err != nil:
		return fmt.Sprintf("the first %d bytes are in %s %s: %v", o.size, o.path, until, o.err)
	}
	return fmt.Sprintf("the whole is in %s %s", o.path, until)
}
