package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal opens a pseudo-terminal: its far end, where what is written to it
// is read, and the terminal itself.
func openTerminal(t *testing.T) (far, terminal *os.File) {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	raw, err := far.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	var opened error
	if err := raw.Control(func(fd uintptr) {
		if opened = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); opened == nil {
			number, opened = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}); err != nil || opened != nil {
		t.Fatal(err, opened)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return far, terminal
}

// onTerminal runs a command on a terminal and returns what the terminal was told.
func onTerminal(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	far, terminal := openTerminal(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()           // the command has its own
	told, _ := io.ReadAll(far) // it ends with an error when nobody has the terminal open any more
	_ = cmd.Wait()             // it exits with the outcome of the run
	return string(told)
}

// A run tells people on a terminal how it goes, in colour and with a line that is
// written over; elsewhere it writes plain lines.
func TestTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	story := filepath.Join(w.work, "story.yaml")
	w.must(os.WriteFile(story, []byte(`sessions:
  root:
    - calls: [{id: c1, tool: bash, args: {command: "sleep 0.5; echo awake"}}]
    - calls: [{id: c2, tool: write, args: {path: new, content: x}}]
    - text: "that \e[31mwas\e[0m all"
`), 0o600))
	binary, err := exec.LookPath("entail")
	w.must(err)
	colour := regexp.MustCompile(`\x1b\[[0-9;]*m`)
	const over = "\r\x1b[K" // back to the start of the line, which is cleared
	for _, tt := range []struct {
		name         string
		env, args    []string
		pipe         bool
		colour, live bool
	}{
		{"a terminal", []string{"TERM=xterm"}, nil, false, true, true},
		{"a terminal without colour", []string{"TERM=xterm", "NO_COLOR=1"}, nil, false, false, true},
		{"a terminal that can do nothing", []string{"TERM=dumb"}, nil, false, false, false},
		{"a terminal, for programs", []string{"TERM=xterm"}, []string{"-o", "json"}, false, false, false},
		{"a pipe", []string{"TERM=xterm"}, nil, true, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), binary, append([]string{
				"run", "--dir", w.dir, "--cwd", w.work, "--sandbox", "read-only", "--model", "scripted:" + story, "go",
			}, tt.args...)...)
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, tt.env...)
			var told string
			if tt.pipe {
				out, _ := cmd.CombinedOutput() // it exits with the outcome of the run
				told = string(out)
			} else {
				told = onTerminal(t, cmd)
			}
			if got := colour.MatchString(told); got != tt.colour {
				t.Errorf("colour: %t, want %t: %q", got, tt.colour, told)
			}
			if got := strings.Contains(told, over) && strings.Contains(told, "root running"); got != tt.live {
				t.Errorf("a line that is written over: %t, want %t: %q", got, tt.live, told)
			}
			if strings.Contains(told, "\x1b[31mwas") {
				t.Errorf("what the model said steers the terminal: %q", told)
			}
			if !strings.Contains(told, "awake") || !strings.Contains(told, "FS_SANDBOX_DENIED") {
				t.Errorf("the run is not told: %q", told)
			}
			if len(tt.args) > 0 {
				for line := range bytes.Lines(bytes.TrimSpace([]byte(strings.ReplaceAll(told, "\r\n", "\n")))) {
					if !json.Valid(line) {
						t.Errorf("line %q is not JSON", line)
					}
				}
			} else if !strings.Contains(told, "done with denials") {
				t.Errorf("the outcome is not told: %q", told)
			}
		})
	}
}

// A command behind the fence reads and writes its caller's terminal and is not
// controlled by it: there is no /dev/tty.
func TestSandboxExecOnATerminal(t *testing.T) {
	t.Parallel()
	const line = `test -t 0 && test -t 1 && echo a terminal; if (: </dev/tty) 2>/dev/null; then echo its own; else echo not its own; fi`
	binary, err := exec.LookPath("entail")
	if err != nil {
		t.Fatal(err)
	}
	own := &syscall.SysProcAttr{Setsid: true, Setctty: true}
	for _, tt := range []struct {
		words []string
		says  string
	}{
		{[]string{binary, "sandbox", "exec", "--facts", "/dev/null", "--", "sh", "-c", line}, "a terminal\r\nnot its own\r\n"},
		{[]string{binary, "sandbox", "exec", "--facts", "/dev/null", "--mode", "danger-full-access", "--", "sh", "-c", line}, "a terminal\r\nnot its own\r\n"},
		{[]string{"sh", "-c", line}, "a terminal\r\nits own\r\n"}, // the control
	} {
		cmd := exec.CommandContext(t.Context(), tt.words[0], tt.words[1:]...)
		cmd.Dir, cmd.SysProcAttr = t.TempDir(), own
		if told := onTerminal(t, cmd); told != tt.says {
			t.Errorf("%q says %q, want %q", tt.words, told, tt.says)
		}
	}
}

// An interrupt of the command line ends the command and all that it started.
func TestSandboxExecIsInterrupted(t *testing.T) {
	t.Parallel()
	binary, err := exec.LookPath("entail")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "sandbox", "exec", "--tier-at-most", "landlock", "--", "sh", "-c", "sleep 600 & echo $!; wait")
	cmd.Dir = t.TempDir()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, 0); err != nil {
		t.Fatalf("what was started does not run: %v", err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit %d, want %d", code, exitInterrupted)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("what it started is still there: %v", err)
	}
}
