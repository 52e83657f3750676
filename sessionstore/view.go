package sessionstore

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/entail-fleet/entail/session"
)

// View returns a session as of a stream sequence that is at least atLeast. It
// waits for the mirror to get there. It returns session.ErrNotFound for a
// session without a genesis, a *session.CorruptError or *session.FormatError for
// one that is stopped, and the loss once the partition is stopped.
//
// The view's lookups see exactly the log that its state folded, however far the
// mirror moves on: events are only ever added, and both stop at the state's next
// seq.
func (s *Store) View(ctx context.Context, id session.ID, atLeast uint64) (session.View, error) {
	r, err := s.served(ctx, id, atLeast)
	if err != nil {
		return session.View{}, fmt.Errorf("view %s: %w", id, err)
	}
	next := r.State.Next
	return session.View{
		State: r.State,
		Tail:  r.Tail,
		Link: func(seq session.Seq) (session.Link, bool) {
			if seq >= next {
				return session.Link{}, false
			}
			return s.lookUpLink(id, seq)
		},
		Has: func(message string) bool {
			seq, ok := s.lookUpMessage(id, message)
			return ok && seq < next
		},
	}, nil
}

// served returns the row of a session that may be served.
func (s *Store) served(ctx context.Context, id session.ID, atLeast uint64) (row, error) {
	if _, err := session.ParseID(string(id)); err != nil {
		return row{}, err
	}
	if err := s.WaitFor(ctx, id.Partition(), atLeast); err != nil {
		return row{}, err
	}
	r, err := s.row(id)
	if err != nil {
		return row{}, err
	}
	return r, r.entry().Err()
}

// lookUpLink has no error to give: what cannot be read is not there, and the
// caller, who asks for an event that the state has folded, refuses.
func (s *Store) lookUpLink(id session.ID, seq session.Seq) (session.Link, bool) {
	if s.enter() != nil {
		return session.Link{}, false
	}
	defer s.leave()
	l, ok, err := readLink(s.db, id, seq)
	s.stopOn(id, err)
	return l, ok
}

// lookUpMessage has no error to give either. A message that cannot be looked up
// counts as new: the other answer would confirm one that no log holds. The
// partition is stopped, so no further one is accepted.
func (s *Store) lookUpMessage(id session.ID, message string) (session.Seq, bool) {
	if s.enter() != nil {
		return 0, false
	}
	defer s.leave()
	seq, ok, err := readMessage(s.db, id, message)
	s.stopOn(id, err)
	return seq, ok
}

// stopOn stops the partition of a session whose data cannot be read.
func (s *Store) stopOn(id session.ID, err error) {
	if err == nil {
		return
	}
	p, perr := s.partition(id.Partition())
	if perr != nil {
		s.cfg.Logger.Error("look up", slog.String("session", string(id)), slog.Any("error", err))
		return
	}
	_ = p.lose(s.cfg.Logger, "the mirror cannot be read: %v", err) // lose has logged it
}

// Empty is the mirror's word that nothing stands under a session's own subjects,
// needed before a tail of 0 is believed: a leader with one damaged block shows a
// full session as empty. It waits until the mirror is past a stream sequence,
// which for a child is its genesis' or a later one, for a new root the stream's
// last. It returns a *session.ConflictError with the last record's stream
// sequence when there is one.
func (s *Store) Empty(ctx context.Context, id session.ID, past uint64) error {
	if _, err := session.ParseID(string(id)); err != nil {
		return fmt.Errorf("witness %s: %w", id, err)
	}
	if err := s.WaitFor(ctx, id.Partition(), past); err != nil {
		return fmt.Errorf("witness %s: %w", id, err)
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	key, err := lastKey(s.db, ofSession(spaceRecord, id))
	if err == nil && key != nil {
		err = &session.ConflictError{Session: id, Tail: lastUint64(key)}
	}
	if err != nil {
		return fmt.Errorf("witness %s: %w", id, err)
	}
	return nil
}
