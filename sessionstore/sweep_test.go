package sessionstore_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

// notice tells a parent how the last turn of a child ended.
func (tp *tape) notice(parent, child session.ID) {
	tp.t.Helper()
	end := tp.states[child].LastEnd
	m := tp.message(session.FromSettled)
	m.ID = session.NoticeID(child, end.Turn, end.Seq)
	m.Source = session.MessageSource{
		Kind: session.FromSettled, SenderSessionID: child, Turn: end.Turn, Seq: end.Seq, Outcome: "completed",
	}
	tp.add(parent, session.ClassInbox, m)
}

func TestOwingListsEndsThatNoParentWasToldOf(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	root := tp.root()
	child := tp.delegate(root, session.Spawn)
	s := open(t, sessionstore.Config{})
	step := func(name string, want ...session.ID) {
		t.Helper()
		apply(t, s, tp.raws)
		got, err := s.Owing(0)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: Owing = %v, %v, want %v", name, got, err, want)
		}
	}
	step("the child has run no turn")
	tp.turn(child)
	step("its turn has ended", child)
	tp.notice(root, child)
	step("its parent was told")
	tp.turn2(child)
	step("another turn has ended", child)
	tp.notice(root, child)
	tp.add(child, session.ClassInbox, &session.End{Outcome: session.OutcomeCompleted, By: person()})
	step("it has ended and holds its slot", child)
	tp.add(root, session.ClassInbox, &session.Closed{ID: "c", Child: child, By: person()})
	step("its slot is free")
}

// What is owed is listed as long as it is, however often somebody looks, however the
// records come, and by a store that was opened again: a parent that is stopped is
// told nothing, and once it is released all that its children did meanwhile.
func TestOwingIsListedUntilItIsTold(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	root := tp.root()
	first, second := tp.delegate(root, session.Spawn), tp.delegate(root, session.Spawn)
	dir := t.TempDir()
	s := open(t, sessionstore.Config{Dir: dir})
	step := func(name string, want ...session.ID) {
		t.Helper()
		apply(t, s, tp.raws)
		for range 2 {
			got, err := s.Owing(0)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: Owing = %v, %v, want %v", name, got, err, want)
			}
		}
	}
	step("nobody has run a turn")
	tp.turn(second)
	step("the second has ended one", second)
	tp.turn(first)
	step("the first has, too", first, second)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, sessionstore.Config{Dir: dir})
	step("opened again", first, second)
	tp.notice(root, second)
	step("one was told", first)
	bad := bogus(tp, root, session.ClassPolicy).StreamSeq
	step("their parent is stopped")
	tp.add(root, session.ClassPolicy, &session.Release{
		Skip: []uint64{bad}, Seq: tp.states[root].Next, Link: tp.states[root].Link, Reason: "seen", By: person(),
	})
	step("their parent is released", first)
	tp.notice(root, first)
	step("both were told")
}

// A session that is stopped misses what its children do. Once it is released that is
// found, also when it owes its own parent something all the while.
func TestOwingFindsWhatHappenedBelowAStoppedSession(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	root := tp.root()
	middle := tp.delegate(root, session.Spawn)
	leaf := tp.delegate(middle, session.Spawn)
	s := open(t, sessionstore.Config{})
	step := func(name string, want ...session.ID) {
		t.Helper()
		apply(t, s, tp.raws)
		got, err := s.Owing(0)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: Owing = %v, %v, want %v", name, got, err, want)
		}
	}
	step("the middle one has ended the turn in which it delegated", middle)
	bad := bogus(tp, middle, session.ClassPolicy).StreamSeq
	tp.turn(leaf)
	step("the middle one is stopped, its child has ended a turn", middle)
	tp.add(middle, session.ClassPolicy, &session.Release{
		Skip: []uint64{bad}, Seq: tp.states[middle].Next, Link: tp.states[middle].Link, Reason: "seen", By: person(),
	})
	step("it is released", middle, leaf)
}

// Parents that wait for children cost a sweep nothing once it has looked at them.
// Alone, because allocations are counted.
func TestOwingDoesNotReadParentsThatWait(t *testing.T) {
	reads := func(parents int) float64 {
		tp := newTape(t)
		for range parents {
			tp.delegate(tp.root(), session.Spawn)
		}
		s := open(t, sessionstore.Config{})
		apply(t, s, tp.raws)
		look := func() {
			if got, err := s.Owing(0); err != nil || len(got) > 0 {
				t.Fatalf("Owing = %v, %v, want none", got, err)
			}
		}
		look() // at all of them
		return testing.AllocsPerRun(5, look)
	}
	if few, many := reads(10), reads(200); many > 2*few+20 {
		t.Errorf("a look allocates %.0f objects with 10 parents that wait, %.0f with 200", few, many)
	}
}

func TestHaltedSaysWhatAReleaseMustName(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id := tp.root()
	tp.turn(id)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	if _, err := s.Halted(id); !errors.Is(err, sessionstore.ErrNotHalted) {
		t.Errorf("Halted of a running session = %v, want ErrNotHalted", err)
	}
	want := sessionstore.Halted{
		State: tp.states[id],
		Since: []uint64{bogus(tp, id, session.ClassPolicy).StreamSeq, bogus(tp, id, session.ClassTurn).StreamSeq},
		Tail:  uint64(len(tp.raws)),
	}
	apply(t, s, tp.raws)
	got, err := s.Halted(id)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatalf("Halted (-want +got), %v:\n%s", err, diff)
	}
	v, err := sessionstore.Releases{Store: s}.View(t.Context(), id, want.Tail)
	if err != nil || v.Tail != want.Tail || v.State.Link != want.State.Link {
		t.Errorf("View for a release: tail %d, %v, want %d", v.Tail, err, want.Tail)
	}
	tp.add(id, session.ClassPolicy, &session.Release{
		Skip: got.Since, Seq: got.State.Next, Link: got.State.Link, Reason: "seen", By: person(),
	})
	apply(t, s, tp.raws)
	if _, err := s.View(t.Context(), id, uint64(len(tp.raws))); err != nil {
		t.Errorf("View after the release = %v", err)
	}
	if _, err := (sessionstore.Releases{Store: s}).View(t.Context(), "x", 0); !errors.Is(err, session.ErrBadID) {
		t.Errorf("View of a bad id = %v, want ErrBadID", err)
	}
}
