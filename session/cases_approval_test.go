package session_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// The conformance cases of approvals that are the log's.

func questionOf(id string, call session.CallID, s session.State) *session.ApprovalAsked {
	return &session.ApprovalAsked{
		ID: id, CallID: call, ToolName: "bash", Digest: strings.Repeat("0", 64), Mode: session.WorkspaceWrite,
		Basis: sessiontest.Basis(s), Reason: "escalate sandbox to workspace-write: to build",
	}
}

// wantUnwritten wants a record that its writer refuses with these words, and that a
// reader who finds it all the same does not fold.
func wantUnwritten(t *testing.T, s *sessiontest.Stream, id session.ID, class session.Class, says string, payloads ...session.Payload) {
	t.Helper()
	next := s.State(id).Next
	unsent := s.Compose(id, class, payloads...)
	if _, err := session.FoldSection(s.State(id), *unsent.Own); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want a refusal that says %q", payloads[0].Type(), err, says)
	}
	c, j, err := judge(t, s, s.Raw(unsent))
	switch {
	case class == session.ClassTurn && (err != nil || j.Ruling != session.Void || j.Alarm == nil):
		t.Errorf("%s: ruling %d, %v, want it void and alarmed", payloads[0].Type(), j.Ruling, err)
	case class != session.ClassTurn && !errors.Is(err, session.ErrCorrupt):
		t.Errorf("%s: %v, want the session stopped", payloads[0].Type(), err)
	}
	if got := c.State().Next; got != next {
		t.Errorf("%s: the log grew from %d to %d", payloads[0].Type(), next, got)
	}
}

// Outside an open turn nothing can be asked: not before the first one, not between two,
// and the log does not grow.
func TestAPR01_NothingIsAskedOutsideATurn(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root()
	wantUnwritten(t, s, root, session.ClassTurn, "no turn is open", questionOf("q", "1.1.0", s.State(root)))
	s.Write(root, session.ClassTurn, claim(1, session.CauseStart), &session.TurnStart{Turn: 1}, turnEnd(1))
	for _, call := range []session.CallID{"1.1.0", "2.1.0"} {
		wantUnwritten(t, s, root, session.ClassTurn, "no turn is open", questionOf("q", call, s.State(root)))
	}
	wantUnwritten(t, s, root, session.ClassInbox, "no turn is open", &session.ApprovalDecided{ID: "q", Outcome: session.AllowedOnce, By: person()})
	// In a turn and outside a step there is no call to ask about.
	s.Write(root, session.ClassTurn, claim(2, session.CauseStart), &session.TurnStart{Turn: 2})
	wantUnwritten(t, s, root, session.ClassTurn, "2.1.0 is not of the open step", questionOf("q", "2.1.0", s.State(root)))
	// The control: about a call of an open step the same question is asked.
	in, id := driven(t)
	in.Write(id, session.ClassTurn, questionOf("q", "1.1.0", in.State(id)))
	if open := in.State(id).Questions(); len(open) != 1 || open[0].Ask.ID != "q" {
		t.Errorf("open are %+v", open)
	}
}

// A log holds no outcome without its question, no second question of the same id or
// about the same call, no question about no tool, and no word that is not one of the
// closed vocabularies. Whoever reads a log anew has the same questions open.
func TestAPR10_ALogThatAsksWrongIsNotRead(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	const turn, inbox = session.ClassTurn, session.ClassInbox
	decided := func(id string, o session.Outcome) *session.ApprovalDecided {
		return &session.ApprovalDecided{ID: id, Outcome: o, By: person()}
	}
	wantUnwritten(t, s, root, inbox, `no open question "q1"`, decided("q1", session.Rejected))
	wantUnwritten(t, s, root, turn, `no open question "q1"`, &session.ApprovalDecided{ID: "q1", Outcome: session.Rejected})
	wantUnwritten(t, s, root, inbox, `no open question "q1"`, &session.Expired{ID: "x", Ask: "q1", By: person()})
	wantUnwritten(t, s, root, turn, "is of tool", func() session.Payload {
		q := questionOf("q1", "1.1.0", s.State(root))
		q.ToolName = "write"
		return q
	}())

	s.Write(root, turn, questionOf("q1", "1.1.0", s.State(root)))
	at := s.State(root)
	twice := questionOf("q1", "1.1.1", at)
	twice.ToolName = session.ToolDelegate
	wantUnwritten(t, s, root, turn, "was asked before", twice)
	wantUnwritten(t, s, root, turn, "has an open question", questionOf("q2", "1.1.0", at))

	// The rest cannot even be said: it is not read, whoever wrote it.
	for what, edit := range map[string][2]string{
		"no tool":            {`"toolName":"bash"`, `"toolName":""`},
		"no id":              {`"id":"q3"`, `"id":""`},
		"an unknown mode":    {`"mode":"workspace-write"`, `"mode":"all-of-it"`},
		"an unknown policy":  {`"value":"ask"`, `"value":"maybe"`},
		"no call":            {`"callId":"1.1.0"`, `"callId":""`},
		"an unknown outcome": {`"outcome":"rejected"`, `"outcome":"allowed-always"`},
	} {
		fresh, id := driven(t)
		q := questionOf("q3", "1.1.0", fresh.State(id))
		q.Basis.Approval = session.Ground{Value: string(session.Ask)}
		record, class := fresh.Compose(id, turn, q), turn
		if what == "an unknown outcome" {
			fresh.Write(id, turn, q)
			record, class = fresh.Compose(id, inbox, decided("q3", session.Rejected)), inbox
		}
		raw := fresh.Raw(record)
		line := strings.Replace(bodyLines(raw)[0], edit[0], edit[1], 1)
		if line == bodyLines(raw)[0] {
			t.Fatalf("%s: nothing was changed in %s", what, line)
		}
		next := fresh.State(id).Next
		c, j, err := judge(t, fresh, body(raw, line))
		if class == turn && (err != nil || j.Ruling != session.Void) || class == inbox && !errors.Is(err, session.ErrCorrupt) {
			t.Errorf("%s: ruling %d, %v", what, j.Ruling, err)
		}
		if c.State().Next != next {
			t.Errorf("%s: the log grew", what)
		}
	}

	// Read from its records, or from a mirror's row, a log has the same question open,
	// and takes the same one answer.
	again := sessiontest.Replay(s.Records).Chains[root].State()
	var kept session.State
	if err := json.Unmarshal([]byte(encoded(t, at)), &kept); err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]session.State{"the records": again, "a row": kept} {
		if diff := cmp.Diff(at.Questions(), got.Questions()); diff != "" || len(got.Questions()) != 1 {
			t.Errorf("read from %s the questions differ:\n%s", what, diff)
		}
	}
	answer := s.Compose(root, inbox, decided("q1", session.AllowedOnce))
	after, err := session.FoldSection(kept, *answer.Own)
	if err != nil || len(after.Questions()) != 0 {
		t.Fatalf("the answer: %v, %d questions stay open", err, len(after.Questions()))
	}
	s.Write(root, inbox, decided("q1", session.AllowedOnce))
	wantUnwritten(t, s, root, inbox, `no open question "q1"`, decided("q1", session.Rejected))
}
