package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// TestOutcomeOfARunThatIsStopped stops the root or the child of a real run while
// the child is at work. What is left of the tree makes the run's outcome: a root
// that goes on without its child has not done what it was asked (SPEC 7.5).
func TestOutcomeOfARunThatIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	story := filepath.Join(w.work, "story.yaml")
	w.must(os.WriteFile(story, []byte(`sessions:
  root:
    - calls: [{id: c1, tool: delegate, args: {kind: spawn, label: child, prompt: wait}}]
    - text: fine
  child:
    - calls: [{id: c1, tool: bash, args: {command: "until test -e go; do sleep 0.05; done"}}]
    - text: done
`), 0o600))
	for _, tt := range []struct {
		name, stop, label string
		exit              int
		outcome           string
	}{
		{"a cancelled child", "cancel", "child", exitUnfinished, "children unfinished"},
		{"an interrupted child", "interrupt", "child", exitUnfinished, "children unfinished"},
		{"a cancelled root", "cancel", "the-root", exitInterrupted, "cancelled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			done := make(chan ran, 1)
			go func() {
				done <- command{args: []string{
					"run", "--dir", w.dir, "--cwd", work, "--label", "the-root", "--model", "scripted:" + story, "-o", "json", tt.name,
				}}.run()
			}()
			child := w.atWork(t, work)
			id := child.Header.ID
			if tt.label != "child" {
				id = id.Root()
			}
			w.entail(tt.stop, string(id), "--reason", "enough")
			r := w.result(t, done, work)
			if r.Exit != tt.exit || r.Outcome != tt.outcome || r.Session != child.Header.Root {
				t.Errorf("%+v, want exit %d, %s", r, tt.exit, tt.outcome)
			}
			if tt.exit == exitUnfinished && !strings.Contains(r.Why, string(id)) {
				t.Errorf("why %q, want it to name %s", r.Why, id)
			}
		})
	}
}

// atWork waits until the child of the run in a workspace runs its call.
func (w *world) atWork(t *testing.T, work string) client.Summary {
	t.Helper()
	var child client.Summary
	w.eventually(func() bool {
		for line := range strings.Lines(w.entail("session", "ls", "--origin", "subagent", "-o", "json")) {
			var s client.Summary
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatal(err)
			}
			if s.Header.Cwd == work {
				child = s
				return strings.Contains(w.entail("session", "tail", string(s.Header.ID)), string(session.TypeToolDecision))
			}
		}
		return false
	})
	return child
}

// result is what a run in a workspace ends with. Its call may end now.
func (w *world) result(t *testing.T, done <-chan ran, work string) (out struct {
	Session session.ID
	verdict
},
) {
	t.Helper()
	var r ran
	select {
	case r = <-done:
	case <-time.After(awaitLimit):
		t.Fatal("the run does not end")
	}
	w.must(os.WriteFile(filepath.Join(work, "go"), nil, 0o600))
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	var last struct{ Result *json.RawMessage }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Result == nil {
		t.Fatalf("exit %d, last line %q, %s", r.exit, lines[len(lines)-1], r.err)
	}
	w.must(json.Unmarshal(*last.Result, &out))
	if out.Exit != r.exit {
		t.Errorf("the command exits with %d and says %d", r.exit, out.Exit)
	}
	return out
}
