package agent_test

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each rule of the package is taken out by a build tag; the tests that guard it must
// fail then.
func TestRulesOfWorkersAreGuarded(t *testing.T) {
	t.Parallel()
	guards := map[string]string{
		"mutate_drain":    "TestSIGTERMHandsOverAtTheDeadline",
		"mutate_needs":    "TestSPEC5_4_NeedsAreKept",
		"mutate_offers":   "TestSPEC7_9_OnlyWhatIsOffered",
		"mutate_clothes":  "TestSPEC5_8_OtherClothesAreTheSameCall",
		"mutate_failures": "TestC4_FailuresAreNoDenials",
		"mutate_rerun":    "TestE1_CrashInsideAnEffect",
	}
	// Where a guard is that starts a worker's program.
	elsewhere := map[string]string{"mutate_drain": "../cmd/worker"}
	if got, want := tags(t), slices.Sorted(maps.Keys(guards)); !slices.Equal(got, want) {
		t.Errorf("the package has the tags %v, guarded are %v", got, want)
	}
	for tag, guard := range guards {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-ldflags=-w", "-count=1", "-tags", tag, "-run", "^"+guard+"$", cmp.Or(elsewhere[tag], ".")).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: "+guard+" ") {
				t.Errorf("%s passes without its rule, or did not run: %v\n%s", guard, err, out)
			}
		})
	}
}

// tags returns the tags that take a rule of the package out.
func tags(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*_mutated.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		constraint, _, _ := strings.Cut(string(text), "\n")
		for _, tag := range regexp.MustCompile(`mutate_\w+`).FindAllString(constraint, -1) {
			found[tag] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
