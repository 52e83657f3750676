package races_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/internal/races"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// calls is how many calls each raced session has to decide; every second one
// delegates.
const calls = 24

// How many sessions are raced at a time.
const (
	onOne   = 4 // server
	onThree = 2 // servers, where an append takes longer
)

// patience is how long one round may take, and porcupine after it.
const patience = time.Minute

// tally is what a round came to. One that raced too little shows nothing.
type tally struct {
	switches, decisions, children, denials, conflicts, overlaps, unknown int
}

// atLeast fails the test unless each floor is reached.
func (have tally) atLeast(t *testing.T, floor tally) {
	t.Helper()
	t.Logf("%+v", have)
	if have.switches < floor.switches || have.decisions < floor.decisions || have.children < floor.children ||
		have.denials < floor.denials || have.conflicts < floor.conflicts || have.overlaps < floor.overlaps || have.unknown < floor.unknown {
		t.Errorf("too little was raced: %+v, at least %+v", have, floor)
	}
}

// On one broker, two coordinators, four workers and people who switch.
func TestSPEC4_4_SwitchDelegateAndDecideAreLinearizable(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	w := deploy(t, natstest.Start(t), 1)
	for round := range rounds(t) {
		w.round(seed, uint64(round), onOne, nil).atLeast(t, floors(onOne))
		if t.Failed() {
			return
		}
	}
}

// floors are what a round of so many sessions shows at least. The rest of what was
// asked for may be of unknown outcome or hold already.
func floors(sessions int) tally {
	return tally{
		switches: persons / 3 * sessions, decisions: calls / 3 * sessions, children: spec.Live / 4 * sessions,
		denials: sessions / 2, conflicts: calls / 2 * sessions, overlaps: calls / 2 * sessions, unknown: sessions,
	}
}

// On three brokers, while the leader of the sessions' stream steps down again and
// again.
func TestSPEC4_4_SwitchDelegateAndDecideAreLinearizableThroughLeaderChanges(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	cluster := natstest.StartCluster(t)
	w := deploy(t, cluster, natstest.Nodes)
	for round := range rounds(t) {
		stepped := 0
		w.round(seed, uint64(round), onThree, func(rec *recorder, over <-chan struct{}) {
			for i := range stepDowns {
				if !rec.reach((i+1)*onThree*(calls+persons)/(stepDowns+1), over) {
					return
				}
				cluster.StepDown(t, stream.StreamName(0))
				stepped++
			}
		}).atLeast(t, floors(onThree))
		if stepped < stepDowns {
			t.Errorf("the leader stepped down %d times, want %d", stepped, stepDowns)
		}
		if t.Failed() {
			return
		}
	}
}

// stepDowns is how often the leader changes in a round.
const stepDowns = 3

// The environment that a longer run is asked for with.
const (
	envSeconds = "RACES_SECONDS"
	envSeed    = "RACES_SEED"
)

// seedOf is the environment's seed, or a new one.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(envSeed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", envSeed, err)
		}
	}
	t.Logf("repeat with: %s=%d go test -run '^%s$' ./internal/races", envSeed, seed, t.Name())
	return seed
}

// rounds is one round, or as many as fit into the seconds of the environment.
func rounds(t *testing.T) func(func(int) bool) {
	t.Helper()
	length := time.Duration(0)
	if text := os.Getenv(envSeconds); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s %q: use a number of seconds", envSeconds, text)
		}
		length = time.Duration(n) * time.Second
	}
	end := time.Now().Add(length)
	return func(yield func(int) bool) {
		for i := 0; i == 0 || time.Now().Before(end); i++ {
			if !yield(i) {
				return
			}
		}
	}
}

