//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// without runs fn on a thread whose children never have a capability. The thread
// ends with it.
func without(t *testing.T, capability uintptr, fn func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if err == nil {
			fn()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Root without CAP_KILL could start a call as another user and not end it: what such
// a call leaves behind would outlive it. No call is then run as another user.
func TestUsersAreNotSwitchedWithoutCapKill(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	find := func(capability uintptr) (uid sandbox.TierReport) {
		without(t, capability, func() {
			r, err := sandbox.New(sandbox.Config{Best: session.TierUID})
			if err != nil {
				t.Error(err)
				return
			}
			uid = r.Report().Tiers[1]
		})
		return uid
	}
	if got := find(unix.CAP_KILL); got.Had || !strings.Contains(got.Why, "CAP_KILL") {
		t.Errorf("without CAP_KILL: got %+v", got)
	}
	if got := find(unix.CAP_AUDIT_WRITE); !got.Had {
		t.Errorf("without another capability: got %+v", got)
	}
}
