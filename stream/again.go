package stream

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/entail-fleet/entail/internal/delay"
)

// again paces what is tried again, with pauses that grow.
type again struct {
	until time.Time
	pause time.Duration
}

const (
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// again lasts for [Config.Budget] from now on.
func (l *Log) again() again { return again{until: time.Now().Add(l.cfg.Budget), pause: firstPause} }

// wait pauses before the next try. It reports false when there have been enough, or
// ctx has ended.
func (g *again) wait(ctx context.Context) bool {
	pause := g.pause
	g.pause = min(2*pause, lastPause)
	return time.Now().Before(g.until) && delay.For(ctx, jitter(pause/2, pause))
}

// lag is the patience with a leader that answers with less than one of its copies
// showed before. On replicated streams that happens: a copy may apply what was
// agreed on a moment before the leader does. It passes within moments, and what
// still is missing then is lost.
type lag struct{ again }

// wait pauses before the leader is asked again. It reports false when the leader
// has had long enough, or ctx has ended.
func (g *lag) wait(ctx context.Context, patience time.Duration) bool {
	if g.until.IsZero() {
		g.until = time.Now().Add(patience)
	}
	g.pause = firstPause
	return waitsForLag && g.again.wait(ctx)
}

// crowd is the patience with other publishes of the same filter that are in flight.
type crowd struct{ tries int }

const (
	// busyTries is how often such a publish is repeated before it counts as a
	// conflict.
	busyTries    = 50
	minBusyPause = 200 * time.Microsecond
	maxBusyPause = 2 * time.Millisecond
)

func (c *crowd) wait(ctx context.Context) bool {
	c.tries++
	return c.tries <= busyTries && delay.For(ctx, jitter(minBusyPause, maxBusyPause))
}

// jitter picks a duration between two, so that rivals do not keep step.
func jitter(from, to time.Duration) time.Duration {
	return from + rand.N(to-from) //nolint:gosec // spreads load, guards nothing
}
