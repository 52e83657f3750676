package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/session"
)

// helpers counts the processes that this one has started for file operations.
func helpers(t *testing.T) int {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		t.Fatalf("no list of children: %v", err)
	}
	n := 0
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for pid := range strings.FieldsSeq(string(children)) {
			line, err := os.ReadFile("/proc/" + pid + "/cmdline")
			if err == nil && strings.HasPrefix(string(line), wire.HelperName) {
				n++
			}
		}
	}
	return n
}

// TestSPEC7_7_NoHelperOutlivesAWorkspace sees a helper while a turn goes on, none
// once the turn is parked, and none when the session is at rest. It runs alone: it
// counts the helpers of all sessions.
func TestSPEC7_7_NoHelperOutlivesAWorkspace(t *testing.T) { //nolint:paralleltest // said above
	w := newWorld(t)
	w.work("w1", 2)
	id := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: a, tool: write, args: {path: one, content: x}}]
    - {text: seen, wait_for: %q, calls: [{id: b, tool: delegate, args: {kind: spawn, label: child, prompt: work}}]}
    - calls: [{id: c, tool: write, args: {path: two, content: x}}]
    - text: done
  child:
    - {text: "the answer", wait_for: %q}
`, w.path("seen"), w.path("go")))
	eventually(t, "a helper has written", func() bool { return helpers(t) == 1 })
	w.must(os.WriteFile(w.path("seen"), nil, 0o600))
	w.until(id, "parked", func(s session.State) bool { return s.Open != nil && s.Open.Parked })
	eventually(t, "the parked session has no helper", func() bool { return helpers(t) == 0 })
	w.letGo()
	w.idle(id)
	eventually(t, "the session at rest has no helper", func() bool { return helpers(t) == 0 })
	for _, call := range []string{"1.1.0", "1.3.0"} {
		if r := resultOf(t, w.open(id).Events(), session.CallID(call)); r.IsError {
			t.Errorf("call %s: %+v", call, r)
		}
	}
}
