package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
)

// Genesis finds the record that brings a session into being. Creator is a hint
// at whose space it stands in, empty without one. A session without a genesis is
// [session.ErrNotFound]; one with two is corrupt.
func (l *Log) Genesis(ctx context.Context, id, creator session.ID) (session.Raw, error) {
	p, err := l.partition(id)
	if err != nil {
		return session.Raw{}, err
	}
	if creator != "" {
		raw, err := l.first(ctx, p, Subject(session.Address{Session: id, Class: session.ClassGenesis, Creator: creator}), id)
		if !errors.Is(err, session.ErrNotFound) {
			return raw, err
		}
	}
	return l.first(ctx, p, genesisFilter(id), id)
}

// first reads the first genesis under filter and refuses a second one in
// another space. A second one in the same space is that space's to judge.
func (l *Log) first(ctx context.Context, p int, filter string, id session.ID) (session.Raw, error) {
	var found session.Raw
	_, err := l.whole(ctx, p, filter, 0, func(m message) error {
		raw, err := m.record()
		switch {
		case err != nil:
			return err
		case found.StreamSeq == 0:
			found = raw
		case found.Address.Creator != raw.Address.Creator:
			return &session.CorruptError{Session: id, StreamSeq: raw.StreamSeq, Reason: fmt.Errorf(
				"a second genesis in the space of %s, the first is at stream sequence %d in that of %s",
				raw.Address.Creator, found.StreamSeq, found.Address.Creator)}
		}
		return nil
	})
	if errors.Is(err, errOwed) {
		err = &session.CorruptError{Session: id, StreamSeq: found.StreamSeq, Loss: true, Reason: err}
	}
	if err == nil && found.StreamSeq == 0 {
		// The copy that was read may be behind the leader, which says whether there is none.
		found, err = l.leader(ctx, p, getRequest{Seq: 1, NextFor: filter})
	}
	if err != nil {
		return session.Raw{}, fmt.Errorf("genesis of %s: %w", id, err)
	}
	return found, nil
}

// Read calls fn with each record of a session's own space after a stream
// sequence, in order, and returns the tail: the last one's sequence, or after.
// Hole is set where records of the session may be missing. What stands there may
// not be of [Log.Append]; the session's chain judges it.
func (l *Log) Read(ctx context.Context, id session.ID, after uint64, fn func(session.Raw) error) (uint64, error) {
	return l.ReadOn(ctx, id, after, 0, fn)
}

// ReadOn is Read for a reader that knows the log up to after: next is the seq that
// its next record has. The server is asked about missing messages only where
// another one follows.
func (l *Log) ReadOn(ctx context.Context, id session.ID, after uint64, next session.Seq, fn func(session.Raw) error) (uint64, error) {
	p, err := l.partition(id)
	if err != nil {
		return after, err
	}
	h := holes{log: l, partition: p, last: after, next: uint64(next)}
	tail, err := l.whole(ctx, p, TailFilter(id), after, func(m message) error {
		raw, err := m.record()
		if err != nil {
			return err
		}
		if raw.Hole, err = h.before(ctx, raw); err != nil {
			return err
		}
		return fn(raw)
	})
	if errors.Is(err, errOwed) {
		err = &session.CorruptError{Session: id, Seq: session.Seq(h.next), StreamSeq: tail, Loss: true, Reason: err}
	}
	if err != nil {
		return tail, fmt.Errorf("read %s after %d: %w", id, after, err)
	}
	return tail, nil
}

// holes finds out whether messages are missing in front of a record. It asks
// the server only when the record's seq does not follow the one before.
type holes struct {
	log       *Log
	partition int
	last      uint64 // stream sequence of the record before
	next      uint64 // seq that a record without a gap would have; 0 is not known
	read      bool
	missing   []uint64
	first     uint64
}

func (h *holes) before(ctx context.Context, raw session.Raw) (bool, error) {
	last, next := h.last, h.next
	seq, errSeq := strconv.ParseUint(raw.Headers[session.HeaderSeq], 10, 64)
	count, errCount := strconv.ParseUint(raw.Headers[session.HeaderCount], 10, 64)
	h.last = raw.StreamSeq
	if errSeq == nil && errCount == nil {
		h.next = seq + count
	}
	if raw.StreamSeq == last+1 || next != 0 && errSeq == nil && seq <= next {
		return false, nil
	}
	if err := h.load(ctx); err != nil {
		return false, err
	}
	if h.first > last+1 {
		return true, nil
	}
	i, _ := slices.BinarySearch(h.missing, last+1)
	return i < len(h.missing) && h.missing[i] < raw.StreamSeq, nil
}

func (h *holes) load(ctx context.Context) error {
	if h.read {
		return nil
	}
	s, err := h.log.info(ctx, h.partition, jetstream.WithDeletedDetails(true))
	if err != nil {
		return err
	}
	h.read, h.first, h.missing = true, s.State.FirstSeq, s.State.Deleted
	slices.Sort(h.missing)
	return nil
}

// Tail asks the stream's leader for the tail of a session.
func (l *Log) Tail(ctx context.Context, id session.ID) (uint64, error) {
	raw, err := l.Last(ctx, id)
	return raw.StreamSeq, err
}

// Last asks the stream's leader for the last record of a session's own space, whose
// sequence is the tail. It is zero where nothing stands there.
func (l *Log) Last(ctx context.Context, id session.ID) (session.Raw, error) {
	p, err := l.partition(id)
	if err != nil {
		return session.Raw{}, err
	}
	raw, err := l.leader(ctx, p, getRequest{LastFor: TailFilter(id)})
	if errors.Is(err, session.ErrNotFound) {
		return session.Raw{}, nil
	}
	if err != nil {
		return session.Raw{}, fmt.Errorf("tail of %s: %w", id, err)
	}
	l.tails.note(id, raw.StreamSeq)
	return raw, nil
}

// At reads the record at a stream sequence from the stream's leader, as Follow
// gives it. A sequence that holds nothing is [session.ErrNotFound].
func (l *Log) At(ctx context.Context, partition int, seq uint64) (session.Raw, error) {
	m, err := l.get(ctx, StreamName(partition), getRequest{Seq: seq})
	if err != nil {
		return session.Raw{}, fmt.Errorf("record at %d of partition %d: %w", seq, partition, err)
	}
	return m.any(), nil
}
