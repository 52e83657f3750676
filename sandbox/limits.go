//go:build linux && (amd64 || arm64)

package sandbox

import (
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// rlimits is what the kernel holds each process of a command to.
func rlimits(l policy.Limits) wire.Limits {
	return wire.Limits{
		CPU:       uint64(max((time.Duration(l.CPU)+time.Second-1)/time.Second, 0)),
		FileSize:  uint64(max(l.FileSize, 0)),
		OpenFiles: uint64(max(l.OpenFiles, 0)),
	}
}

// limit names the limit that ended the command, as far as can be told.
func (l *launch) limit(end wire.Ending) session.Limit {
	switch {
	case end.Cause == wire.CauseTimeout:
		return session.LimitTime
	case end.Cause == wire.CauseLease:
		return session.LimitLease
	case end.Cause == wire.CauseProcesses:
		return session.LimitProcesses
	case l.meter.passed(): // whether the launcher ended the call for it or the call was quicker
		return session.LimitOutput
	case end.Cause == "":
		return l.overrun(end)
	}
	return ""
}

// overrun names the limit that a command ran into which ended by itself. The signals
// are certain unless the command sends them to itself or exits like a shell that has
// seen them. The two errors are words, which it may have from elsewhere.
func (l *launch) overrun(end wire.Ending) session.Limit {
	of := l.order.Limits
	used := uint64(end.CPU / time.Second) //nolint:gosec // not negative
	switch {
	case of.CPU != 0 && (endedBy(end, unix.SIGXCPU) || end.Signal == int(unix.SIGKILL) && used >= of.CPU):
		return session.LimitCPU
	case of.FileSize != 0 && (endedBy(end, unix.SIGXFSZ) || end.Code != 0 && l.complains(unix.EFBIG)):
		return session.LimitFileSize
	case of.OpenFiles != 0 && end.Code != 0 && l.complains(unix.EMFILE):
		return session.LimitOpenFiles
	}
	return ""
}

// endedBy reports whether a signal ended the command, or the last one of the shell
// that is the command.
func endedBy(end wire.Ending, sig syscall.Signal) bool {
	return end.Code == 128+int(sig) // a command's that was ended by a signal, too
}

// blames is complains for errors that are about something: the words alone on a line
// are no complaint of a program that was refused something, which says what.
func (l *launch) blames(errors ...syscall.Errno) bool {
	head, tail := l.stderr.ends()
	for line := range strings.Lines(strings.ToLower(head + "\n" + tail)) {
		for _, errno := range errors {
			before, after, found := strings.Cut(line, errno.Error())
			if found && strings.Trim(before+after, " \t\r\n.:;,!()[]'\"") != "" {
				return true
			}
		}
	}
	return false
}

// complains looks in the standard error for one of the errors. The words are the
// kernel's, in the C locale.
func (l *launch) complains(errors ...syscall.Errno) bool {
	head, tail := l.stderr.ends()
	said := strings.ToLower(head + "\n" + tail)
	said = strings.ReplaceAll(said, unix.ENFILE.Error(), "") // begins like EMFILE, and is about the host
	for _, errno := range errors {
		if strings.Contains(said, errno.Error()) {
			return true
		}
	}
	return false
}
