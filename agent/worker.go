package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/internal/failpoint"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// Config configures a Worker.
type Config struct {
	// Name is the worker's, as the broker knows it. Required.
	Name string
	// Incarnation tells this run of the worker from every other. Required.
	Incarnation string
	// Concurrency is how many sessions are driven at once. Default 4.
	Concurrency int
	// Partitions is the deployment's partition count. Default 1.
	Partitions int
	// Lease is how long a claim outlives the last sign of life. Default 30 s.
	Lease time.Duration
	// Drain is how long turns go on at a worker that is asked to stop. Default none.
	Drain time.Duration
	// Grace is how long after that what runs may take to a point where its turn can
	// be handed over; then it is ended where it is. Default 10 s.
	Grace time.Duration
	// Abort, closed, ends what runs at once. Default never.
	Abort <-chan struct{}
	// Version is the build's, for people.
	Version string
	// Labels are those that a session may ask for. Default none.
	Labels []string
	// Offers are the workspaces that it takes sessions of. Default every directory
	// of the workspace "default".
	Offers []Offer
	// Log is the deployment's logs. Required.
	Log *stream.Log
	// Client reaches a coordinator as this worker. Required.
	Client *client.Client
	// Runner runs permitted calls. Required.
	Runner *sandbox.Runner
	// Models returns the client of any model but the scripted one. Default: none
	// is offered.
	Models func(session.ModelSelected) (model.Client, error)
	// Logger is where what a person should know is said. Default: nowhere.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Concurrency == 0 {
		c.Concurrency = 4
	}
	if c.Partitions == 0 {
		c.Partitions = 1
	}
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	if c.Offers == nil {
		c.Offers = []Offer{{Kind: session.WorkspaceShared, Label: DefaultWorkspace, Dir: "/"}}
	}
	if c.Models == nil {
		c.Models = func(m session.ModelSelected) (model.Client, error) {
			return nil, fmt.Errorf("model %s:%s is not offered by this worker", m.Provider, m.Model)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate names the first field that cannot be worked with.
func (c Config) Validate() error {
	switch {
	case c.Name == "" || c.Incarnation == "" || strings.ContainsAny(c.Name+c.Incarnation, " .*>"):
		return fmt.Errorf("worker name %q and incarnation %q are one word each", c.Name, c.Incarnation)
	case c.Concurrency < 0 || c.Partitions < 0 || c.Lease < 0 || c.Grace < 0 || c.Drain < 0:
		return errors.New("concurrency, partitions, lease, drain and grace are not negative")
	case c.Log == nil || c.Client == nil || c.Runner == nil:
		return errors.New("a worker needs a log, a client and a runner")
	}
	return nil
}

// Worker takes hints from the work queue and drives the sessions they name.
type Worker struct {
	cfg      Config
	pulse    *pulse
	replicas *replicas
	putBack  *putBack
	shift    *shift
	queues   []*stream.Queue

	mu      sync.Mutex // guards what follows
	driving map[session.ID]*driver
	scripts map[string]*model.Script
}

// NewWorker returns a worker. It starts nothing.
func NewWorker(cfg Config) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	cfg = cfg.withDefaults()
	cfg.Labels = slices.Sorted(slices.Values(cfg.Labels))
	w := &Worker{
		cfg: cfg, replicas: newReplicas(cfg), putBack: &putBack{lease: cfg.Lease},
		driving: map[session.ID]*driver{}, scripts: map[string]*model.Script{},
	}
	w.shift = newShift(cfg.Grace, w.abort)
	w.pulse = newPulse(w.cfg, w.shift)
	for p := range cfg.Partitions {
		q, err := cfg.Log.Queue(p)
		if err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
		w.queues = append(w.queues, q)
	}
	return w, nil
}

// Run works until ctx ends. It stops in stages: it takes no more sessions and begins
// no turn; after Config.Drain it hands over the turns that run, each at the next
// point where nothing of it runs, so that another worker goes on at once; after
// Config.Grace, or once Config.Abort is closed, it ends what still runs. When it
// returns, nothing of it is left. It returns [ErrAborted] if it was aborted.
func (w *Worker) Run(ctx context.Context) error {
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop, err := w.cfg.Log.OnPoke(w.cfg.Name, w.poke)
	if err != nil {
		return err
	}
	if !w.firstPulse(ctx) {
		return stop() // it was told to before it had begun
	}
	var slots, signs sync.WaitGroup
	signing, silence := context.WithCancel(work)
	signs.Go(func() {
		w.pulse.run(signing, func(err error) { w.cfg.Logger.Warn("sign of life failed", slog.Any("error", err)) })
	})
	signs.Go(func() { w.replicas.run(signing) })
	signs.Go(func() { w.removeLeft(signing) })
	for slot := range w.cfg.Concurrency {
		slots.Go(func() { w.slot(ctx, work, slot) })
	}
	<-ctx.Done()
	w.shift.stop(w.cfg.Drain)
	w.pulse.hurry()
	aborted := w.wait(&slots)
	w.shift.rest()
	silence()
	signs.Wait()
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), limitRelease)
	defer cancel()
	return errors.Join(aborted, stop(), w.pulse.end(bye))
}

