package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A run that was stopped in a loop of denials says so in its last words, and by its
// exit code.
func TestC4_ARunSaysThatItWasALoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	story := filepath.Join(w.work, "story.yaml")
	loop := strings.Repeat("    - calls: [{id: c, tool: write, args: {path: f, content: x}}]\n", 25)
	for first, exit := range map[string]int{"": exitNothing, "    - calls: [{id: l, tool: list, args: {path: .}}]\n": exitDenied} {
		w.must(os.WriteFile(story, []byte("sessions:\n  root:\n"+first+loop), 0o600))
		for _, format := range []string{"text", "json"} {
			r := command{args: []string{"run", "--dir", w.dir, "--cwd", w.work, "--model", "scripted:" + story, "--sandbox", "read-only", "-o", format, "go"}}.run()
			lines := strings.Split(strings.TrimSpace(r.out+r.err), "\n")
			if last := strings.Join(lines[max(0, len(lines)-4):], "\n"); r.exit != exit || !strings.Contains(last, "was stopped: the same call") {
				t.Errorf("%s: exit %d, want %d and the reason at the end: %s%s", format, r.exit, exit, r.out, r.err)
			}
		}
	}
}
