package sessionstore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/entail-fleet/entail/session"
)

// Owing lists the children of a partition that ended a turn, or ended, without
// their parent's log saying so: a notice or a closing is owed (SPEC 7.3). It reads
// no log. The first time it reads the rows of all parents with live children and of
// those children, then only of those that records were applied to since: parents
// that wait cost it nothing.
func (s *Store) Owing(partition int) ([]session.ID, error) {
	p, err := s.partition(partition)
	if err != nil {
		return nil, fmt.Errorf("list owing sessions: %w", err)
	}
	p.owing.Lock()
	defer p.owing.Unlock()
	look := p.stirred.take()
	for _, id := range p.owed {
		if _, stirred := look.sessions[id]; !stirred { // one that was revived stays it
			look.sessions[id] = false
		}
	}
	var out []session.ID
	err = s.read(func(snap snapshot) error {
		parents, err := look.parents(snap, partition)
		if err != nil {
			return err
		}
		for _, id := range slices.Sorted(maps.Keys(parents)) {
			owing, err := owingBelow(snap, id, parents[id])
			if err != nil {
				return err
			}
			out = append(out, owing...)
		}
		return nil
	})
	if err != nil {
		p.stirred.forget() // what was taken is to be looked at again
		return nil, fmt.Errorf("list owing sessions: %w", err)
	}
	p.owed = out
	return out, nil
}

// owingBelow lists the children that owe their parent something: of those named,
// or of all if it is nil.
func owingBelow(snap snapshot, id session.ID, named map[session.ID]bool) ([]session.ID, error) {
	parent, ok, err := snap.current(id)
	switch {
	case err != nil:
		return nil, err
	case !ok && named == nil:
		return nil, damaged("session", id, errors.New("an index names it, it is missing"))
	case !ok || !parent.slots():
		return nil, nil
	}
	var out []session.ID
	for _, slot := range parent.State.Children {
		if named != nil && !named[slot.ID] {
			continue
		}
		child, ok, err := snap.current(slot.ID)
		if err != nil {
			return nil, err
		}
		if ok && child.owes(slot) {
			out = append(out, slot.ID)
		}
	}
	return out, nil
}

// stirred are the sessions that records were applied to since somebody looked.
type stirred struct {
	mu    sync.Mutex
	known bool                // sessions has all there are; guarded by mu
	all   map[session.ID]bool // true for one that goes on after a stop; guarded by mu
}

// mostStirred bounds what is remembered while nobody looks. Forgetting costs a scan.
const mostStirred = 1 << 16

// note remembers sessions of a batch that was committed.
func (s *stirred) note(touched []*work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return
	}
	if len(s.all)+len(touched) > mostStirred {
		s.known, s.all = false, nil
		return
	}
	for _, w := range touched {
		s.all[w.ID] = s.all[w.ID] || (w.was.stopped() && !w.stopped())
	}
}

// forget has the next look be at everything.
func (s *stirred) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.all = false, nil
}

// take begins to remember anew and returns what was remembered. What is committed
// from now on is seen by a snapshot made later, or noted, or both.
func (s *stirred) take() look {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := look{everything: !s.known, sessions: s.all}
	if l.sessions == nil {
		l.sessions = map[session.ID]bool{}
	}
	s.known, s.all = true, map[session.ID]bool{}
	return l
}

// look is where to look for what is owed.
type look struct {
	everything bool
	sessions   map[session.ID]bool
}

// parents lists whose slots to look at, and which of them; nil is all.
func (l look) parents(snap snapshot, partition int) (map[session.ID]map[session.ID]bool, error) {
	out := map[session.ID]map[session.ID]bool{}
	if l.everything {
		prefix := inPartition(spaceSlots, partition)
		err := scan(snap, prefix, nil, func(key, _ []byte) error {
			out[session.ID(key[len(prefix):])] = nil
			return nil
		})
		return out, err
	}
	for id, revived := range l.sessions {
		if revived {
			out[id] = nil
		}
		if id.IsRoot() {
			continue
		}
		r, ok, err := snap.current(id)
		if err != nil {
			return nil, err
		}
		p := r.parent()
		if !ok || !r.child() || l.sessions[p] {
			continue
		}
		if out[p] == nil {
			out[p] = map[session.ID]bool{}
		}
		out[p][id] = true
	}
	return out, nil
}

// owes reports whether the holder of a slot did something that the slot does not
// know of.
func (r row) owes(slot session.Child) bool {
	s := r.State
	return s.Ended != nil || (s.LastEnd != nil && s.LastEnd.Turn > slot.Noticed)
}

// slots reports whether the session has children that hold one.
func (r row) slots() bool { return r.Begun && !r.stopped() && len(r.State.Children) > 0 }
