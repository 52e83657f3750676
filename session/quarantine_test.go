package session_test

import (
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
)

// Which drivers count as dead on a session (ARCHITECTURE 4). Each word is an event
// of the open turn: a claim by that incarnation, or what stands in marks.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	marks := map[string]struct {
		class session.Class
		event session.Payload
	}{
		"start":   {session.ClassTurn, &session.TurnStart{Turn: 1}},
		"step":    {session.ClassTurn, &session.StepStart{Turn: 1, Step: 1}},
		"header":  {session.ClassTurn, &session.RequestHeader{Turn: 1, Step: 1}},
		"context": {session.ClassTurn, &session.UserMessage{Source: session.MessageSource{Kind: session.FromPlugin}}},
		"unknown": {session.ClassTurn, &session.ToolResult{Turn: 1, Step: 1, IsError: true, Code: session.CodeToolOutcomeUnknown}},
		"gave-up": {session.ClassTurn, &session.TurnDeferred{Seqs: []session.Seq{1}, Why: "the model is away"}},
		"message": {session.ClassInbox, &session.UserMessage{Source: session.MessageSource{Kind: session.FromUser}}},
		"swept":   {session.ClassInbox, &session.Nudge{ID: "n", By: &session.Party{Kind: session.CoordinatorOwn, ID: "c0"}}},
		"release": {session.ClassInbox, &session.Nudge{ID: "r", By: &session.Party{Kind: session.Person, ID: "ada"}}},
	}
	tests := []struct {
		name, log, alive string
		want             bool
	}{
		{"three at one point", "a start step header b header c header", "", true},
		{"four at one point", "a start step header b header c header d header", "", true},
		{"before anything was asked", "a start b c", "", true},
		{"two", "a start step header b header", "", false},
		{"the same one again", "a start step header b header a header", "", false},
		{"the turn went on under the last", "a start step header b header c unknown", "", false},
		{"the turn went on under the second, and it died", "a start step b unknown step header c header d header", "", true},
		{"the turn went on under the second, one less", "a start step b unknown step header c header", "", false},
		{"one gave up", "a start step header b header gave-up c header", "", false},
		{"one gave up, and three died", "a start step header b header gave-up c header d header", "", true},
		{"one is alive", "a start step header b header c header", "b", false},
		{"messages bring nothing on", "a start step header b message header c context header", "", true},
		{"a nudge of the sweep releases nothing", "a start step header b header swept c header", "", true},
		{"released", "a start step header b header c header release", "", false},
		{"released, and two died", "a start step header b header c header release d header e header", "", false},
		{"released, and three died", "a start step header b header c header release d header e header f header", "", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := session.State{Turn: 1, Open: &session.OpenTurn{}}
			var events []session.Event
			for i, word := range strings.Fields("older " + test.log) {
				e := session.Event{Seq: session.Seq(i), Class: session.ClassTurn}
				if m, ok := marks[word]; ok {
					e.Class, e.Payload = m.class, m.event
				} else {
					s.Epoch++
					s.Claim = session.Claim{Epoch: s.Epoch, Worker: "w1", Incarnation: word}
					s.Open.Attempts++
					e.Payload = &session.Claim{Epoch: s.Epoch, Worker: "w1", Incarnation: word}
				}
				if word == "start" {
					s.Open.StartSeq, s.Open.Attempts = e.Seq, 1
				}
				events = append(events, e)
			}
			alive := func(c session.Claim) bool { return c.Incarnation == test.alive }
			why := session.Quarantine(s, events, alive)
			if got := why != ""; got != test.want {
				t.Errorf("%s: quarantined %v (%s), want %v", test.log, got, why, test.want)
			}
			if test.want && !strings.Contains(why, s.Claim.Incarnation+" of w1") {
				t.Errorf("the reason %q does not name the last incarnation", why)
			}
			if test.want {
				spared(t, s, events, alive)
			}
		})
	}
}

// spared checks that a session in the same trouble may be driven all the same
// where driving it does not lead by the point where its drivers died.
func spared(t *testing.T, s session.State, events []session.Event, alive func(session.Claim) bool) {
	t.Helper()
	seq := session.Seq(1)
	for name, change := range map[string]func(*session.State){
		"a turn to interrupt": func(s *session.State) { s.Open.Interrupt = &seq },
		"a session to cancel": func(s *session.State) { s.Stop = &session.StopRequest{Seq: 1} },
		"a parked turn":       func(s *session.State) { s.Open.Parked = true },
		"an ended session":    func(s *session.State) { s.Ended = &session.End{} },
		"no turn":             func(s *session.State) { s.Open = nil },
	} {
		changed := s
		open := *s.Open
		changed.Open = &open
		change(&changed)
		if why := session.Quarantine(changed, events, alive); why != "" {
			t.Errorf("%s is quarantined: %s", name, why)
		}
	}
}
