package sessionstore

import (
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A journal goes back over journalBytes of batches, no matter how they are cut,
// and over not much more.
func TestJournalGoesBackOverAllLogs(t *testing.T) {
	t.Parallel()
	for _, size := range []uint64{1 << 20, journalBytes - 1, journalBytes, journalBytes + 1} {
		var j, dropped journal
		for n := range 4*journalBytes/size + 4 {
			j, dropped = j.next(n, n+1, size)
			if err := j.check(Watermark{Seq: n + 1}); err != nil {
				t.Fatalf("batches of %d bytes: after %d: %v", size, n, err)
			}
			if len(dropped) > 0 && dropped[len(dropped)-1].to != j[0].from {
				t.Fatalf("batches of %d bytes: dropped up to %d, kept from %d", size, dropped[len(dropped)-1].to, j[0].from)
			}
			listed, all := uint64(len(j))*size, (n+1)*size
			if listed < min(all, journalBytes) || listed > journalBytes+size {
				t.Fatalf("batches of %d bytes: %d of %d bytes are listed, want %d", size, listed, all, journalBytes)
			}
		}
	}
}

// Whatever is taken out of a journal but its beginning is missed, and so is its
// beginning, because the last batch says where it was.
func TestJournalMissesWhatIsTakenOut(t *testing.T) {
	t.Parallel()
	var j journal
	for n := range uint64(6) {
		j, _ = j.next(3*n, 3*n+3, 1)
	}
	mark := Watermark{Seq: 18}
	if err := j.check(mark); err != nil {
		t.Fatal(err)
	}
	for from := range j {
		for to := from + 1; to <= len(j); to++ {
			if err := slices.Delete(slices.Clone(j), from, to).check(mark); err == nil {
				t.Errorf("batches %d to %d are not missed", from, to)
			}
		}
	}
}

// A journal that began empty, as that of an older store or of one whose partition
// held nothing, is at each moment what its keys hold: its first batch has the key of
// the empty stretch.
func TestJournalThatBeganEmptyIsWhatItsKeysHold(t *testing.T) {
	t.Parallel()
	const at, size = 7, journalBytes/4 + 1
	j := journal{{from: at, to: at, oldest: at}}
	keys := map[uint64]stretch{at: j[0]}
	for n := range uint64(12) {
		var dropped journal
		j, dropped = j.next(at+n, at+n+1, size)
		for _, e := range dropped {
			delete(keys, e.from)
		}
		keys[at+n] = j[len(j)-1]
		var held journal
		for _, from := range slices.Sorted(maps.Keys(keys)) {
			held = append(held, keys[from])
		}
		if err := held.check(Watermark{Seq: at + n + 1}); err != nil || !slices.Equal(held, j) {
			t.Errorf("after %d batches the keys hold %v, %v, want %v", n+1, held, err, j)
		}
	}
}

// A store of the format before journals is read, and has one from then on.
func TestStoreOfFormat1BeginsJournals(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	s, err := Open(Config{Dir: "mirror", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	b := s.db.NewBatch()
	mark := Watermark{Incarnation: "one", Seq: 7, Hash: "h"}
	for value, key := range map[string][]byte{"1": formatKey(), `{"incarnation":"one","seq":7,"hash":"h"}`: watermarkKey(3)} {
		if err := b.Set(key, []byte(value), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(pebble.Sync); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(Config{Dir: "mirror", FS: fs}); err != nil {
			t.Fatal(err)
		}
		p, err := s.partition(3)
		if err != nil || p.mark != mark || len(p.journal) != 1 || p.journal[0].to != 7 {
			t.Errorf("watermark %v, journal %v, %v, want one that ends at 7", p.mark, p.journal, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
