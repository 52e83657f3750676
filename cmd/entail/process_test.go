package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/node"
)

// modelKey stands in the environment of the server under test and nowhere else.
const modelKey = "sk-entail-environment-0123456789"

// running is an `entail up` under test.
type running struct {
	cmd   *exec.Cmd
	dir   string
	lines *bufio.Scanner
	pids  map[string]int
}

// up starts `entail up` and waits until it is ready.
func up(t *testing.T, flags ...string) *running {
	t.Helper()
	return upIn(t, filepath.Join(t.TempDir(), "data"), flags...)
}

// upIn starts a server in a directory, which another one may have had before it.
func upIn(t *testing.T, dir string, flags ...string) *running {
	t.Helper()
	binary, err := exec.LookPath("entail")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{dir: dir, pids: map[string]int{}}
	args := append([]string{"up", "-o", "json", "--dir", r.dir, "--lease", "1s", "--log-level", "ERROR"}, flags...)
	r.cmd = exec.CommandContext(t.Context(), binary, args...)
	r.cmd.Env = append(os.Environ(), "OPENAI_API_KEY="+modelKey)
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() }) // most tests have ended it
	r.lines = bufio.NewScanner(stdout)
	for r.next(t) != "" {
	}
	return r
}

// next reads one line. It returns the name of the process that was started, and
// nothing once the server is ready.
func (r *running) next(t *testing.T) string {
	t.Helper()
	if !r.lines.Scan() {
		t.Fatalf("entail up ended: %v", r.lines.Err())
	}
	var line struct {
		Process string `json:"process"`
		PID     int    `json:"pid"`
	}
	if err := json.Unmarshal(r.lines.Bytes(), &line); err != nil {
		t.Fatalf("line %q: %v", r.lines.Text(), err)
	}
	if line.Process != "" {
		r.pids[line.Process] = line.PID
	}
	return line.Process
}

// gone waits until processes are no more.
func gone(t *testing.T, pids map[string]int) {
	t.Helper()
	deadline := time.After(15 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for name, pid := range pids {
		for alive(pid) {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s, process %d, lives on", name, pid)
			}
		}
	}
}

// alive reports whether a process runs. One that nobody has waited for yet does
// not.
func alive(pid int) bool {
	state := stateOf(fmt.Sprintf("/proc/%d/stat", pid))
	return state != "" && state != "Z"
}

// stopped reports whether no thread of a process runs. After SIGSTOP some may run
// on for a while.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool { return stateOf(path) != "T" })
}

// stateOf is the letter that the kernel has for the state of a process or a
// thread, none for one that is not there.
func stateOf(path string) string {
	stat, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return after[:min(len(after), 1)]
}

// kill kills a process of the server and waits until another takes its place.
func (r *running) kill(t *testing.T, name string) {
	t.Helper()
	old := r.pids[name]
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := r.next(t); got != name || r.pids[name] == old {
		t.Errorf("%s was killed, %q was started as process %d", name, got, r.pids[name])
	}
}

func TestKilledProcessesAreReplaced(t *testing.T) {
	t.Parallel()
	r := up(t)
	for _, name := range []string{"w1", "coordinator"} {
		r.kill(t, name)
	}
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("an interrupted server ends with %v", err)
	}
	gone(t, r.pids)
	if _, err := os.Stat(filepath.Join(r.dir, "token")); !os.IsNotExist(err) {
		t.Errorf("the token file is left: %v", err)
	}
}

func TestProcessesDieWithTheServer(t *testing.T) {
	t.Parallel()
	r := up(t)
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait() // killed
	gone(t, r.pids)
}

func TestSecondSignalForces(t *testing.T) {
	t.Parallel()
	r := up(t)
	// A stopped process cannot obey the first signal.
	if err := syscall.Kill(r.pids["w2"], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	done := make(chan error, 1)
	go func() { done <- r.cmd.Wait() }()
	for range 2 {
		if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		<-tick.C
	}
	<-done
	if took := time.Since(began); took > stopWait {
		t.Errorf("two signals took %v, no less than one", took)
	}
	gone(t, r.pids)
}

func TestSecretsAreNotInSight(t *testing.T) {
	t.Parallel()
	r := up(t)
	token, err := broker.ReadTokenFile(filepath.Join(r.dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(r.dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data directory has mode %v, %v", info.Mode(), err)
	}
	secrets := map[string]string{"model key": modelKey, "bearer token": token.Token.Reveal(), "client key": token.Client.Seed.Reveal()}
	for name, pid := range r.pids {
		for _, file := range []string{"environ", "cmdline"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil {
				t.Fatal(err)
			}
			for what, secret := range secrets {
				if bytes.Contains(text, []byte(secret)) {
					t.Errorf("%s of %s shows the %s", file, name, what)
				}
			}
			if bytes.Contains(text, []byte("SU")) && file == "cmdline" {
				t.Errorf("cmdline of %s shows a seed: %q", name, text)
			}
		}
	}
	_ = r.cmd.Process.Signal(os.Interrupt)
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("an interrupted server ends with %v", err)
	}
}

func TestNewerStoreIsRefused(t *testing.T) {
	t.Parallel()
	r := up(t)
	_ = r.cmd.Process.Signal(os.Interrupt)
	if err := r.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	db, err := pebble.Open(filepath.Join(r.dir, "store"), &pebble.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Set([]byte("F"), []byte("99"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), r.cmd.Path, "up", "--dir", r.dir).CombinedOutput()
	if code := r.exit(err); code != exitUnavailable || !strings.Contains(string(out), "99") || !strings.Contains(string(out), "format") {
		t.Errorf("exit %d, output %s", code, out)
	}
}

func (r *running) exit(err error) int {
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // it is what Run returns
		return exit.ExitCode()
	}
	return exitDone
}

// The coordinator of entail up says on /readyz how far it is.
func TestUpServesReadyz(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	up(t, "--http", addr, "--workers", "1")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var h node.Health
	if err := json.NewDecoder(res.Body).Decode(&h); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || !h.Ready || h.Kind != "coordinator" || h.Name != "c1" || !h.Broker || h.Revision == 0 ||
		len(h.Partitions) != 1 || h.Partitions[0].Stopped != "" || !strings.Contains(h.Durability, "sync_interval") || h.Sandbox != nil {
		t.Errorf("%d: it says %+v", res.StatusCode, h)
	}
}
