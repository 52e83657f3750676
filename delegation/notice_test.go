package delegation_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/session"
)

// noticeOf is what a parent is told of one ended turn of its child.
func noticeOf(t *testing.T, e delegation.Settled) *session.UserMessage {
	t.Helper()
	child := session.State{Header: session.Header{ID: "c", Label: "helper"}}
	got := delegation.Notices(session.State{Children: []session.Child{{ID: "c"}}}, child, []delegation.Settled{e})
	if len(got) != 1 {
		t.Fatalf("%d events are owed, want one notice", len(got))
	}
	m, ok := got[0].(*session.UserMessage)
	if !ok {
		t.Fatalf("owed is %T", got[0])
	}
	return m
}

// Each way in which a turn ends has an outcome and words of its own, and only a turn that
// completed without a refusal has finished well: an end of a kind that nobody knows has
// failed. The notice names the child, says why the turn ended, and has its last message or
// says that there is none. A turn that a crash closed was stopped, in a child of either
// mode: a run that ended so did not do its work (SPEC 7.3, 7.5).
func TestSET02_SET08_SET09_EachOutcomeHasItsWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		end     session.EndReason
		denials bool
		outcome session.EndOutcome
		says    string
	}{
		{session.EndReason{Kind: session.EndCompleted}, false, session.OutcomeCompleted, "has finished."},
		{session.EndReason{Kind: session.EndCompleted}, true, session.OutcomeDenials, "has finished, and some of its calls were refused."},
		{session.EndReason{Kind: session.EndBlocked, Message: "three times"}, true, session.OutcomeDenials, "was stopped by refusals (three times)."},
		{session.EndReason{Kind: session.EndAborted, Message: "enough"}, false, session.OutcomeInterrupted, "was stopped (enough)."},
		{session.EndReason{Kind: session.EndAborted}, true, session.OutcomeInterrupted, "was stopped."},
		{session.EndReason{Kind: session.EndInterrupted}, false, session.OutcomeInterrupted, "was stopped."},
		{session.EndReason{Kind: session.EndMaxTokens}, false, session.OutcomeOutOfRoom, "ran out of room."},
		{session.EndReason{Kind: session.EndRefusal}, false, session.OutcomeRefused, "declined."},
		{session.EndReason{Kind: session.EndError, Message: "no model"}, false, session.OutcomeFailed, "failed (no model)."},
		{session.EndReason{Kind: "heard-of-later"}, false, session.OutcomeFailed, "failed."},
		{session.EndReason{}, false, session.OutcomeFailed, "failed."},
	} {
		for closing, last := range map[string]string{"so it is": " Its last message:\nso it is", " \n": " It said nothing at the end."} {
			m := noticeOf(t, delegation.Settled{Turn: 3, Seq: 17, Reason: c.end, Denials: c.denials, Closing: closing})
			if want := `Subagent "helper" (c) ` + c.says + last; m.Content != want {
				t.Errorf("a turn that ended %+v is told as %q, want %q", c.end, m.Content, want)
			}
			want := session.MessageSource{
				Kind: session.FromSettled, Form: "notice", SenderSessionID: "c", Summary: string(c.outcome), Outcome: string(c.outcome), Turn: 3, Seq: 17,
			}
			if !reflect.DeepEqual(m.Source, want) || m.ID != session.NoticeID("c", 3, 17) || m.By == nil || m.By.Kind != session.CoordinatorOwn {
				t.Errorf("a turn that ended %+v is told by %+v from %+v under %s", c.end, m.By, m.Source, m.ID)
			}
		}
	}
}

// What a notice repeats is bounded, and says where the rest is: why the turn ended, and
// the child's last message (SPEC 7.3).
func TestSET12_ANoticeIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 40<<10)
	m := noticeOf(t, delegation.Settled{Turn: 1, Seq: 2, Reason: session.EndReason{Kind: session.EndError, Message: long}, Closing: long})
	if n := len(m.Content); n > 20<<10 || n < 16<<10 {
		t.Errorf("the notice has %d bytes, want some more than the 16 KiB of a last message", n)
	}
	if !strings.Contains(m.Content, "[cut])") || !strings.HasSuffix(m.Content, "[cut; the rest is in the log of c]") || strings.Contains(m.Content, "\ufffd") {
		t.Errorf("the notice does not say that it was cut: %q ... %q", m.Content[:64], m.Content[len(m.Content)-64:])
	}
}
