package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/entail-fleet/entail/session"
)

// Append writes what a change says at the end of a session's log. Space is the
// session under whose subjects the record stands: for a child's genesis its
// parent. It is the only way a record is written (ARCHITECTURE 2).
//
// Its errors are the change's own, [session.ErrConflict] for a change with Once
// or when another append with the same filter stays in flight, [session.ErrLoss],
// [ErrUnknown], [ErrFull], [session.ErrTooLarge], or what v returns. Unless it
// is ErrUnknown, an error means that nothing was written. When ctx ends while a
// record is on its way, the answer is waited for first, for [Config.Timeout] at most.
func (l *Log) Append(ctx context.Context, v Viewer, space session.ID, c Change) (Done, error) {
	if err := c.validate(); err != nil {
		return Done{}, fmt.Errorf("%s of %s: %w", c.Name, space, err)
	}
	if _, err := l.partition(space); err != nil {
		return Done{}, fmt.Errorf("%s: %w", c.Name, err)
	}
	w := &waiting{change: c}
	if l.lanes.join(space, w) {
		l.lead(ctx, v, space)
		return w.done, w.err
	}
	select {
	case <-w.settled:
	case <-w.lead:
		l.lead(ctx, v, space)
	case <-ctx.Done():
		return l.giveUp(ctx, space, w)
	}
	return w.done, w.err
}

