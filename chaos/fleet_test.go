package chaos_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/entail-fleet/entail/chaos"
)

// fleet is a deployment that the test started: `entail up`, which runs the broker
// and keeps a coordinator and workers as processes of its own.
type fleet struct {
	cmd       *exec.Cmd
	tokenFile string
	ended     chan struct{} // closed when it has ended

	mu   sync.Mutex
	pids map[string]int // by the name it gives a process; guarded by mu
}

// buildEntail builds the command once.
func buildEntail(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "entail")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/entail-fleet/entail/cmd/entail")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build entail: %v\n%s", err, out)
	}
	return bin
}

// startFleet starts a deployment with a lease of a second and stops it when the
// test ends. What it says on standard error is shown if the test fails.
func startFleet(t *testing.T, bin string, workers int) *fleet {
	t.Helper()
	f := &fleet{pids: map[string]int{}, ended: make(chan struct{})}
	// Its end is the cleanup's work: the context of a test ends before that.
	f.cmd = exec.Command(bin, "up", "-o", "json", "--dir", filepath.Join(t.TempDir(), "data"),
		"--workers", strconv.Itoa(workers), "--lease", "1s", "--default-sandbox", "workspace-write", "--log-level", "WARN")
	var stderr bytes.Buffer
	f.cmd.Stderr = &stderr
	stdout, err := f.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.cmd.Start(); err != nil {
		t.Fatalf("start entail up: %v", err)
	}
	ready := make(chan string, 1)
	go f.read(bufio.NewScanner(stdout), ready)
	t.Cleanup(func() {
		f.stop(t)
		if t.Failed() {
			t.Logf("entail up said:\n%s", stderr.String())
		}
	})
	select {
	case f.tokenFile = <-ready:
	case <-f.ended:
		t.Fatal("entail up ended before it was ready")
	case <-time.After(time.Minute):
		t.Fatal("entail up was not ready in a minute")
	}
	return f
}

// read follows what entail up says: each process that it starts, and that it is
// ready.
func (f *fleet) read(lines *bufio.Scanner, ready chan<- string) {
	defer close(f.ended)
	for lines.Scan() {
		var line struct {
			Process   string `json:"process"`
			PID       int    `json:"pid"`
			TokenFile string `json:"tokenFile"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // a word for people
		}
		if line.Process != "" {
			f.mu.Lock()
			f.pids[line.Process] = line.PID
			f.mu.Unlock()
		}
		if line.TokenFile != "" {
			ready <- line.TokenFile
		}
	}
}

// kill ends one process of the deployment with SIGKILL. It is a chaos.KillFunc.
func (f *fleet) kill(v chaos.Victim, name string) error {
	if v == chaos.Coordinator {
		name = "coordinator"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	pid := f.pids[name]
	if pid == 0 || !isChild(pid, f.cmd.Process.Pid) {
		return chaos.ErrGone
	}
	f.pids[name] = 0 // until it is started again
	return syscall.Kill(pid, syscall.SIGKILL)
}

// isChild reports whether a process was started by another one and still runs, so
// that no process of somebody else is ever hit.
func isChild(pid, parent int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	return ok && len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(parent)
}

// stop ends the deployment in order, or by force when it takes too long.
func (f *fleet) stop(t *testing.T) {
	t.Helper()
	_ = f.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-f.ended:
	case <-time.After(30 * time.Second):
		t.Error("entail up did not stop in 30 s and is killed")
		_ = f.cmd.Process.Kill() // it may have ended
		<-f.ended
	}
	if err := f.cmd.Wait(); err != nil {
		t.Errorf("entail up: %v", err)
	}
}
