package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// demoLine is one line of `entail demo -o json`.
type demoLine struct {
	Step int    `json:"step"`
	Must string `json:"must"`
	Saw  string `json:"saw"`
	OK   bool   `json:"ok"`
}

// runDemo runs a binary's demo and returns its lines by step, and how it exited.
func runDemo(t *testing.T, binary string, steps ...int) (map[int]demoLine, int) {
	t.Helper()
	args := []string{"demo", "-o", "json"}
	for _, n := range steps {
		args = append(args, "--step", strconv.Itoa(n))
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	// Trees have users of their own, who come through here.
	temp := t.TempDir()
	if err := os.Chmod(filepath.Dir(temp), 0o711); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("run the demo: %v", err)
	}
	lines := map[int]demoLine{}
	for line := range strings.Lines(stdout.String()) {
		var l demoLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if l.Step > 0 {
			lines[l.Step] = l
		}
	}
	if stderr.Len() > 0 {
		t.Logf("standard error: %s", stderr.String())
	}
	return lines, cmd.ProcessState.ExitCode()
}

// buildCommand builds the command with build tags.
func buildCommand(t *testing.T, tags string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "entail")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-tags", tags, "-o", binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build with tags %q: %v\n%s", tags, err, out)
	}
	return binary
}

// TestDemo and TestDemoCanFail do not run beside others: the demo's lease is one
// second, and a machine that is busy building and testing lets it lapse.
func TestDemo(t *testing.T) {
	// TestMain put this binary on the path under its name.
	binary, err := exec.LookPath("entail")
	if err != nil {
		t.Fatal(err)
	}
	lines, exit := runDemo(t, binary)
	if exit != exitDone || len(lines) != len(demoSteps()) {
		t.Errorf("the demo exits with %d after %d steps", exit, len(lines))
	}
	for n := 1; n <= len(demoSteps()); n++ {
		if l := lines[n]; !l.OK || l.Must == "" {
			t.Errorf("step %d: %+v", n, l)
		}
	}
}

// TestDemoCanFail takes one rule out at a time and wants the steps that speak of
// it to notice, in the log and, where the rule reaches it, on the disk.
func TestDemoCanFail(t *testing.T) {
	tests := []struct {
		tag    string
		steps  []int
		traces []string
	}{
		{"mutate_capture", []int{2, 3, 4, 8}, []string{"log", "disk"}},
		{"mutate_order", []int{4, 5}, []string{"log", "disk"}},
		// An escalation that is not rejected waits for an answer, so nothing is written.
		{"mutate_pin", []int{7}, []string{"log"}},
		{"mutate_identity", []int{5}, []string{"log", "disk"}},
	}
	for _, tt := range tests {
		t.Run(tt.tag, func(t *testing.T) {
			lines, exit := runDemo(t, buildCommand(t, tt.tag), tt.steps...)
			if exit != exitFailed {
				t.Errorf("the demo exits with %d, want %d", exit, exitFailed)
			}
			for _, n := range tt.steps {
				l, told := lines[n]
				if !told || l.OK {
					t.Errorf("step %d does not notice: %+v", n, l)
				}
				for _, trace := range tt.traces {
					if !strings.Contains(l.Saw, "NOT OK "+trace+":") {
						t.Errorf("step %d does not notice it in the %s: %s", n, trace, l.Saw)
					}
				}
			}
		})
	}
}

func TestFacts(t *testing.T) {
	t.Parallel()
	var f facts
	if f.ok() {
		t.Error("a step that saw nothing is ok")
	}
	f.log(true, "one")
	f.disk(true, "two")
	if !f.ok() || f.text() != "log: one; disk: two" {
		t.Errorf("ok %t, text %q", f.ok(), f.text())
	}
	f.disk(false, "three")
	if f.ok() || !slices.Contains(strings.Split(f.text(), "; "), "NOT OK disk: three") {
		t.Errorf("ok %t, text %q", f.ok(), f.text())
	}
}
