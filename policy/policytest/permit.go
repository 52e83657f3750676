package policytest

import (
	"strings"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

const ulid = "01J00000000000000000000000"

// Permit returns the permit of one call of bash, in a new session that a person
// started under mode.
func Permit(t testing.TB, mode session.SandboxMode) policy.Permit {
	t.Helper()
	s := open(t, mode)
	d := policy.Deployment{Settings: policy.DefaultSettings(), Revision: 1, Hash: "defaults"}
	dec, err := policy.Decide(s, d, policy.Call{ID: s.Open.Calls[0].ID, Tool: "bash", Effect: true}, []string{"bash"})
	if err != nil {
		t.Fatalf("decide the call: %v", err)
	}
	p, ok := dec.(policy.Permit)
	if !ok || p.Mode() != mode {
		t.Fatalf("decided %+v, want a permit under %s", dec.Record(), mode)
	}
	return p
}

// open folds a root with one open turn of one undecided call.
func open(t testing.TB, mode session.SandboxMode) session.State {
	t.Helper()
	id, err := session.RootID(ulid, 1)
	if err != nil {
		t.Fatalf("make the root's id: %v", err)
	}
	by := session.Party{Kind: session.Program, ID: "test"}
	birth, err := session.ComposeBirth(session.Header{
		ID: id, Tenant: "default", Root: id, Origin: session.OriginUser, Cwd: "/work",
		Workspace: session.Workspace{Kind: session.WorkspaceHost, Label: "w", Path: "/work", ID: "w"},
		CreatedBy: by, Request: strings.Repeat("0", 64), Surface: session.SurfaceNone, FormatVersion: session.FormatVersion,
	}, session.Link{}, drafts(
		&session.SandboxSwitch{Mode: mode, By: &by}, &session.ModelSelected{Provider: "scripted", Model: "test"},
	)...)
	if err != nil {
		t.Fatalf("compose the genesis: %v", err)
	}
	s, err := session.Begin(birth, session.Prefix{})
	if err != nil {
		t.Fatalf("fold the genesis: %v", err)
	}
	turn, err := session.Compose(id, session.ClassTurn, s.Next, s.Link, drafts(
		&session.Claim{Epoch: 1, Worker: "w", Incarnation: "i", Cause: session.CauseStart},
		&session.TurnStart{Turn: 1}, &session.StepStart{Turn: 1, Step: 1},
		&session.AssistantMessage{Turn: 1, Step: 1, Calls: []int{0}},
		&session.ToolCall{Turn: 1, Step: 1, CallID: session.MakeCallID(1, 1, 0), Name: "bash", Arguments: "{}"},
	)...)
	if err != nil {
		t.Fatalf("compose the turn: %v", err)
	}
	if s, err = session.FoldSection(s, turn); err != nil {
		t.Fatalf("fold the turn: %v", err)
	}
	return s
}

func drafts(payloads ...session.Payload) []session.Draft {
	out := make([]session.Draft, 0, len(payloads))
	for _, p := range payloads {
		out = append(out, session.Draft{Payload: p})
	}
	return out
}
