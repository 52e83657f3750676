package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// gate holds publishes back, so that changes gather behind the one in flight.
// Each publish first sends on arrived and then waits for open.
type gate struct {
	arrived chan struct{}
	open    chan struct{}
}

func newGate(l *stream.Log) gate {
	g := gate{make(chan struct{}, 1024), make(chan struct{})}
	l.Intercept(func(next stream.Publish) stream.Publish {
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			g.arrived <- struct{}{}
			select {
			case <-g.open:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return next(ctx, m)
		}
	})
	return g
}

// result is what an append came to.
type result struct {
	done stream.Done
	err  error
}

// appendAll starts an append of each change in the order given, the first one
// alone until it is in flight, and returns what each came to.
func appendAll(t *testing.T, l *stream.Log, v stream.Viewer, id session.ID, changes ...stream.Change) []result {
	t.Helper()
	g := newGate(l)
	out := make([]result, len(changes))
	var wg sync.WaitGroup
	for i, c := range changes {
		wg.Go(func() { out[i].done, out[i].err = l.Append(t.Context(), v, id, c) })
		if i == 0 {
			receive(t, "the first publish", g.arrived)
		} else {
			until(t, "a waiting change", func() bool { return l.Waiting() == i })
		}
	}
	close(g.open)
	wg.Wait()
	return out
}

func TestWaitingChangesShareARecord(t *testing.T) {
	t.Parallel()
	const callers, each = 20, 10
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				if _, err := l.Append(t.Context(), v, id, nudge(fmt.Sprintf("n%02d-%02d", i, j))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	ids, at := nudges(t, l, id)
	inRecords := map[uint64]bool{}
	for _, seq := range at {
		inRecords[seq] = true
	}
	if len(at) != callers*each || len(inRecords) >= callers*each {
		t.Errorf("%d changes stand in %d records, want %d in fewer", len(at), len(inRecords), callers*each)
	}
	for i := range callers {
		prefix := fmt.Sprintf("n%02d-", i)
		own := slices.DeleteFunc(slices.Clone(ids), func(n string) bool { return !strings.HasPrefix(n, prefix) })
		if len(own) != each || !slices.IsSorted(own) {
			t.Errorf("caller %d's changes stand in the order %v", i, own)
		}
	}
	if l.Lanes() != 0 {
		t.Errorf("%d lanes are left", l.Lanes())
	}
}

// A refused change holds up no other, and a precondition sees the events of the
// changes before it in the same record.
func TestMergedChangesAreEvaluatedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	refused := errors.New("refused")
	bad := nudge("bad")
	bad.Check = func(session.View) error { return refused }
	foreign := nudge("foreign")
	foreign.Drafts = drafts(&session.Nudge{By: person}) // without an id
	linked := nudge("c")
	linked.Check = func(v session.View) error {
		if l, ok := v.Link(v.State.Next - 1); !ok || l != v.State.Link {
			return errors.New("the view does not know its own last event")
		}
		return nil
	}
	got := appendAll(t, l, v, id, nudge("a"), bad, nudge("b"), nudge("b"), foreign, linked)
	if ids, _ := nudges(t, l, id); !slices.Equal(ids, []string{"a", "b", "c"}) {
		t.Errorf("stored %v, want a, b, c", ids)
	}
	if got[0].done.StreamSeq != 2 || got[2].done.StreamSeq != 3 || got[5].done.StreamSeq != 3 {
		t.Errorf("a stands at %d, b at %d, c at %d; want 2, 3, 3", got[0].done.StreamSeq, got[2].done.StreamSeq, got[5].done.StreamSeq)
	}
	if !errors.Is(got[1].err, refused) || !errors.Is(got[3].err, errExists) || got[4].err == nil {
		t.Errorf("refusals: %v, %v, %v", got[1].err, got[3].err, got[4].err)
	}
	for _, i := range []int{0, 2, 5} {
		if got[i].err != nil {
			t.Errorf("change %d: %v", i, got[i].err)
		}
	}
}

// A refusal that rests on events of the same record is not told when that record
// was not written.
func TestMergedRefusalIsEvaluatedAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	rival, rv := w.log(t)
	taken := errors.New("the slot is taken")
	var once sync.Once
	onlyIf := func(n, other string) stream.Change {
		c := nudge(n)
		c.Check = func(v session.View) error {
			if v.Has(other) {
				return taken
			}
			return nil
		}
		return c
	}
	first := onlyIf("b", "rival")
	draft := first.Drafts
	first.Drafts = func(v session.View) ([]session.Draft, error) {
		once.Do(func() {
			if _, err := rival.Append(t.Context(), rv, id, nudge("rival")); err != nil {
				t.Error(err)
			}
		})
		return draft(v)
	}
	// c is refused because of b; then b loses to the rival, and c may go on.
	got := appendAll(t, l, v, id, nudge("a"), first, onlyIf("c", "b"))
	if !errors.Is(got[1].err, taken) || got[2].err != nil {
		t.Errorf("b: %v, want it refused; c: %v, want it written", got[1].err, got[2].err)
	}
}

func TestMergedRecordIsSplitAtItsLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	changes := []stream.Change{nudge("first")}
	for i := range 5 {
		c := nudge("")
		c.Check = nil
		c.Drafts = drafts(&session.Nudge{ID: fmt.Sprintf("n%d", i), Reason: strings.Repeat("x", 300<<10), By: person})
		changes = append(changes, c)
	}
	for i, r := range appendAll(t, l, v, id, changes...) {
		if r.err != nil {
			t.Errorf("change %d: %v", i, r.err)
		}
	}
	ids, at := nudges(t, l, id)
	want := map[string]uint64{"first": 2, "n0": 3, "n1": 3, "n2": 4, "n3": 4, "n4": 5}
	for n, seq := range want {
		if at[n] != seq {
			t.Errorf("%s stands at %d, want %d (order %v)", n, at[n], seq, ids)
		}
	}
}

func TestRecordOverItsLimitIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	l.Intercept(func(stream.Publish) stream.Publish {
		return func(context.Context, *nats.Msg) (*jetstream.PubAck, error) {
			t.Error("something was sent")
			return nil, nats.ErrTimeout
		}
	})
	c := nudge("")
	c.Check = nil
	c.Drafts = drafts(&session.Nudge{ID: "big", Reason: strings.Repeat("x", session.MaxRecord), By: person})
	if _, err := l.Append(t.Context(), v, id, c); !errors.Is(err, session.ErrTooLarge) {
		t.Errorf("got %v, want it too large", err)
	}
}

// What the fold would refuse is never sent (SPEC 3.3).
func TestAppendRefusesWhatReadersWouldRefuse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	epoch := func(n uint64) func(session.View) uint64 { return func(session.View) uint64 { return n } }
	claim := &session.Claim{Epoch: 1, Worker: "w1", Incarnation: "i", Cause: session.CauseStart}
	tests := map[string]stream.Change{
		"a type of another class": {Class: session.ClassInbox, Drafts: drafts(&session.TurnStart{Turn: 1})},
		"a switch in a turn":      {Class: session.ClassTurn, Epoch: epoch(1), Drafts: drafts(&session.SandboxSwitch{Mode: session.ReadOnly})},
		"a foreign value":         {Class: session.ClassPolicy, Drafts: drafts(&session.SandboxSwitch{Mode: "all", By: person})},
		"no party":                {Class: session.ClassInbox, Drafts: drafts(&session.Nudge{ID: "a"})},
		"out of order":            {Class: session.ClassTurn, Epoch: epoch(1), Drafts: drafts(claim, &session.StepStart{Turn: 1, Step: 1})},
		"a stale epoch":           {Class: session.ClassTurn, Epoch: epoch(0), Drafts: drafts(&session.TurnStart{Turn: 1})},
		"an epoch ahead":          {Class: session.ClassTurn, Epoch: epoch(2), Drafts: drafts(claim)},
		"no epoch":                {Class: session.ClassTurn, Drafts: drafts(claim)},
		"class genesis":           {Class: session.ClassGenesis, Drafts: drafts(claim)},
		"nothing":                 {Class: session.ClassInbox},
		"another's genesis":       {Genesis: birth(rootID(t, 2))},
		"a second genesis":        {Genesis: birth(id)},
	}
	for name, c := range tests {
		c.Name = name
		if _, err := l.Append(t.Context(), v, id, c); err == nil || errors.Is(err, stream.ErrUnknown) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	if n := len(records(t, l, id)); n != 1 {
		t.Errorf("%d records, want the genesis alone", n)
	}
	if _, err := l.Append(t.Context(), v, id, stream.Change{Class: session.ClassTurn, Epoch: epoch(1), Drafts: drafts(claim, &session.TurnStart{Turn: 1})}); err != nil {
		t.Errorf("a claim: %v", err)
	}
	if raw := records(t, l, id)[1]; raw.Headers["Entail-Epoch"] != "1" || raw.Headers["Entail-Writer"] != "test t1 i1" {
		t.Errorf("headers of the claim: %v", raw.Headers)
	}
}

// A caller that stops waiting holds up nobody, and a lane goes on without it.
func TestCallersThatStopWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	g := newGate(l)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	start := func(i int) context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { _, errs[i] = l.Append(ctx, v, id, nudge(strconv.Itoa(i))) })
		return cancel
	}
	flying := start(0)
	defer flying()
	receive(t, "the first publish", g.arrived)
	waiting := start(1)
	defer waiting()
	until(t, "a waiting change", func() bool { return l.Waiting() == 1 })
	defer start(2)()
	until(t, "two waiting changes", func() bool { return l.Waiting() == 2 })
	waiting() // in its lane: never written
	until(t, "the change gone", func() bool { return l.Waiting() == 1 })
	flying() // alone in flight: unknown
	receive(t, "the next publish", g.arrived)
	close(g.open)
	wg.Wait()
	if !errors.Is(errs[0], stream.ErrUnknown) {
		t.Errorf("in flight: got %v, want an unknown outcome", errs[0])
	}
	if !errors.Is(errs[1], context.Canceled) || errors.Is(errs[1], stream.ErrUnknown) {
		t.Errorf("waiting: got %v, want it cancelled and nothing else", errs[1])
	}
	if ids, _ := nudges(t, l, id); errs[2] != nil || !slices.Equal(ids, []string{"2"}) || l.Lanes() != 0 {
		t.Errorf("the third: %v; stored %v; %d lanes left", errs[2], ids, l.Lanes())
	}
}
