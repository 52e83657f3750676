package session_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// generate draws a tree of sessions.
func generate(t *rapid.T) sessiontest.Log {
	return sessiontest.Generate(t, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") },
		rapid.IntRange(1, 60).Draw(t, "steps"))
}

func TestPropertyReplayIsWhatWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := generate(t)
		r := sessiontest.Replay(log.Records)
		wantStates(t, log, r)
		for _, id := range log.Sessions {
			if got, want := r.Chains[id].Voids(), log.Voids[id]; got != want {
				t.Fatalf("%s has %d void records, want %d", id, got, want)
			}
		}
	})
}

// wantStates compares the replica's states with the log's, deeply.
func wantStates(t *rapid.T, log sessiontest.Log, r *sessiontest.Replica) {
	t.Helper()
	for _, id := range log.Sessions {
		c, open := r.Chains[id]
		if !open {
			t.Fatalf("%s was not opened: %v", id, r.Failed[id])
		}
		if err := c.Halted(); err != nil {
			t.Fatalf("%s is stopped: %v", id, err)
		}
		if diff := cmp.Diff(log.States[id], c.State()); diff != "" {
			t.Fatalf("state of %s (-written +read):\n%s", id, diff)
		}
	}
}

// A snapshot is JSON: fold(all) = fold(snapshot and tail), wherever it is taken.
func TestPropertySnapshotAndTail(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := generate(t)
		at := rapid.IntRange(0, len(log.Records)).Draw(t, "snapshot after")
		r := sessiontest.Replay(log.Records[:at])
		for id, c := range r.Chains {
			raw, err := json.Marshal(c.State())
			if err != nil {
				t.Fatal(err)
			}
			var s session.State
			if err := json.Unmarshal(raw, &s); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.State(), s); diff != "" {
				t.Fatalf("snapshot of %s (-state +decoded):\n%s", id, diff)
			}
			r.Resume(id, s)
		}
		for _, raw := range log.Records[at:] {
			r.Next(raw)
		}
		wantStates(t, log, r)
	})
}

func TestPropertyAnyPrefixStays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := generate(t)
		at := rapid.IntRange(0, len(log.Records)).Draw(t, "cut")
		short, whole := sessiontest.Replay(log.Records[:at]), sessiontest.Replay(log.Records)
		for id, events := range short.Events {
			if diff := cmp.Diff(events, whole.Events[id][:len(events)]); diff != "" {
				t.Fatalf("log of %s is rewritten by what follows (-before +after):\n%s", id, diff)
			}
		}
	})
}

func TestPropertyRedeliveryChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := generate(t)
		r := sessiontest.Replay(nil)
		for i, raw := range log.Records {
			r.Next(raw)
			if rapid.IntRange(0, 2).Draw(t, "again") == 0 {
				r.Next(log.Records[rapid.IntRange(0, i).Draw(t, "which")])
			}
		}
		wantStates(t, log, r)
		for _, id := range log.Sessions {
			if got, want := r.Chains[id].Voids(), log.Voids[id]; got != want {
				t.Fatalf("%s has %d void records, want %d", id, got, want)
			}
		}
	})
}

// Any split of the same events into records folds to the same state and link.
func TestPropertyAnySplitIntoRecords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := generate(t)
		r := sessiontest.Replay(log.Records)
		for _, id := range log.Sessions {
			s, events := begin(t, log, r, id)
			for len(events) > 0 {
				n := sessiontest.Split(s, events, rapid.IntRange(1, len(events)).Draw(t, "split"))
				sec := session.Section{Session: id, Class: events[0].Class, Seq: s.Next, Before: s.Link, Events: events[:n]}
				next, err := session.FoldSection(s, sec)
				if err != nil {
					t.Fatalf("%s: %d events from seq %d as one record: %v", id, n, s.Next, err)
				}
				s, events = next, events[n:]
			}
			if diff := cmp.Diff(log.States[id], s); diff != "" {
				t.Fatalf("state of %s (-written +split anew):\n%s", id, diff)
			}
		}
	})
}

// begin returns the state after a session's genesis and the events that follow.
func begin(t *rapid.T, log sessiontest.Log, r *sessiontest.Replica, id session.ID) (session.State, []session.Event) {
	t.Helper()
	for _, raw := range log.Records {
		if raw.Address.Session != id || raw.Address.Class != session.ClassGenesis {
			continue
		}
		rec, err := session.DecodeRecord(raw)
		if err != nil || rec.Birth == nil {
			t.Fatalf("genesis of %s: %v, %v", id, err, rec.BirthErr)
		}
		s, err := session.Begin(*rec.Birth, r.Prefix(rec.Birth.Header))
		if err != nil {
			t.Fatal(err)
		}
		return s, r.Events[id][len(rec.Birth.First.Events):]
	}
	t.Fatalf("no genesis of %s", id)
	return session.State{}, nil
}

// I9: the policy in the state equals a fold from zero. This one is written from
// SPEC 2.1 alone: last event wins, over the prefix too.
func TestPropertyPolicyEqualsFoldFromZero(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := generate(t)
		r := sessiontest.Replay(log.Records)
		for _, id := range log.Sessions {
			var want [3]string
			for _, e := range wholeLog(r, id) {
				knob := map[session.Type]int{"sandbox/mode": 0, "approval/policy": 1, "permission/preset": 2}
				field := []string{"mode", "policy", "preset"}
				k, is := knob[e.Type]
				if !is {
					continue
				}
				var line struct{ Data map[string]any }
				if err := json.Unmarshal(e.Line, &line); err != nil {
					t.Fatal(err)
				}
				want[k], _ = line.Data[field[k]].(string)
			}
			k := log.States[id].Knobs
			got := [3]string{string(k.Sandbox.Value), string(k.Approval.Value), string(k.Preset.Value)}
			if got != want {
				t.Fatalf("%s: knobs %q, a fold from zero gives %q", id, got, want)
			}
		}
	})
}

// wholeLog returns a session's log: its prefix and its own events (SPEC 1.3).
func wholeLog(r *sessiontest.Replica, id session.ID) []session.Event {
	h := r.Chains[id].State().Header
	var log []session.Event
	if h.InheritedEventCount > 0 {
		log = wholeLog(r, h.ParentSession)[:h.InheritedEventCount:h.InheritedEventCount]
	}
	return append(log, r.Events[id]...)
}
