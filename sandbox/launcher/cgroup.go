//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is the command's, if it has one. The worker has opened what this process needs
// of it.
type cgroup struct {
	there         bool
	enter, events int
}

// join puts the calling thread into it, and so what the thread forks. The rest of this
// process stays out: could it start no more threads, it would die of that.
func (g cgroup) join() error {
	if !g.there {
		return nil
	}
	if _, err := unix.Write(g.enter, []byte("0")); err != nil {
		return fmt.Errorf("enter the call's cgroup: %w", err)
	}
	return nil
}

// crowded reports whether the command wanted a process too many.
func (g cgroup) crowded() bool {
	if !g.there {
		return false
	}
	var buf [256]byte
	n, err := unix.Pread(g.events, buf[:], 0)
	_, after, found := bytes.Cut(buf[:max(n, 0)], []byte("max "))
	return err == nil && found && !bytes.HasPrefix(after, []byte("0"))
}

// crowdedEvery is the time between two looks. The kernel tells of a change in version 2
// of cgroups alone.
const crowdedEvery = 100 * time.Millisecond

// watch closes the channel when the command wants a process too many. It never ends
// before this process does, otherwise.
func (g cgroup) watch(hit chan<- struct{}) {
	if !g.there {
		return
	}
	for range time.Tick(crowdedEvery) {
		if g.crowded() {
			close(hit)
			return
		}
	}
}
