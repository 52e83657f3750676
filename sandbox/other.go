//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// BootTime returns the time of day: nothing on this system holds a lease.
func BootTime() time.Duration { return time.Duration(time.Now().UnixNano()) }

// Runner refuses every call: there is no fence on this system.
type Runner struct{}

// New returns a Runner that refuses every call, and ErrUnavailable.
func New(Config) (*Runner, error) {
	return &Runner{}, fmt.Errorf("%w: a fence exists on Linux on amd64 and arm64 only", ErrUnavailable)
}

// Close does nothing.
func (*Runner) Close() error { return nil }

// RemoveLeft does nothing: no worker leaves anything.
func (*Runner) RemoveLeft() (int, error) { return 0, nil }

// Mark does nothing: no call works in any directory.
func Mark(_, _ string) error { return nil }

// Markable does nothing.
func Markable(string) error { return nil }

// Reachable says no: nobody is switched to.
func Reachable(string, int) bool { return false }

// Uncounted says that no call runs here.
func (*Runner) Uncounted() error { return errors.New("this system has no fence") }

// CheckMark does nothing.
func CheckMark(_, _ string) error { return nil }

// Workspace is a directory in which no call can be run.
type Workspace struct{ root string }

// Workspace returns a workspace that refuses every call.
func (*Runner) Workspace(root string, _ session.ID) (*Workspace, error) {
	if !filepath.IsAbs(root) {
		return nil, errors.New("the workspace is not an absolute path")
	}
	return &Workspace{root: root}, nil
}

// Own says that there is no fence.
func (*Runner) Own() Fence { return Fence{} }

// Report says that there is no fence.
func (*Runner) Report() Report {
	const why = "a fence exists on Linux on amd64 and arm64 only"
	rep := Report{System: runtime.GOOS + "/" + runtime.GOARCH, User: os.Geteuid(), Unfit: why}
	for _, t := range session.Tiers() {
		rep.Tiers = append(rep.Tiers, TierReport{Tier: t, Why: why})
	}
	return rep
}

// Survey says that every confined call is refused.
func (*Runner) Survey(dir string, _ session.ID, _ policy.Confinement) (Site, error) {
	return Site{Path: dir, Refused: "this system has no fence"}, nil
}

// Root returns the path of the workspace.
func (w *Workspace) Root() string { return w.root }

// Close does nothing.
func (*Workspace) Close() error { return nil }

// Exec refuses every call with CodeUnavailable.
func (w *Workspace) Exec(ctx context.Context, p policy.Permit, sh Shell, lease Lease, _ Streams) (Result, error) {
	return w.Run(ctx, p, Op{Shell: &sh}, lease)
}

// Run refuses every call with CodeUnavailable.
func (*Workspace) Run(_ context.Context, p policy.Permit, _ Op, _ Lease) (Result, error) {
	if !p.Sealed() {
		return Result{}, ErrNotPermitted
	}
	return unavailable("this system has no fence"), nil
}
