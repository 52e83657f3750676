//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// The test binary is also other programs: one that runs a call, which tests kill or
// stop from outside, one that runs calls without something it needs, and a worker that
// is attacked from a call of its own.
const (
	driveArg   = "drive"
	depriveArg = "deprive"
	stageArg   = "stage"
	workerArg  = "worker"
)

func subprogram(args []string) (int, bool) {
	if len(args) < 3 {
		return 0, false
	}
	switch args[1] {
	case driveArg:
		return drive(args[2]), true
	case depriveArg:
		return deprive(args[2]), true
	case stageArg:
		return stage(args[2]), true
	case traceArg:
		return traceParent(), true
	case workerArg:
		return worker(args[2]), true
	}
	return 0, false
}

// errand is what a driver is told to do.
type errand struct {
	Root   string
	Hidden []string
	Mode   session.SandboxMode
	Op     sandbox.Op
	Warm   int
	Lease  time.Duration // how far ahead a renewal reaches; zero means no lease
}

// drive runs one call and prints its result.
func drive(arg string) int {
	var e errand
	if err := json.Unmarshal([]byte(arg), &e); err != nil {
		return complain(err)
	}
	r, err := sandbox.New(sandbox.Config{Hidden: e.Hidden, Warm: e.Warm})
	if err != nil {
		return complain(err)
	}
	ws, err := r.Workspace(e.Root, "")
	if err != nil {
		return complain(err)
	}
	var lease sandbox.Lease
	if e.Lease != 0 {
		lease = newRenewing(e.Lease)
	}
	res, err := ws.Perform(context.Background(), e.Mode, e.Op, lease)
	if err != nil {
		return complain(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(res); err != nil {
		return complain(err)
	}
	if err := ws.Close(); err != nil {
		return complain(err)
	}
	return 0
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// renewing is a lease that this process renews for as long as it can run.
type renewing struct {
	ahead   time.Duration
	renewed chan struct{}
}

func newRenewing(ahead time.Duration) *renewing {
	r := &renewing{ahead: ahead, renewed: make(chan struct{})}
	go func() {
		for range time.Tick(ahead / 5) {
			r.renewed <- struct{}{}
		}
	}()
	return r
}

func (r *renewing) Deadline() time.Duration  { return sandbox.BootTime() + r.ahead }
func (r *renewing) Renewed() <-chan struct{} { return r.renewed }

// fixed is a lease that ends at a moment.
type fixed time.Duration

func (f fixed) Deadline() time.Duration { return time.Duration(f) }
func (fixed) Renewed() <-chan struct{}  { return nil }
