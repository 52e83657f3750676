package sessionstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/sessionstore"
)

// shortError says that a store holds, without a word, not what was written.
type shortError struct{ what string }

func (e *shortError) Error() string { return "silently another mirror: " + e.what }

func short(format string, args ...any) error { return &shortError{fmt.Sprintf(format, args...)} }

// isPrefix holds a store to what a crash may leave: the watermark names a record
// that was applied, and everything held is what a mirror that was fed up to
// there holds, no more and no less. It returns the first difference.
func isPrefix(s *sessionstore.Store, raws []session.Raw) error {
	mark, _ := s.Watermark(0)
	if mark.Seq > uint64(len(raws)) {
		return short("watermark %d is beyond what was applied", mark.Seq)
	}
	want := sessiontest.Replay(raws[:mark.Seq])
	all, err := s.Sessions(sessionstore.ListOptions{})
	if err != nil {
		return err
	}
	if len(all) != len(want.Chains) {
		return short("%d sessions at watermark %d, want %d", len(all), mark.Seq, len(want.Chains))
	}
	for _, e := range all {
		c := want.Chains[e.ID]
		if c == nil || e.Tail != c.Tail() || e.Voids != c.Voids() {
			return short("session %s at watermark %d: tail %d, voids %d", e.ID, mark.Seq, e.Tail, e.Voids)
		}
		if diff := cmp.Diff(c.State(), e.State); diff != "" {
			return short("state of %s at watermark %d (-fold +mirror):\n%s", e.ID, mark.Seq, diff)
		}
		if err := holds(s, e.ID, raws[:mark.Seq], logOf(want, e.ID)); err != nil {
			return fmt.Errorf("%s at watermark %d: %w", e.ID, mark.Seq, err)
		}
	}
	return nil
}

// holds compares a session's events and records with what was written.
func holds(s *sessionstore.Store, id session.ID, raws []session.Raw, log []session.Event) error {
	n := 0
	err := s.Events(id, 0, 0, func(e session.Event) error {
		if n >= len(log) || e.Link != log[n].Link {
			return short("event %d is not the one written", n)
		}
		n++
		return nil
	})
	if err != nil {
		return err
	}
	if n != len(log) {
		return short("%d events, want %d", n, len(log))
	}
	var want []uint64 // of its own space, and its genesis, not a second copy of that
	born := false
	for _, raw := range raws {
		genesis := raw.Address.Session == id && raw.Address.Class == session.ClassGenesis
		if raw.Address.Space() == id || (genesis && !born) {
			want = append(want, raw.StreamSeq)
		}
		born = born || genesis
	}
	var got []uint64
	err = s.Records(id, func(raw session.Raw) error {
		got = append(got, raw.StreamSeq)
		return nil
	})
	if diff := cmp.Diff(want, got); err == nil && diff != "" {
		err = short("records (-written +mirror):\n%s", diff)
	}
	return err
}

// generated are the records of a random tree, the same in every run.
func generated(t sessiontest.T, seed uint64, steps int) []session.Raw {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	return sessiontest.Generate(t, r.IntN, steps).Records
}

