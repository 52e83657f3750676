package main

import (
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		lines          []string
		passed, failed int
		shown, hidden  string
	}{
		{
			name: "tests and subtests count once each",
			lines: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestA/one"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p","Elapsed":1.25}`,
			},
			passed: 2, shown: "p 1.2s", hidden: "quiet",
		},
		{
			name: "a failed test shows its output and its package counts no more",
			lines: []string{
				`{"Action":"output","Package":"p","Test":"TestA","Output":"got 1, want 2\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			failed: 1, shown: "got 1, want 2",
		},
		{
			name: "a package that does not build is a failure",
			lines: []string{
				`{"Action":"build-output","ImportPath":"p","Output":"p.go:1: undefined: x\n"}`,
				`{"Action":"build-fail","ImportPath":"p"}`,
				`{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			},
			failed: 1, shown: "undefined: x",
		},
		{
			name:   "a skipped test is a failure",
			lines:  []string{`{"Action":"skip","Package":"p","Test":"TestA"}`, `{"Action":"pass","Package":"p"}`},
			failed: 1,
		},
		{
			name:  "a package without tests is none",
			lines: []string{`{"Action":"skip","Package":"p"}`},
		},
		{
			name:  "what is no event is printed",
			lines: []string{"go: no such tool"},
			shown: "go: no such tool",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			got := newTally(&out)
			if err := got.read(strings.NewReader(strings.Join(tt.lines, "\n"))); err != nil {
				t.Fatal(err)
			}
			if got.passed != tt.passed || got.failed != tt.failed {
				t.Errorf("counted %d passed, %d failed, want %d and %d", got.passed, got.failed, tt.passed, tt.failed)
			}
			if !strings.Contains(out.String(), tt.shown) {
				t.Errorf("printed %q, want %q in it", out.String(), tt.shown)
			}
			if tt.hidden != "" && strings.Contains(out.String(), tt.hidden) {
				t.Errorf("printed %q, want no %q in it", out.String(), tt.hidden)
			}
		})
	}
}
