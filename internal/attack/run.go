//go:build linux && (amd64 || arm64)

package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The words that the program takes first.
const (
	RunArg    = "run"    // and a target: Run
	VictimArg = "victim" // and a target: Victim
	tryArg    = "try"
	cloneArg  = "in-clone"
	memoryArg = "from-memory"
	waitArg   = "wait"
)

// patience is how long an attempt may take. None waits for anything but the kernel
// or a server on this machine.
const patience = 10 * time.Second

// Main is the program. It returns its exit code.
func Main(args []string) int {
	if len(args) < 2 {
		return complain(errors.New("this program attacks; tests of package sandbox start it"))
	}
	var t Target
	if len(args) > 2 {
		if err := json.Unmarshal([]byte(args[2]), &t); err != nil {
			return complain(err)
		}
	}
	switch args[1] {
	case RunArg:
		t.Launcher = os.Getppid()
		return end(Run(&t, os.Stdout))
	case VictimArg:
		return end(Victim(&t, os.Stdin, os.Stdout))
	case tryArg:
		return end(json.NewEncoder(os.Stdout).Encode(try(&t)))
	case cloneArg:
		return exitCode(mountAndWrite(&t))
	case memoryArg:
		return exitCode(os.WriteFile(t.out(File), []byte("x"), 0o600))
	case waitArg:
		_, err := io.Copy(io.Discard, os.Stdin)
		return end(err)
	}
	return complain(fmt.Errorf("no word %q", args[1]))
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 2
}

func end(err error) int {
	if err != nil {
		return complain(err)
	}
	return 0
}

// exitCode carries an errno to a parent.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return int(errno)
	}
	return complain(err)
}

// Run tries everything, a process for each attempt, and writes an Outcome a line.
func Run(t *Target, w io.Writer) error {
	out := json.NewEncoder(w)
	for _, a := range Attempts() {
		if t.Name = a.Name; !t.Aims(a.Name) {
			continue
		}
		o, err := runOne(t)
		if err != nil {
			return fmt.Errorf("try %s: %w", a.Name, err)
		}
		if err := out.Encode(o); err != nil {
			return fmt.Errorf("report %s: %w", a.Name, err)
		}
	}
	return nil
}

// runOne makes one attempt in a process of its own.
func runOne(t *Target) (Outcome, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return Outcome{}, err
	}
	defer func() { _ = r.Close() }()
	p, err := start(self, []*os.File{os.Stdin, w, os.Stderr}, nil, tryArg, t)
	if err = errors.Join(err, w.Close()); err != nil {
		return Outcome{}, err
	}
	timer := time.AfterFunc(patience, func() { _ = p.Kill() })
	defer timer.Stop()
	var o Outcome
	said := json.NewDecoder(r).Decode(&o)
	state, err := p.Wait()
	if err != nil {
		return Outcome{}, err
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return Outcome{Name: t.Name, Refusal: unix.SignalName(status.Signal()), Text: state.String()}, nil
	}
	if said != nil {
		return Outcome{}, fmt.Errorf("it said nothing and ended with %s: %w", state, said)
	}
	return o, nil
}

// self is this program.
const self = "/proc/self/exe"

// start starts a program that is this one once more.
func start(path string, files []*os.File, attr *syscall.SysProcAttr, word string, t *Target) (*os.Process, error) {
	arg, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	return os.StartProcess(path, []string{"attacker", word, string(arg)}, &os.ProcAttr{Files: files, Sys: attr})
}

// finish waits for a process of start and gives what exitCode gave it.
func finish(p *os.Process) error {
	state, err := p.Wait()
	if err != nil {
		return err
	}
	switch code := state.ExitCode(); {
	case code < 0:
		return fmt.Errorf("it ended with %s", state)
	case code > 0:
		return syscall.Errno(code)
	}
	return nil
}
