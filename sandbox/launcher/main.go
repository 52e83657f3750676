//go:build linux && (amd64 || arm64)

// Command launcher starts one permitted call behind its fence and ends with it. It
// is embedded in the workers' binary, which starts it anew for each call; see
// package sandbox for what it promises and package wire for what it is told.
//
// It is a program of its own because a call begins with it: the workers' binary
// takes several milliseconds to come up, this one about one.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
)

// NB: the stages end by syscall.Exit. There is nothing to flush, and nothing that
// may hold up the end of a call.
func main() {
	switch os.Args[0] {
	case wire.LauncherName:
		// The first thread stays with this goroutine: see thread.
		runtime.LockOSThread()
		syscall.Exit(launcherStage())
	case wire.HelperName:
		syscall.Exit(helperStage())
	}
	fmt.Fprintln(os.Stderr, "this is the launcher of a worker's sandbox; workers start it themselves")
	os.Exit(2)
}

// errLeaseOver says that nothing was started because the lease had ended.
var errLeaseOver = errors.New("the lease is over")

// control is the launcher's end of the socket to the worker.
type control struct {
	file     *os.File
	decoder  *json.Decoder
	renewals chan time.Duration // sent by listen, which closes it
}

// send reports to the worker. A worker that is gone needs no report.
func (c *control) send(n wire.Notice) { _ = json.NewEncoder(c.file).Encode(n) }

// fail reports that nothing was started, or that it could not be.
func (c *control) fail(stage string, err error) int {
	f := wire.Failure{Stage: stage, Message: err.Error()}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = int(errno)
	}
	c.send(wire.Notice{Failure: &f})
	return 0
}

// listen passes on renewals until the worker closes its end or is gone.
func (c *control) listen() {
	defer close(c.renewals)
	for {
		var r wire.Renewal
		if err := c.decoder.Decode(&r); err != nil {
			return
		}
		c.renewals <- r.Deadline
	}
}