// round races in some new sessions and judges what came of it. Beside is run
// while the race goes on; it may be nil.
func (w *world) round(seed, n uint64, sessions int, beside func(rec *recorder, over <-chan struct{})) tally {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	rec := newRecorder()
	r := rand.New(rand.NewPCG(seed, n))
	var ids []session.ID
	var ready []func(context.Context)
	for range sessions {
		x := w.prepare(rec, r)
		ids, ready = append(ids, x.id), append(ready, x.ready...)
	}
	var all sync.WaitGroup
	for _, run := range ready {
		all.Go(func() { run(ctx) })
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		all.Wait()
	}()
	if beside != nil {
		beside(rec, over)
	}
	<-over
	if err := ctx.Err(); err != nil {
		w.t.Errorf("the round did not end: %v", err)
	}
	return w.judge(rec.ops, ids)
}

// judge reads back what was written and has porcupine find an order.
func (w *world) judge(ops []*operation, ids []session.ID) tally {
	w.t.Helper()
	begun := map[session.ID]session.Seq{}
	var sum tally
	for _, op := range ops {
		if op.input.Kind == races.Begin {
			begun[op.input.Session] = op.begin.Next
		}
	}
	wrote := map[author]*races.Record{}
	for _, id := range ids {
		records, err := w.readBack(id, begun[id])
		if err != nil {
			w.t.Error(err)
		}
		maps.Copy(wrote, records)
	}
	last := map[author]*operation{}
	for _, op := range ops {
		last[op.author()] = op
	}
	h := history(ops, func(op *operation) *races.Record {
		if last[op.author()] != op {
			return nil // tried again: what stands is of the last try
		}
		return wrote[op.author()]
	})
	for who := range wrote {
		if last[who] == nil {
			w.t.Errorf("nobody asked for what %+v wrote", who)
		}
	}
	w.linearizable(h)
	for _, op := range ops {
		if op.failed != nil {
			w.t.Errorf("%s of %s: %v", op.input.Kind, op.input.Session, op.failed)
		}
	}
	for _, id := range ids {
		w.sound(w.t, id)
	}
	for _, op := range h {
		sum.count(op)
	}
	sum.overlaps = overlaps(h)
	return sum
}

// linearizable fails the test unless porcupine finds an order, and leaves a
// picture of what it looked at.
func (w *world) linearizable(h []porcupine.Operation) {
	w.t.Helper()
	model := spec.Model()
	result, info := porcupine.CheckOperationsVerbose(model, h, patience)
	if result == porcupine.Ok {
		return
	}
	picture := filepath.Join(w.t.ArtifactDir(), "history.html")
	if err := porcupine.VisualizePath(model, info, picture); err != nil {
		w.t.Error(err)
	}
	if result == porcupine.Illegal {
		w.t.Errorf("the history is not linearizable, see %s", picture)
	} else {
		w.t.Errorf("it was not found out in time whether the history is linearizable, see %s", picture)
	}
	for _, part := range model.Partition(h) {
		for _, line := range spec.Explain(part) {
			w.t.Log(line)
		}
	}
}

func inputOf(op porcupine.Operation) races.Input {
	in, ok := op.Input.(races.Input)
	if !ok {
		panic("a history holds something else")
	}
	return in
}

func outputOf(op porcupine.Operation) races.Output {
	out, ok := op.Output.(races.Output)
	if !ok {
		panic("a history holds something else")
	}
	return out
}

// count adds an operation that ended.
func (have *tally) count(op porcupine.Operation) {
	out := outputOf(op)
	switch {
	case out.Ending == races.Unknown:
		have.unknown++
	case out.Ending == races.Refused:
		have.conflicts++
	case out.Record == nil:
	case out.Record.Switched != nil:
		have.switches++
	case out.Record.Child != nil:
		have.children++
	case out.Record.Verdict == session.Deny:
		have.denials++
	default:
		have.decisions++
	}
}

// overlaps counts the pairs of operations of one session that were under way at
// the same time and were both acknowledged for what they wrote.
func overlaps(h []porcupine.Operation) int {
	h = slices.DeleteFunc(slices.Clone(h), func(op porcupine.Operation) bool {
		out := outputOf(op)
		return out.Ending != races.Done || out.Record == nil
	})
	n := 0
	for i, a := range h {
		for _, b := range h[:i] {
			same := inputOf(a).Session == inputOf(b).Session
			if same && a.Call < b.Return && b.Call < a.Return {
				n++
			}
		}
	}
	return n
}
