package chaos_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/chaos"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/verify"
)

// memory is raw records as a verify.Source.
type memory struct {
	records []session.Raw
	ids     []session.ID
}

// Sessions implements verify.Source.
func (m memory) Sessions(context.Context) ([]session.ID, error) { return m.ids, nil }

// Records implements verify.Source.
func (m memory) Records(_ context.Context, id session.ID, fn func(session.Raw) error) error {
	for _, raw := range m.records {
		if raw.Address.Space() == id || raw.Address.Class == session.ClassGenesis && raw.Address.Session == id {
			if err := fn(raw); err != nil {
				return err
			}
		}
	}
	return nil
}

// story is one tree written by hand: a root with one delegating call.
type story struct {
	*sessiontest.Stream
	root session.ID
}

const theCall = session.CallID("1.1.0")

func extent() session.Extent {
	return session.Extent{Worker: "w1", Incarnation: "1", Attempt: 1}
}

// newStory writes a root up to its delegating call.
func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{Stream: sessiontest.NewStream(t)}
	s.root = s.Root()
	s.claim(s.root, session.CauseStart)
	s.begin(s.root, session.ToolCall{
		Turn: 1, Step: 1, CallID: theCall, Name: session.ToolDelegate, Arguments: `{"kind":"spawn"}`,
	})
	return s
}

func (s *story) claim(id session.ID, cause session.Cause) {
	s.Write(id, session.ClassTurn, &session.Claim{
		Epoch: s.State(id).Epoch + 1, Worker: "w1", Incarnation: strings.Repeat("i", int(s.State(id).Epoch)+1), Cause: cause,
	})
}

// begin opens a session's first turn and step, with the calls of its answer.
func (s *story) begin(id session.ID, calls ...session.ToolCall) {
	m := &session.AssistantMessage{Turn: 1, Step: 1, Content: "on it", Extent: extent()}
	record := []session.Payload{
		&session.TurnStart{Turn: 1}, &session.StepStart{Turn: 1, Step: 1},
		&session.RequestHeader{Turn: 1, Step: 1, Provider: "scripted", Model: "test", Attempt: 1}, m,
	}
	for i := range calls {
		m.Calls = append(m.Calls, i)
		record = append(record, &calls[i])
	}
	s.Write(id, session.ClassTurn, record...)
}

// finish ends a session whose step is open.
func (s *story) finish(id session.ID) {
	s.Write(id, session.ClassTurn,
		&session.StepEnd{Turn: 1, Step: 1, Extent: extent()},
		&session.TurnEnd{Turn: 1, Reason: session.EndReason{Kind: session.EndCompleted}, Extent: extent()},
	)
	s.end(id)
}

func (s *story) end(id session.ID) {
	e := &session.End{Outcome: session.OutcomeCompleted}
	for _, p := range s.State(id).Pending {
		e.Cancelled = append(e.Cancelled, p.Seq)
	}
	s.Write(id, session.ClassTurn, e)
}

// delegate starts the child and brings it to its end.
func (s *story) delegate() session.ID {
	child := s.Delegate(s.root, sessiontest.Delegation{Call: theCall, Kind: session.Spawn, Decision: func(d *session.ToolDecision) {
		d.Defaults = &session.Defaults{Sandbox: session.ReadOnly, Approval: session.Ask}
	}})
	s.claim(child, session.CauseStart)
	s.begin(child)
	s.finish(child)
	return child
}

func (s *story) result() {
	s.Write(s.root, session.ClassTurn, &session.ToolResult{Turn: 1, Step: 1, CallID: theCall, Content: "out", Extent: extent()})
}

