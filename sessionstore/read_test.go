package sessionstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

func TestEventsReadsThroughTwoForks(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	a := tp.root(&session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()})
	tp.turn(a)
	b := tp.delegate(a, session.Fork)
	tp.turn(b)
	c := tp.delegate(b, session.Fork)
	tp.turn2(a) // what an ancestor writes later is not read
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)

	log := tp.logOf(c)
	hb, hc := tp.states[b].Header, tp.states[c].Header
	if hb.InheritedEventCount == 0 || hc.InheritedEventCount <= hb.InheritedEventCount {
		t.Fatalf("cuts are %d and %d, want two levels", hb.InheritedEventCount, hc.InheritedEventCount)
	}
	end := session.Seq(len(log))
	edges := []session.Seq{0, 1, end - 1, end, end + 1}
	for _, cut := range []session.Seq{hb.InheritedEventCount, hc.InheritedEventCount} {
		edges = append(edges, cut-1, cut, cut+1)
	}
	for _, from := range edges {
		for _, to := range edges {
			if to > 0 && from > min(to, end) {
				continue
			}
			upTo := min(to, end)
			if to == 0 {
				upTo = end
			}
			want := log[min(from, end):upTo]
			if diff := cmp.Diff(slices.Clone(want), events(t, s, c, from, to), equateEmpty); diff != "" {
				t.Fatalf("Events(%d, %d) (-written +read):\n%s", from, to, diff)
			}
		}
	}
}

// A store of format 1 kept each event by itself. Its sessions are read, and go on.
func TestEventsOfFormat1AreRead(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	sessionstore.KeepEventsAsFormat1(t, s)
	agree(t, s, tp)
	for _, id := range tp.ids {
		tp.add(id, session.ClassInbox, tp.message(session.FromUser))
	}
	child := tp.delegate(tp.root(), session.Fork)
	tp.turn(child)
	apply(t, s, tp.raws)
	agree(t, s, tp)
}

func TestEventsEndsWithItsCallersError(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	enough := errors.New("enough")
	n := 0
	err := s.Events(tp.ids[0], 0, 0, func(session.Event) error { n++; return enough })
	if !errors.Is(err, enough) || n != 1 {
		t.Errorf("Events = %v after %d, want the callback's error after 1", err, n)
	}
	n = 0
	err = s.Records(tp.ids[1], func(session.Raw) error { n++; return enough })
	if !errors.Is(err, enough) || n != 1 {
		t.Errorf("Records = %v after %d, want the callback's error after 1", err, n)
	}
}

// Reading on from any record gives what reading all of them gives behind it, also
// behind a genesis that stands in another session's space.
func TestRecordsAfter(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	if len(tp.ids) < 4 {
		t.Fatalf("%d sessions, want a family", len(tp.ids))
	}
	for _, id := range tp.ids {
		all := records(t, s, id)
		for i, raw := range all {
			var got []session.Raw
			err := s.RecordsAfter(id, raw.StreamSeq, func(r session.Raw) error { got = append(got, r); return nil })
			if diff := cmp.Diff(all[i+1:], got, equateEmpty); err != nil || diff != "" {
				t.Errorf("records of %s after %d: %v (-all +after)\n%s", id, raw.StreamSeq, err, diff)
			}
		}
	}
}

