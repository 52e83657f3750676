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
// nil lease binds the call to ctx alone. When Run returns, every process of the
// call is gone.
func (w *Workspace) Run(ctx context.Context, p policy.Permit, op Op, lease Lease) (Result, error) {
	if !p.Sealed() {
		return Result{}, ErrNotPermitted
	}
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(ctx))
	}
	res, err := w.run(ctx.Done(), lease, grant{p.Mode(), p.Network(), p.Terms()}, op)
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return res, err
}
