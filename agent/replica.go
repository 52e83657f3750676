package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// Replica is one session's log in memory, read from JetStream: its events, a
// fork's prefix included, and what they fold to. It is what a driver looks at and
// what its appends are evaluated on. It is safe for use by several goroutines.
type Replica struct {
	log   *stream.Log
	id    session.ID
	alarm func(session.Alarm)

	mu      sync.Mutex // guards what follows
	chain   *session.Chain
	prefix  []session.Event
	own     []session.Event // appended to only; snapshots of it are handed out
	ids     map[string]bool
	records []placed
}

// placed says which own events a record holds, in stream order.
type placed struct {
	streamSeq uint64
	events    []session.Event
}

var _ stream.Viewer = (*Replica)(nil)

// OpenReplica reads a session's log up to now. Creator is a hint at whose space
// its genesis stands in, empty without one. Void records are reported to alarm,
// if it is not nil.
func OpenReplica(ctx context.Context, log *stream.Log, id, creator session.ID, alarm func(session.Alarm)) (*Replica, error) {
	if alarm == nil {
		alarm = func(session.Alarm) {}
	}
	r := &Replica{log: log, id: id, alarm: alarm, ids: map[string]bool{}}
	if err := r.begin(ctx, creator); err != nil {
		return nil, fmt.Errorf("open %s: %w", id, err)
	}
	if err := r.Refresh(ctx, 0); err != nil {
		return nil, err
	}
	return r, nil
}

// begin finds the genesis and, for a fork, the prefix in front of it.
func (r *Replica) begin(ctx context.Context, creator session.ID) error {
	raw, err := r.log.Genesis(ctx, r.id, creator)
	if err != nil {
		return err
	}
	rec, err := session.DecodeRecord(raw)
	var prefix session.Prefix
	if err == nil && rec.Birth != nil && rec.Birth.Header.InheritedEventCount > 0 {
		if prefix, err = r.inherit(ctx, rec.Birth.Header); err != nil {
			return fmt.Errorf("prefix from %s: %w", rec.Birth.Header.ParentSession, err)
		}
	}
	chain, events, err := session.Open(raw, prefix, r.link)
	if err != nil {
		return err
	}
	r.chain = chain
	r.take(raw.StreamSeq, events)
	return nil
}

// inherit reads the ancestor's log up to the cut: the same events for every fork
// there, whatever the ancestor did later (SPEC 1.3).
func (r *Replica) inherit(ctx context.Context, h session.Header) (session.Prefix, error) {
	a := &Replica{log: r.log, id: h.ParentSession, alarm: func(session.Alarm) {}, ids: map[string]bool{}}
	if err := a.begin(ctx, ""); err != nil {
		return session.Prefix{}, err
	}
	prefix, found := cutAt(a.chain.State(), h)
	if !found {
		_, err := r.log.Read(ctx, a.id, a.chain.Tail(), func(raw session.Raw) error {
			if raw.StreamSeq == a.chain.Born() {
				return nil
			}
			j, err := a.chain.Next(raw)
			if err != nil {
				return err
			}
			a.take(raw.StreamSeq, j.Events)
			if prefix, found = cutAt(a.chain.State(), h); found {
				return errCut
			}
			return nil
		})
		if err != nil && !errors.Is(err, errCut) {
			return session.Prefix{}, err
		}
	}
	if !found {
		return session.Prefix{}, fmt.Errorf("no turn of %s ends at seq %d", a.id, h.InheritedEventCount)
	}
	all := append(slices.Clip(a.prefix), a.own...)
	r.prefix = all[:slices.IndexFunc(append(all, session.Event{Seq: h.InheritedEventCount}), func(e session.Event) bool {
		return e.Seq >= h.InheritedEventCount
	})]
	return prefix, nil
}

// errCut ends a read that has come far enough.
var errCut = errors.New("the cut is reached")

// cutAt returns what a fork inherits if the ancestor's log has come to its cut: a
// delegated fork is cut after a turn's end, a person's at any length.
func cutAt(s session.State, h session.Header) (session.Prefix, bool) {
	if h.IsChild() {
		for p := &s.Cut; p != nil; p = p.Cut {
			if p.Count == h.InheritedEventCount {
				return *p, true
			}
		}
		return session.Prefix{}, false
	}
	return s.InheritAll(), s.Next == h.InheritedEventCount
}

