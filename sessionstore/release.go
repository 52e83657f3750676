package sessionstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/entail-fleet/entail/session"
)

// The reasons that a session cannot be released for.
var (
	// ErrNotHalted is returned for a release of a session that runs.
	ErrNotHalted = errors.New("the session is not stopped")
	// ErrNeverBegan is returned for a session whose genesis was refused: there is
	// no log to go on with.
	ErrNeverBegan = errors.New("the session's genesis was refused, so there is nothing to go on with: start another")
)

// Halted is what a release of a stopped session must name (SPEC 1.7).
type Halted struct {
	// Tail is the stream sequence to expect on the release's append.
	Tail uint64
	// Since are the stream sequences from the stop on, in order.
	Since []uint64
	// State is what the records before the stop fold to.
	State session.State
}

// Halted returns what a release of a stopped session must name, ErrNotHalted or
// ErrNeverBegan.
func (s *Store) Halted(id session.ID) (h Halted, err error) {
	err = s.read(func(snap snapshot) error {
		r, err := mustRow(snap, id)
		if err != nil {
			return err
		}
		switch {
		case r.Halt == nil:
			return ErrNotHalted
		case !r.Begun:
			return ErrNeverBegan
		}
		h = Halted{Tail: r.Tail, State: r.State}
		return scan(snap, ofSession(spaceRecord, id), recordKey(id, r.StopAt), func(key, _ []byte) error {
			h.Since = append(h.Since, lastUint64(key))
			return nil
		})
	})
	if err != nil {
		return Halted{}, fmt.Errorf("release %s: %w", id, err)
	}
	return h, nil
}

// Releases views stopped sessions, and no others: it is what a release, and
// nothing else, is appended on.
type Releases struct{ Store *Store }

// View implements the one append's view of a session.
func (r Releases) View(ctx context.Context, id session.ID, atLeast uint64) (session.View, error) {
	if _, err := session.ParseID(string(id)); err != nil {
		return session.View{}, fmt.Errorf("view %s: %w", id, err)
	}
	if err := r.Store.WaitFor(ctx, id.Partition(), atLeast); err != nil {
		return session.View{}, fmt.Errorf("view %s: %w", id, err)
	}
	h, err := r.Store.Halted(id)
	if err != nil {
		return session.View{}, err
	}
	return session.View{
		State: h.State, Tail: h.Tail,
		Link: func(seq session.Seq) (session.Link, bool) { return r.Store.lookUpLink(id, seq) },
		Has:  func(string) bool { return false },
	}, nil
}
