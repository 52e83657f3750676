package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// progress is what the sweep saw of a session, and since when.
type progress struct {
	tail   uint64
	since  time.Time
	nudges int // how many nudges end the log
}

// due reports whether a session has had no progress for long enough: two leases,
// and twice as long after each nudge that brought nothing. A nudge may be lost
// with the queue, so there is always another one; a session that waits for days
// is not to fill its log with them.
func (p progress) due(now time.Time, lease time.Duration) bool {
	return now.Sub(p.since) >= 2*lease<<min(p.nudges, mostNudgeDoublings)
}

// mostNudgeDoublings bounds how rare the nudges of one session become.
const mostNudgeDoublings = 6

// sweep looks, once a lease, for sessions that have something to do and that
// nobody drives, and for ends that were not told. What it does is decided by
// compare-and-set, so any number of coordinators may sweep. Each partition is
// swept by itself: one whose stream does not answer holds up no other.
func (c *Coordinator) sweep(ctx context.Context) error {
	var g errgroup.Group
	for p := range c.cfg.Partitions {
		g.Go(func() error {
			seen, since := map[session.ID]progress{}, map[asked]time.Time{}
			for delay.For(ctx, time.Duration(c.settings().Lease)) {
				if err := c.sweepPartition(ctx, p, seen, since); err != nil && ctx.Err() == nil {
					c.cfg.Logger.Warn("sweep", slog.Int("partition", p), slog.Any("error", err))
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (c *Coordinator) sweepPartition(ctx context.Context, partition int, seen map[session.ID]progress, since map[asked]time.Time) error {
	if err := c.lost(ctx, partition); err != nil {
		return nil //nolint:nilerr // it was said when it was found, and nothing can be written
	}
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
	errs = append(errs, c.sweepQuestions(ctx, partition, now, since))
	owing, err := c.cfg.Store.Owing(partition)
	errs = append(errs, err)
	for _, id := range owing {
		_, err := c.settle(ctx, id)
		errs = append(errs, err)
	}
	for id := range seen {
		if !still[id] {
			delete(seen, id)
		}
	}
	return errors.Join(errs...)
}

// sweepSession nudges a session once it has had no live claim and no progress for
// long enough. One that is quarantined waits for a person. A cancel that has not
// reached all children is sent on.
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
	if c.driven(s) {
		seen[id] = progress{tail: entry.Tail, since: now}
		return nil
	}
	was, ok := seen[id]
	if !ok || was.tail != entry.Tail {
		nudges, err := c.nudges(s)
		seen[id] = progress{tail: entry.Tail, since: now, nudges: nudges}
		return err
	}
	if !was.due(now, time.Duration(c.settings().Lease)) {
		return nil
	}
	if why, err := c.quarantine(ctx, s); why != "" || err != nil {
		return err
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

// nudges counts the nudges that a log ends with, as far as it matters.
func (c *Coordinator) nudges(s session.State) (n int, err error) {
	from := s.Header.FirstLiveSeq
	if s.Next-from > mostNudgeDoublings {
		from = s.Next - mostNudgeDoublings
	}
	err = c.cfg.Store.Events(s.Header.ID, from, s.Next, func(e session.Event) error {
		if _, ok := e.Payload.(*session.Nudge); ok {
			n++
		} else {
			n = 0
		}
		return nil
	})
	return n, err
}

// quarantine says why nobody may drive a session, empty if somebody may (see
// [session.Quarantine]). Only of a turn that was taken over often is the log read,
// and only if it says so are the signs of life read anew: a driver is listed there
// before its claim is in the log, but what was read before may be older than both.
func (c *Coordinator) quarantine(ctx context.Context, s session.State) (why string, err error) {
	if s.Open == nil || s.Open.Attempts < session.Fatal || c.driven(s) {
		return "", nil
	}
	var events []session.Event
	from := max(s.Header.FirstLiveSeq+1, s.Open.StartSeq) - 1
	err = c.cfg.Store.Events(s.Header.ID, from, s.Next, func(e session.Event) error {
		events = append(events, e)
		return nil
	})
	if err != nil || session.Quarantine(s, events, nobody) == "" {
		return "", err
	}
	values, err := c.cfg.Log.Liveness().All(ctx)
	if err != nil {
		return "", err
	}
	alive := client.ReadAlive(values)
	return session.Quarantine(s, events, func(claim session.Claim) bool {
		a, ok := alive[claim.Worker]
		return ok && a.Incarnation == claim.Incarnation
	}), nil
}

func nobody(session.Claim) bool { return false }

// lost says why a partition is stopped, nil if it is not.
func (c *Coordinator) lost(ctx context.Context, partition int) error {
	err := c.cfg.Store.WaitFor(ctx, partition, 0) // which does not wait
	if errors.Is(err, session.ErrLoss) {
		return err
	}
	return nil
}
