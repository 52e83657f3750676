package scenario_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// ledger is where calls write down that they had their effect.
func (w *world) ledger() map[string]int {
	w.t.Helper()
	b, err := os.ReadFile(w.at("ledger"))
	w.must(err)
	out := map[string]int{}
	for line := range strings.Lines(string(b)) {
		out[strings.TrimSpace(line)]++
	}
	return out
}

// effect is a shell call that writes its name down.
func effect(name, then string) string {
	return fmt.Sprintf(`{tool: bash, args: {command: "echo %s >> ledger%s"}}`, name, then)
}

// stopped is the time that a worker which was told to stop may still run.
const stopped = "; sleep 0.5"

const forever = "; while :; do sleep 0.05; done"

// A worker is killed while six sessions stand at six points: before the call is in
// the log; after that and before its decision; in the middle of its effect; after
// its effect and before its result; after its result and before the hint is
// acknowledged; and in a batch of three, after the second. Another worker takes
// all of them over. No call has its effect twice, and one whose outcome nobody
// knows says so.
func TestE1_NoCallRunsTwice(t *testing.T) {
	t.Parallel()
	w := own(t)
	w.must(w.coordinate())
	// One call signals the worker, which no tree's own user could.
	w.call(client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "confinement.fullAccessAs", Value: []byte(`"worker"`)}, nil)
	k := w.startWorker("w1", nil)
	w.file(w.at("ledger"), "")
	root := func(steps string, change ...func(*client.CreateRequest)) session.ID {
		return w.root("sessions:\n  root:"+steps+"\n    - text: over\n", change...)
	}
	before := root(`
    - wait_for: ` + w.at("go") + `
      calls: [` + effect("before", "") + `]`)
	undecided := root(`
    - calls: [` + effect("holds", forever) + `, ` + effect("undecided", "") + `]`)
	middle := root(`
    - calls: [` + effect("middle", forever) + `]`)
	finished := root(`
    - calls: [` + effect("finished", "") + `]
    - wait_for: ` + w.at("go"))
	batch := root(`
    - calls: [` + effect("first", "") + `, ` + effect("second", "") + `, {tool: bash, args: {command: "touch third` + forever + `"}}]`)
	// This one stops its own worker once it has had its effect, so that its result
	// is never written.
	unrecorded := root(`
    - wait_for: `+w.at("last")+`
      calls: [`+effect("unrecorded", "; kill -STOP "+k.pid()+stopped)+`]`,
		func(in *client.CreateRequest) { in.Sandbox = session.DangerFullAccess })

	w.until(before, "its request", func(s session.State) bool { return s.Open != nil && s.Open.StepOpen })
	w.until(undecided, "its calls", func(s session.State) bool {
		return s.Open != nil && len(s.Open.Calls) == 2 && s.Open.Calls[0].State == session.CallAllowed && w.ledger()["holds"] == 1
	})
	w.until(finished, "its result", func(s session.State) bool { return s.Open != nil && s.Open.Step == 2 })
	w.seen(w.at("third"))
	eventually(t, func() string { return "the ledger names middle" }, func() bool { return w.ledger()["middle"] == 1 })
	w.file(w.at("last"), "")
	k.paused()
	k.kill()
	w.startWorker("w2", nil)
	w.file(w.at("go"), "")

	unknown := map[session.ID][]session.CallID{undecided: {"1.1.0"}, middle: {"1.1.0"}, unrecorded: {"1.1.0"}, batch: {"1.1.2"}}
	for _, id := range []session.ID{before, undecided, middle, finished, batch, unrecorded} {
		w.turns(id, 1)
		w.wantOnce(id, unknown[id])
	}
	want := map[string]int{"before": 1, "holds": 1, "undecided": 1, "middle": 1, "finished": 1, "first": 1, "second": 1, "unrecorded": 1}
	if got := w.ledger(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the ledger counts %v, want %v", got, want)
	}
}

// wantOnce wants exactly one result for each call of a session that was taken
// over, and of which calls nobody knows the outcome.
func (w *world) wantOnce(id session.ID, unknown []session.CallID) {
	w.t.Helper()
	events := w.events(id)
	onceEach(w.t, events)
	var got []session.CallID
	for _, r := range payloads[*session.ToolResult](events) {
		if r.Code == session.CodeToolOutcomeUnknown {
			got = append(got, r.CallID)
		} else if r.IsError {
			w.t.Errorf("call %s of %s failed: %q", r.CallID, id, r.Content)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(unknown) {
		w.t.Errorf("calls of unknown outcome in %s: %v, want %v:\n%s", id, got, unknown, list(events))
	}
	claims := payloads[*session.Claim](events)
	if len(claims) < 2 || claims[1].Cause != session.CauseTakeover {
		w.t.Errorf("%s was not taken over:\n%s", id, list(events))
	}
}
