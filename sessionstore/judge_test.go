package sessionstore_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

func entry(t *testing.T, s *sessionstore.Store, id session.ID) sessionstore.Entry {
	t.Helper()
	e, err := s.Session(id)
	if err != nil {
		t.Fatalf("Session(%s): %v", id, err)
	}
	return e
}

// bogus plants a record that does not decode.
func bogus(tp *tape, id session.ID, class session.Class) session.Raw {
	return tp.put(session.Address{Session: id, Class: class}, map[string]string{session.HeaderFormat: "1"}, nil)
}

func TestVoidRecordsChangeNothingAndAreAlarmedOnce(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id := tp.root()
	tp.turn(id)
	attack := tp.record(id, session.ClassInbox, tp.message(session.FromUser))
	attack.Address.Class, attack.Own.Class = session.ClassTurn, session.ClassTurn
	planted := tp.plant(attack)
	empty := bogus(tp, id, session.ClassTurn)
	stale := tp.record(id, session.ClassTurn, &session.TurnStart{Turn: 2})
	stale.Epoch = 7
	old := tp.plant(stale)
	tp.turn(id)

	dir := t.TempDir()
	told := &alarms{}
	cfg := sessionstore.Config{Dir: dir, OnAlarm: told.add}
	s, err := sessionstore.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, tp.raws[:len(tp.raws)-2])
	apply(t, s, tp.raws)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	apply(t, s, tp.raws)
	agree(t, s, tp)

	want := []uint64{planted.StreamSeq, empty.StreamSeq, old.StreamSeq}
	if diff := cmp.Diff(want, told.seqs()); diff != "" {
		t.Errorf("alarms (-want +told):\n%s", diff)
	}
	if e := entry(t, s, id); e.Voids != 3 || e.Halted != nil {
		t.Errorf("entry has %d voids, halted %v, want 3, running", e.Voids, e.Halted)
	}
	kept, err := s.Alarms(id)
	if err != nil || len(kept) != 3 {
		t.Fatalf("Alarms = %v, %v, want 3", kept, err)
	}
	if k := kept[0]; k.StreamSeq != planted.StreamSeq || k.Session != id ||
		!slices.Equal(k.Types, []session.Type{session.TypeUserMessage}) || k.Writer.Instance != "w1" || k.Reason == nil {
		t.Errorf("alarm = %v", k)
	}
}

// Who wrote a void record is only a claim, in bytes of any kind. Its alarm is kept
// and read all the same (SPEC 1.4).
func TestAlarmsOfWhatIsNoTextAreKept(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id := tp.root()
	planted := tp.put(session.Address{Session: id, Class: session.ClassTurn}, map[string]string{
		session.HeaderFormat: "1", session.HeaderWriter: "work\xffer w\xfe1 i1", session.HeaderSeq: "\xff",
	}, []byte("{\"type\":\"\xff\"}\n"))
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	kept, err := s.Alarms(id)
	if err != nil || len(kept) != 1 || kept[0].StreamSeq != planted.StreamSeq || kept[0].Writer.Incarnation != "i1" || kept[0].Reason == nil {
		t.Errorf("alarms %v, %v, want one of record %d", kept, err, planted.StreamSeq)
	}
}

func TestRecordsPlantedBeforeTheGenesisAreVoid(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 512} {
		tp := newTape(t)
		root := tp.root()
		tp.turn(root)
		call := tp.call(root)
		child := session.ChildID(root, call)
		planted := bogus(tp, child, session.ClassTurn)
		r := tp.genesis(root, call, session.Spawn)
		tp.fold(root, *r.Own)
		tp.begin(*r.Birth, session.Prefix{})
		tp.plant(r)
		tp.turn(child)

		told := &alarms{}
		s := open(t, sessionstore.Config{OnAlarm: told.add})
		for chunk := range slices.Chunk(tp.raws[:planted.StreamSeq], size) {
			apply(t, s, chunk)
		}
		if _, err := s.View(t.Context(), child, planted.StreamSeq); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("View before the genesis = %v, want ErrNotFound", err)
		}
		for chunk := range slices.Chunk(tp.raws[planted.StreamSeq:planted.StreamSeq+1], size) {
			apply(t, s, chunk)
		}
		v, err := s.View(t.Context(), child, planted.StreamSeq+1)
		if err != nil || v.Tail != planted.StreamSeq {
			t.Errorf("View right after the genesis: tail %d, %v, want the planted record's %d", v.Tail, err, planted.StreamSeq)
		}
		apply(t, s, tp.raws)
		agree(t, s, tp)
		if diff := cmp.Diff([]uint64{planted.StreamSeq}, told.seqs()); diff != "" {
			t.Errorf("alarms (-want +told):\n%s", diff)
		}
	}
}

