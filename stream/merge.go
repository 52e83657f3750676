package stream

import (
	"fmt"

	"github.com/entail-fleet/entail/session"
)

// merged is one record made of several changes.
type merged struct {
	section session.Section
	state   *session.State // after it
	epoch   uint64
	size    int
	// members are the changes that the record settles, in order.
	members []*waiting
	// refused are members that add nothing, because the events of members before
	// them speak against it. They are told once those stand.
	refused map[*waiting]error
	// left are the changes that found no room.
	left []*waiting
}

// merge evaluates changes one after the other, each on the view that those
// before it leave, and collects their events. A change that is refused on the
// view itself, or has nothing to write there, is settled at once.
func merge(id session.ID, v session.View, group []*waiting) merged {
	var m merged
	at := v
	var before *ahead
	for i, w := range group {
		p, err := w.change.draft(id, at)
		if err != nil {
			err = fmt.Errorf("%s of %s: %w", w.change.Name, id, err)
		}
		switch first, idle := m.size == 0, p.size == 0; {
		case first && idle:
			w.settle(Done{}, err)
			continue
		case err != nil:
			m.refuse(w, err)
		case !first && !idle && !m.fits(p):
			m.left = group[i:]
			return m
		case !idle:
			if m.add(p); i < len(group)-1 {
				if before == nil {
					before = newAhead(v)
				}
				at = before.advance(p)
			}
		}
		m.members = append(m.members, w)
	}
	return m
}

// settle tells every member how the record ended.
func (m *merged) settle(id session.ID, d Done, err error) {
	for _, w := range m.members {
		switch why := m.refused[w]; {
		case err != nil:
			w.settle(Done{}, fmt.Errorf("%s of %s: %w", w.change.Name, id, err))
		case why != nil:
			w.settle(Done{}, why)
		default:
			w.settle(d, nil)
		}
	}
}

// lose tells the members that wanted to hear of a conflict and returns the
// others.
func (m *merged) lose(id session.ID, conflict error) []*waiting {
	var rest []*waiting
	for _, w := range m.members {
		if w.change.Once {
			w.settle(Done{}, fmt.Errorf("%s of %s: %w", w.change.Name, id, conflict))
			continue
		}
		rest = append(rest, w)
	}
	return rest
}

// fits reports whether p may stand in the record: in size, in the epoch it is
// written in, and because a claim is the first of its record.
func (m *merged) fits(p piece) bool {
	return m.size+p.size <= session.MaxRecord && p.epoch == m.epoch && !isClaim(p.section)
}

func (m *merged) add(p piece) {
	if m.size == 0 {
		m.section, m.epoch = p.section, p.epoch
	} else {
		m.section.Events = append(m.section.Events, p.section.Events...)
		m.section.After = p.section.After
	}
	m.size += p.size
	m.state = p.state
}

func (m *merged) refuse(w *waiting, err error) {
	if m.refused == nil {
		m.refused = make(map[*waiting]error)
	}
	m.refused[w] = err
}

// ahead is what events not yet written add to a view.
type ahead struct {
	view  session.View
	links map[session.Seq]session.Link
	ids   map[string]bool
}

func newAhead(v session.View) *ahead {
	return &ahead{v, make(map[session.Seq]session.Link), make(map[string]bool)}
}

// advance adds a piece and returns the view with all that were added.
func (a *ahead) advance(p piece) session.View {
	for _, e := range p.section.Events {
		a.links[e.Seq] = e.Link
		if id, ok := session.MessageID(e); ok {
			a.ids[id] = true
		}
	}
	return session.View{
		State: *p.state, Tail: a.view.Tail,
		Link: func(s session.Seq) (session.Link, bool) {
			if l, ok := a.links[s]; ok {
				return l, true
			}
			return a.view.Link(s)
		},
		Has: func(id string) bool { return a.ids[id] || a.view.Has(id) },
	}
}
