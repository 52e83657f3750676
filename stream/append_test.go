package stream_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// Writers that do not know of each other, as of as many processes.
func TestRacingWritersKeepOneChain(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 25
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		acks = map[string]uint64{}
	)
	for i := range writers {
		l, v := w.log(t)
		wg.Go(func() {
			for j := range each {
				n := fmt.Sprintf("n%d-%d", i, j)
				done, err := l.Append(t.Context(), v, id, nudge(n))
				if err != nil {
					t.Errorf("%s: %v", n, err)
					return
				}
				mu.Lock()
				acks[n] = done.StreamSeq
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	ids, at := nudges(t, l, id)
	if len(ids) != writers*each {
		t.Errorf("%d nudges stand in the log, want %d", len(ids), writers*each)
	}
	for n, seq := range acks {
		if at[n] != seq {
			t.Errorf("%s was acknowledged at %d and stands at %d", n, seq, at[n])
		}
	}
	for i := range writers {
		var own []string
		for _, n := range ids {
			if k := -1; len(n) > 1 {
				if _, err := fmt.Sscanf(n, "n%d-", &k); err == nil && k == i {
					own = append(own, n)
				}
			}
		}
		want := make([]string, each)
		for j := range each {
			want[j] = fmt.Sprintf("n%d-%d", i, j)
		}
		if !slices.Equal(own, want) {
			t.Errorf("writer %d's nudges stand in the order %v", i, own)
		}
	}
	if n := l.Lanes(); n != 0 {
		t.Errorf("%d lanes are left", n)
	}
}

func TestGenesisOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	raw, err := l.Genesis(t.Context(), id, id)
	if err != nil || raw.Address != (session.Address{Session: id, Class: session.ClassGenesis, Creator: id}) {
		t.Errorf("genesis: got %v, %v", raw.Address, err)
	}
	other, ov := w.log(t)
	if _, err := other.Append(t.Context(), ov, id, genesisChange(id)); err == nil {
		t.Error("a session was created twice")
	}
	if n := len(records(t, l, id)); n != 1 {
		t.Errorf("%d records, want 1", n)
	}
}

// What an append says the log folds to is what its readers fold: for a genesis,
// for a record alone and for one that changes share.
func TestDoneHoldsWhatReadersFold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := rootID(t, 1)
	same := func(what string, done stream.Done) {
		t.Helper()
		view, err := v.View(t.Context(), id, done.StreamSeq)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&view.State, done.State); diff != "" || view.Tail != done.StreamSeq {
			t.Errorf("%s at %d, the view stands at %d (-view +done):\n%s", what, done.StreamSeq, view.Tail, diff)
		}
	}
	done, err := l.Append(t.Context(), v, id, genesisChange(id))
	if err != nil {
		t.Fatal(err)
	}
	same("a genesis", done)
	done, err = l.Append(t.Context(), v, id, stream.Change{
		Name: "switch", Class: session.ClassPolicy, Drafts: drafts(&session.SandboxSwitch{Mode: session.ReadOnly, By: person}),
	})
	if err != nil {
		t.Fatal(err)
	}
	same("a switch", done)
	message := func(id string) stream.Change {
		return stream.Change{Name: "send", Class: session.ClassInbox, Drafts: drafts(&session.UserMessage{
			ID: id, Role: "user", Source: session.MessageSource{Kind: session.FromUser}, By: person,
		})}
	}
	all := appendAll(t, l, v, id, message("a"), message("b"), message("c"))
	for _, r := range all {
		if r.err != nil {
			t.Fatal(r.err)
		}
	}
	if all[1].done.StreamSeq != all[2].done.StreamSeq {
		t.Fatal("no record is shared")
	}
	same("a shared record", all[2].done)
	if n := len(all[2].done.State.Pending); n != 3 {
		t.Errorf("%d messages are pending, want 3", n)
	}
}
