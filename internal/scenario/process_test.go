package scenario_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/node"
)

// member is a process of a deployment that a test can kill.
type member struct {
	w     *world
	name  string
	cmd   *exec.Cmd
	order *os.File // its end tells the process that this one is gone
	ended chan struct{}
}

// startCoordinator starts a coordinator as a process, on the mirror of the one
// before it.
func (w *world) startCoordinator() *member {
	w.t.Helper()
	return w.start("coordinator", "c1", node.Order{Credentials: w.broker.Credentials(broker.Coordinator, "coordinator")}, w.coordinatorConfig())
}

// startWorker starts a worker as a process.
func (w *world) startWorker(name string, endpoints map[string]broker.Secret) *member {
	w.t.Helper()
	order := node.Order{Credentials: w.broker.Credentials(broker.Worker, name), Endpoints: endpoints}
	return w.start("worker", name, order, w.workerConfig(name, 16))
}

// start starts a process and waits until it is ready. It ends with the test.
func (w *world) start(kind, name string, o node.Order, cfg any) *member {
	w.t.Helper()
	text, err := json.Marshal(cfg)
	w.must(err)
	o.Config = text
	order, giveOrder, err := os.Pipe()
	w.must(err)
	status, giveStatus, err := os.Pipe()
	w.must(err)
	m := &member{w: w, name: name, order: giveOrder, ended: make(chan struct{})}
	m.cmd = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"scenario", argProcess, kind},
		Env: []string{"PATH=" + os.Getenv("PATH")}, Stderr: w.t.Output(), ExtraFiles: []*os.File{order, giveStatus},
		// A signal to this test's group is not for the process.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	w.must(m.cmd.Start())
	w.must(errors.Join(order.Close(), giveStatus.Close()))
	go func() {
		defer close(m.ended)
		_ = m.cmd.Wait() // how it ended is the test's doing
	}()
	w.t.Cleanup(m.stop)
	w.must(node.WriteOrder(giveOrder, o))
	m.ready(status)
	return m
}

func (m *member) ready(status *os.File) {
	m.w.t.Helper()
	defer func() { _ = status.Close() }()
	m.w.must(status.SetReadDeadline(time.Now().Add(patience)))
	var s node.Status
	if err := json.NewDecoder(status).Decode(&s); err != nil || !s.Ready {
		m.w.t.Fatalf("%s is not ready: %s (%v)", m.name, s.Error, err)
	}
}

// pid is how /proc names the process.
func (m *member) pid() string { return strconv.Itoa(m.cmd.Process.Pid) }

func (m *member) signal(s syscall.Signal) {
	m.w.t.Helper()
	m.w.must(m.cmd.Process.Signal(s))
}

// kill ends the process as a crash does.
func (m *member) kill() {
	m.w.t.Helper()
	m.signal(syscall.SIGKILL)
	<-m.ended
}

// pause stops the process where it is, and waits until it is stopped.
func (m *member) pause() {
	m.w.t.Helper()
	m.signal(syscall.SIGSTOP)
	m.paused()
}

// paused waits until the process is stopped.
func (m *member) paused() {
	m.w.t.Helper()
	eventually(m.w.t, func() string { return m.name + " is stopped" }, func() bool {
		b, err := os.ReadFile("/proc/" + m.pid() + "/stat")
		m.w.must(err)
		_, rest, _ := strings.Cut(string(b), ") ")
		return strings.HasPrefix(rest, "T")
	})
}

func (m *member) resume() {
	m.w.t.Helper()
	m.signal(syscall.SIGCONT)
}

// stop ends the process if it still runs, in order if it can.
func (m *member) stop() {
	_ = m.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
	_ = m.order.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-m.ended:
	case <-ctx.Done():
		m.w.t.Errorf("%s does not end", m.name)
		_ = m.cmd.Process.Kill()
		<-m.ended
	}
}
