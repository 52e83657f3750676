package coordinator_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A rule that a build tag takes out, here or in a package below, and the test that must
// fail then.
func TestRulesAreGuarded(t *testing.T) {
	t.Parallel()
	for tag, guard := range map[string]struct{ pkg, test string }{
		"mutate_stale": {".", "TestSPEC5_6_AnAnswerAfterASwitchDoesNotCount"},
		"mutate_ids":   {".", "TestSPEC7_2_SendersAtOnceAgreeOnAnID"},
		"mutate_relay": {"../agent", "TestSPEC7_6_WhoMaySpeakToWhom"},
	} {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-ldflags=-w", "-count=1", "-tags", tag, "-run", "^"+guard.test+"$", guard.pkg).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: "+guard.test+" ") {
				t.Errorf("%s passes without its rule, or did not run: %v\n%s", guard.test, err, out)
			}
		})
	}
}
