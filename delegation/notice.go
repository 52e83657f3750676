package delegation

import (
	"fmt"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// Settled is one ended turn of a child, as its log tells it.
type Settled struct {
	Turn    int
	Seq     session.Seq // of its turn/end
	Reason  session.EndReason
	Denials bool   // a call of the turn was refused
	Closing string // the turn's last assistant text
}

// Notices composes what the ends of a child's turns owe its parent: one notice
// for each turn that the parent was not told of, under an id derived from child,
// turn and seq (SPEC 7.3), and the closing that frees the slot once the child
// has ended. It returns nothing when nothing is owed.
func Notices(parent session.State, child session.State, ends []Settled) []session.Payload {
	slot, live := parent.Child(child.Header.ID)
	if !live {
		return nil
	}
	var out []session.Payload
	by := &session.Party{Kind: session.CoordinatorOwn, ID: "coordinator"}
	for _, e := range ends {
		if e.Turn <= slot.Noticed {
			continue
		}
		outcome := e.outcome()
		out = append(out, &session.UserMessage{
			ID: session.NoticeID(child.Header.ID, e.Turn, e.Seq), Role: "user",
			Content: noticeText(child.Header, e), By: by,
			Source: session.MessageSource{
				Kind: session.FromSettled, Form: "notice", SenderSessionID: child.Header.ID,
				Summary: string(outcome), Turn: e.Turn, Seq: e.Seq, Outcome: string(outcome),
			},
		})
	}
	if child.Ended != nil {
		out = append(out, &session.Closed{
			ID: "closed-" + string(child.Header.ID), Child: child.Header.ID, Reason: string(child.Ended.Outcome), By: by,
		})
	}
	return out
}

// outcome maps a turn's end to how the child's work went (SPEC 7.5). A denied run
// is never told as plain success.
func (e Settled) outcome() session.EndOutcome {
	return OutcomeOf(e.Reason, e.Denials)
}

// OutcomeOf says how a session whose last turn ended so did.
func OutcomeOf(r session.EndReason, denials bool) session.EndOutcome {
	switch r.Kind {
	case session.EndCompleted:
		if denials {
			return session.OutcomeDenials
		}
		return session.OutcomeCompleted
	case session.EndAborted, session.EndInterrupted:
		return session.OutcomeInterrupted
	case session.EndBlocked:
		return session.OutcomeDenials
	case session.EndMaxTokens:
		return session.OutcomeOutOfRoom
	case session.EndRefusal:
		return session.OutcomeRefused
	case session.EndError:
	}
	return session.OutcomeFailed
}

// maxClosing bounds the closing message in a notice, so that 200 of them fit a
// record's neighbourhood; the whole text is in the child's log.
const maxClosing = 16 << 10

// maxReason bounds why a turn ended in a notice.
const maxReason = 1 << 10

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " [cut]"
}

// words say how a child's turn went, to its parent.
func (e Settled) words() string {
	switch e.outcome() {
	case session.OutcomeCompleted:
		return "has finished"
	case session.OutcomeDenials:
		if e.Reason.Kind == session.EndBlocked {
			return "was stopped by refusals"
		}
		return "has finished, and some of its calls were refused"
	case session.OutcomeInterrupted, session.OutcomeCancelled:
		return "was stopped"
	case session.OutcomeOutOfRoom:
		return "ran out of room"
	case session.OutcomeRefused:
		return "declined"
	case session.OutcomeFailed, session.OutcomeBudget:
	}
	return "failed"
}

// noticeText is what the parent is told. The message of a turn whose disposal failed
// is withheld: nobody knows what goes on with what it speaks of.
func noticeText(h session.Header, e Settled) string {
	closing, why := strings.TrimSpace(e.Closing), ""
	if e.Reason.Message != "" {
		why = " (" + clip(e.Reason.Message, maxReason) + ")"
	}
	told := fmt.Sprintf("Subagent %q (%s) %s%s.", h.Label, h.ID, e.words(), why)
	if e.Reason.By == session.ByDisposal {
		return told + " What it said at the end is withheld."
	}
	if len(closing) > maxClosing {
		closing = strings.ToValidUTF8(closing[:maxClosing], "") + "\n[cut; the rest is in the log of " + string(h.ID) + "]"
	}
	if closing == "" {
		return told + " It said nothing at the end."
	}
	return told + " Its last message:\n" + closing
}