func TestUnknownSessions(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	id, err := session.RootID(ulidOf(99999), 1)
	if err != nil {
		t.Fatal(err)
	}
	_, viewErr := s.View(t.Context(), id, 0)
	_, oneErr := s.Session(id)
	_, treeErr := s.Tree(id)
	_, prefixErr := s.Prefix(id, 1)
	_, beyondErr := s.Prefix(tp.ids[0], 1<<20)
	_, listErr := s.Sessions(sessionstore.ListOptions{After: id})
	for name, err := range map[string]error{
		"View": viewErr, "Session": oneErr, "Tree": treeErr, "Prefix": prefixErr, "Prefix beyond the log": beyondErr,
		"Sessions": listErr,
		"Events":   s.Events(id, 0, 0, func(session.Event) error { return nil }),
		"Records":  s.Records(id, func(session.Raw) error { return nil }),
	} {
		if !errors.Is(err, session.ErrNotFound) {
			t.Errorf("%s = %v, want ErrNotFound", name, err)
		}
	}
	for _, id := range []session.ID{"", "x", "0", "no such id"} {
		if _, err := s.View(t.Context(), id, 0); !errors.Is(err, session.ErrBadID) {
			t.Errorf("View(%q) = %v, want ErrBadID", id, err)
		}
		if err := s.Empty(t.Context(), id, 0); !errors.Is(err, session.ErrBadID) {
			t.Errorf("Empty(%q) = %v, want ErrBadID", id, err)
		}
	}
}

func TestMissingDataIsDamageNotAShorterLog(t *testing.T) {
	t.Parallel()
	tp := family(t)
	a := tp.ids[0]
	forked := tp.ids[2]
	for name, c := range map[string]struct {
		drop func(s *sessionstore.Store)
		read func(s *sessionstore.Store) error
	}{
		"an event in the middle": {
			func(s *sessionstore.Store) { sessionstore.DropEvent(t, s, a, 5) },
			func(s *sessionstore.Store) error { return s.Events(a, 0, 0, func(session.Event) error { return nil }) },
		},
		"the last event": {
			func(s *sessionstore.Store) { sessionstore.DropEvent(t, s, a, tp.states[a].Next-1) },
			func(s *sessionstore.Store) error { return s.Events(a, 0, 0, func(session.Event) error { return nil }) },
		},
		"another event": {
			func(s *sessionstore.Store) { sessionstore.TamperEvent(t, s, a, 5) },
			func(s *sessionstore.Store) error { return s.Events(a, 5, 6, func(session.Event) error { return nil }) },
		},
		"another first event": {
			func(s *sessionstore.Store) { sessionstore.TamperEvent(t, s, a, 0) },
			func(s *sessionstore.Store) error { return s.Events(a, 0, 1, func(session.Event) error { return nil }) },
		},
		"another first event of a fork": {
			func(s *sessionstore.Store) {
				sessionstore.TamperEvent(t, s, forked, tp.states[forked].Header.FirstLiveSeq)
			},
			func(s *sessionstore.Store) error {
				return s.Events(forked, 0, 0, func(session.Event) error { return nil })
			},
		},
		"an event of the prefix": {
			func(s *sessionstore.Store) { sessionstore.DropEvent(t, s, a, 2) },
			func(s *sessionstore.Store) error {
				return s.Events(forked, 0, 0, func(session.Event) error { return nil })
			},
		},
		"an event below a cut": {
			func(s *sessionstore.Store) { sessionstore.DropEvent(t, s, a, 2) },
			func(s *sessionstore.Store) error {
				_, err := s.Prefix(a, 4)
				return err
			},
		},
		"a record": {
			func(s *sessionstore.Store) { sessionstore.DropRecord(t, s, a, 2) },
			func(s *sessionstore.Store) error { return s.Records(a, func(session.Raw) error { return nil }) },
		},
		"a genesis": {
			func(s *sessionstore.Store) {
				sessionstore.DropRecord(t, s, a, tp.raws[tp.births[forked]].StreamSeq)
			},
			func(s *sessionstore.Store) error { return s.Records(forked, func(session.Raw) error { return nil }) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, sessionstore.Config{})
			apply(t, s, tp.raws)
			if err := c.read(s); err != nil {
				t.Fatalf("before: %v", err)
			}
			c.drop(s)
			if err := c.read(s); !errors.Is(err, sessionstore.ErrDamaged) {
				t.Errorf("read = %v, want ErrDamaged", err)
			}
		})
	}
}

