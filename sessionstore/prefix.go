package sessionstore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/entail-fleet/entail/session"
)

// lineage is where rows and events are read: a snapshot, or a batch in progress.
type lineage interface {
	current(session.ID) (row, bool, error)
	reader() pebble.Reader
}

// snapshot is a lineage at one moment.
type snapshot struct{ *pebble.Snapshot }

func (s snapshot) current(id session.ID) (row, bool, error) { return readRow(s.Snapshot, id) }
func (s snapshot) reader() pebble.Reader                    { return s.Snapshot }

// read runs fn on a snapshot.
func (s *Store) read(fn func(snapshot) error) (err error) {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	snap := s.db.NewSnapshot()
	defer func() {
		if cerr := snap.Close(); err == nil {
			err = cerr
		}
	}()
	return fn(snapshot{snap})
}

// noPrefixError says that a fork names a cut that its parent's log does not have.
type noPrefixError struct {
	parent session.ID
	cut    session.Seq
	next   session.Seq
}

// Error implements error.
func (e *noPrefixError) Error() string {
	return fmt.Sprintf("session %s has %d events, none to fork at %d", e.parent, e.next, e.cut)
}

// Is reports whether target is session.ErrNotFound.
func (e *noPrefixError) Is(target error) bool { return target == session.ErrNotFound }

// Prefix returns what a fork of parent at cut inherits. It costs the same for
// any length of the log at the two cuts that forks are made at, the end of the
// last turn and the last event; at another one the log is folded up to it.
func (s *Store) Prefix(parent session.ID, cut session.Seq) (p session.Prefix, err error) {
	err = s.read(func(snap snapshot) error {
		p, err = prefixAt(snap, parent, cut)
		return err
	})
	if err != nil {
		return session.Prefix{}, fmt.Errorf("prefix of %s at %d: %w", parent, cut, err)
	}
	return p, nil
}

// prefixAt finds what crosses a cut of a session's log.
func prefixAt(l lineage, id session.ID, cut session.Seq) (session.Prefix, error) {
	if cut == 0 {
		return session.Prefix{}, nil
	}
	r, ok, err := l.current(id)
	if err != nil {
		return session.Prefix{}, err
	}
	st, h := r.State, r.State.Header
	switch {
	case !ok || !r.Begun || cut > st.Next:
		return session.Prefix{}, &noPrefixError{parent: id, cut: cut, next: st.Next}
	case st.Cut.Count == cut:
		return st.Cut, nil
	case st.Next == cut:
		return st.InheritAll(), nil
	case cut <= h.InheritedEventCount:
		return prefixAt(l, h.ParentSession, cut)
	}
	return foldTo(l, r, cut)
}

// foldTo folds a session's stored events up to a cut inside them.
func foldTo(l lineage, r row, cut session.Seq) (session.Prefix, error) {
	h := r.State.Header
	base, err := prefixAt(l, h.ParentSession, h.InheritedEventCount)
	if err != nil {
		return session.Prefix{}, err
	}
	st := session.State{Header: h, Format: h.FormatVersion, Next: h.FirstLiveSeq, Knobs: base.Knobs, Turn: base.Turn, Cut: base}
	if base.Cut != nil {
		st.Cut = *base.Cut
	}
	err = ownEvents(l, r, h.FirstLiveSeq, cut, func(e session.Event) error {
		if st, err = session.Fold(st, e); err != nil {
			return damaged("log of", r.ID, err)
		}
		return nil
	})
	return st.InheritAll(), err
}
