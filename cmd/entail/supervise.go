package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/entail-fleet/entail/internal/node"
)

// Bounds of the pause before a dead process is replaced, and of the time that one
// has to stop.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	stopWait     = 10 * time.Second
)

// process is one process of a deployment that is kept running.
type process struct {
	kind  string // the hidden command that it runs
	name  string
	order node.Order
}

// supervisor keeps processes running. When one dies, however, another takes its
// place.
type supervisor struct {
	log     *slog.Logger
	stderr  io.Writer
	environ []string // of the processes
	level   string
	force   <-chan struct{} // closed: do not wait for any process
	started func(name string, pid int)
}

// kept is a process that is kept.
type kept struct {
	name string
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	pid int
}

// keep starts p, waits until it is ready, and keeps it from then on. A process
// that fails before it was ever ready is not started again: its error is
// returned.
func (s *supervisor) keep(ctx context.Context, p process) (*kept, error) {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	k := &kept{name: p.name, stop: stop, done: make(chan struct{})}
	first := make(chan error, 1)
	go func() {
		defer close(k.done)
		// The kernel ends a child when the thread that made it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		s.loop(life, k, p, first)
	}()
	select {
	case err := <-first:
		if err != nil {
			k.close()
		}
		return k, err
	case <-ctx.Done():
		k.close()
		return nil, context.Cause(ctx)
	}
}

// loop runs p again and again until ctx ends. The first run's readiness, or why
// there is none, goes to first.
func (s *supervisor) loop(ctx context.Context, k *kept, p process, first chan<- error) {
	backoff := firstBackoff
	for ready := false; ctx.Err() == nil; {
		began := time.Now()
		err := s.run(ctx, k, p, func() {
			if !ready {
				first <- nil
			}
			ready = true
		})
		if !ready {
			first <- err
			return
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > 2*lastBackoff {
			backoff = firstBackoff
		}
		s.log.Warn("process died and is replaced", slog.String("name", p.name), slog.Any("error", err), slog.Duration("after", backoff))
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// run starts p once, tells when it is ready, and waits for its end.
func (s *supervisor) run(ctx context.Context, k *kept, p process, ready func()) error {
	order, giveOrder, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	status, giveStatus, err := os.Pipe()
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.name, err), order.Close(), giveOrder.Close())
	}
	// The other end of giveOrder tells the process that this one lives.
	defer giveOrder.Close()
	defer status.Close()
	cmd := &exec.Cmd{
		Path: self(), Args: []string{"entail", "process", p.kind, "--log-level", s.level},
		Env: s.environ, Stderr: s.stderr, ExtraFiles: []*os.File{order, giveStatus},
		// A process group of its own keeps a terminal's Ctrl-C for this process,
		// which stops the others in their order.
		SysProcAttr: childAttr(),
	}
	err = cmd.Start()
	err = errors.Join(err, order.Close(), giveStatus.Close())
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	k.setPID(cmd.Process.Pid)
	if s.started != nil {
		s.started(p.name, cmd.Process.Pid)
	}
	if err := node.WriteOrder(giveOrder, p.order); err != nil {
		s.log.Warn("hand over", slog.String("name", p.name), slog.Any("error", err))
	}
	said := make(chan error, 1)
	go func() { said <- listen(status, ready) }()
	ended := make(chan error, 1)
	go func() { ended <- s.stopAfter(ctx, cmd.Process, said) }()
	waited := cmd.Wait()
	k.setPID(0)
	_ = status.SetReadDeadline(time.Now().Add(time.Second)) // only bounds what follows
	if err := <-ended; err != nil {
		return err
	}
	return fmt.Errorf("%s ended: %s", p.name, exitText(waited))
}

// listen hears what a process says of itself until it ends. It returns the error
// that the process gave.
func listen(status io.Reader, ready func()) error {
	dec := json.NewDecoder(status)
	for {
		var s node.Status
		if err := dec.Decode(&s); err != nil {
			return nil //nolint:nilerr // the process has ended
		}
		if s.Error != "" {
			return errors.New(s.Error)
		}
		if s.Ready {
			ready()
		}
	}
}

// stopAfter asks a process to stop once ctx has ended, kills it when it does not,
// and returns what it said of itself. It returns when the process has ended.
func (s *supervisor) stopAfter(ctx context.Context, p *os.Process, said <-chan error) error {
	select {
	case err := <-said:
		return err
	case <-ctx.Done():
	}
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	select {
	case err := <-said:
		return err
	case <-time.After(stopWait):
		s.log.Warn("process does not stop and is killed", slog.Int("pid", p.Pid))
	case <-s.force:
	}
	_ = p.Kill() // it may have ended
	return <-said
}

// close stops the process for good and waits until it is gone.
func (k *kept) close() {
	k.stop()
	<-k.done
}

// PID returns the process that runs now, 0 if none does.
func (k *kept) PID() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pid
}

func (k *kept) setPID(pid int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pid = pid
}

// self is this program's binary, also after a newer one took its name.
func self() string {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe"
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// childEnviron is what a process of the deployment needs of this one's
// environment. Keys are handed over elsewhere.
func childEnviron(environ []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR", "TERM", "GOCOVERDIR", "GOTRACEBACK", "SSL_CERT_FILE", "SSL_CERT_DIR":
			out = append(out, kv)
		default:
			if strings.HasPrefix(name, "LC_") {
				out = append(out, kv)
			}
		}
	}
	return out
}