// giveUp ends the wait of a caller whose context has ended.
func (l *Log) giveUp(ctx context.Context, space session.ID, w *waiting) (Done, error) {
	waits := l.lanes.abandon(space, w)
	select {
	case <-w.settled:
		return w.done, w.err
	default:
	}
	err := fmt.Errorf("%s of %s: %w", w.change.Name, space, context.Cause(ctx))
	if !waits {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return Done{}, err
}

// lead appends the head of a lane and what may share its record. It stays until
// that is settled, even if its own context has ended, as long as others wait.
func (l *Log) lead(ctx context.Context, v Viewer, space session.ID) {
	group, f := l.lanes.take(space)
	flying, stop := f.start(ctx, group[0])
	defer stop()
	if group[0].change.Genesis != nil {
		l.lanes.pass(space, l.bear(flying, v, space, group[0]))
		return
	}
	l.lanes.pass(space, l.settle(flying, v, space, group))
}

// settle appends a group until each change in it is settled, but for those that
// found no room in the record, which it returns.
func (l *Log) settle(ctx context.Context, v Viewer, space session.ID, group []*waiting) []*waiting {
	for {
		view, err := l.view(ctx, v, space)
		if err != nil {
			return fail(group, space, err)
		}
		m := merge(space, view, group)
		if len(m.members) == 0 {
			return m.left
		}
		done, err := l.write(ctx, v, space, &view, record(view, m.section, m.epoch, l.cfg.Writer))
		done.State = m.state
		if !errors.Is(err, session.ErrConflict) {
			m.settle(space, done, err)
			return m.left
		}
		group = append(m.lose(space, err), m.left...)
		if len(group) == 0 {
			return nil
		}
	}
}

// bear appends a genesis.
func (l *Log) bear(ctx context.Context, v Viewer, space session.ID, w *waiting) []*waiting {
	for {
		view, err := l.view(ctx, v, space)
		if errors.Is(err, session.ErrNotFound) {
			view, err = l.unborn(ctx, space)
		}
		if err != nil {
			return fail([]*waiting{w}, space, err)
		}
		r, after, err := w.change.genesis(space, view, l.cfg.Writer)
		if err != nil {
			return fail([]*waiting{w}, space, err)
		}
		done, err := l.write(ctx, v, space, &view, r)
		switch {
		case errors.Is(err, session.ErrConflict) && !w.change.Once:
			continue
		case err != nil:
			return fail([]*waiting{w}, space, err)
		}
		done.State = &after
		w.settle(done, nil)
		return nil
	}
}

func fail(group []*waiting, space session.ID, err error) []*waiting {
	for _, w := range group {
		w.settle(Done{}, fmt.Errorf("%s of %s: %w", w.change.Name, space, err))
	}
	return nil
}

// view folds a session at least as new as any tail this process has seen.
func (l *Log) view(ctx context.Context, v Viewer, space session.ID) (session.View, error) {
	for behind := (lag{}); ; {
		if err := context.Cause(ctx); err != nil {
			return session.View{}, err
		}
		least := l.tails.seen(space)
		view, err := v.View(ctx, space, least)
		switch {
		case err == nil && !shortened(least, view.Tail):
			l.tails.note(space, view.Tail)
			return view, nil
		case err != nil && (least == 0 || errors.Is(err, session.ErrNotFound) || errors.Is(err, session.ErrCorrupt)):
			return session.View{}, err
		}
		// What cannot be read, or reads as less, may be gone: the leader says.
		lost := l.lost(ctx, space, view.State.Next, least)
		switch {
		case errors.Is(lost, session.ErrLoss):
			return session.View{}, lost
		case err != nil:
			return session.View{}, err
		case lost != nil:
			return session.View{}, lost
		case !behind.wait(ctx, l.cfg.Timeout):
			return session.View{}, fmt.Errorf("view %s: %w", space, errBehind)
		}
	}
}

// unborn is the view of a session without a genesis. What stands in its space
// was planted there and is void, but it moves the tail.
func (l *Log) unborn(ctx context.Context, space session.ID) (session.View, error) {
	v := session.View{
		Link: func(session.Seq) (session.Link, bool) { return session.Link{}, false },
		Has:  func(string) bool { return false },
	}
	seen := l.tails.seen(space)
	if seen == 0 {
		return v, nil
	}
	for behind := (lag{}); ; {
		var err error
		v.Tail, err = l.Read(ctx, space, 0, func(r session.Raw) error {
			if r.Address.Class == session.ClassGenesis && r.Address.Session == space {
				return fmt.Errorf("the view of %s does not know its genesis at stream sequence %d", space, r.StreamSeq)
			}
			return nil
		})
		if err != nil || !shortened(seen, v.Tail) {
			return v, err
		}
		if err := l.lost(ctx, space, 0, seen); err != nil {
			return v, err
		}
		if !behind.wait(ctx, l.cfg.Timeout) {
			return v, fmt.Errorf("view %s: %w", space, errBehind)
		}
	}
}

// write publishes a record at the tail of the view it was composed on.
func (l *Log) write(ctx context.Context, v Viewer, space session.ID, view *session.View, r session.Record) (Done, error) {
	p, err := newPublication(space, view.Tail, r)
	if err != nil {
		return Done{}, err
	}
	server := l.nc.ConnectedServerId()
	if err := l.believe(ctx, space, *view, server); err != nil {
		return Done{}, err
	}
	seq, err := l.publish(ctx, v, view, p)
	if err != nil {
		return Done{}, err
	}
	l.beliefs.note(space, server)
	return Done{StreamSeq: seq, Record: r}, nil
}

// believeEmpty holds tail 0 to ARCHITECTURE 2: a forward read of the session's
// own space finds nothing, and a full mirror agrees that is past the session's
// genesis or, for a session that has none, past what the stream holds now.
func (l *Log) believeEmpty(ctx context.Context, space session.ID, v session.View) error {
	if l.cfg.Witness == nil {
		return ErrNoWitness
	}
	past := uint64(0)
	if v.State.Next == 0 {
		info, err := l.Info(ctx, space.Partition())
		if err != nil {
			return err
		}
		past = info.LastSeq
	}
	tail, err := l.Read(ctx, space, 0, func(session.Raw) error { return nil })
	if err != nil {
		return err
	}
	if tail > 0 {
		return &session.ConflictError{Session: space, Tail: tail}
	}
	if err := l.cfg.Witness.Empty(ctx, space, past); err != nil {
		return fmt.Errorf("the space of %s reads as empty, but a mirror does not agree: %w", space, err)
	}
	return nil
}
