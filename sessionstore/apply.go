package sessionstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"

	"github.com/entail-fleet/entail/session"
)

// Apply takes the records of one partition that follow its watermark, judges
// them and commits what they say, with the new watermark, in one batch. Records
// at or below the watermark were applied before and are ignored. A gap, another
// incarnation or another record at the watermark is a loss and stops the
// partition.
//
// What Apply returned is visible at once and durable after the next sync.
func (s *Store) Apply(partition int, incarnation string, raws []session.Raw) error {
	return s.apply(partition, incarnation, decode(raws))
}

// decode reads records, each on its own.
func decode(raws []session.Raw) []session.Decoded {
	out := make([]session.Decoded, len(raws))
	for i, raw := range raws {
		out[i] = session.Decode(raw)
	}
	return out
}

func (s *Store) apply(partition int, incarnation string, records []session.Decoded) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	p, err := s.partition(partition)
	if err != nil {
		return err
	}
	p.applying.Lock()
	defer p.applying.Unlock()
	records, err = s.following(p, incarnation, records)
	if err != nil || len(records) == 0 {
		return err
	}
	first, last := records[0].Raw, records[len(records)-1].Raw
	mark := Watermark{Incarnation: incarnation, Seq: last.StreamSeq, Hash: recordHash(last)}

	b := s.newBatch(partition, records)
	if err := b.commit(p, records, mark); err != nil {
		return fmt.Errorf("apply records %d to %d of partition %d: %w", first.StreamSeq, mark.Seq, partition, err)
	}
	for _, w := range b.touched {
		s.cache.put(w.row)
	}
	p.stirred.note(b.touched)
	p.advance(mark)
	b.tell()
	return nil
}

// following returns the records behind the watermark, which are contiguous.
func (s *Store) following(p *partition, incarnation string, records []session.Decoded) ([]session.Decoded, error) {
	mark, known, lost := p.watermark()
	if lost != nil {
		return nil, lost
	}
	if known && incarnation != mark.Incarnation {
		return nil, p.lose(s.cfg.Logger, "the stream is %q, mirrored is %q", incarnation, mark.Incarnation)
	}
	for len(records) > 0 && records[0].Raw.StreamSeq <= mark.Seq {
		if raw := records[0].Raw; raw.StreamSeq == mark.Seq && recordHash(raw) != mark.Hash {
			return nil, p.lose(s.cfg.Logger, "record %d is another one than was mirrored", mark.Seq)
		}
		records = records[1:]
	}
	want := mark.Seq
	for _, d := range records {
		want++
		if d.Raw.StreamSeq != want || d.Raw.Hole {
			return nil, p.lose(s.cfg.Logger, "record %d should follow, %d did (hole %v)", want, d.Raw.StreamSeq, d.Raw.Hole)
		}
	}
	return records, nil
}

// batch is one Apply in progress. It sees its own writes.
type batch struct {
	s         *Store
	b         *pebble.Batch
	partition int
	working   map[session.ID]*work
	touched   []*work
	added     map[session.ID]int // sessions, by root
	alarms    []session.Alarm
	before    *pebble.Iterator // the store without this batch; nil until it is asked
	news      map[string]bool  // keys of this batch that it may look for
	value     []byte           // room for one
	err       error            // of a lookup that has no error of its own
}

// work is a session while a batch changes it.
type work struct {
	row
	was   row
	known bool           // there was a row
	chain *session.Chain // nil before the genesis and while a newer build is needed
}

// around is more than what is usually written with a record's body, in bytes.
const around = 1 << 10

func (s *Store) newBatch(partition int, records []session.Decoded) *batch {
	size := 0
	for _, d := range records {
		size += around + len(d.Raw.Body)
	}
	return &batch{
		s: s, b: s.db.NewIndexedBatchWithSize(size), partition: partition,
		working: make(map[session.ID]*work), added: make(map[session.ID]int), news: make(map[string]bool),
	}
}

// stored reads a session's row. A batch writes rows at its end, so the store has it.
func (b *batch) stored(id session.ID) (out row, ok bool, err error) {
	value, ok, err := b.lookUp(rowKey(id))
	if err != nil {
		return row{}, false, fmt.Errorf("read session %s: %w", id, err)
	}
	if ok {
		out, err = decodeRow(id, value)
	}
	return out, ok && err == nil, err
}

