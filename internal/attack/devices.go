//go:build linux && (amd64 || arm64)

package attack

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// deviceAttempts reach for the machine by its files.
func deviceAttempts() []Attempt {
	return []Attempt{
		{"dev/make-character-device", func(t *Target) error { return makeDevice(t, unix.S_IFCHR, unix.Mkdev(1, 7), unix.ENOSPC) }},
		// Of a major number that no driver has: it is the driver that says ENXIO.
		{"dev/make-block-device", func(t *Target) error { return makeDevice(t, unix.S_IFBLK, unix.Mkdev(240, 0), unix.ENXIO) }},
		{"dev/open-kernel-log", func(*Target) error { return open("/dev/kmsg", unix.O_WRONLY) }},
		{"dev/open-sysctl", func(*Target) error { return open("/proc/sys/kernel/core_pattern", unix.O_WRONLY) }},
		{"dev/open-victims-score", func(t *Target) error { return open(t.victim("oom_score_adj"), unix.O_WRONLY) }},
		{"dev/open-cgroup", openCgroup},
	}
}

// makeDevice makes a node and uses it; the driver's own answer is success.
func makeDevice(t *Target, kind uint32, dev uint64, reached error) error {
	if err := unix.Mknod(t.in("new"), kind|0o600, int(dev)); err != nil { //nolint:gosec // a small number
		return err
	}
	if err := overwrite(t.in("new")); !errors.Is(err, reached) {
		return err
	}
	return nil
}

// openCgroup opens the file that moves processes between groups, of whichever
// version there is.
func openCgroup(*Target) error {
	err := error(unix.ENOENT)
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"} {
		if _, missing := os.Stat(dir + "/cgroup.procs"); missing == nil {
			return open(dir+"/cgroup.procs", unix.O_WRONLY)
		} else if !errors.Is(missing, unix.ENOENT) {
			err = missing
		}
	}
	return err
}