// wait waits until no slot is at work, and hurries them when that is asked for.
func (w *Worker) wait(slots *sync.WaitGroup) error {
	left := make(chan struct{})
	go func() { slots.Wait(); close(left) }()
	select {
	case <-left:
		return nil
	case <-w.cfg.Abort:
	}
	w.abort(ErrAborted)
	<-left
	return ErrAborted
}

// Confirmed returns the revision of the settings that calls are decided under, and
// whether it was confirmed within the lease. Without that nothing is decided.
func (w *Worker) Confirmed() (revision uint64, fresh bool) {
	read := time.Duration(w.pulse.read.Load())
	return w.pulse.settings().Revision, read != 0 && sandbox.BootTime()-read < w.pulse.lease
}

// retryPause is how long a worker waits after something failed that may pass.
const retryPause = 200 * time.Millisecond

// firstPulse renews until it works: nothing is driven before. It reports false
// when ctx ended first.
func (w *Worker) firstPulse(ctx context.Context) bool {
	for ctx.Err() == nil {
		err := w.pulse.renew(ctx)
		if err == nil {
			return true
		}
		w.cfg.Logger.Warn("first sign of life failed", slog.Any("error", err))
		delay.For(ctx, retryPause)
	}
	return false
}

// removeLeft removes what dead workers of this host left, now and once a lease: what
// lived on for a while after its worker goes then (SPEC 7.7).
func (w *Worker) removeLeft(ctx context.Context) {
	for said := ""; ; {
		removed, err := w.cfg.Runner.RemoveLeft()
		if removed > 0 {
			w.cfg.Logger.Info("removed what dead workers left", slog.Int("directories", removed))
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			w.cfg.Logger.Warn("what dead workers left is not gone", slog.Any("error", err))
		}
		if !delay.For(ctx, w.cfg.Lease) {
			return
		}
	}
}

// slot pulls one hint after the other and drives what it names. A slot that is
// free is what is pulled for, so no hint waits in a buffer.
func (w *Worker) slot(ctx, work context.Context, turn int) {
	for ; w.open(ctx); turn++ {
		h, err := w.pull(ctx, w.queues[turn%len(w.queues)])
		switch {
		case err == nil:
			w.handle(work, h)
		case ctx.Err() == nil && !errors.Is(err, errNoHint):
			w.cfg.Logger.Warn("cannot take work", slog.Any("error", err))
			delay.For(ctx, retryPause)
		}
	}
}

