package chaos_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The tests of internal/races: on one server, on three whose leader steps down, and
// on three whose leader is cut off or killed.
const (
	raceOnOne   = "TestSPEC4_4_SwitchDelegateAndDecideAreLinearizable"
	raceOnThree = raceOnOne + "ThroughLeaderChanges"
	raceOnLost  = raceOnOne + "ThroughLostLeaders"
	racesPkg    = "github.com/entail-fleet/entail/internal/races"
)

// runRaces runs one of them for a while, in a build of its own, and returns what it
// said. Zero is one round.
func runRaces(t *testing.T, test string, seed uint64, length time.Duration, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"test", "-count=1", "-vet=off", "-v", "-timeout", (length + drainTime).String(), "-run", "^" + test + "$"}, args...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, racesPkg)...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("RACES_SEED=%d", seed))
	if length > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("RACES_SECONDS=%d", int(length.Seconds())))
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestChaosRacesAreLinearizable races round after round for CHAOS_SECONDS, each in
// new sessions: the first half on one server, the second on three whose leader
// steps down three times in every round.
func TestChaosRacesAreLinearizable(t *testing.T) {
	s := seed(t)
	t.Logf("repeat with: CHAOS_SEED=%d go test -run ChaosRaces ./chaos", s)
	for _, test := range []string{raceOnOne, raceOnThree} {
		out, err := runRaces(t, test, s, max(length(t)/2, time.Second))
		if err != nil || !strings.Contains(out, "--- PASS: "+test) {
			t.Errorf("%s: %v\n%s", test, err, out)
			continue
		}
		t.Log(out)
	}
}

// TestChaosRacesNoticeAMissingRule takes out a rule of the compare-and-set at a
// time. The same races then have no order that fits, and say so. That every
// writer names the same filter, and what 10164 means, matter on three servers.
func TestChaosRacesNoticeAMissingRule(t *testing.T) {
	for _, tt := range []struct{ tag, test string }{
		{"mutate_cas", raceOnOne},
		{"mutate_filter", raceOnOne},
		{"mutate_filter_mixed", raceOnThree},
		{"mutate_10164", raceOnThree},
		{"mutate_cas", raceOnLost},
		{"mutate_filter", raceOnLost},
		{"mutate_filter_mixed", raceOnLost},
		{"mutate_10164", raceOnLost},
	} {
		t.Run(tt.tag+strings.TrimPrefix(tt.test, raceOnOne), func(t *testing.T) {
			out, err := runRaces(t, tt.test, seed(t), 0, "-tags", tt.tag)
			switch {
			case err == nil:
				t.Errorf("%s passes without its rule:\n%s", tt.test, out)
			case !strings.Contains(out, "--- FAIL: "+tt.test+" "):
				t.Errorf("%s did not run: %v\n%s", tt.test, err, out)
			case !strings.Contains(out, "the history is not linearizable"):
				t.Errorf("%s fails for another reason:\n%s", tt.test, out)
			}
		})
	}
}
