//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

const (
	// pipeGrace bounds the wait for output after the launcher has ended. Only a
	// danger-full-access call can have passed its pipe to a stranger.
	pipeGrace = 2 * time.Second
)

// grant is what a permit lets a call have.
type grant struct {
	mode    session.SandboxMode
	network session.Network
	terms   policy.Confinement
}

// run runs a call on a grant. It is what is behind the permit.
func (w *Workspace) run(stop <-chan struct{}, lease Lease, g grant, op Op) (Result, error) {
	return w.runOn(stop, lease, g, op, nil)
}

// runOn is run on streams of the caller's, if there are any.
func (w *Workspace) runOn(stop <-chan struct{}, lease Lease, g grant, op Op, s *Streams) (Result, error) {
	if err := validate(op); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	if why := w.fit(g); why != "" && g.mode != session.DangerFullAccess {
		return unavailable(why), nil
	}
	var res Result
	var err error
	if op.Shell != nil {
		res, err = w.shell(stop, lease, g, op, s)
	} else {
		res, err = w.home(g).perform(stop, lease, g, w.request(g, op))
	}
	if as := w.as(g); res.Failed && as != nil && g.mode == session.DangerFullAccess && !w.owned && isPermission(res.Output) {
		res = res.note(notOwner(as.UID, w.Root()))
	}
	if res.Denial == "" {
		res.Denial = session.DenialNone
	}
	if res.Code != CodeUnavailable {
		res.Sandbox = w.fence(g).confinement()
	}
	return res, err
}

// isPermission reports whether a text speaks of missing rights.
func isPermission(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, unix.EACCES.Error()) || strings.Contains(text, unix.EPERM.Error())
}

// notOwner says why a call without a fence may still not write its workspace.
func notOwner(uid int, root string) string {
	return fmt.Sprintf("[note: this call ran as user %d, its session tree's own, and %s belongs to somebody else; "+
		"the deployment can have such calls run as the worker: confinement.fullAccessAs]", uid, root)
}

// shell runs a command.
func (w *Workspace) shell(stop <-chan struct{}, lease Lease, g grant, op Op, s *Streams) (Result, error) {
	if err := w.helpers.leave(stop, g, timeout(op, g.terms.Limits)); err != nil {
		return Result{}, err
	}
	o, err := w.order(g, op)
	if err != nil {
		return unavailable(err.Error()), nil
	}
	if lease != nil {
		o.Deadline = max(lease.Deadline(), 1) // zero would mean none
	}
	return w.launch(stop, lease, g, &o, s)
}

// request is what is asked for, within the bounds that the workspace itself gives.
func (w *Workspace) request(g grant, op Op) wire.Request {
	r := wire.Request{
		Bounds: wire.Bounds{
			MayWrite: g.mode == session.WorkspaceWrite || g.mode == session.DangerFullAccess, Unconfined: g.mode == session.DangerFullAccess,
			Root: w.Root(), Temp: w.temp.Name(),
		},
		Cap: w.runner.cfg.OutputCap, Op: op,
	}
	if !r.Unconfined {
		r.Hidden = w.hidden
	}
	return r
}

// order is what a launcher is told.
func (w *Workspace) order(g grant, op Op) (wire.Order, error) {
	o := wire.Order{
		Request: w.request(g, op), User: w.as(g), MaxABI: w.runner.cfg.maxABI,
		Limits: rlimits(g.terms.Limits), Timeout: timeout(op, g.terms.Limits),
	}
	o.Env = w.environ(o.User)
	if o.Unconfined {
		return o, nil
	}
	others, err := w.runner.places.others(w)
	if err != nil {
		return o, err
	}
	o.Hidden, o.Others = w.hidden, others
	o.Namespaces = w.runner.host.spaces != noNamespaces
	o.Loopback = g.network == session.NetworkLoopback
	o.Sockets = g.network == session.NetworkAllow
	return o, nil
}

// as says as whom a call runs: nil as this process's user.
func (w *Workspace) as(g grant) *wire.User {
	as := w.owned
	if g.mode == session.DangerFullAccess {
		as = g.terms.FullAccessAs != policy.AsWorker
	}
	if as {
		return w.user
	}
	return nil
}

