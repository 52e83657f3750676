package broker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockDir takes dir for this process. The kernel frees the lock when the
// returned file is closed or the process dies, however it dies; the file's
// content only tells others whom to ask.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of data directory %s: %w", dir, err)
	}
	err = takeLock(f)
	if err == nil {
		return f, nil
	}
	defer f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("data directory %s is in use by %s: stop it, or choose another directory with --dir",
			dir, lockHolder(f))
	}
	return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
}

func takeLock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func lockHolder(f *os.File) string {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return "process " + pid
	}
	return "another process"
}
