//go:build linux && (amd64 || arm64)

package wire

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootTime returns the time since the machine was started, the time it was
// suspended included. It is the clock of deadlines.
func BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("unreachable: CLOCK_BOOTTIME exists since Linux 2.6.39: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
