//go:build linux && (amd64 || arm64)

package confined_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// atMost bounds one run of the suite, which takes a tenth of it when the machine
// has nothing else to do.
const atMost = 3 * time.Minute

// base is this package's directory for files; it is readable by every user.
var base = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "confined-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
})

// suite is the test binary of package sandbox, built once, with the program that its
// tests attack by beside it. Both are static, so that they run in any root file system.
var suite = sync.OnceValues(func() (string, error) {
	dir, err := base()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "suite", "sandbox.test")
	for _, build := range []*exec.Cmd{
		exec.Command("go", "test", "-c", "-o", path, "../../sandbox"),
		exec.Command("go", "build", "-o", filepath.Join(filepath.Dir(path), attacker), "../attack/attacker"),
	} {
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build the suite: %w: %s", err, out)
		}
	}
	return path, os.Chmod(filepath.Dir(path), 0o755)
})

// attacker is the name of the program beside the suite.
const attacker = "attacker"

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := base(); err == nil {
		err = os.RemoveAll(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// newDir makes a directory that every user can reach and owner can write.
func newDir(t *testing.T, owner int) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this takes root: it puts on other users and makes containers")
	}
	above, err := base()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(above, "") //nolint:usetesting // t.TempDir lies below a private directory
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, owner, owner))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The hosts that the suite knows; its host_test.go says what each must have.
const (
	machine        = "machine"
	docker         = "docker"
	dockerSysAdmin = "docker-sysadmin"
)

// floor is below the number of tests in the suite, and above that of any part of it
// that could be mistaken for the whole.
const floor = 250

// arguments are what the suite, which lies in dir there, is started with on a host.
func arguments(host, dir string) []string {
	return []string{
		"-test.v=test2json", "-test.timeout=" + atMost.String(), "-host=" + host, "-attacker=" + filepath.Join(dir, attacker),
		"-test.skip=^(" + strings.Join(leftOut(), "|") + ")$",
	}
}

// leftOut are the tests that are not about the place, or cannot look at what they are
// about there.
func leftOut() []string {
	return []string{
		// The source, the documents and the compiler are not there.
		"TestLauncherIsBuiltFromItsSource", "TestAdviceHasSources", "TestTheLauncherCannotBeTraced", "TestHeldTempsAreGuarded",
		// The same everywhere, and long.
		"TestToolsAgree", "TestTightening", "TestHelperAndLeases", "TestProcessorTimeEndsTheDeaf", "TestOddFiles",
		// They look into launchers and the worker, which takes CAP_SYS_PTRACE, or wait
		// for somebody to reap, which nobody does where the suite is the first process.
		"TestAWaitingLauncherHoldsNothing", "TestWaitingLaunchersEndWithTheirWorker", "TestWhatFullAccessReaches",
		// They change mounts and cgroups that are read-only there.
		"TestAWaitingLauncherWithOldMountsIsNotUsed", "TestCgroupsOfTheDeadAreRemoved",
	}
}

// run runs cmd, which runs the suite, and counts what came of it. The error is the
// suite's, which has one if a test failed.
func run(t *testing.T, cmd *exec.Cmd) (*tally, error) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	runErr := cmd.Run()
	c, err := count(t.Context(), &out)
	if err != nil {
		t.Fatal(err)
	}
	return c, runErr
}

// judge runs cmd, which runs the suite, and reports what failed. A suite in which
// fewer tests ran than floor has not been run.
func judge(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	c, runErr := run(t, cmd)
	for _, name := range c.failed {
		t.Errorf("%s failed:\n%s", name, strings.Join(c.output[name], ""))
	}
	if runErr != nil && len(c.failed) == 0 {
		t.Errorf("the suite ended with %v: %s", runErr, strings.Join(c.output[""], ""))
	}
	if c.passed < floor {
		t.Errorf("%d tests passed, want at least %d", c.passed, floor)
	}
	t.Logf("%d passed, %d failed", c.passed, len(c.failed))
}

// tally is what a run of the suite came to. A skipped test has failed.
type tally struct {
	passed int
	failed []string
	output map[string][]string // by test; what belongs to none has no name
}

// count reads the output of a test binary.
func count(ctx context.Context, out io.Reader) (*tally, error) {
	convert := exec.CommandContext(ctx, "go", "tool", "test2json")
	convert.Stdin = out
	events, err := convert.Output()
	if err != nil {
		return nil, fmt.Errorf("read test events: %w", err)
	}
	c := &tally{output: map[string][]string{}}
	for dec := json.NewDecoder(bytes.NewReader(events)); ; {
		var e struct{ Action, Test, Output string }
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			slices.Sort(c.failed)
			return c, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read test events: %w", err)
		}
		switch {
		case e.Action == "output":
			c.output[e.Test] = append(c.output[e.Test], e.Output)
		case e.Test == "":
		case e.Action == "pass":
			c.passed++
		case e.Action == "fail" || e.Action == "skip":
			c.failed = append(c.failed, e.Test)
		}
	}
}
