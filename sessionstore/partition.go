package sessionstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/entail-fleet/entail/session"
)

// maxPartitions is how many partitions two hex digits can name.
const maxPartitions = 256

// Watermark is how far a partition is mirrored: which stream, the sequence of the
// last record held, and that record's hash.
type Watermark struct {
	Incarnation string `json:"incarnation"`
	Seq         uint64 `json:"seq"`
	Hash        string `json:"hash"`
}

// partition is one stream's place in the store.
type partition struct {
	n        int
	applying sync.Mutex // held while a batch is made and committed
	running  sync.Mutex // held by Run
	journal  journal    // the newest batches; guarded by applying
	// wanted says that somebody began to wait for more than is mirrored. WaitFor
	// sends, Run receives; it holds one word and is never closed.
	wanted chan struct{}

	stirred stirred
	owing   sync.Mutex   // held by Owing
	owed    []session.ID // what Owing found last; guarded by owing

	mu    sync.Mutex // guards what follows
	mark  Watermark
	known bool          // mark was set
	waits int           // in WaitFor
	lost  error         // why the partition stopped
	since time.Time     // since when each look found less than is mirrored; zero if the last did not
	moved chan struct{} // closed and replaced when mark or lost change
}

// watermark returns the mark, whether there is one, and why the partition
// stopped.
func (p *partition) watermark() (mark Watermark, known bool, lost error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mark, p.known, p.lost
}

func (p *partition) advance(mark Watermark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark, p.known = mark, true
	p.wakeLocked()
}

// lose stops the partition for as long as the store is open and returns why it
// stopped first.
func (p *partition) lose(log *slog.Logger, format string, args ...any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		p.lost = fmt.Errorf("partition %d is stopped: %w: %s; its sessions are refused until the stream is repaired",
			p.n, session.ErrLoss, fmt.Sprintf(format, args...))
		log.Error("partition is stopped", slog.Int("partition", p.n), slog.Any("error", p.lost))
		p.wakeLocked()
	}
	return p.lost
}

// short notes that a look found less than is mirrored, and returns since when all did.
func (p *partition) short(now time.Time) (since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = now
	}
	return p.since
}

// whole notes that a look found all that is mirrored.
func (p *partition) whole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Time{}
}

func (p *partition) wakeLocked() {
	close(p.moved)
	p.moved = make(chan struct{})
}

// partition returns the place of a partition, which it makes at first use.
func (s *Store) partition(n int) (*partition, error) {
	if n < 0 || n >= maxPartitions {
		return nil, fmt.Errorf("partition %d is not in 0..%d", n, maxPartitions-1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.partitions[n]
	if !ok {
		p = &partition{n: n, moved: make(chan struct{}), wanted: make(chan struct{}, 1)}
		s.partitions[n] = p
	}
	return p, nil
}

func decodeWatermark(key, value []byte) (Watermark, error) {
	var mark Watermark
	err := unmarshalExact(value, &mark)
	if err == nil && len(key) != len(watermarkKey(0)) {
		err = errors.New("it is no key")
	}
	if err != nil {
		return Watermark{}, damaged("watermark", hex.EncodeToString(key), err)
	}
	return mark, nil
}

// unmarshalExact reads what was written of v, and nothing that would be written
// in other bytes.
func unmarshalExact(value []byte, v any) error {
	if err := json.Unmarshal(value, v); err != nil {
		return err
	}
	again, err := json.Marshal(v)
	if err == nil && !bytes.Equal(again, value) {
		err = errors.New("it is written otherwise")
	}
	return err
}

func (s *Store) loadWatermarks() error {
	return scan(s.db, []byte{spaceWatermark}, nil, func(key, value []byte) error {
		mark, err := decodeWatermark(key, value)
		if err != nil {
			return err
		}
		p, err := s.partition(int(key[1])<<8 | int(key[2]))
		if err != nil {
			return damaged("watermark", hex.EncodeToString(key), err)
		}
		p.mark, p.known = mark, true
		return nil
	})
}

// Watermark returns how far a partition is mirrored; ok is false when nothing of
// it is.
func (s *Store) Watermark(partition int) (mark Watermark, ok bool) {
	p, err := s.partition(partition)
	if err != nil {
		return Watermark{}, false
	}
	mark, ok, _ = p.watermark()
	return mark, ok
}

// WaitFor returns when a partition is mirrored up to seq at least. Once the
// partition is stopped it returns the loss, whatever seq is.
func (s *Store) WaitFor(ctx context.Context, partition int, seq uint64) error {
	p, err := s.partition(partition)
	if err != nil {
		return err
	}
	for waits := false; ; waits = true {
		p.mu.Lock()
		mark, lost, moved := p.mark, p.lost, p.moved
		p.mu.Unlock()
		switch {
		case lost != nil:
			return lost
		case mark.Seq >= seq:
			return nil
		case !waits:
			leave := p.want()
			defer leave()
		}
		select {
		case <-moved:
		case <-s.done:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("wait for partition %d to be mirrored up to %d, it is at %d: %w", partition, seq, mark.Seq, context.Cause(ctx))
		}
	}
}

// want says that somebody waits for more than is mirrored, until leave is called.
func (p *partition) want() (leave func()) {
	p.mu.Lock()
	p.waits++
	p.mu.Unlock()
	select {
	case p.wanted <- struct{}{}:
	default: // it has been said
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waits--
	}
}

// gather returns after a while, or once somebody waits.
func (p *partition) gather(ctx context.Context, most time.Duration) {
	select {
	case <-p.wanted: // by somebody who may be gone
	default:
	}
	p.mu.Lock()
	waits := p.waits > 0
	p.mu.Unlock()
	if waits {
		return
	}
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-p.wanted:
	case <-t.C:
	case <-ctx.Done():
	}
}

// errStop ends a scan early.
var errStop = errors.New("stop")

// scan calls fn with each key from start on that begins with prefix; a nil start
// is the prefix itself. Key and value are only good during the call.
func scan(r pebble.Reader, prefix, start []byte, fn func(key, value []byte) error) error {
	if start == nil {
		start = prefix
	}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: start, UpperBound: after(prefix)})
	if err != nil {
		return readError(err)
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var value []byte
		if value, err = it.ValueAndErr(); err != nil {
			err = readError(err)
			break
		}
		err = fn(it.Key(), value)
	}
	if errors.Is(err, errStop) {
		err = nil
	}
	return errors.Join(err, readError(it.Error()), it.Close())
}

// has reports whether there is a key.
func has(r pebble.Reader, key []byte) (bool, error) {
	_, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, readError(err)
	}
	return true, closer.Close()
}

// lastKey returns the last key that begins with prefix, nil if there is none.
func lastKey(r pebble.Reader, prefix []byte) ([]byte, error) {
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return nil, readError(err)
	}
	var key []byte
	if it.Last() {
		key = bytes.Clone(it.Key())
	}
	return key, errors.Join(readError(it.Error()), it.Close())
}
