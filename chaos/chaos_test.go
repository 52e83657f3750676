package chaos_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/chaos"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

var seedFlag = flag.Uint64("chaos.seed", 0, "seed of the fault runs; 0 takes CHAOS_SEED, or a new one")

const (
	chaosWorkers = 3
	chaosTrees   = 3 // at a time
	drainTime    = 90 * time.Second
)

// errLate ends a run that does not come to rest.
var errLate = errors.New("not at rest in time after the last kill")

// seed is the flag's, the environment's, or a new one.
func seed(t *testing.T) uint64 {
	t.Helper()
	if *seedFlag != 0 {
		return *seedFlag
	}
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("CHAOS_SEED: %v", err)
		}
		return n
	}
	return rand.Uint64()
}

// length is how long faults go on: CHAOS_SECONDS, or 20 s.
func length(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("CHAOS_SECONDS")
	if text == "" {
		return 20 * time.Second
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("CHAOS_SECONDS %q: use a number of seconds", text)
	}
	return time.Duration(n) * time.Second
}

// TestChaosKillsInTheMiddleOfDelegations keeps trees running on a deployment while
// its workers and its coordinator are killed, heals, lets everything come to its
// end, and then has the logs and the disk tell: every session ended, one child for
// each allowed delegating call, one answer to each question, nothing done twice or
// that was refused, no invariant broken.
func TestChaosKillsInTheMiddleOfDelegations(t *testing.T) {
	plan := chaos.NewPlan(seed(t), length(t))
	t.Logf("repeat with: CHAOS_SEED=%d go test -run Chaos ./chaos", plan.Seed)
	t.Log(plan)
	f := startFleet(t, buildEntail(t), chaosWorkers)
	a := connect(t, f.tokenFile)
	// What is allowed writes where the test's own user may.
	if err := a.ask(t.Context(), client.MethodConfigSet, client.ConfigSetRequest{Head: head(), Path: "confinement.fullAccessAs", Value: []byte(`"worker"`)}, nil); err != nil {
		t.Fatal(err)
	}
	n := chaos.NewNemesis(plan, []string{"w1", "w2", "w3"}, f.kill)

	faults, heal := context.WithTimeout(t.Context(), length(t))
	defer heal()
	all, late := context.WithTimeoutCause(t.Context(), length(t)+drainTime, errLate)
	defer late()
	var strikes []chaos.Strike
	g, ctx := errgroup.WithContext(all)
	g.Go(func() (err error) {
		strikes, err = n.Run(faults)
		return err
	})
	var trees, granted atomic.Int64 // granted is how many ran what they had asked for
	dir := t.TempDir()
	for slot := range chaosTrees {
		r := rand.New(rand.NewPCG(plan.Seed, uint64(slot)))
		g.Go(func() error {
			for round := 0; faults.Err() == nil; round++ {
				work := filepath.Join(dir, fmt.Sprintf("tree-%d-%d", slot, round))
				answer := []session.Outcome{session.AllowedOnce, session.Rejected}[(slot+round)%2]
				ran, err := oneTree(ctx, a, work, newScript(t, r), answer, n)
				if err != nil {
					return err
				}
				if trees.Add(1); ran {
					granted.Add(1)
				}
			}
			return nil
		})
	}
	err := g.Wait()
	for _, s := range strikes {
		t.Logf("killed %s", s)
	}
	if err != nil {
		t.Error(err)
	}
	v, err := chaos.Judge(t.Context(), a, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kills; %s", len(strikes), v)
	if err := v.Check(chaos.Floors{Trees: chaosTrees, Delegations: 4 * chaosTrees, HitAtCall: 1, HitAtGenesis: 1}); err != nil {
		t.Error(err)
	}
	if int64(v.Done) != trees.Load() {
		t.Errorf("%d trees were brought to their end, the logs have %d", trees.Load(), v.Done)
	}
	if granted.Load() < 1 {
		t.Error("nothing that was allowed was done")
	}
	t.Logf("%d trees ran what they had asked for", granted.Load())
	checkStrikes(t, strikes)
}

// oneTree runs one tree to its end and holds the disk to its log. It reports whether what
// the tree asked for was done.
func oneTree(ctx context.Context, a api, dir, script string, answer session.Outcome, n *chaos.Nemesis) (granted bool, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return false, err
	}
	tr, err := newTree(ctx, a, dir, script, answer, n.Offer)
	if err != nil {
		return false, err
	}
	if err := tr.run(ctx); err != nil {
		return false, err
	}
	return tr.marked["asked"], tr.checkDisk()
}

// checkStrikes wants a worker killed at each of the moments, and a coordinator.
func checkStrikes(t *testing.T, strikes []chaos.Strike) {
	t.Helper()
	count := map[string]int{}
	for _, s := range strikes {
		count[fmt.Sprintf("%s at %s", s.Victim, s.Moment)]++
	}
	for _, want := range []string{"worker at call", "worker at genesis", "coordinator at any time"} {
		if count[want] == 0 {
			t.Errorf("no %s was killed: %v", want, count)
		}
	}
}
