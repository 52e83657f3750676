package trees_test

import (
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/entail-fleet/entail/policy/policytest"
)

// trees is how many trees TestPropertyTrees grows, unless -rapid.checks says
// otherwise.
const trees = "2000"

// floors are what the trees must have reached at least, all taken together. A
// generator that stops reaching something makes its laws say nothing.
var floors = map[string]int{
	"spawn": 500, "fork": 1000, "one-shot": 1000, "continuable": 1000,
	"depth 1": 1000, "depth 2": 500, "depth 3": 200,
	"narrowed": 200, "filtered": 500, "filtered twice": 70,
	"handed down auto": 200, "handed down Full access": 200, "handed down a derived identity": 100, "handed down no mode": 500,
	"a fork without a seed": 300, "a stale mode in the prefix": 100, "the sibling identity in the prefix": 70,
	"a fork of a fork": 200, "a person's fork of a fork": 100, "a seed that ends": 2000,
	"a person's fork": 300, "a person's fork of a pinned child": 100, "lifted a pin in a person's fork": 10,
	"switched sandbox": 500, "switched approval": 200, "selected a preset": 500, "switched a child": 500,
	"delegated by a switched child": 200, "new defaults": 400, "released": 100, "a turn": 500,
	"refused a delegation: depth": 50, "refused a delegation: live children": 50, "refused a delegation: filter": 50,
	"refused a delegation: narrowed under auto": 50, "refused a delegation: no reviewer": 10,
	"refused a delegation: sandbox left out": 40, "refused a delegation: wider": 200,
	"refused a person: APPROVALS_PINNED": 100, "refused a person: NOT_COMPOSED": 500, "refused a person: NO_REVIEWER": 100,
	"composed {Sandbox:false Approvals:false Presets:false}": 40, "composed {Sandbox:false Approvals:false Presets:true}": 40,
	"composed {Sandbox:false Approvals:true Presets:false}": 40, "composed {Sandbox:false Approvals:true Presets:true}": 40,
	"composed {Sandbox:true Approvals:false Presets:false}": 40, "composed {Sandbox:true Approvals:false Presets:true}": 40,
	"composed {Sandbox:true Approvals:true Presets:false}": 40, "composed {Sandbox:true Approvals:true Presets:true}": 500,
	"session": 8000, "record": 40000, "record that was split anew": 30000, "record that was delivered again": 1000,
}

// TestPropertyTrees grows random trees of sessions and holds them to I1, I12 and
// to the law that a cached policy equals a fold from zero, step by step. Their
// records stand in one stream, which a mirror follows. At the end each session is
// folded again: all its events in one go, from zero; in records of another split;
// from the mirror, opened anew; and from the records read back from the stream.
func TestPropertyTrees(t *testing.T) {
	t.Parallel()
	checks, seed := flag.Lookup("rapid.checks"), flag.Lookup("rapid.seed")
	set(t, checks, trees)
	set(t, seed, strconv.FormatInt(time.Now().UnixNano(), 10))
	t.Logf("grow the same trees again with -rapid.seed=%s", seed.Value)

	w := newWorld(t)
	var f policytest.Forest
	var grown []*policytest.Tree
	rapid.Check(t, func(rt *rapid.T) {
		tree := f.Grow(rt, func(what string) bool { return rapid.Bool().Draw(rt, what) })
		w.publish(rt, tree.Records)
		grown = append(grown, tree)
	})
	read := w.read(t)
	chance := rand.New(rand.NewPCG(1, uint64(len(grown))))
	for i, tree := range grown {
		records, err := read.agree(tree, chance)
		if err != nil {
			t.Fatalf("tree %d: %v", i, err)
		}
		f.Reached["session"] += len(tree.Logs)
		f.Reached["record"] += len(tree.Records)
		f.Reached["record that was split anew"] += records
	}
	f.Reached["record that was delivered again"] = w.again
	for _, what := range slices.Sorted(maps.Keys(f.Reached)) {
		t.Logf("%6d %s", f.Reached[what], what)
	}
	if checks.Value.String() != trees {
		return
	}
	for what, floor := range floors {
		if f.Reached[what] < floor {
			t.Errorf("reached %q %d times, want at least %d", what, f.Reached[what], floor)
		}
	}
}

// set gives a flag a value unless somebody has.
func set(t *testing.T, f *flag.Flag, value string) {
	t.Helper()
	if f.Value.String() != f.DefValue {
		return
	}
	if err := f.Value.Set(value); err != nil {
		t.Fatalf("set -%s: %v", f.Name, err)
	}
}