func TestJudge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		write func(*story) (hide session.ID)
		want  chaos.Verdict // its counts
		fault string        // a part of the one fault
	}{
		{"a tree that has ended", func(s *story) session.ID {
			s.delegate()
			s.result()
			s.finish(s.root)
			return ""
		}, chaos.Verdict{Trees: 1, Done: 1, Sessions: 2, Delegations: 1}, ""},
		{"a worker died at the call", func(s *story) session.ID {
			s.claim(s.root, session.CauseTakeover)
			s.delegate()
			s.result()
			s.finish(s.root)
			return ""
		}, chaos.Verdict{Trees: 1, Done: 1, Sessions: 2, Delegations: 1, HitAtCall: 1}, ""},
		{"a worker died at the genesis", func(s *story) session.ID {
			s.delegate()
			s.claim(s.root, session.CauseTakeover)
			s.result()
			s.finish(s.root)
			return ""
		}, chaos.Verdict{Trees: 1, Done: 1, Sessions: 2, Delegations: 1, HitAtGenesis: 1}, ""},
		{"a worker died when the call was over", func(s *story) session.ID {
			s.delegate()
			s.result()
			s.claim(s.root, session.CauseTakeover)
			s.finish(s.root)
			return ""
		}, chaos.Verdict{Trees: 1, Done: 1, Sessions: 2, Delegations: 1}, ""},
		{"a root that has not ended", func(s *story) session.ID {
			s.delegate()
			s.result()
			return ""
		}, chaos.Verdict{Trees: 1, Sessions: 2, Delegations: 1}, "it has not ended"},
		{"a call without a result", func(s *story) session.ID {
			s.delegate()
			return ""
		}, chaos.Verdict{Trees: 1, Sessions: 2, Delegations: 1}, "call 1.1.0 of delegate has 0 results"},
		{"a session that nobody started", func(s *story) session.ID {
			s.delegate()
			s.result()
			s.finish(s.root)
			return "stray"
		}, chaos.Verdict{Trees: 1, Done: 1, Sessions: 2, Delegations: 1}, "no genesis that a parent's log holds"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			stray := tt.write(s)
			ids := []session.ID{s.root, session.ChildID(s.root, theCall)}
			if stray != "" {
				ids = append(ids, session.ChildID(s.root, "9.9.9"))
			}
			v, err := chaos.Judge(t.Context(), memory{s.Records, ids}, verify.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := counts(v), counts(tt.want); got != want {
				t.Errorf("counts %v, want %v", got, want)
			}
			if len(v.Report.Findings) > 0 {
				t.Errorf("findings %v, want none", v.Report.Findings)
			}
			has := slices.ContainsFunc(v.Faults, func(f string) bool { return strings.Contains(f, tt.fault) })
			if tt.fault == "" && len(v.Faults) > 0 || !has && tt.fault != "" {
				t.Errorf("faults %q, want one with %q", v.Faults, tt.fault)
			}
		})
	}
}

func counts(v chaos.Verdict) [6]int {
	return [6]int{v.Trees, v.Done, v.Sessions, v.Delegations, v.HitAtCall, v.HitAtGenesis}
}

func TestCheckHoldsARunToItsFloors(t *testing.T) {
	t.Parallel()
	reached := chaos.Verdict{Trees: 3, Done: 3, Delegations: 12, HitAtCall: 1, HitAtGenesis: 1}
	floors := chaos.Floors{Trees: 3, Delegations: 12, HitAtCall: 1, HitAtGenesis: 1}
	if err := reached.Check(floors); err != nil {
		t.Errorf("Check() = %v, want nil", err)
	}
	tests := map[string]func(*chaos.Verdict){
		"only 2 trees done":                     func(v *chaos.Verdict) { v.Done = 2 },
		"only 11 delegations":                   func(v *chaos.Verdict) { v.Delegations = 11 },
		"only 0 workers that died at a call":    func(v *chaos.Verdict) { v.HitAtCall = 0 },
		"only 0 workers that died at a genesis": func(v *chaos.Verdict) { v.HitAtGenesis = 0 },
		"told twice":                            func(v *chaos.Verdict) { v.Faults = []string{"told twice"} },
		"I3 (SPEC 4.4)": func(v *chaos.Verdict) {
			v.Report.Findings = []verify.Finding{{Invariant: "I3", Clause: "4.4"}}
		},
	}
	for want, spoil := range tests {
		v := reached
		spoil(&v)
		if err := v.Check(floors); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check() = %v, want %q", err, want)
		}
	}
}
