package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// pulse is a worker's sign of life: it lists the claims that loops drive, renews
// the list, and reads the settings and the worker's orders each time. A claim is alive as long as it is
// listed, and a default may be used as long as its last read is younger than the
// lease (SPEC 2.1).
type pulse struct {
	log    *stream.Log
	worker string
	lease  time.Duration
	logger *slog.Logger

	renewing sync.Mutex    // one renewal at a time
	put      time.Duration // boot time of the last listing; guarded by renewing

	// deciding is held for reading from a decision to its commit, and for writing
	// while the settings change: a revision is confirmed only when no decision
	// under an older one is on its way.
	deciding   sync.RWMutex
	deployment policy.Deployment // guarded by deciding
	read       atomic.Int64      // boot time of the last confirmed read

	waits waits
	shift *shift
	self  client.Alive  // what never changes
	now   chan struct{} // sent by hurry, never closed

	mu    sync.Mutex
	beats map[*beat]struct{} // guarded by mu
}

// beat is one listed claim. Its deadline is when the claim may be taken for dead
// at the earliest: it bounds every effect of the loop (SPEC 7.8).
type beat struct {
	pulse *pulse
	claim client.AliveClaim

	// Guarded by pulse.mu.
	limit    time.Duration // boot time until which the loop's step may take
	deadline time.Duration // boot time
	watchers map[chan struct{}]struct{}
}

func newPulse(cfg Config, s *shift) *pulse {
	p := &pulse{
		log: cfg.Log, logger: cfg.Logger, worker: cfg.Name, lease: cfg.Lease, beats: map[*beat]struct{}{}, shift: s, now: make(chan struct{}, 1),
		self: client.Alive{
			Worker: cfg.Name, Incarnation: cfg.Incarnation, Lease: policy.Duration(cfg.Lease),
			Version: cfg.Version, Since: time.Now().UnixMilli(), Concurrency: cfg.Concurrency,
			Labels: cfg.Labels, Workspaces: offerTexts(cfg.Offers),
		},
	}
	if cfg.Runner != nil {
		own := cfg.Runner.Own()
		p.self.Tier = own.Tier
		for _, m := range own.Modes {
			if p.self.Enforcement == "" || m.Enforcement == session.EnforcedPartly {
				p.self.Enforcement = m.Enforcement
			}
		}
	}
	return p
}

// run renews until ctx ends. A renewal that fails is the next one's to make good;
// the lease says how long that may take.
func (p *pulse) run(ctx context.Context, report func(error)) {
	t := time.NewTicker(p.lease / 6)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-p.now:
		}
		if err := p.renew(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
	}
}

// hurry has the list renewed now.
func (p *pulse) hurry() {
	select {
	case p.now <- struct{}{}:
	default:
	}
}

// end takes the worker off the list at once.
func (p *pulse) end(ctx context.Context) error {
	p.renewing.Lock()
	defer p.renewing.Unlock()
	return p.log.Liveness().Delete(ctx, p.worker)
}

// renew reads the settings and lists the claims. Who changes the settings waits for
// the workers that are listed: one that is not is listed before it reads, and
// decides nothing before it is listed with what it has read. It must have been listed
// all the while: whoever looked in a gap has not waited, so what was read before the
// gap is not believed.
func (p *pulse) renew(ctx context.Context) error {
	p.renewing.Lock()
	defer p.renewing.Unlock()
	margin := min(2*time.Second, p.lease/4)
	if now := sandbox.BootTime(); p.put == 0 || now-p.put >= p.lease-margin {
		if _, err := p.say(ctx, now, 0); err != nil {
			return err
		}
	}
	before := p.put
	now := sandbox.BootTime() // a moment before the read
	revision, err := p.load(ctx)
	if err != nil {
		return err
	}
	if err := p.orders(ctx); err != nil {
		return err
	}
	listed, err := p.say(ctx, now, revision)
	if err != nil {
		return err
	}
	if sandbox.BootTime()-before >= p.lease {
		return errUnconfirmed
	}
	p.read.Store(int64(now))
	p.extend(listed, now+p.lease-margin)
	return nil
}

// say lists the worker with its claims and the revision that it has confirmed.
func (p *pulse) say(ctx context.Context, now time.Duration, revision uint64) ([]*beat, error) {
	listed, alive := p.list(now)
	alive.Revision = revision
	value, err := json.Marshal(alive)
	if err != nil {
		return nil, fmt.Errorf("encode liveness: %w", err)
	}
	if err := p.log.Liveness().Put(ctx, p.worker, value); err != nil {
		return nil, err
	}
	p.put = now
	return listed, nil
}

// load reads the settings.
func (p *pulse) load(ctx context.Context) (uint64, error) {
	value, revision, err := p.log.Settings().Load(ctx)
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		if value, err = policy.DefaultSettings().Encode(); err != nil {
			return 0, err
		}
	}
	d, err := policy.NewDeployment(value, revision)
	if err != nil {
		return 0, err
	}
	switch have := p.settings(); {
	case revision < have.Revision:
		return 0, fmt.Errorf("settings revision %d is older than %d, read before: %w", revision, have.Revision, session.ErrLoss)
	case revision > have.Revision || have.Hash == "":
		p.deciding.Lock()
		p.deployment = d
		p.deciding.Unlock()
	}
	return revision, nil
}