// open waits until the worker takes sessions, and reports false when ctx ended.
func (w *Worker) open(ctx context.Context) bool {
	for ctx.Err() == nil {
		takes, changed := w.shift.takes()
		if takes {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// errNoHint says that a partition has nothing to do now.
var errNoHint = errors.New("no hint")

// pull takes a hint. With several partitions it stays at none for long.
func (w *Worker) pull(ctx context.Context, q *stream.Queue) (*stream.Hint, error) {
	if len(w.queues) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Second, errNoHint)
		defer cancel()
	}
	return q.Next(ctx)
}

// handle drives the session that a hint names and acknowledges the hint if it may
// be; in every other case it puts it back.
func (w *Worker) handle(ctx context.Context, h *stream.Hint) {
	log := w.cfg.Logger.With(slog.String("session", string(h.Session)), slog.Uint64("hint", h.StreamSeq))
	began := time.Now()
	done, err := w.driveHint(ctx, h, log)
	waits := false
	switch {
	case err == nil && done:
		failpoint.Reach("before-ack")
		err = h.Ack(ctx)
	case quarantined(err):
		log.Error("session is quarantined", slog.Any("error", err))
		err = h.Ack(ctx)
	case err == nil, errors.Is(err, errBusy), errors.Is(err, errLost):
		err = h.Later(w.putBack.busy(h.Deliveries, lapsesOf(err)))
	case errors.Is(err, errDraining), errors.Is(err, ErrAborted):
		err = h.Later(0)
	default:
		waits = true
		err = w.postpone(ctx, h, time.Since(began), err, log)
	}
	if !waits {
		w.pulse.waits.over(h.Session)
	}
	if err != nil {
		log.Warn("hint is left to run out", slog.Any("error", err))
	}
}

// lapsesOf is when the driver that is in the way may be taken for dead; zero if that is
// not known.
func lapsesOf(err error) time.Time {
	if busy, ok := errors.AsType[*busyError](err); ok {
		return busy.lapses
	}
	return time.Time{}
}

// postpone puts back the hint of a session that cannot be driven now, and says why
// with the worker's signs of life. A nudge holds nothing to consume, and the sweep
// sends another one: it is let go once it has been put back for long, or those of
// a session that waits for days would pile up.
func (w *Worker) postpone(ctx context.Context, h *stream.Hint, took time.Duration, why error, log *slog.Logger) error {
	if errors.Is(why, sandbox.ErrElsewhere) {
		log.Error("session waits for its workspace", slog.Any("error", why))
	} else {
		log.Warn("session is left for later", slog.Any("error", why))
	}
	away, waits := w.putBack.waiting(h.Deliveries, took), waitsFor(why)
	if len(waits) > 0 {
		away = w.putBack.unsuited(h.Deliveries, took)
	}
	w.pulse.waits.note(h.Session, wait{why: reason(why), waits: waits, until: time.Now().Add(away + w.cfg.Lease)})
	if h.Deliveries > mostDoublings && isNudge(h.Record()) {
		return h.Ack(ctx)
	}
	return h.Later(away)
}

// driveHint drives and reports whether the hint rests on a stable fact.
func (w *Worker) driveHint(ctx context.Context, h *stream.Hint, log *slog.Logger) (bool, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &driver{worker: w, id: h.Session, log: log, poked: make(chan struct{}, 1), abort: cancel}
	if err := w.enter(d); err != nil {
		return false, err
	}
	defer w.leave(d)
	rep, done, err := w.replicas.open(ctx, h.Session, h.Address.Creator)
	if err != nil {
		return false, err
	}
	defer done()
	d.rep = rep
	if err := d.drive(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return false, err
	}
	return rep.Stable(h.Record()), nil
}

// enter notes that this worker drives a session, unless it does already or takes no
// more: a hint may come to one that does not, pulled for before it was told.
func (w *Worker) enter(d *driver) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.driving[d.id] != nil {
		return errBusy
	}
	if takes, _ := w.shift.takes(); !takes {
		return errDraining
	}
	w.driving[d.id] = d
	return nil
}

func (w *Worker) leave(d *driver) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.driving, d.id)
}

// poke has every driver look at its log now, or the pulse at the orders.
func (w *Worker) poke(orders bool) {
	if orders {
		w.pulse.hurry()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.driving {
		select {
		case d.poked <- struct{}{}:
		default:
		}
	}
}

// abort ends what runs, wherever it is.
func (w *Worker) abort(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.driving {
		d.abort(why)
	}
}

// Driving lists the sessions that the worker drives now.
func (w *Worker) Driving() []session.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]session.ID, 0, len(w.driving))
	for id := range w.driving {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
