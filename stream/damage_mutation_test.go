//go:build !mutate_seen && !mutate_tail0 && !mutate_compare && !mutate_owed

package stream_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Each rule that notices damage is taken out by a build tag; the test of the case
// that it alone notices must fail then.
func TestRulesThatNoticeDamageAreGuarded(t *testing.T) {
	t.Parallel()
	for tag, guard := range map[string]string{
		"mutate_seen":    "TestDamageOfALastRecordIsALowerTail",
		"mutate_tail0":   "TestDamageDoesNotMakeASessionEmpty",
		"mutate_compare": "TestDamageInAnOldBlock",
		"mutate_owed":    "TestDamageIsSeenByANewReader",
	} {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-tags", tag, "-run", "^"+guard+"$", ".").CombinedOutput()
			if err == nil {
				t.Fatalf("%s passes without its rule", guard)
			}
			if !strings.Contains(string(out), "--- FAIL: "+guard) {
				t.Errorf("%s did not run:\n%s", guard, out)
			}
		})
	}
}
