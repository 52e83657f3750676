package sessionstore

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/entail-fleet/entail/session"
)

// Events calls fn with the events of a session's logical log from one seq up to
// another, which is left out; a to of 0 means all. Below the lineage cut these
// are the ancestor's own events, under the ancestor's id. An error of fn ends the
// reading and is returned.
func (s *Store) Events(id session.ID, from, to session.Seq, fn func(session.Event) error) error {
	err := s.read(func(snap snapshot) error {
		r, err := s.servedFrom(snap, id)
		if err != nil {
			return err
		}
		if to == 0 || to > r.State.Next {
			to = r.State.Next
		}
		return logEvents(snap, r, from, to, fn)
	})
	if err != nil {
		return fmt.Errorf("read events of %s: %w", id, err)
	}
	return nil
}

// servedFrom is served at a snapshot, without waiting.
func (s *Store) servedFrom(snap snapshot, id session.ID) (row, error) {
	r, ok, err := snap.current(id)
	if err != nil {
		return row{}, err
	}
	if !ok {
		return row{}, session.ErrNotFound
	}
	p, err := s.partition(id.Partition())
	if err != nil {
		return row{}, err
	}
	if _, _, lost := p.watermark(); lost != nil {
		return row{}, lost
	}
	return r, r.entry().Err()
}

// logEvents reads the logical log of a session from one seq up to another.
func logEvents(l lineage, r row, from, to session.Seq, fn func(session.Event) error) error {
	h := r.State.Header
	if cut := h.InheritedEventCount; from < cut {
		parent, ok, err := l.current(h.ParentSession)
		if err != nil {
			return err
		}
		if !ok {
			return damaged("parent of", r.ID, fmt.Errorf("%s is missing", h.ParentSession))
		}
		if err := logEvents(l, parent, from, min(to, cut), fn); err != nil {
			return err
		}
		from = cut
	}
	if from < to && from < h.FirstLiveSeq {
		return fmt.Errorf("events %d to %d of %s are imported: read its records", from, h.FirstLiveSeq-1, r.ID)
	}
	return ownEvents(l, r, from, to, fn)
}

