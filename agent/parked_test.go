//go:build !race

package agent_test

// What the race detector adds to memory and time says nothing about a worker's.

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// inReplicas is about how much memory is in use that replicas allocated, as the
// heap profile samples it.
func inReplicas() int {
	runtime.GC()
	runtime.GC() // the profile is of the collection before the last
	records := make([]runtime.MemProfileRecord, 100_000)
	n, _ := runtime.MemProfile(records, false)
	total := 0.0
	for _, r := range records[:n] {
		for frames, more := runtime.CallersFrames(r.Stack()), true; more; {
			var f runtime.Frame
			if f, more = frames.Next(); strings.Contains(f.Function, "agent.(*Replica)") {
				each := float64(r.InUseBytes()) / float64(r.InUseObjects())
				total += float64(r.InUseBytes()) / (1 - math.Exp(-each/float64(runtime.MemProfileRate)))
				break
			}
		}
	}
	return int(total)
}

// A thousand sessions whose turns wait for a child cost the worker that parked them
// nothing. It parks them all before it comes to the first child, where it stays.
// Alone in the process, because memory is measured.
func TestParkedSessionsCostNothing(t *testing.T) {
	w := newWorld(t, unswept)
	w.parkedCostNothing(t, `
sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, label: child, prompt: p}}]
    - text: done
  child:
    - {text: never, wait_for: `+w.path("never")+"}\n")
}

// Nor do a thousand that wait for a person's answer.
// Alone in the process, because memory is measured.
func TestSessionsThatAskCostNothing(t *testing.T) {
	w := newWorld(t, unswept)
	ids := w.parkedCostNothing(t, wantsMore)
	for _, id := range ids {
		e, err := w.store.Session(id)
		w.must(err)
		if len(e.State.Questions()) != 1 {
			t.Fatalf("session %s is parked on %d questions, want 1", id, len(e.State.Questions()))
		}
	}
}

// parkedCostNothing has a worker park a thousand sessions on a script, and returns them.
func (w *world) parkedCostNothing(t *testing.T, script string) []session.ID {
	t.Helper()
	const sessions, spare, size = 1000, 20, 4_000 // a hint that was put back may come behind the children's
	var ids, parkedIDs []session.ID
	for range sessions + spare {
		ids = append(ids, w.root(script, func(in *client.CreateRequest) {
			in.Prompt, in.Surface = strings.Repeat("x", size), session.SurfaceAny
		}))
	}
	k := w.work("w1", 2)
	for want := 20; want <= sessions; want += 20 {
		eventually(t, fmt.Sprintf("%d sessions are parked", want), func() bool {
			ids = slices.DeleteFunc(ids, func(id session.ID) bool {
				e, err := w.store.Session(id)
				w.must(err)
				if e.State.Open == nil || !e.State.Open.Parked {
					return false
				}
				parkedIDs = append(parkedIDs, id)
				return true
			})
			return len(parkedIDs) >= want
		})
	}
	eventually(t, "only what is driven is in memory", func() bool { ids, _ := k.Replicas().Kept(); return len(ids) <= 2*2 })
	parked := inReplicas()

	all := agent.NewReplicas(agent.Config{Log: w.log, Client: w.api, Lease: lease}, time.Hour, sessions, 1<<30)
	for _, id := range parkedIDs[:sessions] {
		_, done, err := all.Open(t.Context(), id)
		w.must(err)
		done()
	}
	held := inReplicas() - parked
	kept, bytes := all.Kept()
	t.Logf("replicas: %d bytes with all parked, %d when all are held, counted as %d", parked, held, bytes)
	if len(kept) != sessions || held < sessions*size {
		t.Fatalf("%d replicas took %d bytes, want %d with at least %d each: the measure misses them", len(kept), held, sessions, size)
	}
	if parked > held/5 { // the profile samples
		t.Errorf("with %d sessions parked the worker held %d bytes; they take %d", sessions, parked, held)
	}
	if bytes < held || bytes > 3*held {
		t.Errorf("replicas that allocated %d bytes, beside the records they were read from, count as %d", held, bytes)
	}
	return parkedIDs
}
