package chaos_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/chaos"
)

func TestPlanIsItsSeeds(t *testing.T) {
	t.Parallel()
	const length = 20 * time.Second
	if diff := cmp.Diff(chaos.NewPlan(7, length), chaos.NewPlan(7, length)); diff != "" {
		t.Errorf("two plans of one seed differ:\n%s", diff)
	}
	if cmp.Equal(chaos.NewPlan(7, length).Kills, chaos.NewPlan(8, length).Kills) {
		t.Error("two seeds have the same plan")
	}
}

func TestPlanHoldsWhatARunNeeds(t *testing.T) {
	t.Parallel()
	const length = 20 * time.Second
	for seed := range uint64(200) {
		p := chaos.NewPlan(seed, length)
		var workers, coordinators []chaos.Kill
		for _, k := range p.Kills {
			if k.After <= 0 || k.After >= length {
				t.Errorf("%v: a kill outside the run", p)
			}
			if k.Victim == chaos.Worker {
				workers = append(workers, k)
			} else {
				coordinators = append(coordinators, k)
			}
		}
		if len(workers) < 4 || workers[0].Moment != chaos.AtCall || workers[1].Moment != chaos.AtGenesis {
			t.Errorf("%v: want at least four workers killed, first at a call, then at a genesis", p)
		}
		if len(coordinators) != 1 || coordinators[0].After < length/3 || coordinators[0].After >= 2*length/3 {
			t.Errorf("%v: want one coordinator killed, in the middle third", p)
		}
		if !slices.IsSortedFunc(p.Kills, func(a, b chaos.Kill) int { return int(a.After - b.After) }) {
			t.Errorf("%v: not in order", p)
		}
	}
}