// remember puts a key that this batch may look for.
func (b *batch) remember(key, value []byte) error {
	b.news[string(key)] = true
	return b.b.Set(key, value, nil)
}

// recall reports whether a key was remembered, by this batch or one before it.
func (b *batch) recall(key []byte) (bool, error) {
	if b.news[string(key)] {
		return true, nil
	}
	_, ok, err := b.lookUp(key)
	return ok, err
}

// lookUp finds a key in the store as it was before the batch. The value is good
// until the next one. Most are not there: a filter says so, which a plain Get does
// not ask where most of a store is.
func (b *batch) lookUp(key []byte) (value []byte, ok bool, err error) {
	if b.before == nil {
		if b.before, err = b.s.db.NewIter(&pebble.IterOptions{UseL6Filters: true}); err != nil {
			return nil, false, readError(err)
		}
	}
	if !b.before.SeekPrefixGE(key) || !bytes.Equal(b.before.Key(), key) {
		return nil, false, readError(b.before.Error())
	}
	value, err = b.before.ValueAndErr()
	return value, err == nil, readError(err)
}

// close gives back what the batch holds.
func (b *batch) close() error {
	err := b.b.Close()
	if b.before != nil {
		err = errors.Join(err, b.before.Close())
	}
	return err
}

func (b *batch) commit(p *partition, records []session.Decoded, mark Watermark) error {
	err := b.fill(records, mark)
	journal := p.journal
	if err == nil {
		journal, err = p.journal.write(b.b, p.n, records[0].Raw.StreamSeq-1, mark.Seq)
	}
	if err == nil {
		err = b.s.trees.commit(b.added, func() error { return b.b.Commit(pebble.NoSync) })
	}
	if err == nil {
		p.journal = journal
	}
	if cerr := b.close(); err == nil {
		err = cerr
	}
	return err
}

func (b *batch) fill(records []session.Decoded, mark Watermark) error {
	for _, d := range records {
		if err := b.add(d); err != nil {
			return err
		}
	}
	for _, w := range b.touched {
		if err := b.write(w); err != nil {
			return err
		}
	}
	return b.setJSON(watermarkKey(b.partition), mark)
}

// write puts a session's row and keeps its index keys equal to it.
func (b *batch) write(w *work) error {
	if w.chain != nil {
		w.State, w.Tail = w.chain.State(), w.chain.Tail()
	}
	if err := b.index(w); err != nil {
		return err
	}
	if err := b.flag(runnableKey(b.partition, w.ID), w.was.runnable(), w.runnable()); err != nil {
		return err
	}
	if err := b.flag(slotsKey(b.partition, w.ID), w.was.slots(), w.slots()); err != nil {
		return err
	}
	if err := b.flag(askingKey(b.partition, w.ID), w.was.asking(), w.asking()); err != nil {
		return err
	}
	return b.setJSON(rowKey(w.ID), w.row)
}

// flag keeps a key there exactly while something holds.
func (b *batch) flag(key []byte, was, is bool) error {
	switch {
	case is && !was:
		return b.b.Set(key, nil, nil)
	case was && !is:
		return b.b.Delete(key, nil)
	}
	return nil
}

// index puts the keys under which listings find a session. They hang on its
// genesis: a refused one may be followed by one that is accepted.
func (b *batch) index(w *work) error {
	if w.known && w.Born == w.was.Born {
		return nil
	}
	if w.known {
		for _, k := range w.was.indexKeys() {
			if err := b.b.Delete(k, nil); err != nil {
				return err
			}
		}
	} else {
		b.added[w.ID.Root()]++
	}
	for _, k := range w.indexKeys() {
		if err := b.b.Set(k, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) setJSON(key []byte, v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %q: %w", key, err)
	}
	return b.b.Set(key, value, nil)
}

// tell reports what the committed batch found.
func (b *batch) tell() {
	for _, w := range b.touched {
		if err := w.entry().Err(); err != nil && !w.was.stopped() {
			b.s.cfg.Logger.Error("session is stopped", slog.String("session", string(w.ID)), slog.Any("error", err))
		}
	}
	for _, a := range b.alarms {
		b.s.cfg.OnAlarm(a)
	}
}
