package sessionstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/entail-fleet/entail/session"
)

// add stores a record under the session in whose space it stands, has that
// session judge it and, for a genesis, starts the session that it names. The
// child judges only its own section: what its parent's chain says of the record
// is the parent's trouble (SPEC 3.1).
func (b *batch) add(d session.Decoded) error {
	raw := d.Raw
	b.value = appendRaw(b.value[:0], raw)
	if err := b.place(raw.Address); err != nil {
		b.alarms = append(b.alarms, session.Alarm{Session: raw.Address.Session, StreamSeq: raw.StreamSeq, Reason: err})
		return b.b.Set(strayKey(b.partition, raw.StreamSeq), b.value, nil)
	}
	space := raw.Address.Space()
	if err := b.b.Set(recordKey(space, raw.StreamSeq), b.value, nil); err != nil {
		return err
	}
	w, err := b.open(space)
	if err != nil {
		return err
	}
	switch {
	case w != nil:
		err = b.judge(w, d)
	case raw.Address.Class != session.ClassGenesis || raw.Address.Session != space:
		err = b.remember(plantedKey(space), nil)
	}
	if err != nil {
		return err
	}
	if raw.Address.Class == session.ClassGenesis {
		if err := b.birth(d); err != nil {
			return err
		}
	}
	return b.err
}

// place refuses an address that no session of the partition can have. A broker
// lets a worker publish under any token.
func (b *batch) place(at session.Address) error {
	for _, id := range []session.ID{at.Session, at.Space()} {
		if _, err := session.ParseID(string(id)); err != nil {
			return err
		}
		if id.Partition() != b.partition {
			return fmt.Errorf("session %s is not of partition %d", id, b.partition)
		}
	}
	return nil
}

// open returns a session for changing, nil for one without a genesis.
func (b *batch) open(id session.ID) (*work, error) {
	if w, ok := b.working[id]; ok {
		return w, nil
	}
	r, ok := b.s.cache.get(id)
	if !ok {
		var err error
		if r, ok, err = b.stored(id); err != nil || !ok {
			return nil, err
		}
	}
	w := &work{row: r, was: r, known: true}
	b.take(w)
	if !r.Begun || r.Refused > session.FormatVersion {
		return w, nil
	}
	w.chain = session.Resume(r.State, r.Born, r.Tail, b.links(id))
	if !r.stopped() {
		return w, nil
	}
	return w, b.resumeStopped(w)
}

func (b *batch) take(w *work) {
	b.working[w.ID] = w
	b.touched = append(b.touched, w)
}

// resumeStopped judges again what stands since the stop: a halted chain learns
// what a release must name, and a session that needed a newer build gets it.
// The record that is being applied now is stored but not yet judged, so the
// number of judged records says where to end.
func (b *batch) resumeStopped(w *work) error {
	w.Refused = 0
	raws, err := b.records(w.ID, w.StopAt, w.Tail)
	if err != nil {
		return err
	}
	w.Records -= len(raws)
	for _, raw := range raws {
		if err := b.judge(w, session.Decode(raw)); err != nil {
			return err
		}
	}
	return nil
}

// records reads the raw records of a space from one stream sequence to another.
func (b *batch) records(id session.ID, from, to uint64) ([]session.Raw, error) {
	var out []session.Raw
	err := scan(b.b, ofSession(spaceRecord, id), recordKey(id, from), func(key, value []byte) error {
		at := lastUint64(key)
		if at > to {
			return errStop
		}
		raw, err := decodeRaw(at, value)
		out = append(out, raw)
		return err
	})
	return out, err
}

// links finds the links of events, also of those that this batch adds.
func (b *batch) links(id session.ID) func(session.Seq) (session.Link, bool) {
	return func(seq session.Seq) (session.Link, bool) {
		l, ok, err := readLink(b.b, id, seq)
		if err != nil {
			b.err = errors.Join(b.err, err)
		}
		return l, ok
	}
}

// judge gives a record to its session's chain and keeps what the chain says.
func (b *batch) judge(w *work, d session.Decoded) error {
	w.Records++
	if w.chain == nil {
		w.Tail = max(w.Tail, d.Raw.StreamSeq)
		return nil
	}
	j, err := w.chain.NextDecoded(d)
	var corrupt *session.CorruptError
	var format *session.FormatError
	switch {
	case errors.As(err, &corrupt):
		if w.Halt == nil || w.Halt.StreamSeq != corrupt.StreamSeq {
			w.Halt, w.StopAt = haltOf(corrupt), corrupt.StreamSeq
		}
	case errors.As(err, &format):
		b.refuse(w, format.Want, d.Raw.StreamSeq)
	case err != nil:
		return err
	default:
		w.Halt, w.StopAt = nil, 0
	}
	switch j.Ruling {
	case session.Valid:
		return b.accept(w, d.Raw, j.Events)
	case session.Void:
		w.Voids++
		return b.alarm(*j.Alarm)
	case session.Repeated, session.Skipped:
	}
	return nil
}

// refuse leaves a session to a newer build, from a stream sequence on.
func (b *batch) refuse(w *work, want int, from uint64) {
	w.State, w.Tail = w.chain.State(), w.chain.Tail()
	w.Refused, w.StopAt, w.chain = want, from, nil
}

