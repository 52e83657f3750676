package stream

import (
	"context"
	"slices"
	"sync"

	"github.com/entail-fleet/entail/session"
)

// lanes let one append of a session at a time through. The change at the head of
// a lane is appended by its own caller, together with those right behind it that
// may share its record; then the next one's caller goes on. There is no lane for
// a session without waiting changes.
type lanes struct {
	mu sync.Mutex
	m  map[session.ID]*lane // guarded by mu
}

// lane is guarded by lanes.mu. Its head is the change that leads or may lead
// next; taken changes are not in it.
type lane struct {
	queue []*waiting
}

// waiting is a change in a lane. Lead is closed by whoever led before, settled
// by the caller that settles the change; done and err are set before. A change
// that leads at once has neither: its own caller settles it.
type waiting struct {
	change  Change
	lead    chan struct{}
	settled chan struct{}
	flight  *flight // guarded by lanes.mu, set while taken with others
	gone    bool    // guarded by lanes.mu: nobody waits for it any more

	done Done
	err  error
}

// settle tells a change's caller how it ended.
func (w *waiting) settle(d Done, err error) {
	w.done, w.err = d, err
	w.flight.leave(w)
	if w.settled != nil {
		close(w.settled)
	}
}

// flight is an append on its way for several callers. It is cancelled when none
// of them waits for it any more. A caller alone needs none: a nil flight ends with
// its context.
type flight struct {
	mu     sync.Mutex
	here   []*waiting         // guarded by mu
	cancel context.CancelFunc // guarded by mu
}

// start returns the context of the flight, which ends when everybody has left. The
// leader calls stop when it is over.
func (f *flight) start(ctx context.Context, leader *waiting) (flying context.Context, stop func()) {
	if f == nil {
		return ctx, func() {}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	flying, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	watched := context.AfterFunc(ctx, func() { f.leave(leader) })
	return flying, func() { watched(); cancel() }
}

func (f *flight) leave(w *waiting) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.here = slices.DeleteFunc(f.here, func(o *waiting) bool { return o == w })
	if len(f.here) == 0 && f.cancel != nil {
		f.cancel()
	}
}

// join puts a change at the end of its lane and reports whether it leads.
func (l *lanes) join(id session.ID, w *waiting) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.m[id]; q != nil {
		w.lead, w.settled = make(chan struct{}), make(chan struct{})
		q.queue = append(q.queue, w)
		return false
	}
	if l.m == nil {
		l.m = make(map[session.ID]*lane)
	}
	l.m[id] = &lane{queue: []*waiting{w}}
	return true
}

// take removes the head and what may share its record, and says what they fly in.
func (l *lanes) take(id session.ID) ([]*waiting, *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.m[id]
	n, head := 1, q.queue[0].change
	for head.mergeable() && n < len(q.queue) && q.queue[n].change.mergeable() && q.queue[n].change.Class == head.Class {
		n++
	}
	group := slices.Clone(q.queue[:n])
	q.queue = slices.Delete(q.queue, 0, n)
	if n == 1 {
		return group, nil
	}
	f := &flight{here: slices.Clone(group)}
	for _, w := range group {
		w.flight = f
	}
	return group, f
}

// pass puts back what found no room and lets the new head lead.
func (l *lanes) pass(id session.ID, left []*waiting) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left = slices.DeleteFunc(left, func(w *waiting) bool { return w.gone })
	for _, w := range left {
		w.flight = nil
	}
	q := l.m[id]
	q.queue = append(left, q.queue...)
	l.promote(id, q)
}

func (l *lanes) promote(id session.ID, q *lane) {
	if len(q.queue) == 0 {
		delete(l.m, id)
		return
	}
	close(q.queue[0].lead)
}

// abandon takes a change out whose caller waits no longer. It reports whether
// the change was still in its lane; else it is in flight or settled.
func (l *lanes) abandon(id session.ID, w *waiting) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.flight != nil {
		w.gone = true
		w.flight.leave(w)
		return false
	}
	q := l.m[id]
	q.queue = slices.DeleteFunc(q.queue, func(o *waiting) bool { return o == w })
	if leads(w) {
		l.promote(id, q)
	}
	return true
}

// leads reports whether w was told to lead.
func leads(w *waiting) bool {
	select {
	case <-w.lead:
		return true
	default:
		return false
	}
}
