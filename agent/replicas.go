package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// The bounds of what a worker keeps of sessions that it does not work on now. A
// session that it works on is in memory as long as that takes.
const (
	maxIdle      = 256
	maxIdleBytes = 64 << 20
)

// replicas are the sessions that a worker has in memory, each of them once. One
// that nobody works on any more is kept for a lease: the hints that were put back
// while it was driven come within that time, and so do the notices of children
// that are quick. After it, or when there is no more room, it is forgotten, the
// one used longest ago first. So a session that waits, for a person, say, costs
// nothing, and one that has ended or was stopped is forgotten at once (SPEC 7.7).
//
// A log that was kept is proven before it is used again, see [Replica.prove], and
// one that the stream contradicts is a loss: the session is refused as long as the
// stream does not hold what was read from it. That is not forgotten with time.
type replicas struct {
	log    *stream.Log
	cold   *cold
	logger *slog.Logger
	keep   time.Duration // how long one is kept that nobody works on
	most   int
	bytes  int

	mu  sync.Mutex
	all map[session.ID]*kept // guarded by mu
}

// kept is one session in memory.
type kept struct {
	reading sync.Mutex // one reads it, the others wait
	rep     *Replica   // set with both locks held; nil before it was read

	// Guarded by replicas.mu.
	users int
	used  time.Time
	lost  bool // the stream contradicts it
}

func newReplicas(cfg Config) *replicas {
	return &replicas{
		log: cfg.Log, cold: &cold{client: cfg.Client, logger: cfg.Logger}, logger: cfg.Logger,
		keep: cfg.Lease, most: maxIdle, bytes: maxIdleBytes, all: map[session.ID]*kept{},
	}
}

// open returns a session's log as it stands in the stream now. Creator is a hint
// at whose space its genesis stands in. The caller calls done when it does not
// work on the session any more.
func (s *replicas) open(ctx context.Context, id, creator session.ID) (rep *Replica, done func(), err error) {
	k := s.enter(id)
	done = func() { s.leave(id, k) }
	k.reading.Lock()
	defer k.reading.Unlock()
	if k.rep != nil {
		rep, err = s.again(ctx, k.rep, creator)
	} else {
		rep, err = s.read(ctx, id, creator)
	}
	s.found(k, rep, err)
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("open %s: %w", id, err)
	}
	return rep, done, nil
}

// found notes what came of reading a session.
func (s *replicas) found(k *kept, rep *Replica, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		k.rep, k.lost = rep, false
	case errors.Is(err, session.ErrLoss) && k.rep != nil:
		k.lost = true
	}
}

// again brings a log that was kept up to date.
func (s *replicas) again(ctx context.Context, old *Replica, creator session.ID) (*Replica, error) {
	was, tail := old.State()
	last, err := s.log.Last(ctx, old.id)
	switch {
	case err != nil:
		return nil, err
	case last.StreamSeq < tail:
		return nil, lossOf(was, tail, fmt.Errorf("its tail was %d and is %d", tail, last.StreamSeq))
	case tail > 0:
		if err = old.prove(ctx, last); !errors.Is(err, errUnproven) {
			return old, err
		}
	}
	// Void records do not link, and a genesis alone leaves no tail.
	rep, err := s.readStream(ctx, old.id, creator, last)
	switch {
	case errors.Is(err, session.ErrNotFound):
		return nil, lossOf(was, tail, errors.New("its genesis is gone"))
	case err == nil && !rep.extends(was):
		return nil, lossOf(was, tail, errors.New("the stream holds another history than was read from it"))
	}
	return rep, err
}

// lossOf is the error of a log that was longer, or another one.
func lossOf(s session.State, tail uint64, reason error) error {
	return &session.CorruptError{
		Session: s.Header.ID, Seq: s.Next, StreamSeq: tail, Loss: true, Reason: fmt.Errorf("%w: %w", reason, session.ErrLoss),
	}
}

// read reads a log that is not in memory: a long one from a coordinator's mirror,
// if that can be proven, else from the stream.
func (s *replicas) read(ctx context.Context, id, creator session.ID) (*Replica, error) {
	last, err := s.log.Last(ctx, id)
	if err != nil {
		return nil, err
	}
	if headerNumber(last, session.HeaderSeq) >= fewEvents {
		rep := newReplica(s.log, id, nil) // the mirror's void records are the mirror's to report
		err := rep.load(ctx, s.cold, creator, last.StreamSeq)
		if err == nil {
			rep.alarm = s.alarm
			err = rep.prove(ctx, last)
		}
		switch {
		case err == nil:
			return rep, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, errSilent): // which says so itself, once
			s.logger.Warn("a coordinator's copy of a session is of no use: the stream is read instead",
				slog.String("session", string(id)), slog.Any("error", err))
		}
	}
	return s.readStream(ctx, id, creator, last)
}

// readStream reads a log from the stream, whose last record is known. Without a
// hint at whose space the genesis stands in, the server would go through all
// subjects of the tree.
func (s *replicas) readStream(ctx context.Context, id, creator session.ID, last session.Raw) (*Replica, error) {
	creator = cmp.Or(creator, session.ID(last.Headers[session.HeaderCreator]), id)
	rep := newReplica(s.log, id, s.alarm)
	return rep, rep.load(ctx, fromStream{log: s.log, last: last}, creator, 0)
}

func (s *replicas) alarm(a session.Alarm) {
	s.logger.Warn("void record", slog.String("session", string(a.Session)), slog.String("alarm", a.String()))
}

// enter notes that somebody works on a session.
func (s *replicas) enter(id session.ID) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.all[id]
	if k == nil {
		k = &kept{}
		s.all[id] = k
	}
	k.users++
	return k
}

// leave notes that somebody does not work on a session any more.
func (s *replicas) leave(id session.ID, k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.users--
	k.used = time.Now()
	if k.users == 0 && (k.rep == nil || !k.lost && k.rep.over()) {
		delete(s.all, id)
	}
	s.trim()
}

// trim forgets what there is no room for. The caller holds mu.
func (s *replicas) trim() {
	for {
		n, bytes := 0, 0
		var oldest session.ID
		for id, k := range s.all {
			if k.users > 0 {
				continue
			}
			n++
			bytes += k.rep.bytes()
			if oldest == "" || k.used.Before(s.all[oldest].used) {
				oldest = id
			}
		}
		if n <= s.most && bytes <= s.bytes {
			return
		}
		delete(s.all, oldest)
	}
}

// run forgets what was kept long enough, until ctx ends.
func (s *replicas) run(ctx context.Context) {
	t := time.NewTicker(s.keep / 4)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s.forget(now.Add(-s.keep))
		}
	}
}

// forget forgets what was used last before a time.
func (s *replicas) forget(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range s.all {
		if k.users == 0 && !k.lost && k.used.Before(before) {
			delete(s.all, id)
		}
	}
}