// accept notes where valid events stand, all those of a section.
func (b *batch) accept(w *work, in session.Raw, events []session.Event) error {
	last := events[len(events)-1]
	at := place{link: last.Link, streamSeq: in.StreamSeq, space: in.Address.Space()}
	if err := b.b.Set(eventKey(w.ID, last.Seq), encodePlace(w.ID, at), nil); err != nil {
		return err
	}
	for i, e := range events {
		if id, ok := session.MessageID(e); ok && !accepted(events[:i], id) {
			if err := b.keepMessage(w, id, e); err != nil {
				return err
			}
		}
		w.LastTime = e.Time
	}
	return nil
}

// accepted reports whether one of some events accepted a message.
func accepted(events []session.Event, message string) bool {
	return slices.ContainsFunc(events, func(e session.Event) bool {
		id, ok := session.MessageID(e)
		return ok && id == message
	})
}

// keepMessage remembers where a message was accepted first: a view of an older
// state must not lose it to a later event. Before a genesis there is no message.
func (b *batch) keepMessage(w *work, message string, e session.Event) error {
	key := messageKey(w.ID, message)
	if e.Class != session.ClassGenesis {
		known, err := b.recall(key)
		if err != nil {
			return fmt.Errorf("look for message %q of %s: %w", message, w.ID, err)
		}
		if known {
			return nil
		}
	}
	return b.remember(key, binary.BigEndian.AppendUint64(nil, uint64(e.Seq)))
}

// birth starts the session that a genesis names. A second genesis does not start
// it again; where it stands in the session's own space, its chain stops it.
func (b *batch) birth(d session.Decoded) error {
	id := d.Raw.Address.Session
	w, err := b.open(id)
	if err != nil || (w != nil && w.Begun) {
		return err
	}
	planted := w != nil // which is a session whose genesis was refused
	if w == nil {
		if planted, err = b.planted(id); err != nil {
			return err
		}
		w = &work{row: row{ID: id}}
		b.take(w)
	}
	w.Creator, w.Born, w.Halt, w.Refused, w.Records = d.Raw.Address.Creator, d.Raw.StreamSeq, nil, 0, 0
	prefix, err := b.inherited(d.Record)
	if err != nil {
		return err
	}
	chain, events, err := session.OpenDecoded(d, prefix, b.links(id))
	var corrupt *session.CorruptError
	var format *session.FormatError
	switch {
	case errors.As(err, &corrupt):
		w.Halt = haltOf(corrupt)
	case errors.As(err, &format):
		w.Refused = format.Want
	case err != nil:
		return err
	default:
		w.chain, w.Begun, w.State = chain, true, chain.State()
		if err := b.accept(w, d.Raw, events); err != nil {
			return err
		}
	}
	if planted {
		if err := b.judgePlanted(w); err != nil {
			return err
		}
	}
	if w.Creator == w.ID { // the genesis stands in the session's own space
		w.Records++
		w.Tail = max(w.Tail, w.Born)
	}
	return nil
}

// planted reports whether records may stand in the space of a session that has no
// row. A key says so, because to find out that there are none costs more than all
// the rest of a genesis.
func (b *batch) planted(id session.ID) (bool, error) {
	if b.s.unmarked {
		return true, nil
	}
	planted, err := b.recall(plantedKey(id))
	if err != nil {
		return false, fmt.Errorf("look for records in front of the genesis of %s: %w", id, err)
	}
	return planted, nil
}

// judgePlanted judges what stood in a session's space when its genesis came.
func (b *batch) judgePlanted(w *work) error {
	raws, err := b.records(w.ID, 0, w.Born-1)
	if err != nil {
		return err
	}
	for _, raw := range raws {
		if err := b.judge(w, session.Decode(raw)); err != nil {
			return err
		}
	}
	return nil
}

// inherited finds what a genesis inherits. What cannot be found is an empty
// prefix: the header does not fit it, and the session is stopped with that word.
// One that could not be decoded inherits nothing: session.Open says why.
func (b *batch) inherited(genesis session.Record) (session.Prefix, error) {
	if genesis.Birth == nil {
		return session.Prefix{}, nil
	}
	h := genesis.Birth.Header
	p, err := prefixAt(b, h.ParentSession, h.InheritedEventCount)
	if _, none := errors.AsType[*noPrefixError](err); none {
		return session.Prefix{}, nil
	}
	return p, err
}

// current implements lineage with what this batch has changed.
func (b *batch) current(id session.ID) (row, bool, error) {
	if w, ok := b.working[id]; ok {
		r := w.row
		if w.chain != nil {
			r.State = w.chain.State()
		}
		return r, true, nil
	}
	if r, ok := b.s.cache.get(id); ok {
		return r, true, nil
	}
	return b.stored(id)
}

// reader implements lineage.
func (b *batch) reader() pebble.Reader { return b.b }

// alarm stores an alarm and keeps it for those who are told after the commit.
func (b *batch) alarm(a session.Alarm) error {
	b.alarms = append(b.alarms, a)
	return b.setJSON(alarmKey(a.Session, a.StreamSeq), storedAlarm{
		Types: a.Types, Reason: text(a.Reason.Error()),
		Writer: session.Writer{Component: text(a.Writer.Component), Instance: text(a.Writer.Instance), Incarnation: text(a.Writer.Incarnation)},
	})
}

// text makes text of what a record claims. JSON writes other bytes in two ways, of
// which what is stored must be read as one.
func text(claim string) string { return strings.ToValidUTF8(claim, "\ufffd") }

// storedAlarm is a [session.Alarm] that survives JSON.
type storedAlarm struct {
	Types  []session.Type `json:"types,omitempty"`
	Writer session.Writer `json:"writer"`
	Reason string         `json:"reason"`
}
