package natstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Processes is a cluster whose servers are processes of their own.
type Processes struct{ *Cluster }

// StartProcesses is [StartCluster] with a process for each server.
func StartProcesses(t testing.TB) Processes {
	t.Helper()
	return StartProcessesConfig(t, ClusterConfig{})
}

// StartProcessesConfig is StartProcesses with a configuration.
func StartProcessesConfig(t testing.TB, cfg ClusterConfig) Processes {
	t.Helper()
	path, err := build(t.Context())
	if err != nil {
		t.Fatalf("build nats-server: %v", err)
	}
	return Processes{startNodes(t, cfg, func(n *node) (running, error) { return spawn(t.Context(), path, n) })}
}

// Kill ends the i-th server with SIGKILL. Start starts it again.
func (p Processes) Kill(t testing.TB, i int) {
	t.Helper()
	p.down(t, i, running.kill)
}

// Hang stops the i-th server with SIGSTOP: it keeps its connections and says nothing.
func (p Processes) Hang(t testing.TB, i int) {
	t.Helper()
	p.signal(t, i, syscall.SIGSTOP)
}

// Wake lets a server go on that hangs.
func (p Processes) Wake(t testing.TB, i int) {
	t.Helper()
	p.signal(t, i, syscall.SIGCONT)
}

func (p Processes) signal(t testing.TB, i int, s syscall.Signal) {
	t.Helper()
	n := p.nodes[i]
	own, ok := n.running.(*process)
	if !ok {
		t.Fatalf("server %s is down", n.name)
	}
	if err := own.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal server %s: %v", n.name, err)
	}
}

// building lets the tests of a binary wait for the one that builds.
var building sync.Mutex

// build makes nats-server from the module that go.mod names, as
// deploy/build-images.sh does. It is linked once for a version of it and of Go,
// then taken from the user's cache.
func build(ctx context.Context) (string, error) {
	building.Lock()
	defer building.Unlock()
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "entail-natstest")
	path := filepath.Join(dir, "nats-server-"+server.VERSION+"-"+runtime.Version())
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Other test binaries may be at the same: each builds its own and renames it.
	own, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", own+"/", "github.com/nats-io/nats-server/v2")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("%w\n%s", err, out), os.RemoveAll(own))
	}
	return path, errors.Join(os.Rename(filepath.Join(own, "nats-server"), path), os.RemoveAll(own))
}

// process is a server of a cluster in a process of its own.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	err   error         // how, once ended is closed
}

// spawn starts a server and returns when it takes connections.
func spawn(ctx context.Context, path string, n *node) (running, error) {
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// No context ends it: the test does, in its own order.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, "--config", filepath.Join(n.dir, "nats.conf"))
	p := &process{cmd: cmd, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	endWithParent(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if err := p.answers(ctx, address(n.port)); err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, errors.Join(fmt.Errorf("%w; it said:\n%s", err, said), p.kill())
	}
	return p, nil
}

// answers waits until somebody listens at addr.
func (p *process) answers(ctx context.Context, addr string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience / 2)
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("it ended: %w", p.err)
		case <-deadline:
			return fmt.Errorf("it did not come up: %w", err)
		}
	}
}

func (p *process) stop() error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience / 2):
		return errors.Join(errors.New("it does not stop when it is told to"), p.kill())
	}
}

func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-p.ended
	return err
}
