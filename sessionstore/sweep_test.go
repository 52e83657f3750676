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
