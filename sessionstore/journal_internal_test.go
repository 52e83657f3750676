package sessionstore

import (
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
