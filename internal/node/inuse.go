package node

import (
	"os"
	"path/filepath"
	"syscall"
)

// InUse reports whether a server works in a data directory now. It makes nothing
// there. The answer may be old when it is read: the broker's own lock is what
// counts.
func InUse(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}
