package sessionstore_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/sessionstore"
)

// The law: fold(all) = fold(snapshot and tail) = fold(mirror) = fold(stream), for
// any split of the events into records, of the records into batches, and any
// redelivery. internal/trees holds a real stream and its mirror to it, with the
// policy that the states come to; here the mirror is held to it key by key, with
// records that stop sessions, and the events come in other records.

// anySplit holds a log to the law. The error says where it does not hold.
func anySplit(t sessiontest.T, log sessiontest.Log, split []session.Raw, pick sessiontest.Pick) error {
	t.Helper()
	r := sessiontest.Replay(split)
	s, err := sessionstore.Open(sessionstore.Config{Dir: "mirror", FS: vfs.NewMem()})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Apply(0, incarnation, split); err != nil {
		return err
	}
	for _, id := range log.Sessions {
		want := log.States[id]
		if c := r.Chains[id]; c == nil {
			return fmt.Errorf("%s is not in the stream: %w", id, r.Failed[id])
		} else if diff := cmp.Diff(want, c.State()); diff != "" {
			return fmt.Errorf("%s (-fold of all +stream):\n%s", id, diff)
		}
		e, err := s.Session(id)
		if err != nil {
			return fmt.Errorf("mirror: %w", err)
		}
		if diff := cmp.Diff(want, e.State); diff != "" {
			return fmt.Errorf("%s (-fold of all +mirror):\n%s", id, diff)
		}
		got, err := snapshotAndTail(r, id, pick)
		if err != nil {
			return fmt.Errorf("%s from a snapshot: %w", id, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%s (-fold of all +snapshot and tail):\n%s", id, diff)
		}
	}
	return nil
}

// snapshotAndTail folds a session's own events, up to a random one, keeps the
// state as a mirror does, and folds the others behind that.
func snapshotAndTail(r *sessiontest.Replica, id session.ID, pick sessiontest.Pick) (session.State, error) {
	all := r.Events[id]
	st, err := stateAfterBirth(r, id)
	if err != nil {
		return st, err
	}
	rest := all[st.Next-all[0].Seq:]
	at := pick(len(rest) + 1)
	for i, e := range rest {
		if i == at {
			if st, err = kept(st); err != nil {
				return st, err
			}
		}
		if st, err = session.Fold(st, e); err != nil {
			return st, err
		}
	}
	return st, nil
}

// stateAfterBirth is what a session's genesis alone folds to.
func stateAfterBirth(r *sessiontest.Replica, id session.ID) (session.State, error) {
	h := r.Chains[id].State().Header
	line, err := session.EncodeHeader(h)
	if err != nil {
		return session.State{}, err
	}
	p := r.Prefix(h)
	first := session.Section{Session: id, Class: session.ClassGenesis, Seq: h.FirstLiveSeq, Before: session.HeaderLink(p.Link, line)}
	for _, e := range r.Events[id] {
		if e.Class == session.ClassGenesis {
			first.Events, first.After = append(first.Events, e), e.Link
		}
	}
	return session.Begin(session.Birth{Header: h, Line: line, First: first}, p)
}

// kept is a state that went through JSON.
func kept(st session.State) (out session.State, err error) {
	text, err := json.Marshal(st)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	return out, err
}

// otherRecords writes a log's valid events again, in stream order, in records of
// another split; a genesis stays what it is. Void records and those that were
// written twice are left out: they were about the records as they were.
func otherRecords(t sessiontest.T, raws []session.Raw, pick sessiontest.Pick) []session.Raw {
	t.Helper()
	r := sessiontest.Replay(nil)
	var out []session.Raw
	put := func(raw session.Raw) {
		raw.StreamSeq = uint64(len(out) + 1)
		out = append(out, raw)
	}
	for _, raw := range raws {
		id := raw.Address.Space()
		var before session.State
		if c := r.Chains[id]; c != nil {
			before = c.State()
		}
		_, known := r.Chains[raw.Address.Session]
		had := len(r.Events[id])
		r.Next(raw)
		if raw.Address.Class == session.ClassGenesis {
			if !known {
				put(raw)
			}
			continue
		}
		if events := r.Events[id]; len(events) > had {
			splitRecord(t, raw, before, events[had:], pick, put)
		}
	}
	return out
}

// splitRecord writes the events of one record as several.
func splitRecord(t sessiontest.T, raw session.Raw, st session.State, events []session.Event, pick sessiontest.Pick, put func(session.Raw)) {
	t.Helper()
	rec, err := session.DecodeRecord(raw)
	if err != nil {
		t.Fatalf("decode %d: %v", raw.StreamSeq, err)
	}
	for len(events) > 0 {
		n := sessiontest.Split(st, events, 1+pick(len(events)))
		if n == 0 {
			t.Fatalf("no record of %s begins at %d", rec.Own.Session, st.Next)
		}
		own := session.Section{
			Session: rec.Own.Session, Class: rec.Own.Class, Seq: st.Next, Before: st.Link, After: events[n-1].Link, Events: events[:n],
		}
		if st, err = session.FoldSection(st, own); err != nil {
			t.Fatalf("fold a part of %d: %v", raw.StreamSeq, err)
		}
		rec.Own = &own
		headers, body, err := session.EncodeRecord(rec)
		if err != nil {
			t.Fatalf("encode a part of %d: %v", raw.StreamSeq, err)
		}
		put(session.Raw{Address: raw.Address, Headers: headers, Body: body})
		events = events[n:]
	}
}

func TestI9_AnySplitIntoRecordsFoldsTheSame(t *testing.T) {
	t.Parallel()
	split := 0
	rapid.Check(t, func(t *rapid.T) {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
		log := sessiontest.Generate(t, pick, rapid.IntRange(1, 50).Draw(t, "steps"))
		other := otherRecords(t, log.Records, pick)
		if err := anySplit(t, log, other, pick); err != nil {
			t.Fatal(err)
		}
		if len(other) > len(log.Records) {
			split++
		}
	})
	if split < 20 {
		t.Errorf("%d logs were split into more records than they had, want 20", split)
	}
}

// TestI9_AnyBatchesAndRedeliveryAreTheSameMirror feeds records, among them some
// that stop sessions, in random batches, again and over restarts, and wants every
// key to be what one record after the other leaves.
func TestI9_AnyBatchesAndRedeliveryAreTheSameMirror(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "pick") }
		raws := trouble(sessiontest.Generate(rt, pick, rapid.IntRange(1, 25).Draw(rt, "steps")).Records, pick)
		s := feedRandomly(rt, sessionstore.Config{Dir: "mirror", FS: vfs.NewMem()}, raws)
		defer s.Close()
		fresh, err := sessionstore.Open(sessionstore.Config{Dir: "fresh", FS: vfs.NewMem()})
		if err != nil {
			rt.Fatalf("open: %v", err)
		}
		defer fresh.Close()
		for i := range raws {
			if err := fresh.Apply(0, incarnation, raws[i:i+1]); err != nil {
				rt.Fatalf("apply: %v", err)
			}
		}
		want, err := sessionstore.Dump(fresh)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := sessionstore.Dump(s)
		if err != nil {
			rt.Fatal(err)
		}
		if err := sameKeys(want, got); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestI9_TheLawCanFail takes one valid record out of what each reader reads, and
