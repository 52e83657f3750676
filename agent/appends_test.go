package agent_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// ownRecords lists the records of class turn that workers have written to a session's
// own log, by the types of their events.
func (w *world) ownRecords(id session.ID) [][]session.Type {
	w.t.Helper()
	var out [][]session.Type
	_, err := w.log.Read(w.t.Context(), id, 0, func(raw session.Raw) error {
		rec, err := session.DecodeRecord(raw)
		if err != nil || rec.Own == nil || rec.Address.Class != session.ClassTurn {
			return err
		}
		var types []session.Type
		for _, e := range rec.Own.Events {
			types = append(types, e.Type)
		}
		out = append(out, types)
		return nil
	})
	w.must(err)
	return out
}

// parking returns the records from the one that parks a turn to the one with which it
// goes on: a result that it waited for, or a decision on the answer.
func parking(records [][]session.Type) [][]session.Type {
	from := -1
	for i, types := range records {
		for _, typ := range types {
			switch {
			case typ == session.TypeTurnPark && from < 0:
				from = i
			case from >= 0 && i > from && (typ == session.TypeToolResult || typ == session.TypeToolDecision):
				return records[from : i+1]
			}
		}
	}
	return nil
}

// To park a turn and to go on with it takes a driver at most three appends: the park,
// the claim with all that the wait was for, and, after a person's answer, the decision.
func TestParkAndResumeAreFewAppends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 4)
	for name, tt := range map[string]struct {
		script string
		most   int
		answer bool
	}{
		"a child": {fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: child, prompt: look}}]
    - text: done
  child:
    - {text: looked, wait_for: %q}
`, w.path("child")), 2, false},
		"an approval": {`
sessions:
  root:
    - calls: [{id: e, tool: write, args: {path: x, content: y, sandbox_permissions: danger-full-access, justification: please}}]
    - text: done
`, 3, true},
	} {
		id := w.root(tt.script, func(in *client.CreateRequest) { in.Surface = session.SurfaceAny })
		s := w.until(id, "parked", func(s session.State) bool { return s.Open != nil && s.Open.Parked })
		if tt.answer {
			if _, err := w.answer(id, s, session.AllowedOnce, ""); err != nil {
				t.Fatal(err)
			}
		} else {
			w.must(os.WriteFile(w.path("child"), nil, 0o600))
		}
		w.idle(id)
		got := parking(w.ownRecords(id))
		t.Logf("%s: %v", name, got)
		if len(got) < 2 || len(got) > tt.most || tt.most > 3 {
			t.Errorf("%s: %d appends, want 2 to %d: %v", name, len(got), tt.most, got)
		}
	}
}