// launcherStage is the life of a launcher: it reads its order, starts the command
// behind the fence, and returns when nothing the command started is left. The
// launcher itself stays outside the fence, so that the command can neither
// signal nor inspect it.
func launcherStage() int {
	if err := unix.CloseRange(wire.ControlFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return 1 // whatever this process inherited would leak: say nothing, run nothing
	}
	if err := forbidTracing(); err != nil {
		return 1
	}
	rehearse()
	apart := newThread()
	given, group, err := receive()
	if err != nil {
		return 1
	}
	if err := unix.SetNonblock(wire.ControlFD, true); err != nil {
		return 1
	}
	file := os.NewFile(wire.ControlFD, "control")
	c := &control{file: file, decoder: json.NewDecoder(file), renewals: make(chan time.Duration)}
	var o wire.Order
	if err := c.decoder.Decode(&o); err != nil {
		return 1
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	own, err := prepare(&o, given)
	if err != nil {
		return c.fail(wire.StageConfine, err)
	}
	switch {
	case o.Serve:
		return serve(c, &o, own, apart)
	case o.Op.Shell == nil:
		return c.fail(wire.StageConfine, errNoOrder)
	}
	lease, err := newAlarm(o.Deadline)
	if err != nil {
		return c.fail(wire.StageConfine, err)
	}
	child, stage, err := start(c, &o, own, group, apart)
	if err != nil {
		return c.fail(stage, err)
	}
	go c.listen()
	leave()
	end := supervise(c, child, lease, o.Timeout, group, stop)
	c.send(wire.Notice{Ending: &end})
	return 0
}

// rehearse reads an order and writes a notice that come to nothing. Package json looks
// at a type for as long as it reads one order, and remembers it: a launcher that waits
// has done so when its order comes.
func rehearse() {
	var o wire.Order
	_ = json.Unmarshal([]byte(`{"User":{},"Hidden":[],"Env":[],"Limits":{},"Op":{"Shell":{}}}`), &o)
	_ = json.NewEncoder(io.Discard).Encode(wire.Notice{Ending: &wire.Ending{}})
}

// leave leaves the workspace and the streams to the command: when that and all that it
// started are gone, nothing of the call is left but a process on its way out. Streams
// that it cannot leave last as long as it does, and the worker waits for their end.
func leave() {
	_ = unix.Chdir("/")
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for _, fd := range []int{1, 2} {
		_ = unix.Dup3(null, fd, unix.O_CLOEXEC)
	}
	_ = unix.Close(null)
}

// dirs are the directories that an order grants.
type dirs struct{ root, temp int }

// receive waits for the first byte on the control socket and the descriptors that
// come with it. They lead into the worker's mount namespace.
func receive() (dirs, cgroup, error) {
	var first [1]byte
	rights := make([]byte, unix.CmsgSpace(4*4))
	n, m, _, _, err := unix.Recvmsg(wire.ControlFD, first[:], rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != 1 {
		return dirs{}, cgroup{}, errors.Join(err, errNoOrder)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		return dirs{}, cgroup{}, errors.Join(err, errNoOrder)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 2 && len(fds) != 4 {
		return dirs{}, cgroup{}, errors.Join(err, errNoOrder)
	}
	given := dirs{root: fds[0], temp: fds[1]}
	if len(fds) == 2 {
		return given, cgroup{}, nil
	}
	return given, cgroup{there: true, enter: fds[2], events: fds[3]}, nil
}

// errNoOrder says that the worker is gone or is no worker.
var errNoOrder = errors.New("no order came")

// prepare does what concerns the whole process and must precede the fence.
func prepare(o *wire.Order, given dirs) (dirs, error) {
	unix.Umask(0o022)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return dirs{}, fmt.Errorf("forbid core dumps: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return dirs{}, fmt.Errorf("become reaper: %w", err)
	}
	if err := errors.Join(canSignal(), canEnd(o.User)); err != nil {
		return dirs{}, err
	}
	if err := giveOutput(o); err != nil {
		return dirs{}, err
	}
	own, err := given.reopen(o)
	if err != nil {
		return dirs{}, err
	}
	if o.Namespaces {
		err := errors.Join(separate(o), unix.Close(own.root), unix.Close(own.temp))
		if err != nil {
			return dirs{}, err
		}
		// What was opened before leads around what is mounted now.
		if own, err = given.reopen(o); err != nil {
			return dirs{}, err
		}
	}
	if err := unix.Fchdir(own.root); err != nil {
		return dirs{}, fmt.Errorf("enter %s: %w", o.Root, err)
	}
	return own, nil
}

// reopen opens by their paths the directories that were given.
func (d dirs) reopen(o *wire.Order) (dirs, error) {
	root, err := reopen(d.root, o.Root)
	if err != nil {
		return dirs{}, err
	}
	temp, err := reopen(d.temp, o.Temp)
	return dirs{root: root, temp: temp}, err
}

// giveOutput gives the pipes that the command writes to, which the worker made, to
// the command's user: it could not open them by name otherwise, and a script that
// writes to /dev/stderr does. The streams of a program that runs on its caller's own
// stay the caller's.
func giveOutput(o *wire.Order) error {
	u := o.User
	if u == nil || o.Op.Shell != nil && o.Op.Shell.Argv != nil {
		return nil
	}
	for _, fd := range []int{1, 2} {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return fmt.Errorf("look at descriptor %d: %w", fd, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFIFO {
			continue // it is not of this call alone
		}
		if err := unix.Fchown(fd, u.UID, u.GID); err != nil {
			return fmt.Errorf("give the pipe of descriptor %d to user %d: %w", fd, u.UID, err)
		}
	}
	return nil
}

// reopen opens path and checks that it is the directory the worker meant, which
// it handed over as old. The worker's descriptor itself must not be used: it
// leads into the worker's mount namespace, where nothing is hidden.
func reopen(old int, path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	var want, got unix.Stat_t
	if err := errors.Join(unix.Fstat(old, &want), unix.Fstat(fd, &got)); err != nil {
		return -1, fmt.Errorf("stat %s: %w", path, err)
	}
	if want.Dev != got.Dev || want.Ino != got.Ino {
		return -1, fmt.Errorf("%s is another directory than when the workspace was opened: %w", path, unix.ESTALE)
	}
	return fd, nil
}

// start confines and starts the command. Confinement and fork happen on one
// thread apart; the child inherits that thread's restrictions at fork, so there
// is no moment in which it runs without them.
func start(c *control, o *wire.Order, d dirs, group cgroup, apart thread) (pid int, stage string, err error) {
	path, argv, err := called(o)
	if err != nil {
		return 0, wire.StageExec, err
	}
	if err := limit(o.Limits); err != nil {
		return 0, wire.StageConfine, err
	}
	attr := syscall.ProcAttr{Env: o.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}}
	apart.do(func() {
		if stage, err = wire.StageConfine, errors.Join(group.join(), restrict(o, d)); err != nil {
			return
		}
		if o.Deadline != 0 && wire.BootTime() >= o.Deadline {
			stage, err = wire.StageLease, errLeaseOver
			return
		}
		c.send(wire.Notice{Ready: true})
		stage = wire.StageExec
		if pid, err = syscall.ForkExec(path, argv, &attr); err == nil {
			linger(pid)
		}
	})
	return pid, stage, err
}

// called is the program that a shell call starts.
func called(o *wire.Order) (path string, argv []string, err error) {
	s := o.Op.Shell
	if s.Argv == nil {
		path, argv = shell(s.Command)
		return path, argv, nil
	}
	path, err = find(s.Argv[0], o.Env)
	return path, s.Argv, err
}

// shell picks the shell of the host.
func shell(line string) (path string, argv []string) {
	if _, err := os.Stat("/bin/bash"); err == nil {
		return "/bin/bash", []string{"bash", "-c", line}
	}
	return "/bin/sh", []string{"sh", "-c", line}
}

// find is where a program is that is not run by a shell: a name without a slash is
// looked up in the PATH of its environment. Whether the call may execute it is the
// kernel's to say, and what is found here is only a path.
func find(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	err := unix.ENOENT
	for _, kv := range env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
			path := filepath.Join(dir, name)
			info, statErr := os.Stat(path)
			switch {
			case !filepath.IsAbs(path) || statErr != nil || info.IsDir():
			case info.Mode()&0o111 == 0:
				err = unix.EACCES
			default:
				return path, nil
			}
		}
	}
	return "", err
}