// tier is the kind of fence that confined calls get here.
func (w *Workspace) tier() session.Tier {
	switch {
	case w.runner.host.spaces != noNamespaces:
		return session.TierNamespaces
	case w.owned:
		return session.TierUID
	}
	return session.TierLandlock
}

// fence describes what a call gets here.
func (w *Workspace) fence(g grant) fence {
	return fence{
		mode: g.mode, network: g.network, tier: w.tier(), abi: w.runner.host.abi,
		root: !w.owned && os.Geteuid() == 0, alone: w.owned,
	}
}

// launch has a launcher carry out an order: one that waits for it, or a new one.
func (w *Workspace) launch(stop <-chan struct{}, lease Lease, g grant, o *wire.Order, s *Streams) (Result, error) {
	group, err := w.group(g, o)
	if err != nil {
		return Result{}, fmt.Errorf("%w: count its processes: %w", ErrNotStarted, err)
	}
	defer group.close()
	if s == nil {
		k := w.runner.kindOf(o)
		defer w.runner.pool.fill(k)
		if ready := w.runner.pool.take(k); ready != nil {
			l := w.newLaunch(o, g, group)
			told, err := l.run(stop, lease, ready)
			// One that was gone before it had begun anything is as if it had not been there.
			if err != nil || !told.nothing() || stopped(stop) {
				return l.result(told, err)
			}
		}
	}
	fresh, err := w.runner.bear(w.runner.kindOf(o), s)
	if err != nil {
		return Result{}, err
	}
	l := w.newLaunch(o, g, group)
	return l.result(l.run(stop, lease, fresh))
}

// stopped reports whether the channel is closed.
func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// launch is one order and what comes of it.
type launch struct {
	order  *wire.Order
	mode   session.SandboxMode
	meter  *meter
	stdout *snippet
	stderr *snippet
	given  []*os.File    // the workspace and its temp directory, and two files of its cgroup
	grace  time.Duration // beside the call's own time, for one that does not answer
}

func (w *Workspace) newLaunch(o *wire.Order, g grant, group *cgroup) *launch {
	l := &launch{order: o, mode: g.mode, stdout: newSnippet(o.Cap, w.shelf), stderr: newSnippet(o.Cap, w.shelf)}
	l.meter = newMeter(g.terms.Limits.Output)
	l.given = append([]*os.File{w.root, w.temp}, group.files()...)
	l.grace = w.runner.cfg.grace
	return l
}

// report is what a launcher told, put together.
type report struct {
	failure *wire.Failure
	ready   bool
	ending  *wire.Ending
	waited  error // how the launcher itself ended
}

// nothing reports that the launcher was gone before it had begun anything.
func (r report) nothing() bool { return r.failure == nil && !r.ready && r.ending == nil }

// start hands a launcher its order. The report comes when it has ended.
func (l *launch) start(by *launcher) <-chan report {
	conn := by.conn
	done := make(chan report, 1)
	streams := by.read(metered{l.meter, l.stdout}, metered{l.meter, l.stderr})
	go func() {
		told := l.listen(conn)
		if told.ending == nil || by.out == nil {
			told.waited = by.wait(streams)
		} else {
			by.leave(streams)
		}
		done <- told
	}()
	// A launcher that is gone is noticed by the other goroutine, one that hangs by its
	// time being up.
	_ = conn.SetWriteDeadline(time.Now().Add(l.order.Timeout + l.grace))
	if _, _, err := conn.WriteMsgUnix([]byte{0}, l.rights(), nil); err == nil {
		_ = json.NewEncoder(conn).Encode(l.order)
		_ = conn.SetWriteDeadline(time.Time{}) // renewals are short
	}
	return done
}

// run hands a launcher its order, and waits for its end.
func (l *launch) run(stop <-chan struct{}, lease Lease, by *launcher) (report, error) {
	conn, done := by.conn, l.start(by)
	encoder := json.NewEncoder(conn)
	var renewed <-chan struct{}
	if lease != nil {
		renewed = lease.Renewed()
	}
	over := l.meter.over
	// A launcher ends its call in time by itself, unless it hangs.
	ended, late := false, time.NewTimer(l.order.Timeout+l.grace)
	defer late.Stop()
	end := func() {
		_ = conn.CloseWrite() // the launcher ends the call and still reports
		renewed = nil
		if !ended {
			late.Reset(l.grace)
		}
		ended = true
	}
	for {
		select {
		case told := <-done:
			return told, nil
		case _, open := <-renewed:
			if !open {
				renewed = nil
				continue
			}
			_ = encoder.Encode(wire.Renewal{Deadline: max(lease.Deadline(), 1)})
		case <-over:
			over = nil
			end()
		case <-stop:
			stop = nil
			end()
		case <-late.C:
			_ = by.cmd.Process.Kill()
			told := <-done
			return told, fmt.Errorf("%w: it does not answer, or a process of the call cannot be killed", ErrLost)
		}
	}
}

