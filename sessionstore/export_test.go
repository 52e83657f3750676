package sessionstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/entail-fleet/entail/session"
)

// Tuned is a configuration whose store has Pebble's options changed.
func Tuned(cfg Config, tune func(*pebble.Options)) Config {
	cfg.tune = tune
	return cfg
}

// Metrics are Pebble's figures of a store.
func Metrics(s *Store) *pebble.Metrics { return s.db.Metrics() }

// Dump returns every key that a store holds, with its value, but for the journals,
// which say in what batches the records came.
func Dump(s *Store) (map[string]string, error) {
	out := make(map[string]string)
	it, err := s.db.NewIter(nil)
	if err != nil {
		return nil, readError(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, errors.Join(readError(err), it.Close())
		}
		if it.Key()[0] != spaceJournal {
			out[string(it.Key())] = string(value)
		}
	}
	return out, errors.Join(readError(it.Error()), it.Close())
}

// PutWatermark commits the watermark of a batch by itself.
func PutWatermark(s *Store, partition int, from uint64, mark Watermark) error {
	value, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	p, err := s.partition(partition)
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	_, err = p.journal.write(b, partition, from, mark.Seq)
	return errors.Join(err, b.Set(watermarkKey(partition), value, nil), b.Commit(pebble.NoSync))
}

// HashOf is what a watermark knows a record by.
func HashOf(raw session.Raw) string { return recordHash(raw) }

// ForgeJournal makes the journal of partition 0 say that nothing is missing.
func ForgeJournal(t testing.TB, fs vfs.FS, dir string) {
	t.Helper()
	db, err := pebble.Open(dir, options(Config{FS: fs}.withDefaults(), nil))
	if err != nil {
		t.Fatalf("forge the journal: %v", err)
	}
	s := &Store{db: db, partitions: map[int]*partition{}}
	if err := s.loadWatermarks(); err != nil {
		t.Fatalf("forge the journal: %v", err)
	}
	b := db.NewBatch()
	err = errors.Join(
		b.DeleteRange([]byte{spaceJournal}, []byte{spaceJournal + 1}, nil),
		b.Set(journalKey(0, 0), stretch{to: s.partitions[0].mark.Seq}.encode(), nil),
		b.Commit(pebble.Sync), db.Close(),
	)
	if err != nil {
		t.Fatalf("forge the journal: %v", err)
	}
}

// LimitCache makes the cache of a store that has applied nothing smaller.
func LimitCache(s *Store, rows int) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	s.cache.size = rows
}

// Cached counts the rows in the cache.
func Cached(s *Store) int {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	return s.cache.order.Len()
}

// SetFormat writes the format mark of a store, or takes it away.
func SetFormat(t testing.TB, s *Store, format string) {
	t.Helper()
	err := s.db.Set(formatKey(), []byte(format), pebble.Sync)
	if format == "" {
		err = s.db.Delete(formatKey(), pebble.Sync)
	}
	if err != nil {
		t.Fatalf("set format: %v", err)
	}
}

// DropLogs deletes all events and records of a store.
func DropLogs(t testing.TB, s *Store) {
	t.Helper()
	for _, space := range []byte{spaceEvent, spaceRecord} {
		if err := s.db.DeleteRange([]byte{space}, []byte{space + 1}, pebble.Sync); err != nil {
			t.Fatalf("drop logs: %v", err)
		}
	}
}

// DropEvent deletes one event.
func DropEvent(t testing.TB, s *Store, id session.ID, seq session.Seq) {
	t.Helper()
	if err := s.db.Delete(eventKey(id, seq), pebble.Sync); err != nil {
		t.Fatalf("drop event: %v", err)
	}
}

// TamperEvent changes the time in an event's line.
func TamperEvent(t testing.TB, s *Store, id session.ID, seq session.Seq) {
	t.Helper()
	value, closer, err := s.db.Get(eventKey(id, seq))
	if err != nil {
		t.Fatalf("tamper with event: %v", err)
	}
	changed := bytes.Replace(value, []byte(`"time":1`), []byte(`"time":2`), 1)
	if bytes.Equal(changed, value) {
		t.Fatal("tamper with event: nothing to change")
	}
	if err := errors.Join(closer.Close(), s.db.Set(eventKey(id, seq), changed, pebble.Sync)); err != nil {
		t.Fatalf("tamper with event: %v", err)
	}
}

// DropRecord deletes one record.
func DropRecord(t testing.TB, s *Store, id session.ID, streamSeq uint64) {
	t.Helper()
	if err := s.db.Delete(recordKey(id, streamSeq), pebble.Sync); err != nil {
		t.Fatalf("drop record: %v", err)
	}
}

// TryFlush writes what is in memory to tables.
func TryFlush(s *Store) error { return s.db.Flush() }

// Flush is TryFlush of a sound store.
func Flush(t testing.TB, s *Store) {
	t.Helper()
	if err := TryFlush(s); err != nil {
		t.Fatalf("flush: %v", err)
	}
}

// Compact merges all tables.
func Compact(t testing.TB, s *Store) {
	t.Helper()
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatalf("compact: %v", err)
	}
}

// TrySync makes durable what was applied.
func TrySync(s *Store) error { return s.sync() }

// Sync is TrySync of a sound store.
func Sync(t testing.TB, s *Store) {
	t.Helper()
	if err := TrySync(s); err != nil {
		t.Fatalf("sync: %v", err)
	}
}
