package coordinator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// driveToDeath has so many incarnations of a worker that is not alive drive a
// session to the same point, where each leaves it.
func (d *deployment) driveToDeath(id session.ID, incarnations ...string) {
	d.t.Helper()
	d.claim(id)
	for _, name := range incarnations {
		d.turn(id, func(s session.State) []session.Payload {
			return []session.Payload{&session.Claim{Epoch: s.Epoch + 1, Worker: "w1", Incarnation: name, Cause: session.CauseTakeover}}
		})
	}
}

func (d *deployment) show(id session.ID) client.Summary {
	d.t.Helper()
	var out client.Summary
	d.must(d.api.Call(d.t.Context(), client.MethodShow, client.SessionRequest{Head: head, ID: id}, &out))
	return out
}

func (d *deployment) release(id session.ID) error {
	return d.api.Call(d.t.Context(), client.MethodRelease, client.ReleaseRequest{Head: head, ID: id, Reason: "a new build"}, nil)
}

// nudges counts the nudges in a log, and those by a person.
func (d *deployment) nudges(id session.ID) (all, byPerson int) {
	d.t.Helper()
	for _, l := range d.lines(id) {
		if l.Type == session.TypeNudge {
			all++
			if strings.Contains(string(l.Data), `"person"`) {
				byPerson++
			}
		}
	}
	return all, byPerson
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// A session that three incarnations died on is listed as stopped, with the reason,
// by every coordinator; the sweep leaves it alone; a release nudges it, once
// (ARCHITECTURE 4). One that two died on is none of this.
func TestQuarantineIsListedAndReleased(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, func(s *policy.Settings) { s.Lease = policy.Duration(500 * time.Millisecond) })
	poison, unlucky := d.root(), d.root()
	d.driveToDeath(poison, "i2", "i3") // and i1
	d.driveToDeath(unlucky, "i2")
	eventually(t, "the sweep nudges the one that two died on", func() bool { n, _ := d.nudges(unlucky); return n > 0 })
	if n, _ := d.nudges(poison); n != 0 {
		t.Errorf("the sweep nudged the quarantined session %d times", n)
	}
	if s := d.show(unlucky); s.Status != client.StatusLost || s.Stopped != "" {
		t.Errorf("the one that two died on is %s (%s), want lost", s.Status, s.Stopped)
	}
	for range 8 { // two coordinators answer in turn
		var out client.ListReply
		d.must(d.api.Call(t.Context(), client.MethodList, client.ListRequest{Head: head}, &out))
		i := slices.IndexFunc(out.Sessions, func(s client.Summary) bool { return s.Header.ID == poison })
		for _, s := range []client.Summary{d.show(poison), out.Sessions[i]} {
			if s.Status != client.StatusStopped || !strings.Contains(s.Stopped, "3 incarnations of workers died on turn 1") || !strings.Contains(s.Stopped, "release") {
				t.Fatalf("it is %s: %q, want stopped, with why and the way out", s.Status, s.Stopped)
			}
		}
	}
	if err := d.release(unlucky); client.CodeOf(err) != client.CodePrecondition {
		t.Errorf("a release of the one that runs: %v, want %s", err, client.CodePrecondition)
	}
	d.must(d.release(poison))
	if all, person := d.nudges(poison); all != 1 || person != 1 {
		t.Errorf("%d nudges, %d in a person's name, want one", all, person)
	}
	if s := d.show(poison); s.Status != client.StatusLost || s.Stopped != "" {
		t.Errorf("released, it is %s (%s), want lost until somebody takes it", s.Status, s.Stopped)
	}
	if err := d.release(poison); client.CodeOf(err) != client.CodePrecondition {
		t.Errorf("a second release: %v, want %s", err, client.CodePrecondition)
	}
}

// The release of a session that nobody could fold is in class policy and no hint,
// so a nudge follows it where there is something to do.
func TestReleaseOfAStoppedLogIsANudge(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) }) // no sweep does it
	busy, idle := d.root(), d.root(func(in *client.CreateRequest) { in.Prompt = "" })
	for _, id := range []session.ID{busy, idle} {
		_, err := d.broker.Conn(t, "coordinator", "coordinator").Request(
			stream.Subject(session.Address{Session: id, Class: session.ClassInbox}), []byte("half a rec"), 5*time.Second)
		d.must(err)
		d.catchUp()
		if s := d.show(id); s.Status != client.StatusStopped {
			t.Fatalf("half a record: the session is %s, want stopped", s.Status)
		}
		d.must(d.release(id))
	}
	for id, want := range map[session.ID]int{busy: 1, idle: 0} {
		if all, person := d.nudges(id); all != want || person != want {
			t.Errorf("%d nudges, %d in a person's name, want %d", all, person, want)
		}
	}
}
