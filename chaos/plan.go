package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Victim is a kind of process that is killed.
type Victim string

// The victims.
const (
	Worker      Victim = "worker"
	Coordinator Victim = "coordinator"
)

// Moment is when a process is killed.
type Moment string

// The moments. The first two are of a delegating call that is open.
const (
	// AtCall is as soon as the call is in the log and not yet decided.
	AtCall Moment = "call"
	// AtGenesis is as soon as the child's genesis, which holds the decision, is
	// in the log and the call has no result.
	AtGenesis Moment = "genesis"
	// AtAnyTime is when the plan says, whatever goes on.
	AtAnyTime Moment = "any time"
)

// Kill is one kill of a plan.
type Kill struct {
	// After is how long after the start the kill is due. One that waits for a
	// moment comes with the first such moment from then on.
	After time.Duration
	// Victim is what is killed. For AtCall and AtGenesis it is the worker that
	// drives the call.
	Victim Victim
	// Moment is when.
	Moment Moment
	// Pick chooses among the workers of a kill at any time.
	Pick uint32
}

// String is the kill's one line.
func (k Kill) String() string {
	return fmt.Sprintf("%.1fs %s at %s", k.After.Seconds(), k.Victim, k.Moment)
}

// Plan is a schedule of kills, in order.
type Plan struct {
	Seed  uint64
	Kills []Kill
}

// String shows the seed and each kill.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d:", p.Seed)
	for _, k := range p.Kills {
		fmt.Fprintf(&b, " [%s]", k)
	}
	return b.String()
}

// Kills of workers come firstKill after the start and then between leastPause
// and twice that apart, so that what was killed is back before the next one.
const (
	firstKill  = time.Second
	leastPause = 1500 * time.Millisecond
)

// NewPlan returns the plan of a seed for a run of a length: workers are killed
// throughout, first at an open call, then at a genesis, then at moments left to
// chance, and a coordinator once in the middle third.
func NewPlan(seed uint64, length time.Duration) Plan {
	r := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a schedule is repeatable, not secret
	p := Plan{Seed: seed}
	moments := []Moment{AtCall, AtGenesis, AtAnyTime}
	for at := firstKill; at < length; at += leastPause + upTo(r, leastPause) {
		m := moments[r.IntN(len(moments))]
		if n := len(p.Kills); n < 2 {
			m = moments[n]
		}
		p.Kills = append(p.Kills, Kill{After: at, Victim: Worker, Moment: m, Pick: r.Uint32()})
	}
	if third := length / 3; third > 0 {
		p.Kills = append(p.Kills, Kill{After: third + upTo(r, third), Victim: Coordinator, Moment: AtAnyTime})
	}
	slices.SortStableFunc(p.Kills, func(a, b Kill) int { return cmp.Compare(a.After, b.After) })
	return p
}

// upTo returns a duration below d.
func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
