package sessionstore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/sessionstore"
)

// TestI9_MirrorHoldsWhatAFoldFromZeroSays feeds random trees to a mirror, in
// random batches, with redelivery and reopening in between, and holds every
// session's cached state, policy first, to a fold of its whole log from zero.
func TestI9_MirrorHoldsWhatAFoldFromZeroSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
		log := sessiontest.Generate(t, pick, rapid.IntRange(1, 60).Draw(t, "steps"))
		cfg := sessionstore.Config{Dir: "mirror", FS: vfs.NewMem()}
		s := feedRandomly(t, cfg, log.Records)
		defer s.Close()

		want := sessiontest.Replay(log.Records)
		var runnable, asking []session.ID
		for _, id := range log.Sessions {
			e, err := s.Session(id)
			if err != nil {
				t.Fatalf("Session(%s): %v", id, err)
			}
			if diff := cmp.Diff(log.States[id].Knobs, e.State.Knobs); diff != "" {
				t.Fatalf("policy of %s (-fold from zero +cached):\n%s", id, diff)
			}
			if diff := cmp.Diff(log.States[id], e.State); diff != "" {
				t.Fatalf("state of %s (-fold from zero +cached):\n%s", id, diff)
			}
			if c := want.Chains[id]; e.Voids != log.Voids[id] || e.Tail != c.Tail() || e.Born != c.Born() {
				t.Fatalf("%s has %d voids, tail %d, born %d, want %d, %d, %d", id, e.Voids, e.Tail, e.Born, log.Voids[id], c.Tail(), c.Born())
			}
			checkLog(t, s, want, id)
			if log.States[id].Runnable() {
				runnable = append(runnable, id)
			}
			if len(log.States[id].Questions()) > 0 {
				asking = append(asking, id)
			}
		}
		slices.Sort(runnable)
		slices.Sort(asking)
		if got, err := s.Asking(0); err != nil || !slices.Equal(got, asking) {
			t.Fatalf("Asking = %v, %v, want %v", got, err, asking)
		}
		if got, err := s.Runnable(0); err != nil || !slices.Equal(got, runnable) {
			t.Fatalf("Runnable = %v, %v, want %v", got, err, runnable)
		}
	})
}

// feedRandomly applies records in batches of any size, some of them again, and
// opens the store anew now and then.
func feedRandomly(t *rapid.T, cfg sessionstore.Config, raws []session.Raw) *sessionstore.Store {
	reopen := func(s *sessionstore.Store) *sessionstore.Store {
		if s != nil {
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
		}
		s, err := sessionstore.Open(cfg)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return s
	}
	s := reopen(nil)
	for at := 0; at < len(raws); {
		next := min(len(raws), at+rapid.IntRange(1, 20).Draw(t, "batch"))
		from := max(0, at-rapid.IntRange(0, 5).Draw(t, "again"))
		if rapid.IntRange(0, 15).Draw(t, "all again") == 0 {
			from = 0
		}
		if err := s.Apply(0, incarnation, raws[from:next]); err != nil {
			t.Fatalf("apply: %v", err)
		}
		at = next
		if rapid.IntRange(0, 9).Draw(t, "reopen") == 0 {
			s = reopen(s)
		}
	}
	return s
}

// checkLog holds the logical log to the chains' events, and the prefix at each
// of its cuts to a fold up to there.
func checkLog(t *rapid.T, s *sessionstore.Store, want *sessiontest.Replica, id session.ID) {
	h := want.Chains[id].State().Header
	log := logOf(want, id)
	i := 0
	err := s.Events(id, 0, 0, func(e session.Event) error {
		if i >= len(log) || e.Session != log[i].Session || e.Class != log[i].Class || e.Link != log[i].Link ||
			string(e.Line) != string(log[i].Line) {
			return fmt.Errorf("event %d is not the one written", i)
		}
		i++
		return nil
	})
	if err != nil || i != len(log) {
		t.Fatalf("Events(%s) gave %d of %d: %v", id, i, len(log), err)
	}
	cut := session.Seq(rapid.IntRange(0, len(log)).Draw(t, "cut"))
	p, err := s.Prefix(id, cut)
	if err != nil {
		t.Fatalf("Prefix(%s, %d): %v", id, cut, err)
	}
	if diff := cmp.Diff(prefixOf(log[:cut]), p); diff != "" {
		t.Fatalf("prefix of %s at %d of %d (own from %d) (-fold +Prefix):\n%s", id, cut, len(log), h.FirstLiveSeq, diff)
	}
}

// prefixOf folds the first events of a log from zero. Knobs and turns cross every
// cut, so the events of all ancestors fold as one log.
func prefixOf(log []session.Event) session.Prefix {
	var p, ended session.Prefix
	for _, e := range log {
		p.Count, p.Link = e.Seq+1, e.Link
		switch d := e.Payload.(type) {
		case *session.SandboxSwitch:
			p.Knobs.Sandbox = session.Knob[session.SandboxMode]{Value: d.Mode, Seq: e.Seq, Source: d.Source, By: d.By}
		case *session.ApprovalSwitch:
			p.Knobs.Approval = session.Knob[session.ApprovalPolicy]{Value: d.Policy, Seq: e.Seq, Source: d.Source, By: d.By}
		case *session.PresetSwitch:
			p.Knobs.Preset = session.Knob[session.Preset]{Value: d.Preset, Seq: e.Seq, By: d.By}
		case *session.TurnStart:
			p.Turn = d.Turn
		case *session.TurnEnd:
			ended = p
		}
	}
	if p.Count != ended.Count {
		p.Cut = &ended
	}
	return p
}

// logOf is the logical log of a session (SPEC 1.3).
func logOf(r *sessiontest.Replica, id session.ID) []session.Event {
	h := r.Chains[id].State().Header
	if h.InheritedEventCount == 0 {
		return r.Events[id]
	}
	return append(slices.Clone(logOf(r, h.ParentSession)[:h.InheritedEventCount]), r.Events[id]...)
}
