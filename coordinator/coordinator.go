package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// Coordinator answers requests and sweeps. Make one with New and run it once.
type Coordinator struct {
	cfg        Config
	views      *views
	deployment atomic.Pointer[policy.Deployment]
	ready      chan struct{} // closed by Run when requests are answered

	mu     sync.Mutex
	alive  map[string]seen   // by worker; guarded by mu
	looked time.Time         // when the look began that found alive; guarded by mu
	roomy  map[int]time.Time // when a partition had much room, by partition; guarded by mu
}

// New checks the configuration. It does no I/O.
func New(cfg Config) (*Coordinator, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Coordinator{cfg: cfg, views: newViews(cfg.Store), ready: make(chan struct{}), alive: map[string]seen{}, roomy: map[int]time.Time{}}, nil
}

// Ready is closed when requests are answered: the settings are read and the
// mirrors have caught up.
func (c *Coordinator) Ready() <-chan struct{} { return c.ready }

// Revision is that of the settings in force here, 0 before they were read.
func (c *Coordinator) Revision() uint64 {
	if d := c.deployment.Load(); d != nil {
		return d.Revision
	}
	return 0
}

// Run mirrors, answers and sweeps until ctx ends; then it returns nil once
// everything it started is gone. A lost partition does not end it: views of that
// partition are refused, the others go on.
func (c *Coordinator) Run(ctx context.Context) error {
	if err := c.loadSettings(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for p := range c.cfg.Partitions {
		g.Go(func() error { return c.mirror(ctx, p) })
	}
	g.Go(func() error { return c.watchSettings(ctx) })
	g.Go(func() error { return c.watchAlive(ctx) })
	if err := c.catchUp(ctx); err != nil {
		return errors.Join(err, g.Wait())
	}
	g.Go(func() error { return c.serve(ctx) })
	g.Go(func() error { return c.sweep(ctx) })
	err := g.Wait()
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}

// mirror runs one partition's mirror. A loss stops that partition, loud, and
// nothing else.
func (c *Coordinator) mirror(ctx context.Context, partition int) error {
	err := c.cfg.Store.Run(ctx, feed{c.cfg.Log}, partition)
	if errors.Is(err, session.ErrLoss) {
		c.cfg.Logger.Error("partition is stopped", slog.Int("partition", partition), slog.Any("error", err))
		return nil
	}
	return err
}

// catchUp waits until every mirror has what the streams hold now, or is found to be
// of another history.
func (c *Coordinator) catchUp(ctx context.Context) error {
	for p := range c.cfg.Partitions {
		if err := c.caughtUp(ctx, p); err != nil && !errors.Is(err, session.ErrLoss) {
			return fmt.Errorf("catch up with partition %d: %w", p, err)
		}
	}
	return nil
}

// caughtUp waits for one mirror. One that holds more than its stream, or is of
// another stream, would be past all there is: nothing is answered from it before it
// has said that this is a loss.
func (c *Coordinator) caughtUp(ctx context.Context, partition int) error {
	const look = 20 * time.Millisecond
	for {
		info, err := c.cfg.Log.Info(ctx, partition)
		if err != nil {
			return err
		}
		mark, held := c.cfg.Store.Watermark(partition)
		if !held || mark.Incarnation == info.Incarnation && mark.Seq <= info.LastSeq {
			return c.cfg.Store.WaitFor(ctx, partition, info.LastSeq)
		}
		if err := c.cfg.Store.WaitFor(ctx, partition, 0); err != nil { // does not wait
			return err
		}
		if !delay.For(ctx, look) {
			return context.Cause(ctx)
		}
	}
}

// loadSettings reads the deployment's settings. Who provisions a deployment
// writes its first ones.
func (c *Coordinator) loadSettings(ctx context.Context) error {
	value, revision, err := c.cfg.Log.Settings().Load(ctx)
	if err != nil {
		return fmt.Errorf("read the deployment's settings: %w", err)
	}
	return c.useSettings(value, revision)
}

// useSettings takes a newer revision; an older one is ignored.
func (c *Coordinator) useSettings(value []byte, revision uint64) error {
	d, err := policy.NewDeployment(value, revision)
	if err != nil {
		return fmt.Errorf("settings at revision %d: %w", revision, err)
	}
	for {
		old := c.deployment.Load()
		if old != nil && old.Revision >= d.Revision {
			return nil
		}
		if c.deployment.CompareAndSwap(old, &d) {
			return nil
		}
	}
}

func (c *Coordinator) watchSettings(ctx context.Context) error {
	return c.cfg.Log.Settings().Watch(ctx, func(s stream.Setting) error {
		if err := c.useSettings(s.Value, s.Revision); err != nil {
			c.cfg.Logger.Error("settings are refused; the last good ones stay", slog.Any("error", err))
		}
		return nil
	})
}

func (c *Coordinator) watchAlive(ctx context.Context) error {
	return c.cfg.Log.Liveness().Watch(ctx, func(began time.Time, listed map[string]stream.Setting) error {
		c.seeAlive(began, listed)
		return nil
	})
}

// seeAlive takes over what a look at the liveness bucket found that began then.
func (c *Coordinator) seeAlive(began time.Time, listed map[string]stream.Setting) {
	values := make(map[string][]byte, len(listed))
	for worker, v := range listed {
		values[worker] = v.Value
	}
	all := make(map[string]seen, len(listed))
	c.mu.Lock()
	defer c.mu.Unlock()
	if began.Before(c.looked) {
		return
	}
	for worker, a := range client.ReadAlive(values) {
		s := seen{Alive: a, revision: listed[worker].Revision, since: began}
		if was, ok := c.alive[worker]; ok && was.revision == s.revision {
			s.since = was.since
		}
		all[worker] = s
	}
	c.alive, c.looked = all, began
}

// lookAgain looks at the liveness bucket, unless that was done since a log was read:
// a claim is listed before it is in the log, so what was seen before that may be
// without its driver. Where the bucket does not answer, what was seen last stands.
func (c *Coordinator) lookAgain(ctx context.Context, read time.Time) {
	c.mu.Lock()
	fresh := c.looked.After(read)
	c.mu.Unlock()
	if fresh {
		return
	}
	began := time.Now()
	if listed, err := c.cfg.Log.Liveness().List(ctx); err == nil {
		c.seeAlive(began, listed)
	}
}

// driven reports whether the claim in force of a session is live.
func (c *Coordinator) driven(s session.State) bool {
	h := c.holds(s)
	return h == holdLive || h == holdSilent
}

func (c *Coordinator) settings() policy.Deployment { return *c.deployment.Load() }

func (c *Coordinator) now() int64 { return c.cfg.Now().UnixMilli() }

// draft is an event of now.
func (c *Coordinator) draft(p session.Payload) session.Draft {
	return session.Draft{Time: c.now(), Payload: p}
}

// poke tells a session's driver, as far as one is known, that its log has grown.
func (c *Coordinator) poke(s session.State) {
	if s.Claim.Worker == "" {
		return
	}
	if err := c.cfg.Log.Poke(s.Claim.Worker); err != nil {
		c.cfg.Logger.Debug("poke", slog.String("worker", s.Claim.Worker), slog.Any("error", err))
	}
}

// append writes one change through the one append, on the newest views.
func (c *Coordinator) append(ctx context.Context, space session.ID, ch stream.Change) (stream.Done, error) {
	return c.appendAfter(ctx, space, 0, ch)
}

// appendAfter is append on views that are at least as new as a tail that the
// requester has seen.
func (c *Coordinator) appendAfter(ctx context.Context, space session.ID, tail uint64, ch stream.Change) (stream.Done, error) {
	v := c.views.after(tail)
	done, err := c.cfg.Log.Append(ctx, v, space, ch)
	switch {
	case err == nil:
		v.wrote(space, done)
	case errors.Is(err, session.ErrLoss):
		c.cfg.Logger.Error("nothing was appended", slog.String("session", string(space)), slog.Any("error", err))
	}
	return done, err
}

// feed lets the mirror read from the log.
type feed struct{ log *stream.Log }

// Info implements sessionstore.Feed.
func (f feed) Info(ctx context.Context, partition int) (incarnation string, first, last uint64, err error) {
	i, err := f.log.Info(ctx, partition)
	if err == nil {
		err = f.holes(ctx, partition, i)
	}
	return i.Incarnation, i.FirstSeq, i.LastSeq, err
}

// At implements sessionstore.Feed.
func (f feed) At(ctx context.Context, partition int, seq uint64) (session.Raw, error) {
	return f.log.At(ctx, partition, seq)
}

// Follow implements sessionstore.Feed.
func (f feed) Follow(ctx context.Context, partition int, after uint64, fn func([]session.Raw) error) error {
	return f.log.Follow(ctx, partition, after, fn)
}
