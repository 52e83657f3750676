package sessiontest

import (
	"github.com/entail-fleet/entail/session"
)

// Replica reads the records of a stream one after the other and keeps the chain
// of every session it meets.
type Replica struct {
	// Chains holds the sessions that could be opened, Failed why the others
	// could not.
	Chains map[session.ID]*session.Chain
	Failed map[session.ID]error
	// Events holds the valid events of each session, without its prefix.
	Events map[session.ID][]session.Event
	// Alarms lists the void records.
	Alarms []session.Alarm

	early    map[session.ID][]session.Raw
	prefixes map[session.ID]map[session.Seq]session.Prefix
}

// Replay reads all records.
func Replay(records []session.Raw) *Replica {
	r := &Replica{
		Chains: map[session.ID]*session.Chain{}, Failed: map[session.ID]error{},
		Events: map[session.ID][]session.Event{}, early: map[session.ID][]session.Raw{},
		prefixes: map[session.ID]map[session.Seq]session.Prefix{},
	}
	for _, raw := range records {
		r.Next(raw)
	}
	return r
}

// Next reads one record: for the chain of the space it stands in, and for the
// session it starts.
func (r *Replica) Next(raw session.Raw) {
	space, id := raw.Address.Space(), raw.Address.Session
	genesis := raw.Address.Class == session.ClassGenesis
	if _, open := r.Chains[space]; open {
		r.judge(space, raw)
	} else if !genesis || space != id {
		r.early[space] = append(r.early[space], raw)
	}
	if _, open := r.Chains[id]; genesis && !open {
		r.open(raw)
	}
}

// Link finds the link after an own event of a session.
func (r *Replica) Link(id session.ID) func(session.Seq) (session.Link, bool) {
	return func(at session.Seq) (session.Link, bool) {
		own := r.Events[id]
		if len(own) == 0 || at < own[0].Seq || at > own[len(own)-1].Seq {
			return session.Link{}, false
		}
		return own[at-own[0].Seq].Link, true
	}
}

// Prefix returns what a session with this header inherits.
func (r *Replica) Prefix(h session.Header) session.Prefix {
	return r.prefixes[h.ParentSession][h.InheritedEventCount]
}

// Resume replaces the chain of a session by one that goes on from a snapshot.
func (r *Replica) Resume(id session.ID, s session.State) {
	c := r.Chains[id]
	r.Chains[id] = session.Resume(s, c.Born(), c.Tail(), r.Link(id))
}

func (r *Replica) open(raw session.Raw) {
	id := raw.Address.Session
	var p session.Prefix
	if rec, err := session.DecodeRecord(raw); err == nil && rec.Birth != nil {
		p = r.Prefix(rec.Birth.Header)
	}
	c, events, err := session.Open(raw, p, r.Link(id))
	if err != nil {
		r.Failed[id] = err
		return
	}
	delete(r.Failed, id)
	r.Chains[id], r.Events[id] = c, events
	r.prefixes[id] = map[session.Seq]session.Prefix{p.Count: p, c.State().Cut.Count: c.State().Cut}
	r.mark(id, c.State())
	early := r.early[id]
	delete(r.early, id)
	for _, raw := range early {
		r.judge(id, raw)
	}
}

func (r *Replica) judge(id session.ID, raw session.Raw) {
	c := r.Chains[id]
	s := c.State()
	j, err := c.Next(raw)
	if j.Alarm != nil {
		r.Alarms = append(r.Alarms, *j.Alarm)
	}
	if err != nil || j.Ruling != session.Valid {
		return
	}
	r.Events[id] = append(r.Events[id], j.Events...)
	for _, e := range j.Events {
		if s, err = session.Fold(s, e); err != nil {
			return
		}
		r.mark(id, s)
	}
}

// mark keeps what a fork at the state's last event inherits.
func (r *Replica) mark(id session.ID, s session.State) {
	r.prefixes[id][s.Next] = s.InheritAll()
}