// A store of format 1 has no keys that say where records were planted. They are found
// all the same; in one of this format that lacks its keys they are missed.
func TestRecordsPlantedInAStoreOfFormat1AreVoid(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	root := tp.root()
	call := tp.call(root)
	child := session.ChildID(root, call)
	planted := bogus(tp, child, session.ClassTurn)
	genesis := tp.genesis(root, call, session.Spawn)
	tp.fold(root, *genesis.Own)
	tp.begin(*genesis.Birth, session.Prefix{})
	tp.plant(genesis)
	for name, c := range map[string]struct {
		drop func(testing.TB, *sessionstore.Store)
		want int
	}{"of format 1": {sessionstore.ToFormat1, 1}, "without its keys": {sessionstore.DropPlanted, 0}} {
		dir := t.TempDir()
		s, err := sessionstore.Open(sessionstore.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		apply(t, s, tp.raws[:planted.StreamSeq])
		c.drop(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, sessionstore.Config{Dir: dir})
		apply(t, s, tp.raws)
		if got := entry(t, s, child); got.Voids != c.want {
			t.Errorf("a store %s: %d void records, want %d", name, got.Voids, c.want)
		}
	}
}

func TestHaltedSessionIsListedAndOthersGoOn(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	bad, good := tp.root(), tp.root()
	tp.turn(bad)
	at := tp.states[bad]
	halt := bogus(tp, bad, session.ClassPolicy)
	tp.turn(good)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)

	var corrupt *session.CorruptError
	_, err := s.View(t.Context(), bad, halt.StreamSeq)
	if !errors.As(err, &corrupt) || corrupt.Session != bad || corrupt.Seq != at.Next || corrupt.StreamSeq != halt.StreamSeq {
		t.Errorf("View = %v, want stopped at seq %d, stream sequence %d", err, at.Next, halt.StreamSeq)
	}
	err = s.Events(bad, 0, 0, func(session.Event) error { return nil })
	if !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("Events = %v, want ErrCorrupt", err)
	}
	if v, err := s.View(t.Context(), good, 0); err != nil || v.State.Turn != 1 {
		t.Errorf("View of the other session = turn %d, %v, want 1", v.State.Turn, err)
	}
	all, err := s.Sessions(sessionstore.ListOptions{})
	if err != nil || len(all) != 2 || all[0].ID != bad || all[0].Halted == nil || all[0].State.Next != at.Next || all[1].Halted != nil {
		t.Errorf("Sessions = %+v, %v, want both, the first halted", all, err)
	}
	if got := records(t, s, bad); lastOf(got) != halt.StreamSeq {
		t.Errorf("Records end at %d, want the bad one at %d", lastOf(got), halt.StreamSeq)
	}
}

func TestReleaseGoesOnAfterAReopen(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id := tp.root(&session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()})
	tp.turn(id)
	skip := []uint64{
		bogus(tp, id, session.ClassPolicy).StreamSeq,
		bogus(tp, id, session.ClassTurn).StreamSeq,
	}
	// A release that leaves one out counts for nothing and must be named too.
	short := tp.record(id, session.ClassPolicy, &session.Release{
		Skip: skip[:1], Seq: tp.states[id].Next, Link: tp.states[id].Link, Reason: "seen", By: person(),
	})
	skip = append(skip, tp.plant(short).StreamSeq)
	halted := len(tp.raws)
	tp.add(id, session.ClassPolicy, &session.Release{
		Skip: skip, Seq: tp.states[id].Next, Link: tp.states[id].Link, Reason: "seen", By: person(),
	})
	tp.turn2(id)

	dir := t.TempDir()
	told := &alarms{}
	for i := range tp.raws {
		s, err := sessionstore.Open(sessionstore.Config{Dir: dir, OnAlarm: told.add})
		if err != nil {
			t.Fatal(err)
		}
		apply(t, s, tp.raws[i:i+1])
		if i+1 == halted {
			if _, err := s.View(t.Context(), id, 0); !errors.Is(err, session.ErrCorrupt) {
				t.Errorf("View after the wrong release = %v, want ErrCorrupt", err)
			}
			if run, err := s.Runnable(0); err != nil || len(run) != 0 {
				t.Errorf("Runnable = %v, %v, want no stopped session", run, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, sessionstore.Config{Dir: dir})
	agree(t, s, tp)
	e := entry(t, s, id)
	if e.Halted != nil || e.Voids != 0 || e.State.Knobs.Sandbox.Value != session.ReadOnly {
		t.Errorf("released: halted %v, voids %d, sandbox %q, want running, 0, read-only", e.Halted, e.Voids, e.State.Knobs.Sandbox.Value)
	}
}

// turn2 is a turn in a session that has had one.
func (tp *tape) turn2(id session.ID) {
	tp.add(id, session.ClassInbox, tp.message(session.FromUser))
	tp.turn(id)
}

func TestBadChildStopsTheChildAlone(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	root := tp.root()
	call := tp.call(root)
	r := tp.genesis(root, call, session.Spawn)
	tp.fold(root, *r.Own)
	child := r.Address.Session
	headers, body, err := session.EncodeRecord(r)
	if err != nil {
		t.Fatal(err)
	}
	body = []byte(strings.Replace(string(body), `"cwd":"/work"`, `"cwd":"/"`, 1))
	tp.put(r.Address, headers, body)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)

	if v, err := s.View(t.Context(), root, 0); err != nil || len(v.State.Children) != 1 {
		t.Errorf("parent has %d children, %v, want 1, running", len(v.State.Children), err)
	}
	if _, err := s.View(t.Context(), child, 0); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("View of the child = %v, want ErrCorrupt", err)
	}
	children, err := s.Children(root)
	if err != nil || len(children) != 1 || children[0].ID != child || children[0].Halted == nil {
		t.Errorf("Children = %+v, %v, want the stopped one", children, err)
	}
	tree, err := s.Tree(root)
	if err != nil || len(tree) != 2 || tree[1].ID != child {
		t.Errorf("Tree = %+v, %v, want root and child", tree, err)
	}
}

