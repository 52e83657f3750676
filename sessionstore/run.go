package sessionstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/session"
)

// Feed is where the mirror reads a partition from. Each method answers from the
// stream's leader: a replica that lags would look like a loss.
type Feed interface {
	// Info returns the stream's incarnation and its first and last sequence. It
	// returns session.ErrNotFound when there is no stream.
	Info(ctx context.Context, partition int) (incarnation string, first, last uint64, err error)
	// At returns one record as Follow gives it, session.ErrNotFound when there
	// is none at seq.
	At(ctx context.Context, partition int, seq uint64) (session.Raw, error)
	// Follow calls fn with the records behind a sequence, in stream order, one
	// call after the other, until ctx ends, fn returns an error or the
	// consumer has to be made anew. It leaves nothing out: a message whose
	// subject is no session's comes as a record with an address that is no
	// session's, at best with none. The mirror alarms it; left out, it would
	// look like a loss.
	Follow(ctx context.Context, partition int, after uint64, fn func([]session.Raw) error) error
}

// fewRecords is less than a batch has in which records have gathered by themselves.
const fewRecords = 64

// The times between attempts to reach the feed.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 2 * time.Second
)

// Run mirrors one partition until ctx ends, when it returns nil, or until a loss
// is found, when it returns an error that is session.ErrLoss and the partition is
// stopped. It looks at the watermark at start, at each reset of the consumer and
// once in each interval. A feed that cannot be reached is tried again; a
// mirror that cannot be written or read ends Run.
func (s *Store) Run(ctx context.Context, f Feed, partition int) error {
	p, err := s.partition(partition)
	if err != nil {
		return err
	}
	if !p.running.TryLock() {
		return fmt.Errorf("mirror partition %d: it is being mirrored", partition)
	}
	defer p.running.Unlock()
	pause := firstPause
	for {
		moved, err := s.follow(ctx, f, p)
		var own *ownError
		switch {
		case errors.Is(err, session.ErrLoss) || errors.As(err, &own):
			return fmt.Errorf("mirror partition %d: %w", partition, err)
		case ctx.Err() != nil:
			return s.sync()
		}
		if moved {
			pause = firstPause
		}
		s.cfg.Logger.Warn("feed of partition ended, reading on",
			slog.Int("partition", partition), slog.Any("error", err), slog.Duration("after", pause))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return s.sync()
		}
		pause = min(2*pause, longPause)
	}
}

// ownError is an error of the store, as opposed to the feed's.
type ownError struct{ err error }

// Error implements error.
func (e *ownError) Error() string { return e.err.Error() }

// Unwrap returns the store's error.
func (e *ownError) Unwrap() error { return e.err }

// errReset is the end of a Follow that gave no reason.
var errReset = errors.New("the consumer ended")

// follow checks the watermark, then reads on from it for as long as one consumer
// lives. It reports whether the partition moved.
func (s *Store) follow(ctx context.Context, f Feed, p *partition) (moved bool, err error) {
	incarnation, err := s.check(ctx, f, p)
	if err != nil {
		return false, err
	}
	from, _, _ := p.watermark()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.watch(ctx, f, p) })
	g.Go(func() error {
		in := newIntake(func(records []session.Decoded) error { return s.apply(p.n, incarnation, records) })
		err := f.Follow(ctx, p.n, from.Seq, func(raws []session.Raw) error {
			few := len(raws) < fewRecords
			err := in.take(decode(raws), few)
			if err == nil && few {
				p.gather(ctx, s.cfg.Gather)
			}
			return err
		})
		if applied := in.close(); applied != nil {
			return &ownError{applied}
		}
		switch {
		case err == nil:
			err = errReset
		case errors.Is(err, session.ErrLoss):
			return p.lose(s.cfg.Logger, "%v", err)
		}
		return fmt.Errorf("follow: %w", err)
	})
	err = g.Wait()
	to, _, _ := p.watermark()
	return to.Seq > from.Seq, err
}

// watch syncs what was applied and checks the watermark, once in each interval. A
// partition that is never idle is checked too: a client that reconnects, or a
// stream that changes its leader, may go on with the same consumer. It ends with
// ctx, a loss or a failing sync.
func (s *Store) watch(ctx context.Context, f Feed, p *partition) error {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	before, _, _ := p.watermark()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		now, _, _ := p.watermark()
		if now.Seq > before.Seq {
			before = now
			if err := s.sync(); err != nil {
				return &ownError{err}
			}
		}
		// A feed that cannot be reached is Follow's to report.
		if _, err := s.check(ctx, f, p); errors.Is(err, session.ErrLoss) {
			return err
		}
	}
}

// errShort says that whoever answers for the stream holds less than is mirrored. That
// may pass: a server that was cut off leads in its own eyes until it misses the others,
// and one that leads anew may still apply what it has.
var errShort = errors.New("the stream holds less than is mirrored")

// check compares the watermark with the stream. It returns the stream's
// incarnation. A stream that holds less than is mirrored is a loss once every look
// has said so for [Config.Patience]; until then it is errShort.
func (s *Store) check(ctx context.Context, f Feed, p *partition) (string, error) {
	incarnation, short, err := s.look(ctx, f, p)
	switch {
	case short != nil:
		since := p.short(time.Now())
		if time.Since(since) >= s.cfg.Patience {
			return "", p.lose(s.cfg.Logger, "%v", short)
		}
		s.cfg.Logger.Warn("the stream holds less than is mirrored, looking again", slog.Int("partition", p.n),
			slog.Any("error", short), slog.Duration("for", time.Since(since)), slog.Duration("a loss after", s.cfg.Patience))
		return "", fmt.Errorf("%w: %w", errShort, short)
	case err == nil:
		p.whole()
	}
	return incarnation, err
}

// look is one look at the stream. Short says what the stream does not hold, which
// may pass.
func (s *Store) look(ctx context.Context, f Feed, p *partition) (incarnation string, short, err error) {
	mark, known, lost := p.watermark()
	if lost != nil {
		return "", nil, lost
	}
	incarnation, first, last, err := f.Info(ctx, p.n)
	switch {
	case errors.Is(err, session.ErrNotFound) && known:
		return "", nil, p.lose(s.cfg.Logger, "there is no stream, mirrored are %d records", mark.Seq)
	case errors.Is(err, session.ErrLoss):
		return "", nil, p.lose(s.cfg.Logger, "%v", err)
	case err != nil:
		return "", nil, fmt.Errorf("look at the stream: %w", err)
	case first > 1:
		return "", nil, p.lose(s.cfg.Logger, "the stream begins at %d, the records before it are gone", first)
	case !known:
		return incarnation, nil, nil
	case incarnation != mark.Incarnation:
		return "", nil, p.lose(s.cfg.Logger, "the stream is %q, mirrored is %q", incarnation, mark.Incarnation)
	case last < mark.Seq:
		return "", fmt.Errorf("the stream ends at %d, mirrored are %d records", last, mark.Seq), nil
	}
	raw, err := f.At(ctx, p.n, mark.Seq)
	switch {
	case errors.Is(err, session.ErrNotFound):
		return "", fmt.Errorf("record %d is gone", mark.Seq), nil
	case err != nil:
		return "", nil, fmt.Errorf("read record %d: %w", mark.Seq, err)
	case raw.StreamSeq != mark.Seq || recordHash(raw) != mark.Hash:
		return "", nil, p.lose(s.cfg.Logger, "record %d is another one than was mirrored", mark.Seq)
	}
	return incarnation, nil, nil
}
