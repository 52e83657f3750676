//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A mark names the place that a directory is (SPEC 7.9). It is an extended
// attribute of the directory, which no tool lists and no repository takes in, or,
// on a file system that keeps none, a file in it.
const (
	markAttr = "user.entail.workspace"
	markFile = ".entail-workspace"
	maxMark  = 256
)

// Mark makes sure that dir is the place id. A directory without a mark gets this
// one: Mark is for whoever works there first.
func Mark(dir, id string) error { return checkMark(dir, id, true) }

// CheckMark makes sure that dir is the place id. A directory without a mark is
// not: something may have to be mounted there.
func CheckMark(dir, id string) error { return checkMark(dir, id, false) }

// Markable reports, as an error that is nil, whether dir has a mark or can be given
// one by this process. It writes nothing.
func Markable(dir string) error {
	m, err := openMark(dir)
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	if found, err := m.read(); err != nil || found != "" {
		return err
	}
	if m.plain {
		return unix.Access(dir, unix.W_OK)
	}
	// Replacing an attribute that is not there fails, and says whether one could
	// be there.
	err = unix.Fsetxattr(int(m.dir.Fd()), markAttr, nil, unix.XATTR_REPLACE)
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

func checkMark(dir, id string, first bool) error {
	m, err := openMark(dir)
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	return m.check(id, first)
}

// mark is the mark of an open directory.
type mark struct {
	dir   *os.File
	plain bool // it is a file
}

func openMark(dir string) (*mark, error) {
	f, err := openDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrElsewhere, err)
	}
	_, err = unix.Fgetxattr(int(f.Fd()), markAttr, nil)
	return &mark{dir: f, plain: errors.Is(err, unix.ENOTSUP)}, nil
}

// check compares, having written first if that is asked for. Of two that write at
// once one finds what the other has written.
func (m *mark) check(id string, first bool) error {
	found, err := m.read()
	if err == nil && found == "" && first {
		if err = m.write(id); err == nil || errors.Is(err, unix.EEXIST) {
			found, err = m.read()
		}
	}
	switch dir := m.dir.Name(); {
	case err != nil:
		err = fmt.Errorf("%w: mark of %s: %w", ErrElsewhere, dir, err)
	case found == "":
		err = fmt.Errorf("%w: %s has no mark (is its volume mounted here?)", ErrElsewhere, dir)
	case found != id:
		err = fmt.Errorf("%w: %s is marked %q (is another volume mounted here, or was it moved or copied?)", ErrElsewhere, dir, found)
	default:
		return nil
	}
	return fmt.Errorf("%w; if it is the directory that is meant, mark it: %s", err, m.command(id))
}

// read returns the mark, or nothing where there is none.
func (m *mark) read() (string, error) {
	var buf [maxMark]byte
	if !m.plain {
		n, err := unix.Fgetxattr(int(m.dir.Fd()), markAttr, buf[:])
		if errors.Is(err, unix.ENODATA) {
			return "", nil
		}
		return string(buf[:max(n, 0)]), err
	}
	f, err := m.open(unix.O_RDONLY | unix.O_NONBLOCK)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	n, err := f.Read(buf[:])
	if err != nil { // an empty file is no mark of anything
		return "", fmt.Errorf("read %s: %w", markFile, err)
	}
	return string(bytes.TrimSpace(buf[:n])), nil
}

// write writes a mark where there is none.
func (m *mark) write(id string) error {
	if !m.plain {
		return unix.Fsetxattr(int(m.dir.Fd()), markAttr, []byte(id), unix.XATTR_CREATE)
	}
	f, err := m.open(unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.WriteString(id + "\n")
	return errors.Join(err, f.Close())
}

func (m *mark) open(flags int) (*os.File, error) {
	fd, err := unix.Openat(int(m.dir.Fd()), markFile, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), markFile), nil
}

// command is how a person writes a mark.
func (m *mark) command(id string) string {
	if m.plain {
		return fmt.Sprintf("echo %s >'%s/%s'", id, m.dir.Name(), markFile)
	}
	return fmt.Sprintf("setfattr -n %s -v %s '%s'", markAttr, id, m.dir.Name())
}

// isMarked reports whether a directory has a mark that can be read.
func isMarked(dir string) bool {
	if n, err := unix.Getxattr(dir, markAttr, nil); err == nil {
		return n > 0
	}
	_, err := os.Lstat(filepath.Join(dir, markFile))
	return err == nil
}
