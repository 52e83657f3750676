package broker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/broker"
)

// holdDir makes the test binary a process that runs a broker in that directory
// until its standard input ends.
const holdDir = "ENTAIL_TEST_HOLD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdDir); dir != "" {
		os.Exit(hold(dir))
	}
	goleak.VerifyTestMain(m)
}

func hold(dir string) int {
	id, err := broker.NewIdentity(broker.Coordinator, "coordinator")
	if err == nil {
		_, err = broker.Start(context.Background(), broker.Config{Dir: dir}, []broker.Identity{id})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stdout, "ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startHolder returns a process that holds dir.
func startHolder(t *testing.T, dir string) *os.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holdDir+"="+dir)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("holder said %q, %v", line, err)
	}
	return cmd.Process
}