// rights are the descriptors that go with the order.
func (l *launch) rights() []byte {
	var fds []int
	for _, f := range l.given {
		fds = append(fds, int(f.Fd()))
	}
	return unix.UnixRights(fds...)
}

// listen reads the launcher's notices to the last one, or to their end.
func (l *launch) listen(r io.Reader) report {
	var told report
	for dec := json.NewDecoder(r); ; {
		var n wire.Notice
		if err := dec.Decode(&n); err != nil {
			return told
		}
		switch {
		case n.Failure != nil:
			told.failure = n.Failure
		case n.Ending != nil:
			told.ending = n.Ending
			return told
		case n.Ready:
			told.ready = true
		}
	}
}

// socketPair makes the control socket.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	conn, err := net.FileConn(ours)
	err = errors.Join(err, ours.Close())
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make control socket: %w", err), theirs.Close())
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		panic("unreachable: a unix socket is a UnixConn")
	}
	return unixConn, theirs, nil
}

// result judges a report.
func (l *launch) result(told report, lost error) (Result, error) {
	l.stdout.Close() // nothing writes any more
	l.stderr.Close()
	if lost != nil {
		return Result{}, lost
	}
	if f := told.failure; f != nil {
		switch {
		case f.Stage == wire.StageLease:
			return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, ErrLeaseOver)
		case f.Stage == wire.StageConfine && !l.order.Unconfined:
			return unavailable(f.Message), nil
		case f.Stage == wire.StageExec && l.order.Op.Shell != nil:
			return Result{Failed: true, ExitCode: execExit(f.Errno), Output: l.what() + ": " + f.Message}, nil
		}
		return Result{}, fmt.Errorf("%w: %s", ErrNotStarted, f.Message)
	}
	switch {
	case told.ending != nil:
	case told.ready:
		return Result{}, fmt.Errorf("%w: %w", ErrLost, told.waited)
	default:
		return Result{}, fmt.Errorf("%w: the launcher ended at once: %w", ErrNotStarted, told.waited)
	}
	res := l.shellResult(*told.ending)
	if told.ending.Cause == wire.CauseLease {
		return res, ErrLeaseOver
	}
	return res, nil
}

// what names the program of a shell call for an error.
func (l *launch) what() string {
	if argv := l.order.Op.Shell.Argv; argv != nil {
		return "start " + strconv.Quote(argv[0])
	}
	return "start the shell"
}

// execExit is what a shell would say of a program it could not start.
func execExit(errno int) int {
	if syscall.Errno(errno) == unix.ENOENT {
		return 127
	}
	return 126
}

func (l *launch) shellResult(end wire.Ending) Result {
	res := Result{
		ExitCode: end.Code,
		Swept:    end.Swept,
		TimedOut: end.Cause == wire.CauseTimeout,
		Limit:    l.limit(end),
		Failed:   end.Code != 0 || end.Cause != "" || l.meter.passed(),
	}
	if end.Signal != 0 {
		res.Signal = unix.SignalName(syscall.Signal(end.Signal))
	}
	out, errs := l.stdout.String(), l.stderr.String()
	res.Output = out
	if errs != "" {
		if out != "" && !strings.HasSuffix(out, "\n") {
			res.Output += "\n"
		}
		res.Output += errs
	}
	res.Truncated = l.stdout.Truncated() || l.stderr.Truncated() || l.meter.passed()
	if !l.order.Unconfined && end.Code != 0 && end.Signal == 0 && end.Cause == "" && l.blames(unix.EACCES, unix.EPERM, unix.EROFS) {
		res = res.denied(session.DenialSuspected, l.mode)
	}
	return res
}
