//go:build linux && (amd64 || arm64)

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

// A sweep looks for processes again while those it has killed are on their way out,
// ever more rarely: one that waits for a disk can take its time.
const (
	sweepFirst = 2 * time.Millisecond
	sweepLast  = 100 * time.Millisecond
)

// reaper collects the exit statuses of the command and of all it left behind,
// which become the launcher's children when their parents die.
type reaper struct {
	child  int
	exited chan exit     // the command's own; sent once by run
	gone   chan struct{} // closed by run when no process is left
}

// exit is how a process ended.
type exit struct {
	status unix.WaitStatus
	used   unix.Rusage
}

// run reaps until there is nothing left to reap, each time a signal says that
// something may be. A thread that waited in the kernel would have the runtime look
// after it every 20 us, on a processor that the command could use.
func (r *reaper) run(died <-chan os.Signal) {
	defer close(r.gone)
	for {
		var e exit
		pid, err := unix.Wait4(-1, &e.status, unix.WNOHANG, &e.used)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			return
		case pid == 0: // none that is dead
			<-died
		case pid == r.child:
			r.exited <- e
		}
	}
}

// supervise waits for the command to end, or ends it, and then ends everything
// it started.
func supervise(c *control, child int, lease *alarm, timeout time.Duration, group cgroup, stop <-chan os.Signal) wire.Ending {
	r := &reaper{child: child, exited: make(chan exit, 1), gone: make(chan struct{})}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD) // before the first look: none is missed
	go r.run(died)
	crowded := make(chan struct{})
	go group.watch(crowded)
	clock := time.NewTimer(timeout)
	defer clock.Stop()
	var end wire.Ending
	for waiting := true; waiting; {
		waiting = false
		select {
		case e := <-r.exited:
			r.exited <- e // it is read again below
		case deadline, open := <-c.renewals:
			if waiting = open && lease.set(deadline) == nil; !waiting {
				end.Cause = wire.CauseStopped
			}
		case <-lease.rings:
			if waiting = !lease.over(); !waiting {
				end.Cause = wire.CauseLease
			}
		case <-crowded:
			end.Cause = wire.CauseProcesses
		case <-clock.C:
			end.Cause = wire.CauseTimeout
		case <-stop:
			end.Cause = wire.CauseStopped
		}
	}
	if end.Cause == "" && group.crowded() { // the command was quicker than the news
		end.Cause = wire.CauseProcesses
	}
	end.Swept = r.sweep()
	e := <-r.exited
	end.CPU = time.Duration(e.used.Utime.Nano() + e.used.Stime.Nano())
	end.Code = e.status.ExitStatus()
	if e.status.Signaled() {
		end.Signal = int(e.status.Signal())
		end.Code = 128 + end.Signal
	}
	return end
}

// sweep kills all descendants of this process until there are none, and counts
// them without the command itself. It stops them first, until a look finds no
// new one: a stopped process cannot start another, so none slips through between
// the look and the kill. SIGSTOP and SIGKILL cannot be caught, and nothing can
// leave the tree while this process is the reaper of all below it.
func (r *reaper) sweep() int {
	wait := sweepFirst
	again := time.NewTimer(wait)
	defer again.Stop()
	swept := map[int]bool{}
	for {
		select {
		case <-r.gone: // the common case: nothing was left
			return len(swept)
		default:
		}
		stopped := map[int]process{}
		for fresh := true; fresh; {
			fresh = false
			for _, p := range descendants() {
				if _, known := stopped[p.pid]; !known {
					stopped[p.pid], fresh = p, true
					p.signal(unix.SIGSTOP)
				}
			}
		}
		for _, p := range stopped {
			p.signal(unix.SIGKILL)
			if p.pid != r.child && !p.dead {
				swept[p.pid] = true
			}
		}
		select {
		case <-r.gone:
			return len(swept)
		case <-again.C:
			wait = min(2*wait, sweepLast)
			again.Reset(wait)
		}
	}
}

// process is a descendant at the moment of a look.
type process struct {
	pid, parent int
	dead        bool // not reaped yet; other threads of it may still live
}

// signal sends sig unless the number has been given to another process since
// the look: the descriptor is opened first, and the parent is compared then.
func (p process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if now, ok := look(p.pid); !ok || now.parent != p.parent && now.parent != os.Getpid() {
		return // another sweep round finds it if it is still ours
	}
	_ = unix.PidfdSendSignal(fd, sig, nil, 0)
}

// canSignal checks that this process may signal by descriptor. Where it may not, the
// sweep could end nothing.
func canSignal() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("open a process to signal it: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
		return fmt.Errorf("signal a process by its descriptor: %w", err)
	}
	return nil
}

// canEnd checks that this process may end those of the user that the call runs as.
// Root may only as long as it has the capability.
func canEnd(u *wire.User) error {
	if u == nil {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return fmt.Errorf("look at capabilities: %w", err)
	}
	if caps[0].Effective&(1<<unix.CAP_KILL) == 0 {
		return fmt.Errorf("processes of user %d could not be ended without CAP_KILL: %w", u.UID, unix.EPERM)
	}
	return nil
}

// descendants lists the processes below this one.
func descendants() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1) // what cannot be listed now is found in the next round
	children := map[int][]process{}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := look(pid); ok {
				children[p.parent] = append(children[p.parent], p)
			}
		}
	}
	found := children[os.Getpid()]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found
}

// look reads a process's parent and state. Its name, which it chooses itself,
// stands in parentheses: what follows the last one is the kernel's.
func look(pid int) (process, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	s := string(data)
	fields := strings.Fields(s[strings.LastIndex(s, ")")+1:])
	if len(fields) < 2 {
		return process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	return process{pid: pid, parent: parent, dead: fields[0] == "Z" || fields[0] == "X"}, err == nil
}

// alarm rings when the boot clock passes a moment. The boot clock goes on while
// the machine is suspended, as the other side's view of a lease does.
type alarm struct {
	timer    *os.File
	deadline time.Duration
	rings    chan struct{} // sent by wait
}

// newAlarm arms an alarm; zero arms none.
func newAlarm(deadline time.Duration) (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make lease timer: %w", err)
	}
	a := &alarm{timer: os.NewFile(uintptr(fd), "lease"), rings: make(chan struct{}, 1)}
	if err := a.set(deadline); err != nil {
		return nil, err
	}
	go a.wait()
	return a, nil
}

// set moves the alarm.
func (a *alarm) set(deadline time.Duration) error {
	a.deadline = deadline
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(deadline))}
	conn, err := a.timer.SyscallConn()
	if err != nil {
		return fmt.Errorf("set lease timer: %w", err)
	}
	var set error
	err = conn.Control(func(fd uintptr) {
		set = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
	if err == nil {
		err = set
	}
	if err != nil {
		return fmt.Errorf("set lease timer: %w", err)
	}
	return nil
}

// over says whether the moment has passed. A ring may be older than the last
// renewal, so it proves nothing.
func (a *alarm) over() bool { return a.deadline != 0 && wire.BootTime() >= a.deadline }

func (a *alarm) wait() {
	var buf [8]byte
	for {
		if _, err := a.timer.Read(buf[:]); err != nil {
			return
		}
		if binary.NativeEndian.Uint64(buf[:]) > 0 {
			a.rings <- struct{}{}
		}
	}
}
