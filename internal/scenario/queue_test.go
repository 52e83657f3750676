package scenario_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// queue is what the broker says of the work queue.
type queue struct {
	Delivered struct {
		Hints int `json:"consumer_seq"` // those that were handed out again included
	} `json:"delivered"`
	Unacknowledged int `json:"num_ack_pending"`
	Waiting        int `json:"num_pending"`
}

// held is how many hints are given out and not acknowledged, or still to be given
// out.
func (q queue) held() int { return q.Unacknowledged + q.Waiting }

func (w *world) queue() (q queue) {
	w.t.Helper()
	answer, err := w.nc.Request("$JS.API.CONSUMER.INFO."+stream.StreamName(0)+".work", nil, patience)
	w.must(err)
	w.must(json.Unmarshal(answer.Data, &q))
	return q
}

// A call that outlives the queue's wait is handed out again and again, to another
// worker too, and starts once: the hint of a session that is driven is put back.
func TestF5_LongCallIsStartedOnce(t *testing.T) {
	t.Parallel()
	w := own(t)
	w.must(w.coordinate())
	w.must(w.work("w1", 2, nil))
	w.must(w.work("w2", 2, nil))
	w.file(w.at("ledger"), "")
	root := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{tool: bash, args: {command: "echo long >> ledger; while [ ! -e %s/go ]; do sleep 0.05; done"}}]
    - text: over
`, w.ws))
	eventually(t, func() string { return "the call runs" }, func() bool { return w.ledger()["long"] > 0 })
	eventually(t, func() string { return "the hint was handed out four times" }, func() bool { return w.queue().Delivered.Hints >= 4 })
	w.file(w.at("go"), "")
	s := w.turns(root, 1)
	events := w.events(root)
	done(t, events, "1.1.0")
	onceEach(t, events)
	if n := w.ledger()["long"]; n != 1 || s.Epoch != 1 {
		t.Errorf("the call had its effect %d times under %d claims, want 1 and 1", n, s.Epoch)
	}
}

// processOf reports whether a process has a text among its arguments. A call does
// not know by itself what the host calls its process.
func (w *world) processOf(text string) bool {
	w.t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	w.must(err)
	return slices.ContainsFunc(lines, func(path string) bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(b), text) // it may be gone
	})
}

// A worker is stopped in the middle of a call for longer than its lease. The call
// is ended without it, another worker goes on, and what the first one says when it
// comes back, result and acknowledgement, changes nothing: the session takes its
// next message, which the first worker then drives.
func TestF5_PausedWorkerComesBackTooLate(t *testing.T) {
	t.Parallel()
	w := own(t)
	w.must(w.coordinate())
	first := w.startWorker("w1", nil)
	w.file(w.at("ledger"), "")
	root := w.root(`
sessions:
  root:
    - calls: [{tool: bash, args: {command: ": ` + w.ws + `; echo long >> ledger` + forever + `"}}]
    - text: over
    - calls: [` + effect("after", "") + `]
    - text: over
`)
	eventually(t, func() string { return "the call runs" }, func() bool { return w.ledger()["long"] > 0 })
	if !w.processOf(w.ws) {
		t.Fatal("the call runs, and no process is it")
	}
	first.pause()
	eventually(t, func() string { return "the call's process is gone" }, func() bool { return !w.processOf(w.ws) })
	second := w.startWorker("w2", nil)
	s := w.turns(root, 1)
	if s.Claim.Worker != "w2" {
		t.Errorf("%s drove the turn to its end", s.Claim.Worker)
	}
	first.resume()
	second.kill()
	w.send(root, "go on")
	if s := w.turns(root, 2); s.Claim.Worker != "w1" {
		t.Errorf("%s drove the second turn", s.Claim.Worker)
	}
	events := w.events(root)
	onceEach(t, events)
	if r := result(t, events, "1.1.0"); r.Code != session.CodeToolOutcomeUnknown {
		t.Errorf("the call's code is %q, want %q", r.Code, session.CodeToolOutcomeUnknown)
	}
	done(t, events, "2.1.0")
	if got := w.ledger(); got["long"] != 1 || got["after"] != 1 {
		t.Errorf("the ledger counts %v, want each once", got)
	}
}