// one event out of a tail, and wants the law to notice each.
func TestI9_TheLawCanFail(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(5, 0))
	forgotten := 0
	for range 20 {
		log := sessiontest.Generate(t, dice.IntN, 40)
		other := otherRecords(t, log.Records, dice.IntN)
		if err := anySplit(t, log, other, dice.IntN); err != nil {
			t.Fatal(err)
		}
		at := dice.IntN(len(other))
		raws := append([]session.Raw(nil), other...)
		raws[at] = session.Raw{StreamSeq: raws[at].StreamSeq} // stands in no log
		if err := anySplit(t, log, raws, dice.IntN); err == nil {
			t.Errorf("a stream without record %d of %d folds the same", at+1, len(raws))
		}
		if err := mirrorHolds(log, raws); err == nil {
			t.Errorf("a mirror without record %d of %d holds the same", at+1, len(raws))
		}
		r := sessiontest.Replay(other)
		for _, id := range log.Sessions {
			own := r.Events[id]
			n := 0
			for n < len(own) && own[n].Class == session.ClassGenesis {
				n++
			}
			if n+1 >= len(own) {
				continue
			}
			gap := n + dice.IntN(len(own)-n)
			r.Events[id] = append(append([]session.Event(nil), own[:gap]...), own[gap+1:]...)
			got, err := snapshotAndTail(r, id, dice.IntN)
			if err == nil && cmp.Equal(log.States[id], got) {
				t.Errorf("%s without event %d folds the same", id, own[gap].Seq)
			}
			forgotten++
		}
	}
	if forgotten < 20 {
		t.Errorf("%d events were forgotten, want 20", forgotten)
	}
}

// mirrorHolds compares the states in a mirror of records with a log's.
func mirrorHolds(log sessiontest.Log, raws []session.Raw) error {
	s, err := sessionstore.Open(sessionstore.Config{Dir: "mirror", FS: vfs.NewMem()})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Apply(0, incarnation, raws); err != nil {
		return err
	}
	for _, id := range log.Sessions {
		e, err := s.Session(id)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(log.States[id], e.State); diff != "" {
			return fmt.Errorf("%s:\n%s", id, diff)
		}
	}
	return nil
}
