package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"sync"

	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// Replica is one session's log in memory: its events, a fork's prefix included,
// and what they fold to. It is what a driver looks at and what its appends are
// evaluated on. It is safe for use by several goroutines.
//
// Its records come from JetStream, or from elsewhere and are then proven by one
// that does: see prove.
type Replica struct {
	log   *stream.Log
	id    session.ID
	alarm func(session.Alarm)
	heirs int // that this log is a prefix of, while it is read for one

	mu     sync.Mutex     // guards what follows
	chain  *session.Chain // nil before the genesis
	prefix []session.Event
	own    []session.Event // appended to only; snapshots of it are handed out
	ids    map[string]bool
	size   int // bytes in memory, about
}

var _ stream.Viewer = (*Replica)(nil)

// source is where a log is read from. It calls fn with the session's genesis and
// then, in order, the records of its own space, until fn fails. Creator is a hint
// at whose space the genesis stands in, empty without one.
type source interface {
	records(ctx context.Context, id, creator session.ID, fn func(session.Raw) error) error
}

// fromStream reads from JetStream itself.
type fromStream struct {
	log  *stream.Log
	last session.Raw // the last record of one session's space, if it was asked for
}

func (s fromStream) records(ctx context.Context, id, creator session.ID, fn func(session.Raw) error) error {
	if at := s.last.Address; at.Class == session.ClassGenesis && at.Session == id && at.Space() == id {
		return fn(s.last) // a root or a person's fork that has nothing else yet
	}
	genesis, err := s.log.Genesis(ctx, id, creator)
	if err != nil {
		return err
	}
	if err := fn(genesis); err != nil {
		return err
	}
	after, seq, count := genesis.StreamSeq, session.HeaderSeq, session.HeaderCount
	if genesis.Address.Space() != id {
		after, seq, count = 0, session.HeaderChildSeq, session.HeaderChildCount
	}
	next := headerNumber(genesis, seq) + headerNumber(genesis, count)
	_, err = s.log.ReadOn(ctx, id, after, session.Seq(next), fn)
	return err
}