// take adds the events of a valid record. The caller holds mu or is alone.
func (r *Replica) take(streamSeq uint64, events []session.Event) {
	r.own = append(r.own, events...)
	r.records = append(r.records, placed{streamSeq: streamSeq, events: events})
	for _, e := range events {
		if id := acceptedID(e.Payload); id != "" {
			r.ids[id] = true
		}
	}
}

// acceptedID is the id that an inbox event was accepted under.
func acceptedID(p session.Payload) string {
	switch p := p.(type) {
	case *session.UserMessage:
		return p.ID
	case *session.Interrupt:
		return p.ID
	case *session.Cancel:
		return p.ID
	case *session.Nudge:
		return p.ID
	case *session.Expired:
		return p.ID
	case *session.Budget:
		return p.ID
	case *session.Closed:
		return p.ID
	case *session.Archived:
		return p.ID
	}
	return ""
}

// link finds the link after an own event. It is only called with mu held.
func (r *Replica) link(seq session.Seq) (session.Link, bool) {
	if len(r.own) == 0 || seq < r.own[0].Seq || seq-r.own[0].Seq >= session.Seq(len(r.own)) {
		return session.Link{}, false
	}
	return r.own[seq-r.own[0].Seq].Link, true
}

// Refresh reads what stands after the last record read. It fails if it then has
// not come to the stream sequence least: that is loss, or a copy of the stream
// that is behind the one that took the append and is given a while to catch up.
func (r *Replica) Refresh(ctx context.Context, least uint64) error {
	for wait := firstWait; ; wait *= 2 {
		err := r.readOn(ctx, least)
		if !errors.Is(err, errStale) || wait > lastWait || !pause(ctx, wait) {
			return err
		}
	}
}

// readOn reads once.
func (r *Replica) readOn(ctx context.Context, least uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.log.Read(ctx, r.id, r.chain.Tail(), func(raw session.Raw) error {
		j, err := r.chain.Next(raw)
		if j.Alarm != nil {
			r.alarm(*j.Alarm)
		}
		if j.Ruling == session.Valid {
			r.take(raw.StreamSeq, j.Events)
		}
		if err != nil && r.chain.Halted() == nil {
			return err
		}
		return nil // a stopped chain looks for its release
	})
	switch {
	case err != nil:
		return fmt.Errorf("refresh %s: %w", r.id, err)
	case r.chain.Halted() != nil:
		return r.chain.Halted()
	case r.chain.Tail() < least:
		return fmt.Errorf("refresh %s: read up to stream sequence %d, want %d: %w", r.id, r.chain.Tail(), least, errStale)
	}
	return nil
}

// errStale says that a read is behind what is known to be written.
var errStale = errors.New("the read is stale")

// View implements [stream.Viewer].
func (r *Replica) View(ctx context.Context, id session.ID, least uint64) (session.View, error) {
	if id != r.id {
		return session.View{}, fmt.Errorf("view of %s asked of the replica of %s", id, r.id)
	}
	r.mu.Lock()
	fresh := r.chain.Tail() >= least && r.chain.Halted() == nil
	r.mu.Unlock()
	if !fresh {
		if err := r.Refresh(ctx, least); err != nil {
			return session.View{}, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return session.View{
		State: r.chain.State(), Tail: r.chain.Tail(),
		Link: func(s session.Seq) (session.Link, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.link(s)
		},
		Has: func(id string) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.ids[id]
		},
	}, nil
}

// State returns what the log folds to, and its tail.
func (r *Replica) State() (session.State, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chain.State(), r.chain.Tail()
}

// Events returns the whole log in order, a fork's prefix included.
func (r *Replica) Events() []session.Event {
	_, events := r.both()
	return events
}

// both returns the log and what it folds to, of one moment.
func (r *Replica) both() (session.State, []session.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.chain.State()
	if len(r.prefix) == 0 {
		return s, slices.Clip(r.own)
	}
	return s, append(slices.Clip(r.prefix), r.own...)
}

// record returns the own events of the record at a stream sequence, and whether
// the replica has read so far. A void record has none.
func (r *Replica) record(streamSeq uint64) (events []session.Event, read bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.records {
		if p.streamSeq == streamSeq {
			return p.events, true
		}
	}
	return nil, streamSeq <= r.chain.Tail()
}
