package verify_test

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/verify"
)

// stream is raw records as a Source.
type stream struct {
	raws []session.Raw
	ids  []session.ID
}

// Sessions implements verify.Source.
func (s stream) Sessions(context.Context) ([]session.ID, error) { return s.ids, nil }

// Records implements verify.Source.
func (s stream) Records(ctx context.Context, id session.ID, fn func(session.Raw) error) error {
	return (&deployment{raws: s.raws}).Records(ctx, id, fn)
}

// TestAnyTreeIsFollowedAsItWasWritten lets chance write trees, void and repeated
// records among them, and wants verify to see the log that the writers saw: no
// session stops, the same records are void, and what the writers' fold holds is
// what a mirror must hold. The generator names no defaults, so that what I1 and
// I12 say of its children is not looked at.
func TestAnyTreeIsFollowedAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "pick") }
		log := sessiontest.Generate(rt, pick, rapid.IntRange(1, 120).Draw(rt, "steps"))
		var mirror rows
		events, void := 0, 0
		for _, id := range log.Sessions {
			s := log.States[id]
			mirror = append(mirror, verify.Row{
				ID: id, Next: s.Next, Link: s.Link,
				Sandbox: s.Knobs.Sandbox.Value, Approval: s.Knobs.Approval.Value, Preset: s.Knobs.Preset.Value,
			})
			events += int(s.Next - s.Header.FirstLiveSeq)
			void += log.Voids[id]
		}
		r, err := verify.Run(t.Context(), stream{log.Records, log.Sessions}, verify.Options{Mirror: mirror, AtRest: true})
		if err != nil {
			rt.Fatal(err)
		}
		for _, f := range r.Findings {
			if !slices.Contains([]string{"I1", "I12"}, f.Invariant) {
				rt.Errorf("finding: %v", f)
			}
		}
		if r.Void != void || r.Events != events || r.Records != len(log.Records) || r.Sessions != len(log.Sessions) {
			rt.Errorf("got %d void of %d records, %d events, %d sessions; want %d of %d, %d, %d: %v",
				r.Void, r.Records, r.Events, r.Sessions, void, len(log.Records), events, len(log.Sessions), r.Notes)
		}
	})
}
