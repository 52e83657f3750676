package policy_test

import (
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/entail-fleet/entail/policy/policytest"
)

// TestPropertyOfAFewTrees is what TestPropertyCanFail breaks. The same trees, many
// of them, and what other readers make of them, are in internal/trees.
func TestPropertyOfAFewTrees(t *testing.T) {
	t.Parallel()
	var f policytest.Forest
	rapid.Check(t, func(rt *rapid.T) {
		f.Grow(rt, func(what string) bool { return rapid.Bool().Draw(rt, what) })
	})
}

// TestPropertyCanFail takes one rule of delegation out by build tag and wants the
// property to notice.
func TestPropertyCanFail(t *testing.T) {
	t.Parallel()
	for tag, law := range map[string]string{"mutate_capture": "I1", "mutate_pin": "I1", "mutate_identity": "I1"} {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-tags", tag, "-run", "^TestPropertyOfAFewTrees$", ".",
				"-rapid.nofailfile", "-rapid.shrinktime=0s").CombinedOutput()
			if err == nil {
				t.Fatalf("the property holds without the rule:\n%s", out)
			}
			if !strings.Contains(string(out), "--- FAIL: TestPropertyOfAFewTrees") || !strings.Contains(string(out), law+":") {
				t.Errorf("the build failed for another reason, want law %s:\n%s", law, out)
			}
		})
	}
}
