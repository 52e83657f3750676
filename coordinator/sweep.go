package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// progress is what the sweep saw of a session, and since when.
type progress struct {
	tail  uint64
	since time.Time
}

// sweep looks, once a lease, for sessions that have something to do and that
// nobody drives, and for ends that were not told. What it does is decided by
// compare-and-set, so any number of coordinators may sweep.
func (c *Coordinator) sweep(ctx context.Context) error {
	seen := map[session.ID]progress{}
	for delay.For(ctx, time.Duration(c.settings().Lease)) {
		for p := range c.cfg.Partitions {
			if err := c.sweepPartition(ctx, p, seen); err != nil && ctx.Err() == nil {
				c.cfg.Logger.Warn("sweep", slog.Int("partition", p), slog.Any("error", err))
			}
		}
	}
	return nil
}

func (c *Coordinator) sweepPartition(ctx context.Context, partition int, seen map[session.ID]progress) error {
	runnable, err := c.cfg.Store.Runnable(partition)
	if err != nil {
		return err
	}
	now := time.Now()
	still := make(map[session.ID]bool, len(runnable))
	var errs []error
	for _, id := range runnable {
		still[id] = true
		errs = append(errs, c.sweepSession(ctx, id, now, seen))
	}
	owing, err := c.cfg.Store.Owing(partition)
	errs = append(errs, err)
	for _, id := range owing {
		_, err := c.settle(ctx, id)
		errs = append(errs, err)
	}
	for id := range seen {
		if !still[id] && id.Partition() == partition {
			delete(seen, id)
		}
	}
	return errors.Join(errs...)
}

// sweepSession nudges a session once it has had no live claim and no progress for
// two leases. A cancel that has not reached all children is sent on.
func (c *Coordinator) sweepSession(ctx context.Context, id session.ID, now time.Time, seen map[session.ID]progress) error {
	entry, err := c.cfg.Store.Session(id)
	if err != nil {
		return err
	}
	s := entry.State
	if s.Stop != nil && len(s.Children) > 0 {
		if _, err := c.cancelBelow(ctx, s, fmt.Sprintf("cancel-%d", s.Stop.Seq)); err != nil {
			return err
		}
	}
	was, ok := seen[id]
	if !ok || was.tail != entry.Tail || c.driven(s) {
		seen[id] = progress{tail: entry.Tail, since: now}
		return nil
	}
	if now.Sub(was.since) < 2*time.Duration(c.settings().Lease) {
		return nil
	}
	_, err = c.append(ctx, id, stream.Change{
		Name: "nudge", Class: session.ClassInbox,
		Drafts: func(v session.View) ([]session.Draft, error) {
			if v.Tail != entry.Tail || !v.State.Runnable() {
				return nil, nil
			}
			by := &session.Party{Kind: session.CoordinatorOwn, ID: c.cfg.Name}
			return []session.Draft{c.draft(&session.Nudge{
				ID: fmt.Sprintf("nudge-%d", v.Tail), Reason: "runnable, and nobody drives it", By: by,
			})}, nil
		},
	})
	return err
}
