//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/entail-fleet/entail/policy"
)

// Run does op under the mode that p permits. A permit that permits nothing is
// ErrNotPermitted. A call that the host cannot confine, one that fails and one
// that the fence refuses are results, not errors; an error says that the call was
// not run, was ended by ctx or by its lease, or that its outcome is unknown. A
// nil lease binds the call to ctx alone. When Run returns, every process of a
// command is gone; the helper for file operations is the Workspace's.
func (w *Workspace) Run(ctx context.Context, p policy.Permit, op Op, lease Lease) (Result, error) {
	return w.permitted(ctx, p, op, lease, nil)
}

// Exec is Run for a shell call on the caller's own streams: its Result has no output
// but the reason why a program could not be started, and whether the fence refused
// something cannot be told. The command is the leader of a session of its own, so a
// terminal among the streams does not control it: no job control and no signals from
// its keys.
func (w *Workspace) Exec(ctx context.Context, p policy.Permit, sh Shell, lease Lease, s Streams) (Result, error) {
	return w.permitted(ctx, p, Op{Shell: &sh}, lease, &s)
}

func (w *Workspace) permitted(ctx context.Context, p policy.Permit, op Op, lease Lease, s *Streams) (Result, error) {
	if !p.Sealed() {
		return Result{}, ErrNotPermitted
	}
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(ctx))
	}
	res, err := w.runOn(ctx.Done(), lease, grant{p.Mode(), p.Network(), p.Terms()}, op, s)
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return res, err
}
