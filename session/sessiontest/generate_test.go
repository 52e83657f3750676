package sessiontest_test

import (
	"math/rand/v2"
	"testing"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// A law that holds over what the generator writes says something only of what it
// reaches: every type that a live log may hold, but for the ones that end or
// mend it from outside.
func TestGenerateReaches(t *testing.T) {
	t.Parallel()
	// The same choices in every run.
	rng := rand.New(rand.NewPCG(1, 2))
	seen := map[session.Type]int{}
	var voids, forks, parked, grants, below int
	for range 100 {
		log := sessiontest.Generate(t, rng.IntN, 60)
		r := sessiontest.Replay(log.Records)
		for _, id := range log.Sessions {
			for _, e := range r.Events[id] {
				seen[e.Type]++
				if d, ok := e.Payload.(*session.ToolDecision); ok && d.Grant != "" {
					grants++
				}
			}
			s := log.States[id]
			voids += log.Voids[id]
			if s.Header.InheritedEventCount > 0 {
				forks++
			}
			if s.Header.DelegationDepth > 1 {
				below++
			}
			if s.Open != nil && s.Open.Parked {
				parked++
			}
		}
	}
	rare := map[session.Type]bool{
		session.TypeRelease: true, session.TypeFormat: true, session.TypeBudget: true,
		session.TypeArchived: true, session.TypeTurnDeferred: true,
	}
	for _, spec := range session.Catalogue() {
		if seen[spec.Type] == 0 && !rare[spec.Type] {
			t.Errorf("no %s in 100 trees", spec.Type)
		}
	}
	if voids == 0 || forks == 0 || parked == 0 || grants == 0 || below == 0 {
		t.Errorf("voids %d, forks %d, parked %d, grants %d, grandchildren %d", voids, forks, parked, grants, below)
	}
	t.Logf("events %v, voids %d, forks %d, parked %d, grants %d, grandchildren %d", seen, voids, forks, parked, grants, below)
}