func TestEveryCrashLeavesAPrefix(t *testing.T) {
	t.Parallel()
	raws := generated(t, 1, 180)
	fs := vfs.NewCrashableMem()
	s, err := sessionstore.Open(sessionstore.Config{Dir: "mirror", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	dice := rand.New(rand.NewPCG(2, 0))
	var synced uint64
	reached := make(map[uint64]bool)
	for at := 0; at < len(raws); {
		next := min(len(raws), at+1+dice.IntN(8))
		apply(t, s, raws[at:next])
		at = next
		switch dice.IntN(8) {
		case 0:
			sessionstore.Sync(t, s)
			synced = uint64(at)
		case 1:
			sessionstore.Flush(t, s)
			synced = uint64(at)
		}
		for _, percent := range []int{0, 50, 100} {
			clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: dice})
			reached[afterCrash(t, clone, raws, at, synced)] = true
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	t.Logf("crashes left %d different watermarks of %d records", len(reached), len(raws))
	if len(reached) < 10 {
		t.Errorf("crashes left %d different watermarks, the test crashes too late", len(reached))
	}
}

// afterCrash opens a clone, holds it to a prefix that has what was synced, and
// goes on mirroring. It returns the watermark that the crash left.
func afterCrash(t *testing.T, fs vfs.FS, raws []session.Raw, applied int, synced uint64) uint64 {
	t.Helper()
	s, err := sessionstore.Open(sessionstore.Config{Dir: "mirror", FS: fs})
	if err != nil {
		t.Fatalf("open a clone at %d: %v", applied, err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("close a clone: %v", err)
		}
	}()
	mark, _ := s.Watermark(0)
	if mark.Seq < synced || mark.Seq > uint64(applied) {
		t.Errorf("watermark %d after a crash, applied %d, synced %d", mark.Seq, applied, synced)
	}
	if err := isPrefix(s, raws); err != nil {
		t.Errorf("after a crash: %v", err)
	}
	apply(t, s, raws[mark.Seq:min(len(raws), applied+5)])
	if err := isPrefix(s, raws); err != nil {
		t.Errorf("after going on: %v", err)
	}
	return mark.Seq
}

func TestReadErrorsAreNotShorterLogs(t *testing.T) {
	t.Parallel()
	raws := generated(t, 3, 30)
	mem := vfs.NewMem()
	s := open(t, sessionstore.Config{Dir: "mirror", FS: mem})
	apply(t, s, raws)
	sessionstore.Flush(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	told, passed := 0, false
	for at := int32(0); !passed && at < 1000; at++ {
		err := openDamaged(errorfs.Wrap(mem, errorfs.ErrInjected.If(errorfs.And(errorfs.Reads, errorfs.OnIndex(at)))), "mirror", raws)
		if _, short := errors.AsType[*shortError](err); short {
			t.Errorf("with read %d failing: %v", at, err)
		}
		if passed = err == nil; !passed { // there are fewer reads than at
			told++
		}
	}
	if told < 10 || !passed {
		t.Errorf("%d failing reads were told, one run without any: %v", told, passed)
	}
}

// TestDamagedFilesAreNeverAShorterMirror flips bits in each file of a store and
// cuts each short. Opening or reading must fail, unless what is left is a prefix:
// its watermark and content agree, and the feed brings the rest again.
func TestDamagedFilesAreNeverAShorterMirror(t *testing.T) {
	t.Parallel()
	raws := generated(t, 4, 60)
	dir := t.TempDir()
	s := open(t, sessionstore.Config{Dir: dir})
	apply(t, s, raws[:len(raws)/2])
	sessionstore.Flush(t, s)
	apply(t, s, raws[len(raws)/2:len(raws)*3/4])
	sessionstore.Flush(t, s)
	apply(t, s, raws[len(raws)*3/4:])
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	for _, f := range files {
		if f.Name() == "LOCK" || strings.HasPrefix(f.Name(), "OPTIONS") || strings.HasPrefix(f.Name(), "marker") {
			continue // they hold nothing that was mirrored
		}
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for name, damaged := range damages(content) {
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(copied, f.Name()), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			err := openDamaged(vfs.Default, copied, raws)
			if _, short := errors.AsType[*shortError](err); short {
				t.Errorf("%s with %s: %v", f.Name(), name, err)
			}
			if err != nil {
				told[filepath.Ext(f.Name())]++
			}
		}
	}
	if told[".sst"] < 10 {
		t.Errorf("damage was told %v times, want that of tables each time", told)
	}
}

// openDamaged is nil if a store opens and holds a prefix, a *shortError if it
// opens, says nothing and holds something else.
func openDamaged(fs vfs.FS, dir string, raws []session.Raw) (err error) {
	s, err := sessionstore.Open(sessionstore.Config{Dir: dir, FS: fs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return isPrefix(s, raws)
}

// damages are copies of a file with one bit flipped or the end cut off.
func damages(content []byte) map[string][]byte {
	out := make(map[string][]byte)
	const places = 8
	for i := range places {
		at := len(content) * i / places
		if at >= len(content) {
			continue
		}
		flipped := append([]byte(nil), content...)
		flipped[at] ^= 4
		out[fmt.Sprintf("bit %d flipped", at)] = flipped
		out[fmt.Sprintf("%d bytes left", at)] = content[:at]
	}
	return out
}