// headerNumber reads what a header says, which is a hint until the record is
// decoded; 0 if that is no number.
func headerNumber(raw session.Raw, name string) uint64 {
	n, err := strconv.ParseUint(raw.Headers[name], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// OpenReplica reads a session's log up to now from JetStream. Creator is a hint at
// whose space its genesis stands in, empty without one. Void records are reported
// to alarm, if it is not nil.
func OpenReplica(ctx context.Context, log *stream.Log, id, creator session.ID, alarm func(session.Alarm)) (*Replica, error) {
	r := newReplica(log, id, alarm)
	if err := r.load(ctx, fromStream{log: log}, creator, 0); err != nil {
		return nil, fmt.Errorf("open %s: %w", id, err)
	}
	return r, nil
}

func newReplica(log *stream.Log, id session.ID, alarm func(session.Alarm)) *Replica {
	if alarm == nil {
		alarm = func(session.Alarm) {}
	}
	return &Replica{log: log, id: id, alarm: alarm, ids: map[string]bool{}}
}

// load reads the log, up to a stream sequence if before is not 0.
func (r *Replica) load(ctx context.Context, from source, creator session.ID, before uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := from.records(ctx, r.id, creator, func(raw session.Raw) error {
		if before > 0 && raw.StreamSeq >= before {
			return errCut
		}
		return r.next(ctx, from, raw)
	})
	switch {
	case err != nil && !errors.Is(err, errCut):
		return err
	case r.chain == nil:
		return session.ErrNotFound
	}
	return r.chain.Halted()
}

// next takes the next record. A chain that is stopped by it goes on looking for
// its release.
func (r *Replica) next(ctx context.Context, from source, raw session.Raw) error {
	if r.chain == nil {
		return r.begin(ctx, from, raw)
	}
	j, err := r.chain.Next(raw)
	if j.Alarm != nil {
		r.alarm(*j.Alarm)
	}
	if j.Ruling == session.Valid {
		r.take(j.Events)
	}
	if err != nil && r.chain.Halted() == nil {
		return err
	}
	return nil
}

// begin takes the genesis and, for a fork, reads the prefix in front of it.
func (r *Replica) begin(ctx context.Context, from source, genesis session.Raw) error {
	if genesis.Address.Session != r.id {
		return fmt.Errorf("the genesis is of %s", genesis.Address.Session)
	}
	rec, err := session.DecodeRecord(genesis)
	var prefix session.Prefix
	if err == nil && rec.Birth != nil && rec.Birth.Header.InheritedEventCount > 0 {
		if prefix, err = r.inherit(ctx, from, rec.Birth.Header); err != nil {
			return fmt.Errorf("prefix from %s: %w", rec.Birth.Header.ParentSession, err)
		}
	}
	chain, events, err := session.Open(genesis, prefix, r.link)
	if err != nil {
		return err
	}
	r.chain = chain
	r.take(events)
	return nil
}

// inherit reads the ancestor's log up to the cut: the same events for every fork
// there, whatever the ancestor did later (SPEC 1.3). The first link of the fork
// covers them, so a wrong prefix fits no genesis.
func (r *Replica) inherit(ctx context.Context, from source, h session.Header) (session.Prefix, error) {
	a := newReplica(r.log, h.ParentSession, nil)
	if a.heirs = r.heirs + 1; a.heirs > maxHeirs {
		return session.Prefix{}, fmt.Errorf("it is a fork of forks, more than %d deep", maxHeirs)
	}
	var prefix session.Prefix
	found := false
	err := from.records(ctx, a.id, "", func(raw session.Raw) error {
		if err := a.next(ctx, from, raw); err != nil {
			return err
		}
		if prefix, found = cutAt(a.chain.State(), h); found {
			return errCut
		}
		return nil
	})
	if err != nil && !errors.Is(err, errCut) {
		return session.Prefix{}, err
	}
	if !found {
		return session.Prefix{}, fmt.Errorf("no turn of %s ends at seq %d", a.id, h.InheritedEventCount)
	}
	all := append(slices.Clip(a.prefix), a.own...)
	r.prefix = all[:sort.Search(len(all), func(i int) bool { return all[i].Seq >= h.InheritedEventCount })]
	r.size += sizeOf(r.prefix)
	return prefix, nil
}

// maxHeirs bounds how deep forks of forks go, so that a lineage that comes back to
// itself ends.
const maxHeirs = 256

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
func (r *Replica) take(events []session.Event) {
	r.own = append(r.own, events...)
	r.size += sizeOf(events)
	for _, e := range events {
		if id, ok := session.MessageID(e); ok {
			r.ids[id] = true
		}
	}
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
	return patiently(ctx, func() error { return r.readOn(ctx, least, false) })
}

// patiently repeats a read that is stale.
func patiently(ctx context.Context, read func() error) error {
	for wait := firstWait; ; wait *= 2 {
		err := read()
		if !errors.Is(err, errStale) || wait > lastWait || !delay.For(ctx, wait) {
			return err
		}
	}
}

// readOn reads once. With doubt, the first record must be one that makes sense
// only after exactly what is here; else nothing is taken and it is errUnproven.
func (r *Replica) readOn(ctx context.Context, least uint64, doubt bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := fromStream{log: r.log}
	_, err := r.log.ReadOn(ctx, r.id, r.chain.Tail(), r.chain.State().Next, func(raw session.Raw) error {
		if doubt && !follows(*r.chain, raw) {
			return errUnproven
		}
		doubt = false
		return r.next(ctx, from, raw)
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

// follows reports whether a chain takes a record for its next one. The chain is a
// copy.
func follows(c session.Chain, raw session.Raw) bool {
	j, err := c.Next(raw)
	return err == nil && j.Ruling == session.Valid
}

// errUnproven says that a log is not, or not by this, shown to be the one that
// JetStream holds.
var errUnproven = errors.New("the log that is held does not lead to what stands in the stream")

// prove shows that a log which was read elsewhere, or a while ago, is the one that
// JetStream holds, and reads on from it. Last is the last record of the session's
// space, read from the stream's leader after all that is here. It must be the last
// one here, or what stands after the last one here must link to it. A link covers
// every event before it, so whoever gave the records cannot have changed, added or
// left out one (ARCHITECTURE 6).
func (r *Replica) prove(ctx context.Context, last session.Raw) error {
	return patiently(ctx, func() error {
		if s, tail := r.State(); tail == last.StreamSeq {
			return ends(s, last)
		}
		return r.readOn(ctx, last.StreamSeq, true)
	})
}

// ends holds a log to the record it ends with.
func ends(s session.State, last session.Raw) error {
	rec, err := session.DecodeRecord(last)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnproven, err)
	}
	end := rec.Own
	if end == nil && rec.Birth != nil {
		end = &rec.Birth.First
	}
	if end == nil || end.Next() != s.Next || end.After != s.Link {
		return errUnproven
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

// extends reports whether the log begins as one that folded to a state.
func (r *Replica) extends(s session.State) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.link(s.Next - 1)
	return ok && l == s.Link
}

// over reports whether nothing more is to be expected of the log: the session has
// ended or was stopped.
func (r *Replica) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chain.Halted() != nil || r.chain.State().Ended != nil
}

// bytes is about what the log takes in memory.
func (r *Replica) bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size
}

// sizeOf is about what events take in memory: a line and what was read from it,
// and the event around them.
func sizeOf(events []session.Event) int {
	n := 0
	for _, e := range events {
		n += 2*len(e.Line) + sizeOfEvent
	}
	return n
}

const sizeOfEvent = 512

// holds returns the own events of a record, none if it is void, and whether the
// replica has come so far.
func (r *Replica) holds(raw session.Raw) (events []session.Event, read bool) {
	rec, err := session.DecodeRecord(raw)
	end := rec.Own
	if rec.Birth != nil && rec.Address.Session == r.id {
		end = &rec.Birth.First
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && end != nil {
		if l, ok := r.link(end.Next() - 1); ok && l == end.After {
			return end.Events, true
		}
	}
	return nil, raw.StreamSeq <= r.chain.Tail()
}
