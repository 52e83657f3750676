//go:build !race

// Built with the race detector Pebble checks what it reads and writes in more ways,
// some of them by chance: other damage is told there than in what is shipped.

package sessionstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

// mirrored is a store that has rolled its memtables, and every size that one of
// its files had while it was written: where a record of Pebble's ends.
type mirrored struct {
	image
	sizes map[string]map[int]bool
}

// mirrorToImage mirrors records in small batches and returns what a crash leaves
// at the end. While held is there flushes wait, so that there are many logs.
func mirrorToImage(t *testing.T, raws []session.Raw, held chan struct{}) mirrored {
	t.Helper()
	mem := vfs.NewCrashableMem()
	out := mirrored{sizes: map[string]map[int]bool{}}
	fs := watched(mem, func(op errorfs.Op) error {
		if held != nil && op.Kind == errorfs.OpCreate && kindOf(op.Path) == "sst" {
			<-held
		}
		return nil
	})
	s, err := sessionstore.Open(sessionstore.Tuned(sessionstore.Config{Dir: "mirror", FS: fs}, func(o *pebble.Options) {
		smallTables(o)
		o.MemTableSize, o.MemTableStopWritesThreshold = 32<<10, 20
		o.DisableAutomaticCompactions = true
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range raws {
		apply(t, s, []session.Raw{raw})
		sessionstore.Sync(t, s)
		for name, content := range imageIn(t, mem.CrashClone(vfs.CrashCloneCfg{})) {
			if out.sizes[name] == nil {
				out.sizes[name] = map[int]bool{}
			}
			out.sizes[name][len(content)] = true
		}
	}
	out.image = imageIn(t, mem.CrashClone(vfs.CrashCloneCfg{}))
	if held != nil {
		close(held)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	return out
}

// cuts are the lengths to cut a file at: those that it had, and many others.
func (m mirrored) cuts(name string, others int) []int {
	size := len(m.image[name])
	at := maps.Clone(m.sizes[name])
	if at == nil {
		at = map[int]bool{}
	}
	for i := range others {
		at[size*i/others] = true
	}
	delete(at, size)
	return slices.Sorted(maps.Keys(at))
}

// damage is one way in which an image can be broken.
type damage struct {
	file, what string
	image      image
}

// damages are the image without each file, with each cut short and with bits
// turned over in each.
func (m mirrored) damages(places int) []damage {
	var out []damage
	for _, name := range slices.Sorted(maps.Keys(m.image)) {
		if name == "LOCK" {
			continue
		}
		content := m.image[name]
		add := func(what string, content []byte) {
			out = append(out, damage{name, what, m.with(name, content)})
		}
		add("taken away", nil)
		for _, n := range m.cuts(name, places) {
			add(fmt.Sprintf("%d of %d bytes left", n, len(content)), append([]byte{}, content[:n]...))
		}
		for i := range min(places, len(content)) {
			at := len(content) * i / min(places, len(content))
			flipped := slices.Clone(content)
			flipped[at] ^= 1 << (i % 8)
			add(fmt.Sprintf("bit %d of byte %d turned over", i%8, at), flipped)
		}
	}
	return out
}

// outcome is what a store makes of a damaged image.
type outcome int

const (
	told    outcome = iota // it refuses to open, or to be read
	shorter                // it holds an earlier prefix and says so
	whole                  // it holds everything: the damage is not in what was mirrored
)

// broken opens a damaged image, asks all that can be asked, reads every key and
// mirrors the rest.
func broken(t *testing.T, im image, o *oracle, want answers) (outcome, error) {
	t.Helper()
	s, err := sessionstore.Open(sessionstore.Config{Dir: "mirror", FS: im.fs(t)})
	if err != nil {
		return told, err
	}
	defer s.Close() // what is damaged cannot be tidied
	if mark, _ := s.Watermark(0); mark.Seq == o.end() {
		if err := want.hold(ask(t, s, o.raws)); err != nil {
			return told, err
		}
	}
	at, err := o.prefix(s)
	if err != nil {
		return told, err
	}
	if at == o.end() {
		return whole, nil
	}
	if err := s.Apply(0, incarnation, o.raws[at:]); err != nil {
		return told, err
	}
	if _, err := o.prefix(s); err != nil {
		return told, fmt.Errorf("mirrored on from %d: %w", at, err)
	}
	return shorter, nil
}

// answers are what a store says to each question: text, or an error.
type answers map[string]any

// hold compares what a damaged store says with what it should. An error is as
// good an answer, if it tells of the damage or of what the damage stopped.
func (want answers) hold(got answers) error {
	for question, answer := range got {
		if err, refused := answer.(error); refused {
			if _, wanted := want[question].(error); !wanted && !errors.Is(err, sessionstore.ErrDamaged) && !errors.Is(err, session.ErrLoss) {
				return fmt.Errorf("%s: %w, want ErrDamaged", question, err)
			}
			continue
		}
		if answer != want[question] {
			return short("%s: %v, want %v", question, answer, want[question])
		}
	}
	return nil
}

// ask asks everything of every session that records stand in the space of.
func ask(t *testing.T, s *sessionstore.Store, raws []session.Raw) answers {
	t.Helper()
	out := answers{}
	say := func(question string, v any, err error) {
		if out[question] = fmt.Sprintf("%+v", v); err != nil {
			out[question] = err
		}
	}
	all, err := s.Sessions(sessionstore.ListOptions{})
	say("list all", len(all), err)
	run, err := s.Runnable(0)
	say("runnable", run, err)
	owing, err := s.Owing(0)
	say("owing", owing, err)
	asking, err := s.Asking(0)
	say("asking", asking, err)
	ids := map[session.ID]bool{}
	for _, raw := range raws {
		if _, err := session.ParseID(string(raw.Address.Space())); err == nil {
			ids[raw.Address.Space()], ids[raw.Address.Session] = true, true
		}
	}
	for id := range ids {
		of := func(what string) string { return what + " of " + string(id) }
		e, err := s.Session(id)
		say(of("entry"), encoded(t, e), err)
		n := 0
		err = s.Events(id, 0, 0, func(e session.Event) error {
			say(of(fmt.Sprintf("event %d", e.Seq)), string(e.Line)+fmt.Sprint(e.Class, e.Link), nil)
			n++
			return nil
		})
		say(of("events"), n, err)
		n = 0
		err = s.Records(id, func(r session.Raw) error {
			say(of(fmt.Sprintf("record %d", n)), r, nil)
			n++
			return nil
		})
		say(of("records"), n, err)
		kept, err := s.Alarms(id)
		say(of("alarms"), kept, err)
		children, err := s.Children(id)
		say(of("children"), encoded(t, children), err)
		tree, err := s.Tree(id)
		say(of("tree"), encoded(t, tree), err)
		size, err := s.TreeSize(id)
		say(of("size of the tree"), size, err)
		h, err := s.Halted(id)
		say(of("halt"), encoded(t, h), err)
		p, err := s.Prefix(id, 1+e.State.Next/2)
		say(of("prefix"), encoded(t, p), err)
		say(of("own subjects"), nil, s.Empty(t.Context(), id, 0))
	}
	for id := range ids {
		lookUp(t, s, id, say)
	}
	return out
}

// lookUp asks a view, whose lookups have no error to give: they say that there is
// nothing, and the partition is stopped before that is acted upon.
func lookUp(t *testing.T, s *sessionstore.Store, id session.ID, say func(string, any, error)) {
	t.Helper()
	v, err := s.View(t.Context(), id, 0)
	say("view of "+string(id), encoded(t, v.State), err)
	if err != nil {
		return
	}
	for seq := range v.State.Next {
		link, known := v.Link(seq)
		has := v.Has(fmt.Sprintf("m%d", seq))
		_, err := s.View(t.Context(), id, 0)
		say(fmt.Sprintf("link %d and message of %s", seq, id), fmt.Sprint(link, known, has), err)
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("encode %T: %v", v, err)
	}
	return string(text)
}

// TestDamagedFilesAreNeverAShorterMirror takes away each file of a store, cuts it
// at many lengths, the ends of Pebble's own records among them, and turns bits
// over in it. The store then refuses, with the way out, before it gives another
// answer, or it holds a prefix, says so by its watermark and is given the rest
// again. It never holds less than its watermark says.
func TestDamagedFilesAreNeverAShorterMirror(t *testing.T) {
	t.Parallel()
	o := newOracle(t, troubled(t, 4, 50))
	// At least so much damage of each kind of file must have been told, or have
	// left a shorter mirror. How many tables there are is up to compaction: one at least.
	for name, floors := range map[string]map[string][3]int{
		"flushed":     {"sst": {told: 20}, "MANIFEST": {told: 8}, "OPTIONS": {told: 3}, "log": {shorter: 3}},
		"not flushed": {"log": {told: 30, shorter: 3}, "MANIFEST": {told: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var held chan struct{}
			if name == "not flushed" {
				held = make(chan struct{})
			}
			m := mirrorToImage(t, o.raws, held)
			want := askWhole(t, o)
			counts := map[string][3]int{}
			for _, d := range m.damages(12) {
				got, err := broken(t, d.image, o, want)
				if _, silent := errors.AsType[*shortError](err); silent {
					t.Errorf("%s with %s: %v", d.file, d.what, err)
					continue
				}
				if got == told && !errors.Is(err, sessionstore.ErrDamaged) && !errors.Is(err, session.ErrLoss) {
					t.Errorf("%s with %s: %v, want ErrDamaged", d.file, d.what, err)
				}
				n := counts[kindOf(d.file)]
				n[got]++
				counts[kindOf(d.file)] = n
			}
			t.Logf("told, shorter, whole: %v", counts)
			for kind, floor := range floors {
				for what, n := range floor {
					if counts[kind][what] < n {
						t.Errorf("%s: %v, want at least %v", kind, counts[kind], floor)
					}
				}
			}
		})
	}
}

// askWhole is what a mirror of all records answers.
func askWhole(t *testing.T, o *oracle) answers {
	t.Helper()
	s := open(t, sessionstore.Config{Dir: "whole", FS: vfs.NewMem()})
	apply(t, s, o.raws)
	return ask(t, s, o.raws)
}

// TestOnlyTheJournalFindsAHole forges the journal of stores that have a hole.
// They open then, and the comparison with a fresh mirror must notice what they
// lack.
func TestOnlyTheJournalFindsAHole(t *testing.T) {
	t.Parallel()
	o := newOracle(t, troubled(t, 4, 50))
	m := mirrorToImage(t, o.raws, make(chan struct{}))
	holes := 0
	for _, name := range slices.Sorted(maps.Keys(m.image)) {
		if kindOf(name) != "log" || len(m.sizes[name]) < 3 {
			continue
		}
		cut := m.cuts(name, 1)
		im := m.with(name, m.image[name][:cut[len(cut)/2]])
		if _, err := broken(t, im, o, nil); !errors.Is(err, sessionstore.ErrDamaged) {
			continue // the last one: the store is shorter
		}
		fs := im.fs(t)
		sessionstore.ForgeJournal(t, fs, "mirror")
		if _, silent := errors.AsType[*shortError](openDamaged(fs, "mirror", o)); !silent {
			t.Errorf("%s cut short leaves a whole mirror", name)
		}
		holes++
	}
	if holes < 2 {
		t.Errorf("%d holes, want 2", holes)
	}
}
