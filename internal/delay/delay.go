// Package delay waits for a time that may be cut short. It is the one way to wait
// where there is no condition to wait for.
package delay

import (
	"context"
	"time"
)

// For blocks for d or until ctx ends, and reports whether it was d.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