// orders reads what was ordered of the worker, which obeys before it says so.
func (p *pulse) orders(ctx context.Context) error {
	value, revision, err := p.log.Orders(p.worker).Load(ctx)
	if err != nil {
		return err
	}
	o, err := client.ReadOrder(value)
	if p.shift.obey(o, revision) {
		p.logger.Warn("the worker has new orders", slog.String("state", string(o.State)), slog.String("reason", o.Reason), slog.Any("error", err))
	}
	return nil
}

// list names the claims whose loops make progress.
func (p *pulse) list(now time.Duration) ([]*beat, client.Alive) {
	p.mu.Lock()
	defer p.mu.Unlock()
	alive := p.self
	alive.Claims, alive.Waits = []client.AliveClaim{}, p.waits.list(time.Now())
	p.shift.say(&alive)
	var listed []*beat
	for b := range p.beats {
		if now < b.limit {
			listed = append(listed, b)
			alive.Claims = append(alive.Claims, b.claim)
		}
	}
	return listed, alive
}

func (p *pulse) extend(listed []*beat, deadline time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range listed {
		b.deadline = deadline
		for w := range b.watchers {
			select {
			case w <- struct{}{}:
			default:
			}
		}
	}
}

// errUnconfirmed says that the settings may have changed unseen.
var errUnconfirmed = errors.New("no read of the settings was confirmed within the lease: nothing is decided")

// decided calls fn with the settings, which do not change until it returns.
func (p *pulse) decided(fn func(policy.Deployment) error) error {
	p.deciding.RLock()
	defer p.deciding.RUnlock()
	read := time.Duration(p.read.Load())
	if read == 0 || sandbox.BootTime()-read >= p.lease {
		return errUnconfirmed
	}
	return fn(p.deployment)
}

// settings returns the settings as last read, for what decides nothing.
func (p *pulse) settings() policy.Deployment {
	p.deciding.RLock()
	defer p.deciding.RUnlock()
	return p.deployment
}

// take lists a claim that is about to be made. It is alive when take returns: a
// claim in the log that is not listed would be taken over at once.
func (p *pulse) take(ctx context.Context, id session.ID, epoch uint64, limit time.Duration) (*beat, error) {
	b := &beat{
		pulse: p, claim: client.AliveClaim{Session: id, Epoch: epoch}, watchers: map[chan struct{}]struct{}{},
		limit: sandbox.BootTime() + limit,
	}
	p.mu.Lock()
	p.beats[b] = struct{}{}
	p.mu.Unlock()
	if err := p.renew(ctx); err != nil {
		b.drop()
		return nil, err
	}
	return b, nil
}

// drop takes the claim off the list, from the next renewal on.
func (b *beat) drop() {
	b.pulse.mu.Lock()
	defer b.pulse.mu.Unlock()
	delete(b.pulse.beats, b)
}

// allow gives the loop's next step so long. A loop that takes longer is listed no
// more.
func (b *beat) allow(limit time.Duration) {
	b.pulse.mu.Lock()
	defer b.pulse.mu.Unlock()
	b.limit = sandbox.BootTime() + limit
}

// renew makes sure that the lease has a good part of its length left: what is
// started now must not end with it.
func (b *beat) renew(ctx context.Context) error {
	b.pulse.mu.Lock()
	left := b.deadline - sandbox.BootTime()
	b.pulse.mu.Unlock()
	if left > b.pulse.lease/2 {
		return nil
	}
	return b.pulse.renew(ctx)
}

// over reports whether the claim may be taken for dead.
func (b *beat) over() bool {
	b.pulse.mu.Lock()
	defer b.pulse.mu.Unlock()
	return sandbox.BootTime() >= b.deadline
}

// lease bounds one call by its loop's claim.
type lease struct {
	beat    *beat
	renewed chan struct{} // sent by extend, never closed
}

var _ sandbox.Lease = (*lease)(nil)

func (b *beat) lease() *lease {
	b.pulse.mu.Lock()
	defer b.pulse.mu.Unlock()
	l := &lease{beat: b, renewed: make(chan struct{}, 1)}
	b.watchers[l.renewed] = struct{}{}
	return l
}

// Deadline implements [sandbox.Lease].
func (l *lease) Deadline() time.Duration {
	l.beat.pulse.mu.Lock()
	defer l.beat.pulse.mu.Unlock()
	return l.beat.deadline
}

// Renewed implements [sandbox.Lease].
func (l *lease) Renewed() <-chan struct{} { return l.renewed }

func (l *lease) close() {
	l.beat.pulse.mu.Lock()
	defer l.beat.pulse.mu.Unlock()
	delete(l.beat.watchers, l.renewed)
}

// workers returns who is alive, by name.
func (p *pulse) workers(ctx context.Context) (_ map[string]client.Alive, lapses map[string]time.Time, err error) {
	listed, err := p.log.Liveness().List(ctx)
	if err != nil {
		return nil, nil, err
	}
	values, lapses := make(map[string][]byte, len(listed)), make(map[string]time.Time, len(listed))
	for worker, s := range listed {
		values[worker], lapses[worker] = s.Value, s.Time.Add(p.lease)
	}
	return client.ReadAlive(values), lapses, nil
}
