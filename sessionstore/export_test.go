package sessionstore

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/entail-fleet/entail/session"
)

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

// Flush writes what is in memory to tables.
func Flush(t testing.TB, s *Store) {
	t.Helper()
	if err := s.db.Flush(); err != nil {
		t.Fatalf("flush: %v", err)
	}
}

// Sync makes durable what was applied.
func Sync(t testing.TB, s *Store) {
	t.Helper()
	if err := s.sync(); err != nil {
		t.Fatalf("sync: %v", err)
	}
}