// A fork costs the same for any length of its source's log because the two cuts
// that forks are made at are found without reading it.
func TestForkPrefixReadsNoLog(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id := tp.root(&session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()})
	tp.turn(id)
	atTurn := tp.states[id].InheritAll()
	tp.add(id, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: person()})
	atEvent := tp.states[id].InheritAll()
	had := len(tp.raws)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	sessionstore.DropLogs(t, s)
	for _, want := range []session.Prefix{{}, atTurn, atEvent} {
		got, err := s.Prefix(id, want.Count)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Prefix(%d) (-fold +mirror), %v:\n%s", want.Count, err, diff)
		}
	}
	forks := []session.ID{tp.fork(id, atTurn), tp.fork(id, atEvent)}
	apply(t, s, tp.raws[had:])
	for _, f := range forks {
		if e := entry(t, s, f); e.Halted != nil || cmp.Diff(tp.states[f], e.State) != "" {
			t.Errorf("fork is halted %v, state %+v", e.Halted, e.State)
		}
	}
}

// A person's fork may name an older cut; what it inherits is folded up to there.
func TestForkAtAnOlderCut(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	a := tp.root(&session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()})
	tp.turn(a)
	old := tp.states[a].InheritAll()
	tp.add(a, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: person()})
	tp.turn2(a)
	b := tp.fork(a, old)
	tp.turn2(b)
	inner := tp.states[b].InheritAll()
	tp.turn2(b)
	c := tp.fork(b, inner)
	tp.turn2(c)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	agree(t, s, tp)
	if got := entry(t, s, c).State.Knobs.Sandbox.Value; got != session.WorkspaceWrite {
		t.Errorf("fork of the fork has sandbox %q, want what stood before the switch", got)
	}
}

// A fork of what its source never had is refused, and its source goes on.
func TestForkBeyondItsSourceIsStopped(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	a := tp.root()
	p := tp.states[a].InheritAll()
	p.Count += 3
	f := tp.fork(a, p)
	tp.turn(a)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	if _, err := s.View(t.Context(), f, 0); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("View of the fork = %v, want ErrCorrupt", err)
	}
	if v, err := s.View(t.Context(), a, 0); err != nil || v.State.Turn != 1 {
		t.Errorf("View of the source = turn %d, %v, want 1", v.State.Turn, err)
	}
}

func ids(entries []sessionstore.Entry) []session.ID {
	var out []session.ID
	for _, e := range entries {
		out = append(out, e.ID)
	}
	return out
}

