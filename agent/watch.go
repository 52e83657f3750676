package agent

import (
	"context"
	"sync"
	"time"
)

// pollInterval is how often a log is looked at while something runs
// (ARCHITECTURE 4).
const pollInterval = time.Second

// watch looks at the log while a model request or a call runs, once a second and
// when poked, and ends the context when it must not go on. Stop ends the watch.
func (d *driver) watch(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(min(pollInterval, d.worker.cfg.Lease/2))
		defer t.Stop()
		for {
			if cause := d.look(ctx); cause != nil {
				cancel(cause)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			case <-d.poked:
			}
		}
	})
	return ctx, func() {
		cancel(context.Canceled)
		wg.Wait()
	}
}

// look reads the log once and says why what runs must end, if it must.
func (d *driver) look(ctx context.Context) error {
	if d.beat.over() {
		return errLease
	}
	if err := d.rep.Refresh(ctx, 0); err != nil {
		if d.rep.Halted() {
			return err
		}
		return nil // looked at again; the lease bounds how long that can go on
	}
	s, _ := d.rep.State()
	switch {
	case s.Epoch != d.epoch:
		return errLost
	case s.Stopping(), s.Ended != nil:
		return errStopped
	}
	return nil
}

// Halted reports whether the log was stopped (SPEC 1.4).
func (r *Replica) Halted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chain.Halted() != nil
}
