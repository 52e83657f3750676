package coordinator

import (
	"context"
	"sync"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// views are the mirror's views of sessions, and in front of them what this
// coordinator has just written itself: an append that succeeded says exactly what
// the log is now, and the next one need not wait for the mirror to say it again.
type views struct {
	store *sessionstore.Store

	mu    sync.Mutex
	ahead map[session.ID]session.View // newer than the mirror was; guarded by mu
}

// mostAhead bounds what is kept in front of the mirror; forgetting costs a wait.
const mostAhead = 4096

func newViews(s *sessionstore.Store) *views {
	return &views{store: s, ahead: map[session.ID]session.View{}}
}

// View implements [stream.Viewer]: the newest view there is, at least as new as
// atLeast.
func (w *views) View(ctx context.Context, id session.ID, atLeast uint64) (session.View, error) {
	w.mu.Lock()
	own, ok := w.ahead[id]
	w.mu.Unlock()
	if !ok || own.Tail < atLeast {
		return w.store.View(ctx, id, atLeast)
	}
	mirrored, err := w.store.View(ctx, id, 0)
	if err != nil {
		return session.View{}, err
	}
	if mirrored.Tail < own.Tail {
		return own, nil
	}
	w.mu.Lock()
	if w.ahead[id].Tail == own.Tail {
		delete(w.ahead, id)
	}
	w.mu.Unlock()
	return mirrored, nil
}

// after are the same views for one append, none older than a tail.
func (w *views) after(tail uint64) *viewer { return &viewer{views: w, tail: tail} }

// viewer gives the views of one append and remembers the last.
type viewer struct {
	views *views
	tail  uint64
	last  session.View // zero until the first view
}

// View implements [stream.Viewer].
func (v *viewer) View(ctx context.Context, id session.ID, atLeast uint64) (session.View, error) {
	view, err := v.views.View(ctx, id, max(atLeast, v.tail))
	if err == nil {
		v.last = view
	}
	return view, err
}

// wrote keeps the view that the append has made, if it follows the one that it was
// composed on: a change that went along in the record of another was not looked
// for. A genesis in its own space is left to the mirror.
func (v *viewer) wrote(space session.ID, done stream.Done) {
	own, before, w := done.Record.Own, v.last, v.views
	if own == nil || before.State.Header.ID != space || before.Tail >= done.StreamSeq || before.State.Next != own.Seq || before.State.Link != own.Before {
		return
	}
	after := before.After(*own, *done.State, done.StreamSeq)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ahead) >= mostAhead {
		clear(w.ahead)
	}
	if w.ahead[space].Tail < after.Tail {
		w.ahead[space] = after
	}
}
