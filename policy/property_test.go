package policy_test

import (
	"flag"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
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
}

// TestPropertyTrees grows random trees of sessions and holds them to I1, I12 and
// to the law that a cached policy equals a fold from zero.
func TestPropertyTrees(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set(trees); err != nil {
			t.Fatalf("set the number of trees: %v", err)
		}
	}
	reached := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		g := &grove{t: rt, reached: reached}
		g.plant()
		for range rapid.IntRange(8, 24).Draw(rt, "steps") {
			g.grow()
		}
		g.rest()
	})
	for _, what := range slices.Sorted(maps.Keys(reached)) {
		t.Logf("%6d %s", reached[what], what)
	}
	if checks.Value.String() != trees {
		return
	}
	for what, floor := range floors {
		if reached[what] < floor {
			t.Errorf("reached %q %d times, want at least %d", what, reached[what], floor)
		}
	}
}

// TestPropertyCanFail takes one rule of delegation out by build tag and wants the
// property to notice.
func TestPropertyCanFail(t *testing.T) {
	t.Parallel()
	for tag, law := range map[string]string{"mutate_capture": "I1", "mutate_pin": "I1", "mutate_identity": "I1"} {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-tags", tag, "-run", "^TestPropertyTrees$", ".",
				"-rapid.nofailfile", "-rapid.shrinktime=0s").CombinedOutput()
			if err == nil {
				t.Fatalf("the property holds without the rule:\n%s", out)
			}
			if !strings.Contains(string(out), "--- FAIL: TestPropertyTrees") || !strings.Contains(string(out), law+":") {
				t.Errorf("the build failed for another reason, want law %s:\n%s", law, out)
			}
		})
	}
}
