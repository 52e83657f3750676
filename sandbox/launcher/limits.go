//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

// cpuGrace is how many seconds longer than its limit a process may compute that does
// not heed SIGXCPU, as programs in Go do not. It is as long as a sweep may compute:
// see limit.
const cpuGrace = 5

// limit holds this process, and so what it starts, to the order's limits. None is
// raised above what this process was born with.
//
// The command's limits have to be this process's as well: they go to a child by fork,
// nothing can be done in a child between fork and exec, and from outside only root may
// change them without a race. So each must leave this process what it needs. It writes
// to no file. It has a dozen descriptors, and nobody may set fewer than 64. As a
// program in Go it does not heed SIGXCPU, and it computes next to nothing until it
// sweeps; cpuGrace is for that.
func limit(l wire.Limits) error {
	for _, r := range []struct {
		name         string
		resource     int
		value, grace uint64
	}{
		{"processor time", unix.RLIMIT_CPU, l.CPU, cpuGrace},
		{"file size", unix.RLIMIT_FSIZE, l.FileSize, 0},
		{"open files", unix.RLIMIT_NOFILE, l.OpenFiles, 0},
	} {
		if r.value == 0 {
			continue
		}
		var born unix.Rlimit
		if err := unix.Getrlimit(r.resource, &born); err != nil {
			return fmt.Errorf("read limit of %s: %w", r.name, err)
		}
		hard := min(r.value+r.grace, born.Max)
		if err := unix.Setrlimit(r.resource, &unix.Rlimit{Cur: min(r.value, hard), Max: hard}); err != nil {
			return fmt.Errorf("limit %s: %w", r.name, err)
		}
	}
	return nil
}
