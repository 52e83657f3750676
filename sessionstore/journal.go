package sessionstore

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// A journal lists the newest batches of a partition, each with the stream sequence
// that it went on from, so that a hole in what is held is noticed when the store is
// opened. Pebble does not notice one: a log of its that ends at the end of a
// record, or is not there, and a list of tables whose end is cut off, look like
// ones that were never longer, however much was written behind them. The watermark
// is in the newest batch, so it would speak for the missing ones too.
//
// A hole ends where the oldest log begins that still holds something. The journal
// goes back further than all logs together can, so the batch in front of the
// oldest one is missed.
type journal []stretch

// stretch is one batch: it took a partition from one stream sequence to another.
type stretch struct {
	from, to uint64
	oldest   uint64 // from of the first stretch that was kept with this one
	written  uint64 // bytes, by this batch and all before it
}

// journalBytes is how much the batches of a journal wrote at least, once so much
// was written: more than stands in Pebble's logs and in no table.
const journalBytes = 4 * memTableSize

const stretchSize = 3 * 8

func (e stretch) encode() []byte {
	b := make([]byte, 0, stretchSize)
	for _, n := range []uint64{e.to, e.oldest, e.written} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

func decodeStretch(from uint64, value []byte) (stretch, error) {
	if len(value) != stretchSize {
		return stretch{}, damaged("batch from", from, errors.New("it does not say how far"))
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(value[8*i:]) }
	return stretch{from: from, to: n(0), oldest: n(1), written: n(2)}, nil
}

// next adds a batch of so many bytes. It returns the journal as it is then and
// what need not be known any more.
func (j journal) next(from, to, size uint64) (kept, dropped journal) {
	e := stretch{from: from, to: to, oldest: from, written: size}
	if len(j) > 0 {
		e.written += j[len(j)-1].written
	}
	if n := len(j); n > 0 && j[n-1].from == from { // it was empty, and its key is this one's
		j = j[: n-1 : n-1]
	}
	n := 0
	for n < len(j) && e.written-j[n].written > journalBytes {
		n++
	}
	if n < len(j) {
		e.oldest = j[n].from
	}
	return append(j[n:], e), j[:n]
}

// write puts what a batch changes in a journal into the batch. It returns the
// journal as it is once that is committed.
func (j journal) write(b *pebble.Batch, partition int, from, to uint64) (journal, error) {
	kept, dropped := j.next(from, to, uint64(b.Len())) //nolint:gosec // a length
	for _, e := range dropped {
		if err := b.Delete(journalKey(partition, e.from), nil); err != nil {
			return nil, err
		}
	}
	return kept, b.Set(journalKey(partition, from), kept[len(kept)-1].encode(), nil)
}

// check holds a journal to the watermark that was found with it.
func (j journal) check(mark Watermark) error {
	if len(j) == 0 {
		return errors.New("its batches are not listed")
	}
	for i, e := range j {
		if i > 0 && e.from != j[i-1].to {
			return fmt.Errorf("what stood between %d and %d is missing", j[i-1].to, e.from)
		}
	}
	switch last := j[len(j)-1]; {
	case last.to != mark.Seq:
		return fmt.Errorf("the last batch ends at %d", last.to)
	case last.oldest != j[0].from:
		return fmt.Errorf("what stood between %d and %d is missing", last.oldest, j[0].from)
	}
	return nil
}

// loadJournals reads the journals and refuses a partition that has a hole.
func (s *Store) loadJournals() error {
	err := scan(s.db, []byte{spaceJournal}, nil, func(key, value []byte) error {
		if len(key) != len(journalKey(0, 0)) {
			return damaged("batch", hex.EncodeToString(key), errors.New("it is no key"))
		}
		p, err := s.partition(int(binary.BigEndian.Uint16(key[1:])))
		if err != nil {
			return damaged("batch", hex.EncodeToString(key), err)
		}
		e, err := decodeStretch(lastUint64(key), value)
		p.journal = append(p.journal, e)
		return err
	})
	if err != nil {
		return err
	}
	for n, p := range s.partitions {
		if err := p.journal.check(p.mark); err != nil {
			return damaged("watermark of partition", n, err)
		}
	}
	return nil
}

// convert makes a store of format 1 one of this format: it begins the journals, and
// marks that no key says which spaces hold records and no session.
func (s *Store) convert() error {
	b := s.db.NewBatch()
	defer b.Close()
	for n, p := range s.partitions {
		at := p.mark.Seq
		if err := b.Set(journalKey(n, at), stretch{from: at, to: at, oldest: at}.encode(), nil); err != nil {
			return err
		}
	}
	if err := errors.Join(b.Set(plantedKey(""), nil, nil), setFormat(b)); err != nil {
		return err
	}
	return b.Commit(pebble.Sync)
}
