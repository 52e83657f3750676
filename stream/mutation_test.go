//go:build !mutate_cas && !mutate_filter && !mutate_10164

package stream_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Each rule is taken out by a build tag; the test that guards it must notice.
func TestRulesAreGuarded(t *testing.T) {
	t.Parallel()
	for tag, guard := range map[string]string{
		"mutate_cas":    "TestRacingWritersKeepOneChain",
		"mutate_filter": "TestRacingWritersKeepOneChain",
		"mutate_10164":  "TestBusyIsTriedAgainWithTheSameExpectation",
	} {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-tags", tag, "-run", "^"+guard+"$", ".").CombinedOutput()
			if err == nil {
				t.Fatalf("%s passes without its rule", guard)
			}
			if !strings.Contains(string(out), "--- FAIL: "+guard) {
				t.Errorf("%s did not run:\n%s", guard, out)
			}
		})
	}
}
