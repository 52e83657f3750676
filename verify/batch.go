package verify

import (
	"fmt"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// part is one place of a first batch.
type part struct {
	t        session.Type
	required bool
}

// parts lists what a first batch holds, in order: SPEC 4.3 for a child, 1.10 for
// a root, 1.8 for a person's fork.
func parts(h session.Header) []part {
	var out []part
	if h.Seeded() {
		out = append(out, part{session.TypeEndSeed, true})
	}
	if h.IsChild() {
		// Which of the three is I1's to say.
		out = append(out, part{session.TypeSandboxMode, false}, part{session.TypeApprovalPolicy, false}, part{session.TypePreset, false},
			part{session.TypeDescriptor, true})
	} else {
		out = append(out, part{session.TypePreset, false}, part{session.TypeSandboxMode, false}, part{session.TypeApprovalPolicy, false},
			part{session.TypeDescriptor, false})
	}
	return append(out, part{session.TypeModelSelected, true}, part{session.TypeUserMessage, h.IsChild()})
}

// batchFault says what a first batch lacks or holds too much of; "" if it is
// whole.
func batchFault(h session.Header, events []session.Event) string {
	rest := events
	for _, p := range parts(h) {
		switch {
		case len(rest) > 0 && rest[0].Type == p.t:
			rest = rest[1:]
		case p.required && slices.ContainsFunc(events, func(e session.Event) bool { return e.Type == p.t }):
			return fmt.Sprintf("%s is out of order", p.t)
		case p.required:
			return fmt.Sprintf("%s is missing", p.t)
		}
	}
	if len(rest) > 0 {
		return fmt.Sprintf("%s at seq %d has no place in it", rest[0].Type, rest[0].Seq)
	}
	return ""
}

// firstBatch counts the events of a first batch where no record says it.
func firstBatch(h session.Header, events []session.Event) int {
	for i, e := range events {
		last := session.TypeModelSelected
		if h.IsChild() {
			last = session.TypeUserMessage
		}
		if e.Type == last {
			if !h.IsChild() && i+1 < len(events) && events[i+1].Type == session.TypeUserMessage {
				return i + 2
			}
			return i + 1
		}
	}
	return len(events)
}
