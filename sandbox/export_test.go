//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Perform is Run behind the permit.
func (w *Workspace) Perform(ctx context.Context, mode session.SandboxMode, op Op, lease Lease) (Result, error) {
	terms := policy.DefaultConfinement()
	return w.run(ctx.Done(), lease, grant{mode, terms.Network.Of(mode), terms}, op)
}

// PerformOn is Perform on other terms of the deployment.
func (w *Workspace) PerformOn(ctx context.Context, mode session.SandboxMode, terms policy.Confinement, op Op) (Result, error) {
	return w.run(ctx.Done(), nil, grant{mode, terms.Network.Of(mode), terms}, op)
}

// Temp is the path of the private temp directory.
func (w *Workspace) Temp() string { return w.temp.Name() }

// RemoveLeftIn is RemoveLeft for workers that have another temp directory.
func (r *Runner) RemoveLeftIn(dir string) (int, error) { return r.removeLeft(dir) }

// WithMaxABI makes the launcher believe in no Landlock ABI above abi.
func (c Config) WithMaxABI(abi int) Config {
	c.maxABI = abi
	return c
}

// WithLauncher starts another program in place of the launcher.
func (c Config) WithLauncher(path string) Config {
	c.launcher = program{path: path}
	return c
}

// Launcher is where this process finds the launcher.
func Launcher() (string, error) {
	p, err := embedded()
	return p.path, err
}

// StartFrom starts a launcher that this process has as descriptor fd, with a control
// socket that it has as the one below.
func StartFrom(fd int) error {
	f, err := sealed(launcherBinary)
	if err != nil {
		return err
	}
	conn, theirs, err := socketPair()
	if err != nil {
		return err
	}
	launcher, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, fd)
	if err != nil {
		return err
	}
	control, err := unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, fd-1)
	if err != nil {
		return err
	}
	kept, socket := os.NewFile(uintptr(launcher), "launcher"), os.NewFile(uintptr(control), "control")
	cmd := &exec.Cmd{Args: []string{wire.LauncherName}, Env: wire.LauncherEnv()}
	programIn(kept).runBy(cmd, socket)
	if err = cmd.Start(); err == nil {
		_ = conn.CloseWrite()
		_ = cmd.Wait() // it got no order
	}
	if launcher != fd || control != fd-1 {
		err = errors.Join(err, fmt.Errorf("got descriptors %d and %d, want %d and the one below", launcher, control, fd))
	}
	return errors.Join(err, f.Close(), conn.Close(), theirs.Close(), kept.Close(), socket.Close())
}

// WithNamelessLauncher starts the launcher from a file without a name, as where files
// in memory may not be executed. The caller closes it.
func (c Config) WithNamelessLauncher() (Config, *os.File, error) {
	f, err := nameless(launcherBinary)
	if err == nil {
		c.launcher = programIn(f)
	}
	return c, f, err
}

// WithBest makes the Runner try no stronger tier.
func (c Config) WithBest(t session.Tier) Config {
	c.Best = t
	return c
}

// WithGrace is how long a launcher may take to end a call whose time is up.
func (c Config) WithGrace(d time.Duration) Config {
	c.grace = d
	return c
}

// WithMaxOutputs bounds what is kept of one output and of all.
func (c Config) WithMaxOutputs(each, all int64) Config {
	c.maxOutput, c.maxOutputs = each, all
	return c
}

// MarkPlainly is Mark, or CheckMark, on a file system that keeps no attributes.
func MarkPlainly(dir, id string, first bool) error {
	m, err := openMark(dir)
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	m.plain = true
	return m.check(id, first)
}

// Waiting lists the launchers that wait for a call.
func (r *Runner) Waiting() []int {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	var pids []int
	for _, waiting := range r.pool.idle {
		for _, l := range waiting {
			pids = append(pids, l.cmd.Process.Pid)
		}
	}
	return pids
}

// Ready reports whether as many launchers of each kind wait as should.
func (r *Runner) Ready() bool {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	for _, waiting := range r.pool.idle {
		if len(waiting) < r.pool.warm {
			return false
		}
	}
	return true
}

// HelperPID is the process of the helper, zero for none. It waits for the operation
// at work.
func (w *Workspace) HelperPID() int {
	h := <-w.helpers.slot
	defer w.helpers.put(h)
	if h == nil || h.left() {
		return 0
	}
	return h.by.cmd.Process.Pid
}

// Unbound does an operation in a helper that is confined as for the mode and is told
// that there are no bounds: whatever it is kept from, the fence keeps it from.
func (w *Workspace) Unbound(mode session.SandboxMode, op Op) (Result, error) {
	terms := policy.DefaultConfinement()
	g := grant{mode, terms.Network.Of(mode), terms}
	c := &fileCall{grant: g, request: w.request(g, op)}
	h, err := w.launchHelper(g, c.request, nil)
	if err != nil {
		return Result{}, err
	}
	b := c.request.Bounds
	b.MayWrite, b.Unconfined, b.Hidden = true, true, nil
	post, err := w.post(b)
	if err != nil {
		return Result{}, errors.Join(err, h.end())
	}
	if _, err := h.ask(post, c); err != nil {
		return Result{}, errors.Join(err, h.end())
	}
	res, err := w.helpers.do(h, c)
	return res, errors.Join(err, h.end())
}

// JobWaits reports whether the helper has yet to read what was sent to it.
func (w *Workspace) JobWaits() bool {
	h := w.helpers.current.Load()
	if h == nil {
		return false
	}
	conn, err := h.jobs.SyscallConn()
	if err != nil {
		return false
	}
	unreadBytes := 0
	err = conn.Control(func(fd uintptr) { unreadBytes, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return err == nil && unreadBytes > 0
}
