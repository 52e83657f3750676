package main

import (
	"time"

	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// The one call of a session that was composed for it.
const (
	theCall session.CallID = "1.1.0"
	theTool string         = "bash"
)

// oneCall composes a session that a person started under a mode and that is at its
// first call. It is written nowhere.
func oneCall(d policy.Deployment, mode session.SandboxMode, cwd string, by session.Party) (session.State, error) {
	now := time.Now().UnixMilli()
	root := delegation.Root{
		ID: newRootID(1), Tenant: "default", By: by, Time: now, Cwd: cwd, Sandbox: mode, Provider: "none", Model: "none",
		Workspace: session.Workspace{Kind: session.WorkspaceHost, Label: "default", Path: cwd, ID: "none"},
	}
	record, err := root.Genesis(d)
	if err != nil {
		return session.State{}, err
	}
	s, err := session.Begin(*record.Birth, session.Prefix{})
	if err != nil {
		return session.State{}, err
	}
	var drafts []session.Draft
	for _, p := range []session.Payload{
		&session.Claim{Epoch: 1, Worker: "none", Incarnation: "none", Cause: session.CauseStart},
		&session.TurnStart{Turn: 1}, &session.StepStart{Turn: 1, Step: 1},
		&session.AssistantMessage{Turn: 1, Step: 1, Calls: []int{0}},
		&session.ToolCall{Turn: 1, Step: 1, CallID: theCall, Name: theTool, Arguments: "{}"},
	} {
		drafts = append(drafts, session.Draft{Time: now, Payload: p})
	}
	turn, err := session.Compose(root.ID, session.ClassTurn, s.Next, s.Link, drafts...)
	if err != nil {
		return session.State{}, err
	}
	return session.FoldSection(s, turn)
}
