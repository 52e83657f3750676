package sessionstore_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/sessionstore"
)

// shortError says that a store holds, without a word, not what was written.
type shortError struct{ what string }

func (e *shortError) Error() string { return "silently another mirror: " + e.what }

func short(format string, args ...any) error { return &shortError{fmt.Sprintf(format, args...)} }

// generated are the records of a random tree, the same in every run.
func generated(t sessiontest.T, seed uint64, steps int) []session.Raw {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	return sessiontest.Generate(t, r.IntN, steps).Records
}

// crashes is a file system that crashes at each of its write operations: before
// every one it leaves what the disk may hold then, without any of what was not
// synced, with all of it, and with some. Every different image is looked at.
type crashes struct {
	t     *testing.T
	mem   *vfs.MemFS
	check func(clone *vfs.MemFS, applied, synced uint64)

	begun, synced atomic.Uint64 // records given to the store, records made durable

	mu    sync.Mutex // guards what follows
	dice  *rand.Rand
	seen  map[[sha256.Size]byte]bool
	kinds map[string]int // write operations, by kind of file
}

func newCrashes(t *testing.T, seed uint64, check func(clone *vfs.MemFS, applied, synced uint64)) *crashes {
	t.Helper()
	return &crashes{
		t: t, mem: vfs.NewCrashableMem(), check: check, dice: rand.New(rand.NewPCG(seed, 0)),
		seen: map[[sha256.Size]byte]bool{}, kinds: map[string]int{},
	}
}

// fs is what the store writes to.
func (c *crashes) fs() vfs.FS {
	return watched(c.mem, func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			c.crash(op.Path)
		}
		return nil
	})
}

// watched is a file system that asks before each operation. An old log is used
// again by its name alone: the memory's own way locks twice, and a clone that is
// made meanwhile would wait for ever.
func watched(mem *vfs.MemFS, ask func(errorfs.Op) error) vfs.FS {
	return reusing{errorfs.Wrap(mem, errorfs.InjectorFunc(ask))}
}

type reusing struct{ vfs.FS }

func (r reusing) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := r.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return r.OpenReadWrite(newname, category)
}

// crash leaves the images of one moment and has each new one looked at.
func (c *crashes) crash(path string) {
	synced := c.synced.Load()
	var clones []*vfs.MemFS
	c.mu.Lock()
	c.kinds[kindOf(path)]++
	for _, percent := range []int{0, 100, 20 + 20*c.dice.IntN(4)} {
		clone := c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: c.dice})
		if image := imageOf(c.t, clone); !c.seen[image] {
			c.seen[image] = true
			clones = append(clones, clone)
		}
	}
	c.mu.Unlock()
	for _, clone := range clones {
		c.check(clone, c.begun.Load(), synced)
	}
}

// kindOf says what a file of Pebble's is.
func kindOf(path string) string {
	name := filepath.Base(path)
	if ext := filepath.Ext(name); ext == ".log" || ext == ".sst" {
		return ext[1:]
	}
	kind, _, _ := strings.Cut(name, "-")
	kind, _, _ = strings.Cut(kind, ".")
	return kind
}

// imageOf tells one content of a file system from another.
func imageOf(t *testing.T, fs vfs.FS) (sum [sha256.Size]byte) {
	t.Helper()
	names, err := fs.List("mirror")
	if err != nil {
		names = nil // before it was made
	}
	slices.Sort(names)
	h := sha256.New()
	for _, name := range names {
		content := contentOf(t, fs, filepath.Join("mirror", name))
		fmt.Fprintf(h, "%s %d\n", name, len(content))
		h.Write(content)
	}
	h.Sum(sum[:0])
	return sum
}

func contentOf(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return content
}

// mirrorThrough mirrors records in random batches onto a file system, with a sync
// now and then, until the memtables were rolled and the tables compacted.
func (c *crashes) mirrorThrough(raws []session.Raw, batch func(s *sessionstore.Store, raws []session.Raw)) *pebble.Metrics {
	c.t.Helper()
	s, err := sessionstore.Open(sessionstore.Tuned(sessionstore.Config{Dir: "mirror", FS: c.fs()}, smallTables))
	if err != nil {
		c.t.Fatal(err)
	}
	dice := rand.New(rand.NewPCG(2, 0))
	for at := 0; at < len(raws); {
		next := min(len(raws), at+1+dice.IntN(4))
		c.begun.Store(uint64(next))
		batch(s, raws[at:next])
		at = next
		if dice.IntN(5) > 0 {
			sessionstore.Sync(c.t, s)
			c.synced.Store(uint64(at))
		}
	}
	sessionstore.Flush(c.t, s)
	sessionstore.Compact(c.t, s)
	c.synced.Store(uint64(len(raws)))
	m := sessionstore.Metrics(s)
	if err := s.Close(); err != nil {
		c.t.Errorf("close: %v", err)
	}
	return m
}

