package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// decisions measures a decision on a cached fold of logs of growing length: flat,
// and at most a microsecond.
func decisions(_ context.Context, s scale, tell func(Figure)) error {
	const limit = float64(time.Microsecond)
	n := s.of(200_000)
	short, err := folded(10)
	if err != nil {
		return err
	}
	for _, events := range []int{10, s.of(10_000), s.of(1_000_000)} {
		long, err := folded(events)
		if err != nil {
			return err
		}
		f, err := compare(fmt.Sprintf("decide on %d events, against 10", events), 0.8, n, decide(short), decide(long))
		if err != nil {
			return err
		}
		tell(f)
		ns := float64(time.Second) / f.Ours
		tell(Figure{
			Name: fmt.Sprintf("decide on %d events, ns against 1000", events), Ratio: limit / ns, Raw: limit, Ours: ns,
			N: n, Target: 1, OK: ns <= limit,
		})
	}
	return nil
}

// folded is the state of a root after so many events that change nothing.
func folded(events int) (session.State, error) {
	id, err := session.RootID("01ARZ3NDEKTSV4RRFFQ69G5FAV", 1)
	if err != nil {
		return session.State{}, err
	}
	s := session.State{Header: session.Header{ID: id, Root: id}, Format: session.FormatFirst}
	for i := range events {
		sec, err := session.Compose(id, session.ClassInbox, s.Next, s.Link, session.Draft{Time: 1, Payload: nudge(i)})
		if err != nil {
			return s, err
		}
		if s, err = session.FoldSection(s, sec); err != nil {
			return s, err
		}
	}
	return s, nil
}

func decide(s session.State) side {
	d := deployed()
	call := policy.Call{ID: "1.1.0", Tool: "bash", Effect: true, Digest: "d"}
	return func(n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			if _, err := policy.Decide(s, d, call, tools); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
}

// appends measures one append with compare-and-set against a publish of the same
// bytes with the same headers.
func appends(where string, loads ...load) onGround {
	return func(ctx context.Context, g *ground, s scale, tell func(Figure)) error {
		log, err := g.log()
		if err != nil {
			return err
		}
		for _, at := range loads {
			ours, raws := make([]*book, at.writers), make([]*rawBook, at.writers)
			for w := range at.writers {
				if ours[w], raws[w], err = appenders(ctx, log); err != nil {
					return err
				}
			}
			f, err := compare(fmt.Sprintf("append with compare-and-set, %d writers%s", at.writers, where), 0.85, s.of(at.n),
				func(n int) (time.Duration, error) {
					return spread(at.writers, n, func(w int) error { return raws[w].publish(ctx, g.conn) })
				},
				func(n int) (time.Duration, error) {
					return spread(at.writers, n, func(w int) error { return ours[w].nudges(ctx, 1) })
				})
			if err != nil {
				return err
			}
			tell(f)
		}
		return nil
	}
}

// appenders makes a session for each side of an append.
func appenders(ctx context.Context, log *stream.Log) (*book, *rawBook, error) {
	ours, err := newBook(ctx, log, 0)
	if err != nil {
		return nil, nil, err
	}
	like, err := newBook(ctx, log, 0)
	if err != nil {
		return nil, nil, err
	}
	done, err := log.Append(ctx, like, like.id(), stream.Change{Name: "nudge", Class: session.ClassInbox, Drafts: drafts(nudge(1))})
	if err != nil {
		return nil, nil, err
	}
	like.took(done)
	raw, err := like.repeating(done.Record)
	return ours, raw, err
}

// delegations measures package delegation and the one append against publishes of
// the same bytes.
func delegations(where string, loads ...load) onGround {
	return func(ctx context.Context, g *ground, s scale, tell func(Figure)) error {
		log, err := g.log()
		if err != nil {
			return err
		}
		for _, at := range loads {
			f, err := compare(fmt.Sprintf("delegation in package delegation, %d callers%s", at.writers, where), 0.7, s.of(at.n),
				shelved(ctx, log, at.writers, newRawShelf, func(s *rawShelf) error { return s.following().publish(ctx, g.conn) }),
				shelved(ctx, log, at.writers, newShelf, func(s *shelf) error { return s.next().delegate(ctx, session.Spawn) }))
			if err != nil {
				return err
			}
			tell(f)
		}
		return nil
	}
}

// shelved is a side of delegations by several callers. Each has a shelf of its own,
// filled before the clock runs, that lasts for all of them.
func shelved[S any](
	ctx context.Context, log *stream.Log, callers int, fill func(context.Context, *stream.Log, int) (S, error), do func(S) error,
) side {
	return func(n int) (time.Duration, error) {
		shelves := make([]S, callers)
		for c := range shelves {
			var err error
			if shelves[c], err = fill(ctx, log, n); err != nil {
				return 0, err
			}
		}
		return spread(callers, n, func(c int) error { return do(shelves[c]) })
	}
}

// forks measures forking a parent of 100,000 events against one of 10.
func forks(ctx context.Context, g *ground, s scale, tell func(Figure)) error {
	log, err := g.log()
	if err != nil {
		return err
	}
	const perRecord = 2500
	n, long := s.of(200), s.of(100_000)
	forker := func(events int) side {
		return func(n int) (time.Duration, error) {
			b, err := newBook(ctx, log, 0)
			if err != nil {
				return 0, err
			}
			for left := events; left > 0; left -= perRecord {
				if err := b.nudges(ctx, min(left, perRecord)); err != nil {
					return 0, err
				}
			}
			claim := &session.Claim{Epoch: 1, Worker: "bench", Incarnation: "1", Cause: session.CauseStart}
			end := &session.TurnEnd{Turn: 1, Reason: session.EndReason{Kind: session.EndCompleted}}
			if err := b.turn(ctx, 1, claim, &session.TurnStart{Turn: 1}, end); err != nil {
				return 0, err
			}
			if err := b.step(ctx, n); err != nil {
				return 0, err
			}
			return spread(1, n, func(int) error {
				return b.delegate(ctx, session.Fork)
			})
		}
	}
	f, err := compare(fmt.Sprintf("fork of %d events, against 10", long), 0.8, n, forker(10), forker(long))
	if err != nil {
		return err
	}
	tell(f)
	return nil
}