func TestListingReadsNoLog(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	a := tp.root()
	a1 := tp.delegate(a, session.Spawn)
	b := tp.root()
	a2 := tp.delegate(a, session.Spawn)
	a11 := tp.delegate(a1, session.Spawn)
	f := tp.fork(a, tp.states[a].InheritAll())
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	sessionstore.DropLogs(t, s)

	for name, c := range map[string]struct {
		o    sessionstore.ListOptions
		want []session.ID
	}{
		"all":             {sessionstore.ListOptions{}, []session.ID{a, a1, b, a2, a11, f}},
		"a tree":          {sessionstore.ListOptions{Root: a}, []session.ID{a, a1, a2, a11, f}},
		"below a session": {sessionstore.ListOptions{Parent: a}, []session.ID{a1, a2, f}},
		"of an origin":    {sessionstore.ListOptions{Origin: session.OriginUser}, []session.ID{a, b, f}},
		"both":            {sessionstore.ListOptions{Root: a, Origin: session.OriginUser}, []session.ID{a, f}},
		"a page":          {sessionstore.ListOptions{After: a1, Limit: 2}, []session.ID{b, a2}},
		"the last page":   {sessionstore.ListOptions{After: a11, Limit: 2}, []session.ID{f}},
		"another tree":    {sessionstore.ListOptions{Root: b}, []session.ID{b}},
		"of a leaf":       {sessionstore.ListOptions{Parent: f}, nil},
	} {
		got, err := s.Sessions(c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, ids(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	children, err := s.Children(a)
	if diff := cmp.Diff([]session.ID{a1, a2}, ids(children)); diff != "" || err != nil {
		t.Errorf("Children (-want +got), %v:\n%s", err, diff)
	}
	tree, err := s.Tree(a)
	if diff := cmp.Diff([]session.ID{a, a1, a11, a2, f}, ids(tree)); diff != "" || err != nil {
		t.Errorf("Tree (-want +got), %v:\n%s", err, diff)
	}
	for root, want := range map[session.ID]int{a: 5, b: 1} {
		if n, err := s.TreeSize(root); n != want || err != nil {
			t.Errorf("TreeSize(%s) = %d, %v, want %d", root, n, err, want)
		}
	}
	if e := entry(t, s, a1); cmp.Diff(tp.states[a1], e.State) != "" || e.LastTime != tp.lines[a1][len(tp.lines[a1])-1].Time {
		t.Errorf("Session = %+v, want its state and last time", e)
	}
}

// The size of a tree is kept from the first question on. It is what a listing
// counts after every record, redelivered ones and refused geneses included.
func TestTreeSizeGoesWithTheTree(t *testing.T) {
	t.Parallel()
	raws := generated(t, 5, 120)
	s := open(t, sessionstore.Config{})
	largest := 0
	for i := range raws {
		apply(t, s, raws[max(i-3, 0):i+1])
		root := raws[i].Address.Session.Root()
		kept, err := s.TreeSize(root)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := s.Sessions(sessionstore.ListOptions{Root: root})
		if err != nil || kept != len(tree) {
			t.Fatalf("after record %d the tree of %s has %d sessions, listed are %d (%v)", i+1, root, kept, len(tree), err)
		}
		largest = max(largest, kept)
	}
	if largest < 5 {
		t.Errorf("the largest tree has %d sessions, too few to tell", largest)
	}
}

func TestEqualCreationTimesAreListedById(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	tp.still = true
	want := []session.ID{tp.root(), tp.root(), tp.root()}
	slices.Sort(want)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	got, err := s.Sessions(sessionstore.ListOptions{})
	if diff := cmp.Diff(want, ids(got)); diff != "" || err != nil {
		t.Errorf("Sessions (-want +got), %v:\n%s", err, diff)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	root := tp.root()
	child := tp.delegate(root, session.Spawn)
	born := tp.raws[tp.births[child]].StreamSeq
	call := tp.call(root)
	planted := session.ChildID(root, call)
	bogus(tp, planted, session.ClassTurn)
	end := uint64(len(tp.raws))
	s := open(t, sessionstore.Config{})

	// It waits until the mirror is past what the caller knows.
	early, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Empty(early, child, born); !errors.Is(err, context.Canceled) {
		t.Errorf("Empty of a mirror that is behind = %v, want to be cancelled", err)
	}
	apply(t, s, tp.raws)
	if err := s.Empty(within(t), child, born); err != nil {
		t.Errorf("Empty(child) = %v, want nil: its genesis stands in its parent's space", err)
	}
	fresh, err := session.RootID(ulidOf(12345), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Empty(within(t), fresh, end); err != nil {
		t.Errorf("Empty(new root) = %v, want nil", err)
	}
	for name, id := range map[string]session.ID{"a root": root, "a planted child": planted} {
		var conflict *session.ConflictError
		if err := s.Empty(within(t), id, end); !errors.As(err, &conflict) || conflict.Tail == 0 {
			t.Errorf("Empty(%s) = %v, want a conflict with its tail", name, err)
		}
	}
}

func TestViewWaitsAndAnswersOfOneTail(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id := tp.root()
	known := tp.names // the prompt's message id
	tp.turn(id)
	at := len(tp.raws)
	before := tp.states[id]
	tp.turn2(id)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws[:at])
	v, err := s.View(within(t), id, uint64(at))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan session.View, 1)
	go func() {
		v, err := s.View(t.Context(), id, uint64(len(tp.raws)))
		if err != nil {
			t.Errorf("View: %v", err)
		}
		got <- v
	}()
	apply(t, s, tp.raws[at:])
	later := <-got

	if diff := cmp.Diff(before, v.State); diff != "" || v.Tail != uint64(at) {
		t.Errorf("first view has tail %d (-want +got):\n%s", v.Tail, diff)
	}
	if diff := cmp.Diff(tp.states[id], later.State); diff != "" || later.Tail != uint64(len(tp.raws)) {
		t.Errorf("second view has tail %d (-want +got):\n%s", later.Tail, diff)
	}
	for _, e := range tp.lines[id] {
		link, ok := v.Link(e.Seq)
		if want := e.Seq < before.Next; ok != want || (ok && link != e.Link) {
			t.Errorf("first view: Link(%d) = %v, %v, want it: %v", e.Seq, link, ok, want)
		}
		if link, ok := later.Link(e.Seq); !ok || link != e.Link {
			t.Errorf("second view: Link(%d) = %v, %v", e.Seq, link, ok)
		}
	}
	first, second := fmt.Sprintf("m%d", known), fmt.Sprintf("m%d", tp.names)
	if !v.Has(first) || v.Has(second) || v.Has("m0") {
		t.Errorf("first view has %s %v, %s %v, want true, false", first, v.Has(first), second, v.Has(second))
	}
	if !later.Has(first) || !later.Has(second) {
		t.Error("second view has not both messages")
	}
}

// The same message may be accepted again by mistake. A view of the log before
// that must still find it.
func TestViewFindsAMessageThatIsAcceptedAgain(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id := tp.root()
	m := tp.message(session.FromUser)
	tp.add(id, session.ClassInbox, m)
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws)
	v, err := s.View(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	tp.add(id, session.ClassInbox, m)
	apply(t, s, tp.raws)
	if !v.Has(m.ID) {
		t.Errorf("the earlier view lost message %s", m.ID)
	}
}

func TestViewsAreConsistentWhileRecordsAreApplied(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id := tp.root()
	for range 40 {
		tp.turn2(id)
	}
	links := make(map[session.Seq]session.Link)
	for _, e := range tp.lines[id] {
		links[e.Seq] = e.Link
	}
	s := open(t, sessionstore.Config{})
	apply(t, s, tp.raws[:1])
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range tp.raws {
			if err := s.Apply(0, incarnation, tp.raws[i:i+1]); err != nil {
				t.Errorf("apply: %v", err)
			}
		}
	}()
	var last uint64
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		v, err := s.View(t.Context(), id, last)
		if err != nil {
			t.Fatalf("View: %v", err)
		}
		if v.Tail < last {
			t.Fatalf("tail went back from %d to %d", last, v.Tail)
		}
		last = v.Tail
		if v.State.Link != links[v.State.Next-1] {
			t.Fatalf("state at %d has another link than its last event", v.State.Next)
		}
		if l, ok := v.Link(v.State.Next - 1); !ok || l != v.State.Link {
			t.Fatalf("view at tail %d does not find its own last event", v.Tail)
		}
		if _, ok := v.Link(v.State.Next); ok {
			t.Fatalf("view at tail %d sees beyond itself", v.Tail)
		}
		if got := events(t, s, id, 0, v.State.Next); session.Seq(len(got)) != v.State.Next {
			t.Fatalf("%d events below %d", len(got), v.State.Next)
		}
	}
	agree(t, s, tp)
}

func TestCacheIsBoundedAndForgetsNothing(t *testing.T) {
	t.Parallel()
	const rows = 3
	tp := newTape(t)
	for range 2 * rows {
		tp.root()
	}
	for _, id := range tp.ids {
		tp.turn2(id) // out of the cache by then
	}
	s := open(t, sessionstore.Config{})
	sessionstore.LimitCache(s, rows)
	for chunk := range slices.Chunk(tp.raws, 2) {
		apply(t, s, chunk)
		if n := sessionstore.Cached(s); n > rows {
			t.Fatalf("%d rows are cached, want at most %d", n, rows)
		}
	}
	agree(t, s, tp)
}
