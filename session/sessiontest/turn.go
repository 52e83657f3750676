package sessiontest

import "github.com/entail-fleet/entail/session"

// turn returns the next events that a driver may write together. Only the first
// events of a record may be a claim.
func (g *generator) turn(s session.State, first bool) []session.Payload {
	switch {
	case s.Ended != nil, s.Epoch == 0 && !first:
		return nil
	case s.Open == nil && (s.Epoch == 0 || first && g.pick(3) == 0):
		return []session.Payload{g.claim(s, session.CauseStart)}
	case s.Open == nil:
		return g.idle(s)
	case s.Open.Parked && first:
		return []session.Payload{g.claim(s, session.CauseWake), &session.TurnWake{Turn: s.Turn}}
	case s.Open.Parked:
		return nil
	case first && g.pick(10) == 0:
		return []session.Payload{g.claim(s, session.CauseTakeover)}
	case !s.Open.StepOpen:
		return g.betweenSteps(s)
	case !s.Open.Answered:
		return g.answer(s)
	}
	for _, c := range s.Open.Calls {
		if c.State != session.CallEnded {
			return g.call(s, c)
		}
	}
	return []session.Payload{&session.StepEnd{Turn: s.Turn, Step: s.Open.Step, Extent: extent(s.Open.StepSeq, s.Open.StepTime)}}
}

func (g *generator) claim(s session.State, cause session.Cause) session.Payload {
	return &session.Claim{Epoch: s.Epoch + 1, Worker: "w1", Incarnation: g.name("inc"), Cause: cause}
}

func extent(at session.Seq, ms int64) session.Extent {
	return session.Extent{StartSeq: at, StartTime: ms, Worker: "w1", Incarnation: "1", Attempt: 1}
}

func (g *generator) idle(s session.State) []session.Payload {
	if s.Stop == nil && g.pick(20) > 0 {
		return []session.Payload{&session.TurnStart{Turn: s.Turn + 1}}
	}
	end := &session.End{Outcome: session.OutcomeCompleted}
	if s.Stop != nil {
		end.Outcome = session.OutcomeCancelled
	}
	for _, m := range s.Pending {
		end.Cancelled = append(end.Cancelled, m.Seq)
	}
	return []session.Payload{end}
}

func (g *generator) betweenSteps(s session.State) []session.Payload {
	switch n := g.pick(6); {
	case s.Stopping() || s.Open.Step == 3 || n == 0:
		reason := session.EndReason{Kind: session.EndCompleted}
		if s.Stopping() {
			reason = session.EndReason{Kind: session.EndAborted, By: Ann.ID}
		}
		return []session.Payload{&session.TurnEnd{Turn: s.Turn, Reason: reason, Extent: extent(s.Open.StartSeq, s.Open.StartTime)}}
	case n < 3 && len(s.Pending) > 0:
		return []session.Payload{&session.Consumed{Turn: s.Turn, Seqs: []session.Seq{s.Pending[0].Seq}}}
	case n == 3:
		return []session.Payload{&session.UserMessage{
			ID: g.name("ctx"), Role: "user", Content: "context",
			Source: session.MessageSource{Kind: session.FromPlugin, Sections: []string{"sandbox"}},
		}}
	}
	step := s.Open.Step + 1
	return []session.Payload{
		&session.StepStart{Turn: s.Turn, Step: step},
		&session.RequestHeader{Turn: s.Turn, Step: step, Provider: "scripted", Model: "test", Attempt: 1},
	}
}

// answer is a model's answer with up to two calls.
func (g *generator) answer(s session.State) []session.Payload {
	if s.Stopping() {
		return []session.Payload{&session.StepEnd{Turn: s.Turn, Step: s.Open.Step, Extent: extent(s.Open.StepSeq, s.Open.StepTime)}}
	}
	m := &session.AssistantMessage{Turn: s.Turn, Step: s.Open.Step, Content: "on it", Extent: extent(s.Open.StepSeq, s.Open.StepTime)}
	out := []session.Payload{m}
	tools := []string{"write", "bash", session.ToolDelegate}
	for i := range g.pick(3) {
		m.Calls = append(m.Calls, i)
		out = append(out, &session.ToolCall{
			Turn: s.Turn, Step: s.Open.Step, Index: i, CallID: session.MakeCallID(s.Turn, s.Open.Step, i),
			Name: tools[g.pick(len(tools))], Arguments: "{}",
		})
	}
	return out
}

// call is what a driver writes next about a call that has no result.
func (g *generator) call(s session.State, c session.Call) []session.Payload {
	switch c.State {
	case session.CallUndecided:
		return []session.Payload{g.decide(s, c)}
	case session.CallAsked:
		return []session.Payload{g.question(s, c)}
	case session.CallDenied:
		return []session.Payload{result(s, c, session.CodeSandboxDenied)}
	case session.CallAllowed, session.CallEnded:
	}
	if child, live := s.Child(c.Child); live && !child.Returned && !s.Stopping() && g.pick(2) == 0 {
		return []session.Payload{park(s, session.WaitChild, string(c.Child))}
	}
	return []session.Payload{result(s, c, []string{"", session.CodeToolOutcomeUnknown, session.CodeSandboxDenied}[g.pick(3)])}
}

func (g *generator) decide(s session.State, c session.Call) session.Payload {
	d := Allow(s, c.ID)
	switch {
	case s.Stopping():
		return result(s, c, session.CodeToolNotStarted)
	case c.Name == session.ToolDelegate || g.pick(4) == 0:
		d.Verdict, d.By, d.Reason = session.Deny, session.StageDepth, "cap"
	case g.pick(3) == 0:
		d.Verdict, d.By = session.AskPerson, session.StageApproval
	}
	return d
}

// question asks, waits for the answer or obeys it.
func (g *generator) question(s session.State, c session.Call) session.Payload {
	d := Allow(s, c.ID)
	switch q := c.Ask; {
	case q == nil && s.Stopping():
		return result(s, c, session.CodeToolNotStarted)
	case q == nil:
		return &session.ApprovalAsked{
			ID: g.name("q"), CallID: c.ID, ToolName: c.Name, Digest: Digest("{}"),
			Mode: session.DangerFullAccess, Basis: d.Basis, Reason: "needed",
		}
	case q.Outcome == "" && (s.Stopping() || g.pick(3) == 0):
		return &session.ApprovalDecided{ID: q.ID, Outcome: session.Cancelled}
	case q.Outcome == "":
		return park(s, session.WaitApproval, q.ID)
	case s.Stopping():
		return result(s, c, session.CodeToolNotStarted)
	case q.Outcome == session.AllowedOnce && q.Basis.Equal(d.Basis):
		d.Mode, d.Grant, d.By = q.Mode, q.ID, session.StageApproval
	default:
		d.Verdict, d.By = session.Deny, session.StageApproval
	}
	return d
}

func park(s session.State, kind session.WaitKind, id string) session.Payload {
	return &session.TurnPark{Turn: s.Turn, WaitsFor: []session.Wait{{Kind: kind, ID: id}}}
}

// result ends a call, well if code is empty.
func result(s session.State, c session.Call, code string) session.Payload {
	return &session.ToolResult{
		Turn: s.Turn, Step: s.Open.Step, CallID: c.ID, Content: "out", IsError: code != "", Code: code,
		Denied: code == session.CodeSandboxDenied, Child: c.Child, Extent: extent(c.Seq, c.Time),
	}
}
