package bench_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/internal/bench"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// TestEveryFigureIsMeasured runs the whole once, with few operations, and asserts
// no time: that each named figure comes, with both sides measured.
func TestEveryFigureIsMeasured(t *testing.T) {
	t.Parallel()
	const figures = 48
	names := map[string]bool{}
	err := bench.RunScaled(t.Context(), 50, nil, func(f bench.Figure) {
		names[f.Name] = true
		// .ci/run says so where bubblewrap cannot be had.
		if _, err := exec.LookPath("bwrap"); f.Missing != "" && (err != nil || os.Getenv("CI") == "") {
			t.Logf("NOT MEASURED: %q: %s", f.Name, f.Missing)
			return
		}
		if measured := f.Raw > 0 && f.Ratio > 0 || f.Target == 0; !measured || f.Ours <= 0 || f.N <= 0 {
			t.Errorf("%q was not measured: %+v", f.Name, f)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != figures {
		t.Errorf("%d figures, want %d: %v", len(names), figures, names)
	}
}

func TestAnUnknownGroupIsNamed(t *testing.T) {
	t.Parallel()
	err := bench.Run(t.Context(), []string{"append", "apend"}, func(f bench.Figure) { t.Errorf("%q was measured", f.Name) })
	if err == nil || !strings.Contains(err.Error(), `"apend"`) || !strings.Contains(err.Error(), "append, ") {
		t.Errorf("Run = %v, want an error that names the group and those there are", err)
	}
}