func TestSecondGenesisStopsTheSession(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id, other := tp.root(), tp.root(&session.SandboxSwitch{Mode: session.DangerFullAccess, By: person()})
	// One that is equal to the first is ignored; anything else is a second one.
	tp.put(tp.raws[0].Address, tp.raws[0].Headers, tp.raws[0].Body)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	if e := entry(t, s, id); e.Halted != nil || e.Tail != 3 {
		t.Errorf("halted = %v at tail %d, want the genesis read again to change nothing", e.Halted, e.Tail)
	}
	tp.put(tp.raws[0].Address, tp.raws[1].Headers, tp.raws[1].Body)
	tp.put(tp.raws[0].Address, nil, nil)
	apply(t, s, tp.raws[3:])
	if e := entry(t, s, id); e.Halted == nil || e.Halted.StreamSeq != 4 || e.Halted.Unborn || e.State.Next != tp.states[id].Next {
		t.Errorf("halted = %v at next %d, want by record 4", e.Halted, e.State.Next)
	}
	if e := entry(t, s, other); e.Halted != nil {
		t.Errorf("the other session is halted: %v", e.Halted)
	}
}

func TestStrayRecordsAreKeptApart(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	tp.root()
	other, err := session.RootID(ulidOf(9), 256)
	if err != nil || other.Partition() == 0 {
		t.Fatalf("RootID = %s, %v, want another partition", other, err)
	}
	for _, id := range []session.ID{"junk", other} {
		tp.put(session.Address{Session: id, Class: session.ClassTurn}, nil, []byte("x\n"))
	}
	told := &alarms{}
	s := open(t, sessionstore.Config{OnAlarm: told.add})
	apply(t, s, tp.raws)
	agree(t, s, tp)
	if diff := cmp.Diff([]uint64{2, 3}, told.seqs()); diff != "" {
		t.Errorf("alarms (-want +told):\n%s", diff)
	}
}

func TestSessionOfANewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id, other := tp.root(), tp.root()
	tp.plant(tp.record(id, session.ClassPolicy, &session.FormatRaised{FormatVersion: session.FormatVersion + 1, By: person()}))
	bogus(tp, id, session.ClassTurn)
	tp.turn(other)
	told := &alarms{}
	dir := t.TempDir()
	for i := range tp.raws {
		s, err := sessionstore.Open(sessionstore.Config{Dir: dir, OnAlarm: told.add})
		if err != nil {
			t.Fatal(err)
		}
		apply(t, s, tp.raws[i:i+1])
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, sessionstore.Config{Dir: dir})
	var format *session.FormatError
	if _, err := s.View(t.Context(), id, 0); !errors.As(err, &format) || format.Want != session.FormatVersion+1 || format.Have != session.FormatVersion {
		t.Errorf("View = %v, want a *FormatError of the next format over this one", err)
	}
	if _, err := s.View(t.Context(), other, 0); err != nil {
		t.Errorf("View of the other session = %v", err)
	}
	if e := entry(t, s, id); e.Tail != 4 || e.Halted != nil || len(told.seqs()) != 0 {
		t.Errorf("tail %d, halted %v, alarms %v, want 4 and no judgement of what this build cannot read", e.Tail, e.Halted, told.seqs())
	}
	if got := records(t, s, id); len(got) != 3 {
		t.Errorf("%d records are held, want 3", len(got))
	}
}
