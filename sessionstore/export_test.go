package sessionstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

// DropPlanted deletes what says in which spaces records came before a genesis.
func DropPlanted(t testing.TB, s *Store) {
	t.Helper()
	if err := s.db.DeleteRange([]byte{spacePlanted}, []byte{spacePlanted + 1}, pebble.Sync); err != nil {
		t.Fatalf("drop planted: %v", err)
	}
}

// ToFormat1 makes a store one of format 1, as far as its planted records go.
func ToFormat1(t testing.TB, s *Store) {
	t.Helper()
	DropPlanted(t, s)
	if err := s.db.DeleteRange([]byte{spaceJournal}, []byte{spaceJournal + 1}, pebble.Sync); err != nil {
		t.Fatalf("drop the journals: %v", err)
	}
	SetFormat(t, s, "1")
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

// DropEvent deletes where an event stands, with the others of its section.
func DropEvent(t testing.TB, s *Store, id session.ID, seq session.Seq) {
	t.Helper()
	key, _ := sectionOf(t, s, id, seq)
	if err := s.db.Delete(key, pebble.Sync); err != nil {
		t.Fatalf("drop event: %v", err)
	}
}

// TamperEvent changes the time in an event's line.
func TamperEvent(t testing.TB, s *Store, id session.ID, seq session.Seq) {
	t.Helper()
	_, p := sectionOf(t, s, id, seq)
	value, closer, err := s.db.Get(recordKey(p.space, p.streamSeq))
	if err != nil {
		t.Fatalf("tamper with event: %v", err)
	}
	is := fmt.Sprintf(`"seq":%d,"time":`, seq)
	changed := bytes.Replace(value, []byte(is+"1"), []byte(is+"2"), 1)
	if bytes.Equal(changed, value) {
		t.Fatal("tamper with event: nothing to change")
	}
	if err := errors.Join(closer.Close(), s.db.Set(recordKey(p.space, p.streamSeq), changed, pebble.Sync)); err != nil {
		t.Fatalf("tamper with event: %v", err)
	}
}

// sectionOf finds what is kept of the section that an event is in.
func sectionOf(t testing.TB, s *Store, id session.ID, seq session.Seq) (key []byte, p placed) {
	t.Helper()
	err := scan(s.db, ofSession(spaceEvent, id), eventKey(id, seq), func(at, value []byte) (err error) {
		key = bytes.Clone(at)
		if p, err = decodePlaced(id, session.Seq(lastUint64(at)), value); err == nil {
			err = errStop
		}
		return err
	})
	if err != nil || key == nil {
		t.Fatalf("find event %d of %s: %v", seq, id, err)
	}
	return key, p
}

// KeepEventsAsFormat1 rewrites what is kept of events as builds of store format 1
// kept it: each event by itself.
func KeepEventsAsFormat1(t testing.TB, s *Store) {
	t.Helper()
	b := s.db.NewBatch()
	defer b.Close()
	err := scan(s.db, []byte{spaceEvent}, nil, func(key, value []byte) error {
		id, _, _ := bytes.Cut(key[1:], []byte{0})
		sec, err := sectionAt(s.db, session.ID(id), session.Seq(lastUint64(key)), value)
		if err != nil {
			return err
		}
		for _, e := range sec.Events {
			v := append(append(e.Link[:], string(e.Class)+"\x00"...), e.Line...)
			err = errors.Join(err, b.Set(eventKey(e.Session, e.Seq), v, nil))
		}
		return err
	})
	if err = errors.Join(err, b.Commit(pebble.Sync)); err != nil {
		t.Fatalf("keep events as format 1: %v", err)
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
