package stream

import (
	"context"
	"time"

	"github.com/entail-fleet/entail/internal/delay"
)

// lag is the patience with a leader that answers with less than one of its copies
// showed before. On replicated streams that happens: a copy may apply what was
// agreed on a moment before the leader does. It passes within moments, and what
// still is missing then is lost.
type lag struct{ until time.Time }

// wait pauses before the leader is asked again. It reports false when the leader
// has had long enough, or ctx has ended.
func (g *lag) wait(ctx context.Context, patience time.Duration) bool {
	if g.until.IsZero() {
		g.until = time.Now().Add(patience)
	}
	return time.Now().Before(g.until) && delay.For(ctx, jitter(minBusyPause, maxBusyPause))
}