// TestEveryCrashLeavesAPrefix crashes at every write, sync, rename and removal of
// a run that rolls memtables and compacts. What a crash leaves opens, holds byte
// for byte what a mirror of just the records up to its watermark holds, nothing
// that was synced is missing, and it catches up to the same end.
func TestEveryCrashLeavesAPrefix(t *testing.T) {
	t.Parallel()
	o := newOracle(t, troubled(t, 3, 70))
	var mu sync.Mutex
	images, reached := 0, map[uint64]bool{}
	c := newCrashes(t, 1, func(clone *vfs.MemFS, applied, synced uint64) {
		at := afterCrash(t, clone, o, applied, synced)
		mu.Lock()
		defer mu.Unlock()
		images++
		reached[at] = true
	})
	m := c.mirrorThrough(o.raws, func(s *sessionstore.Store, raws []session.Raw) { apply(t, s, raws) })
	t.Logf("crashes left %d images at %d watermarks of %d records; operations %v; %d flushes, %d compactions",
		images, len(reached), len(o.raws), c.kinds, m.Flush.Count, m.Compact.Count)
	if images < 100 || len(reached) < 15 {
		t.Errorf("crashes left %d images at %d watermarks, want 100 and 15", images, len(reached))
	}
	if m.Flush.Count < 3 || m.Compact.Count < 2 {
		t.Errorf("%d flushes and %d compactions, the run is too short", m.Flush.Count, m.Compact.Count)
	}
	for kind, floor := range map[string]int{"log": 30, "sst": 20, "MANIFEST": 10, "marker": 1} {
		if c.kinds[kind] < floor {
			t.Errorf("%d operations on %s files, want %d", c.kinds[kind], kind, floor)
		}
	}
}

// TestCrashesFindATornCommit commits each watermark by itself, in front of what it
// speaks of, and wants the crashes to leave a mirror that lacks something.
func TestCrashesFindATornCommit(t *testing.T) {
	t.Parallel()
	o := newOracle(t, troubled(t, 3, 70)[:20])
	var torn atomic.Int64
	c := newCrashes(t, 1, func(clone *vfs.MemFS, _, _ uint64) {
		s, err := sessionstore.Open(sessionstore.Config{Dir: "mirror", FS: clone})
		if err != nil {
			t.Errorf("open a clone: %v", err)
			return
		}
		defer s.Close()
		if _, err := o.prefix(s); err != nil {
			torn.Add(1)
		}
	})
	c.mirrorThrough(o.raws, func(s *sessionstore.Store, raws []session.Raw) {
		last := raws[len(raws)-1]
		mark := sessionstore.Watermark{Incarnation: incarnation, Seq: last.StreamSeq, Hash: sessionstore.HashOf(last)}
		if err := sessionstore.PutWatermark(s, 0, raws[0].StreamSeq-1, mark); err != nil {
			t.Fatal(err)
		}
		sessionstore.Sync(t, s)
		apply(t, s, raws)
	})
	if torn.Load() == 0 {
		t.Error("no crash left a watermark without its records")
	}
}

// afterCrash opens a clone, holds it to a prefix that has what was synced, and
// mirrors the rest, a part of it again. It returns the watermark that the crash
// left.
func afterCrash(t *testing.T, fs vfs.FS, o *oracle, applied, synced uint64) uint64 {
	t.Helper()
	s, err := sessionstore.Open(sessionstore.Tuned(sessionstore.Config{Dir: "mirror", FS: fs}, smallTables))
	if err != nil {
		t.Errorf("open a clone at %d: %v", applied, err)
		return 0
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("close a clone: %v", err)
		}
	}()
	mark, err := o.prefix(s)
	if err != nil {
		t.Errorf("after a crash at %d: %v", applied, err)
	}
	if mark < synced || mark > applied {
		t.Errorf("watermark %d after a crash, applied %d, synced %d", mark, applied, synced)
	}
	rest := o.raws[mark-min(mark, 2):]
	for _, raws := range [][]session.Raw{rest[:len(rest)/2], rest[len(rest)/2:]} {
		if err := s.Apply(0, incarnation, raws); err != nil {
			t.Errorf("go on from %d: %v", mark, err)
		}
	}
	if end, err := o.prefix(s); err != nil || end != o.end() {
		t.Errorf("gone on from %d to %d of %d: %v", mark, end, o.end(), err)
	}
	return mark
}

func TestReadErrorsAreNotShorterLogs(t *testing.T) {
	t.Parallel()
	raws := generated(t, 3, 30)
	o := newOracle(t, raws)
	mem := vfs.NewMem()
	s := open(t, sessionstore.Config{Dir: "mirror", FS: mem})
	apply(t, s, raws)
	sessionstore.Flush(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	told, passed := 0, false
	for at := int32(0); !passed && at < 1000; at++ {
		err := openDamaged(errorfs.Wrap(mem, errorfs.ErrInjected.If(errorfs.And(errorfs.Reads, errorfs.OnIndex(at)))), "mirror", o)
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

// openDamaged is nil if a store opens and holds a prefix, a *shortError if it
// opens, says nothing and holds something else.
func openDamaged(fs vfs.FS, dir string, o *oracle) (err error) {
	s, err := sessionstore.Open(sessionstore.Config{Dir: dir, FS: fs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	_, err = o.prefix(s)
	return err
}
