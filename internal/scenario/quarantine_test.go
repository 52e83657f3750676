package scenario_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// A session kills the process of each worker that comes to one point of it: here
// its model request, and the kill is SIGKILL. Two may die there, and others of its
// partition go on beside it. The third is the last one: the next worker leaves it,
// its hints are acknowledged, it is shown with the reason, and takes no more
// messages into a turn. A release lets it be tried again, and it ends, with all
// that it was sent.
func TestE4_APoisonSessionIsQuarantined(t *testing.T) {
	t.Parallel()
	short := wishes
	short.Lease = time.Second // the dead are missed three times
	w := ownWith(t, short)
	w.must(w.coordinate())
	poison := w.root(fmt.Sprintf(`
sessions:
  root:
    - {text: at last, wait_for: %q}
    - text: and the message
`, w.at("cured")))
	quick := func() session.ID { return w.root("sessions:\n  root:\n    - text: done\n") }
	for n, name := range []string{"w1", "w2", "w1"} {
		m := w.startWorker(name, nil)
		eventually(t, func() string { return fmt.Sprintf("request %d is made", n+1) }, func() bool { return len(payloads[*session.RequestHeader](w.events(poison))) > n })
		w.turns(quick(), 1) // of the same partition, under the same worker
		eventually(t, func() string { return fmt.Sprintf("it runs after %d deaths", n) }, func() bool {
			s := w.show(poison, 0)
			if s.Stopped != "" {
				t.Errorf("after %d deaths it is %s", n, s.Stopped)
			}
			return s.Status == client.StatusRunning
		})
		m.kill()
	}
	w.startWorker("w2", nil)
	var s client.Summary
	eventually(t, func() string { return "it is quarantined" }, func() bool { s = w.show(poison, 0); return s.Stopped != "" })
	if s.Status != client.StatusStopped || !strings.Contains(s.Stopped, "3 incarnations of workers died on turn 1") || !strings.Contains(s.Stopped, "of w1") {
		t.Errorf("it is %s: %q, want stopped, naming three deaths and the last one's worker", s.Status, s.Stopped)
	}
	w.send(poison, "hello?") // accepted, and nobody is sent to his death for it
	w.turns(quick(), 1)
	eventually(t, func() string { return "no hint is held" }, func() bool { return w.queue().held() == 0 })
	claimed := map[string]bool{} // by incarnation
	for _, c := range payloads[*session.Claim](w.events(poison)) {
		claimed[c.Incarnation] = true
	}
	if len(claimed) != 3 || w.show(poison, 0).Stopped == "" {
		t.Errorf("claimed by %v, want the three that died, and it quarantined still", claimed)
	}

	w.file(w.at("cured"), "")
	w.call(client.MethodRelease, client.ReleaseRequest{Head: head, ID: poison, Reason: "cured"}, nil)
	end := w.turns(poison, 1)
	if end.LastEnd.Reason.Kind != session.EndCompleted || end.Steps != 2 || len(end.Pending) != 0 {
		t.Errorf("released, its turn ended %q after %d steps with %d messages unread; want completed after 2 with none", end.LastEnd.Reason.Kind, end.Steps, len(end.Pending))
	}
	if s := w.show(poison, 0); s.Stopped != "" || s.Status != client.StatusIdle {
		t.Errorf("then it is %s (%s), want idle", s.Status, s.Stopped)
	}
	eventually(t, func() string { return "no hint is held" }, func() bool { return w.queue().held() == 0 })
}
