package sessionstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/entail-fleet/entail/session"
)

// place is where the events of one section are kept: in the raw record that they
// came in. It stands under the seq of the section's last event.
type place struct {
	link      session.Link // after that event
	streamSeq uint64
	space     session.ID // in which the record stands
}

// encodePlace writes a place: link, a zero byte, stream sequence, and the space if
// it is not the session's own.
func encodePlace(id session.ID, p place) []byte {
	b := make([]byte, 0, len(p.link)+1+8+len(p.space))
	b = append(b, p.link[:]...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint64(b, p.streamSeq)
	if p.space != id {
		b = append(b, p.space...)
	}
	return b
}

// placed is what is kept under a seq: a place, or the event itself as builds of
// store format 1 kept it.
type placed struct {
	place
	event *session.Event
}

// decodePlaced reads what encodePlace wrote, and what earlier builds wrote of an
// event: link, class, a zero byte, line. The result shares nothing with value.
func decodePlaced(id session.ID, seq session.Seq, value []byte) (placed, error) {
	fail := func(err error) (placed, error) { return placed{}, damaged("event of "+string(id), seq, err) }
	p := placed{place: place{space: id}}
	if len(value) < len(p.link) {
		return fail(errors.New("it is cut off"))
	}
	value = value[copy(p.link[:], value):]
	class, rest, ok := bytes.Cut(value, []byte{0})
	switch {
	case !ok:
		return fail(errors.New("it has no class"))
	case len(class) > 0:
		e, err := session.DecodeEvent(bytes.Clone(rest))
		if err == nil && e.Seq != seq {
			err = fmt.Errorf("its line says seq %d", e.Seq)
		}
		if err != nil {
			return fail(err)
		}
		e.Session, e.Class, e.Link = id, session.Class(class), p.link
		p.event = &e
		return p, nil
	case len(rest) < 8:
		return fail(errors.New("it does not say where it stands"))
	}
	p.streamSeq = binary.BigEndian.Uint64(rest)
	if space := session.ID(rest[8:]); space != "" {
		p.space = space
	}
	if len(rest) > 8 && p.space == id {
		return fail(errors.New("it is written otherwise"))
	}
	return p, nil
}

// sectionAt reads the events that are kept under a seq, which is that of the last
// of them.
func sectionAt(r pebble.Reader, id session.ID, seq session.Seq, value []byte) (session.Section, error) {
	p, err := decodePlaced(id, seq, value)
	if err != nil {
		return session.Section{}, err
	}
	if e := p.event; e != nil {
		return session.Section{Session: id, Class: e.Class, Seq: e.Seq, After: e.Link, Events: []session.Event{*e}}, nil
	}
	raw, err := readRecord(r, p.space, p.streamSeq)
	if err != nil {
		return session.Section{}, err
	}
	rec, err := session.DecodeRecord(raw)
	if err != nil {
		return session.Section{}, damaged("record of "+string(p.space), p.streamSeq, err)
	}
	s := rec.Own
	if rec.Birth != nil && raw.Address.Session == id {
		s = &rec.Birth.First
	}
	if s == nil || s.Session != id || s.Next() != seq+1 || s.After != p.link {
		return session.Section{}, damaged("record of "+string(p.space), p.streamSeq, fmt.Errorf("it does not hold event %d of %s", seq, id))
	}
	return *s, nil
}

// readLink finds the link after an own event of a session.
func readLink(r pebble.Reader, id session.ID, seq session.Seq) (link session.Link, ok bool, err error) {
	value, closer, err := r.Get(eventKey(id, seq))
	if errors.Is(err, pebble.ErrNotFound) {
		return linkInside(r, id, seq)
	}
	if err != nil {
		return link, false, fmt.Errorf("read event %d of %s: %w", seq, id, readError(err))
	}
	if copy(link[:], value) < len(link) {
		err = damaged("event of "+string(id), seq, errors.New("it is cut off"))
	}
	return link, err == nil, errors.Join(err, closer.Close())
}

// linkInside is readLink for an event that is not the last of its section.
func linkInside(r pebble.Reader, id session.ID, seq session.Seq) (link session.Link, ok bool, err error) {
	err = scan(r, ofSession(spaceEvent, id), eventKey(id, seq), func(key, value []byte) error {
		s, err := sectionAt(r, id, session.Seq(lastUint64(key)), value)
		if err != nil {
			return err
		}
		if s.Seq <= seq {
			link, ok = s.Events[seq-s.Seq].Link, true
		}
		return errStop
	})
	return link, ok, err
}

// readMessage finds the event that accepted a message.
func readMessage(r pebble.Reader, id session.ID, message string) (seq session.Seq, ok bool, err error) {
	value, closer, err := r.Get(messageKey(id, message))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read message %q of %s: %w", message, id, readError(err))
	}
	if len(value) == 8 {
		seq = session.Seq(binary.BigEndian.Uint64(value))
	} else {
		err = damaged("message of "+string(id), message, errors.New("it holds no seq"))
	}
	return seq, err == nil, errors.Join(err, closer.Close())
}
