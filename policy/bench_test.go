package policy_test

import (
	"strconv"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// BenchmarkDecide decides on a cached fold. The figure must not depend on the
// length of the log that was folded.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 10_000, 1_000_000} {
		s := folded(b, n)
		d := deploy(b)
		for _, c := range []struct {
			name string
			call policy.Call
		}{
			{"read", policy.Call{ID: "1.1.0", Tool: "read"}},
			{"write", policy.Call{ID: "1.1.0", Tool: "write", Effect: true}},
			{"delegate", policy.Call{ID: "1.1.0", Tool: "delegate", Effect: true, Wish: &policy.Wish{}}},
		} {
			b.Run(strconv.Itoa(n)+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := policy.Decide(s, d, c.call, tools); err != nil {
						b.Fatalf("Decide: %v", err)
					}
				}
			})
		}
	}
}

// folded folds n events onto a new root: switches of all three knobs and what a
// session says.
func folded(b *testing.B, n int) session.State {
	b.Helper()
	s := newRoot(b).State
	payloads := []session.Payload{
		sandbox(session.WorkspaceWrite), &session.Nudge{ID: "n", By: &alice},
		approval(session.Never), preset(session.PresetAuto), sandbox(session.ReadOnly), approval(session.Ask),
		&session.Nudge{ID: "n", By: &alice},
	}
	for i := range n {
		p := payloads[i%len(payloads)]
		class := session.ClassPolicy
		if p.Type() == session.TypeNudge {
			class = session.ClassInbox
		}
		var err error
		if s, err = session.Fold(s, session.Event{Session: s.Header.ID, Class: class, Seq: s.Next, Type: p.Type(), Payload: p}); err != nil {
			b.Fatalf("fold event %d: %v", i, err)
		}
	}
	return s
}
