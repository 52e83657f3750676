package trees_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/sessionstore"
)

// readers have read all records, each in its way.
type readers struct {
	mirror *sessionstore.Store
	replay *sessiontest.Replica
}

// agree says where what a session folds to depends on how it is read. Records
// counts those of the other split.
func (r readers) agree(tree *policytest.Tree, chance *rand.Rand) (records int, err error) {
	folds := folds{}
	for _, l := range tree.Logs {
		id := l.State.Header.ID
		got := map[string]session.State{}
		if got["one go, from zero"], err = folds.whole(l); err != nil {
			return 0, fmt.Errorf("fold %s from zero: %w", id, err)
		}
		var n int
		if got["another split"], n, err = folds.split(l, chance); err != nil {
			return 0, fmt.Errorf("fold %s in another split: %w", id, err)
		}
		records += n
		e, err := r.mirror.Session(id)
		if err != nil {
			return 0, fmt.Errorf("mirror: %w", err)
		}
		got["the mirror"] = e.State
		if c, open := r.replay.Chains[id]; open {
			got["the stream"] = c.State()
		}
		for how, s := range got {
			if err := same(l.State, s, tree.Deployment); err != nil {
				return 0, fmt.Errorf("%s, read from %s: %w", id, how, err)
			}
		}
	}
	return records, nil
}

// same compares two states, and what the policy comes to under each.
func same(want, got session.State, d policy.Deployment) error {
	if !reflect.DeepEqual(want, got) { // which is fast
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("state (-as written +as read):\n%s", diff)
		}
	}
	w, g := policy.EffectiveOf(want.Knobs, d), policy.EffectiveOf(got.Knobs, d)
	if diff := cmp.Diff(w, g); diff != "" {
		return fmt.Errorf("policy (-as written +as read):\n%s", diff)
	}
	if w, g := policy.Current(want.Knobs, d), policy.Current(got.Knobs, d); w != g {
		return fmt.Errorf("current preset is %q, as written %q", g, w)
	}
	return nil
}

// folds are the sessions of a tree, folded from zero: for each what a fork at any
// of its events inherits.
type folds map[session.ID]map[session.Seq]session.Prefix

// prefix returns what a session inherits.
func (f folds) prefix(l *policytest.Log) (session.Prefix, error) {
	h := l.Birth.Header
	if h.InheritedEventCount == 0 {
		return session.Prefix{}, nil
	}
	p, ok := f[h.ParentSession][h.InheritedEventCount]
	if !ok {
		return p, fmt.Errorf("nothing of %s ends at %d", h.ParentSession, h.InheritedEventCount)
	}
	return p, nil
}

// begin returns the state after a session's genesis and the events that follow.
func (f folds) begin(l *policytest.Log) (session.State, []session.Event, error) {
	p, err := f.prefix(l)
	if err != nil {
		return session.State{}, nil, err
	}
	s, err := session.Begin(l.Birth, p)
	return s, l.Events[int(p.Count)+len(l.Birth.First.Events):], err
}

// whole folds all events of a session in one go.
func (f folds) whole(l *policytest.Log) (session.State, error) {
	s, events, err := f.begin(l)
	if err != nil {
		return s, err
	}
	at := map[session.Seq]session.Prefix{s.Next: s.InheritAll(), s.Cut.Count: s.Cut}
	f[s.Header.ID] = at
	for _, e := range events {
		if s, err = session.Fold(s, e); err != nil {
			return s, err
		}
		at[s.Next] = s.InheritAll()
	}
	return s, nil
}

// split folds a session as records of another split, chosen by chance.
func (f folds) split(l *policytest.Log, chance *rand.Rand) (s session.State, records int, err error) {
	s, events, err := f.begin(l)
	for ; err == nil && len(events) > 0; records++ {
		n := sessiontest.Split(s, events, 1+chance.IntN(len(events)))
		if n == 0 {
			return s, records, fmt.Errorf("no record begins at %d", s.Next)
		}
		s, err = session.FoldSection(s, session.Section{
			Session: s.Header.ID, Class: events[0].Class, Seq: s.Next, Before: s.Link, Events: events[:n],
		})
		events = events[n:]
	}
	return s, records, err
}

// TestPropertyTreesCanFail keeps one record from the mirror, the last one of class
// policy, and wants the comparison to notice.
func TestPropertyTreesCanFail(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(1, 2))
	kept := 0
	for n := range 40 {
		var f policytest.Forest
		tree := f.Grow(t, func(string) bool { return chance.IntN(2) == 0 })
		read := mirrored(t, tree.Records)
		if _, err := read.agree(tree, chance); err != nil {
			t.Fatalf("tree %d, with all records: %v", n, err)
		}
		for i, raw := range slices.Backward(tree.Records) {
			if raw.Address.Class != session.ClassPolicy {
				continue
			}
			raws := slices.Clone(tree.Records)
			raws[i] = session.Raw{StreamSeq: raw.StreamSeq} // stands in no log
			read.mirror = mirrored(t, raws).mirror
			if _, err := read.agree(tree, chance); err == nil {
				t.Errorf("tree %d: a mirror without record %d of %d agrees", n, i+1, len(raws))
			}
			kept++
			break
		}
	}
	if kept < 30 {
		t.Errorf("kept %d records from a mirror, want at least 30", kept)
	}
}

// mirrored reads records without a broker.
func mirrored(t *testing.T, raws []session.Raw) readers {
	t.Helper()
	s, err := sessionstore.Open(sessionstore.Config{Dir: "mirror", FS: vfs.NewMem()})
	if err != nil {
		t.Fatalf("open a mirror: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close a mirror: %v", err)
		}
	})
	if err := s.Apply(0, "stream", raws); err != nil {
		t.Fatalf("mirror: %v", err)
	}
	return readers{mirror: s, replay: sessiontest.Replay(raws)}
}