// ownEvents reads a session's own events and checks that they are all there and
// that each links to the one before it.
func ownEvents(l lineage, r row, from, to session.Seq, fn func(session.Event) error) error {
	if from >= to {
		return nil
	}
	link, err := linkBefore(l, r, from)
	if err != nil {
		return err
	}
	next := from
	err = scan(l.reader(), ofSession(spaceEvent, r.ID), eventKey(r.ID, from), func(key, value []byte) error {
		s, err := sectionAt(l.reader(), r.ID, session.Seq(lastUint64(key)), value)
		if err != nil {
			return err
		}
		for _, e := range s.Events {
			switch {
			case next == to:
				return errStop
			case next == from && e.Seq < from: // the section begins before it
				continue
			}
			link = session.EventLink(link, e.Session, e.Class, e.Line)
			if e.Seq != next || e.Link != link {
				return damaged("event of "+string(r.ID), next, errors.New("it is missing or does not link to the one before it"))
			}
			next++
			if err := fn(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && (next != to || (to == r.State.Next && link != r.State.Link)) {
		err = damaged("event of "+string(r.ID), next, errors.New("it is missing or not the one that was folded"))
	}
	return err
}

// linkBefore returns the link that an own event of a session continues.
func linkBefore(l lineage, r row, seq session.Seq) (session.Link, error) {
	h := r.State.Header
	if seq > h.FirstLiveSeq {
		return linkAt(l, r, seq-1)
	}
	var prev session.Link
	if cut := h.InheritedEventCount; cut > 0 {
		parent, _, err := l.current(h.ParentSession)
		if err != nil {
			return session.Link{}, err
		}
		if prev, err = linkAt(l, parent, cut-1); err != nil {
			return session.Link{}, err
		}
	}
	line, err := session.EncodeHeader(h)
	if err != nil {
		return session.Link{}, damaged("header of", r.ID, err)
	}
	return session.HeaderLink(prev, line), nil
}

// linkAt returns the link after an event of a session's logical log.
func linkAt(l lineage, r row, seq session.Seq) (session.Link, error) {
	h := r.State.Header
	if seq < h.InheritedEventCount {
		parent, _, err := l.current(h.ParentSession)
		if err != nil {
			return session.Link{}, err
		}
		return linkAt(l, parent, seq)
	}
	link, ok, err := readLink(l.reader(), r.ID, seq)
	if err == nil && !ok {
		err = damaged("event of "+string(r.ID), seq, errors.New("it is missing"))
	}
	return link, err
}

// Records calls fn with the raw records of a session's own space, void ones and
// its children's geneses among them, and its own genesis, in stream order. A
// stopped session's records and those of a stopped partition are read too: that
// is what a repair is made from. An error of fn ends the reading and is returned.
func (s *Store) Records(id session.ID, fn func(session.Raw) error) error {
	return s.RecordsAfter(id, 0, fn)
}

// RecordsAfter is Records for those after a stream sequence.
func (s *Store) RecordsAfter(id session.ID, after uint64, fn func(session.Raw) error) error {
	err := s.read(func(snap snapshot) error {
		r, ok, err := snap.current(id)
		if err != nil {
			return err
		}
		if !ok {
			return session.ErrNotFound
		}
		return spaceRecords(snap, r, after, fn)
	})
	if err != nil {
		return fmt.Errorf("read records of %s after %d: %w", id, after, err)
	}
	return nil
}

func spaceRecords(snap snapshot, r row, after uint64, fn func(session.Raw) error) error {
	genesis := func(uint64) error { return nil }
	if r.Creator != r.ID && r.Born > after {
		raw, err := readRecord(snap, r.Creator, r.Born)
		if err != nil {
			return err
		}
		told := false
		genesis = func(before uint64) error {
			if told || before < r.Born {
				return nil
			}
			told = true
			return fn(raw)
		}
	}
	n := 0
	err := scan(snap, ofSession(spaceRecord, r.ID), recordKey(r.ID, after), func(key, value []byte) error {
		at := lastUint64(key)
		if at <= after {
			return nil
		}
		raw, err := decodeRaw(at, value)
		if err != nil {
			return err
		}
		if err := genesis(raw.StreamSeq); err != nil {
			return err
		}
		n++
		return fn(raw)
	})
	if err == nil && after == 0 && n != r.Records {
		err = damaged("records of", r.ID, fmt.Errorf("%d are held, %d were", n, r.Records))
	}
	if err != nil {
		return err
	}
	return genesis(r.Born)
}

func readRecord(r pebble.Reader, id session.ID, streamSeq uint64) (session.Raw, error) {
	value, closer, err := r.Get(recordKey(id, streamSeq))
	if errors.Is(err, pebble.ErrNotFound) {
		return session.Raw{}, damaged("record of "+string(id), streamSeq, errors.New("it is missing"))
	}
	if err != nil {
		return session.Raw{}, fmt.Errorf("read record %d of %s: %w", streamSeq, id, readError(err))
	}
	raw, err := decodeRaw(streamSeq, value)
	return raw, errors.Join(err, closer.Close())
}

// Alarms returns the alarms of a session, in stream order.
func (s *Store) Alarms(id session.ID) ([]session.Alarm, error) {
	var out []session.Alarm
	err := s.read(func(snap snapshot) error {
		return scan(snap, ofSession(spaceAlarm, id), nil, func(key, value []byte) error {
			a, err := decodeAlarm(id, lastUint64(key), value)
			out = append(out, a)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read alarms of %s: %w", id, err)
	}
	return out, nil
}

func decodeAlarm(id session.ID, streamSeq uint64, value []byte) (session.Alarm, error) {
	var a storedAlarm
	if err := unmarshalExact(value, &a); err != nil {
		return session.Alarm{}, damaged("alarm of "+string(id), streamSeq, err)
	}
	return session.Alarm{Session: id, StreamSeq: streamSeq, Types: a.Types, Writer: a.Writer, Reason: errors.New(a.Reason)}, nil
}
