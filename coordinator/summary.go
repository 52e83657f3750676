package coordinator

import (
	"context"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

// summary is a session as listings show it: its log's fold and whether its
// driver is alive (SPEC 7.5).
func (c *Coordinator) summary(e sessionstore.Entry) client.Summary {
	s := e.State
	d := c.settings()
	eff := policy.EffectiveOf(s.Knobs, d)
	out := client.Summary{
		Header: s.Header, Next: s.Next, Tail: e.Tail, Turn: s.Turn, Steps: s.Steps, Calls: s.Calls, Denials: s.Denials,
		Text: s.Text, Pending: len(s.Pending), LastEnd: s.LastEnd, Voids: e.Voids, Open: s.Open != nil,
		Link: s.Link, Overrides: client.Overrides{Sandbox: s.Knobs.Sandbox.Value, Approval: s.Knobs.Approval.Value, Preset: s.Knobs.Preset.Value},
		Sandbox: eff.Sandbox, Approvals: eff.Approval, Preset: policy.Current(s.Knobs, d),
	}
	out.Header.ID = e.ID // a session whose genesis was refused has no header
	for _, child := range s.Children {
		out.Children = append(out.Children, child.ID)
	}
	if err := e.Err(); err != nil {
		out.Status, out.Stopped = client.StatusStopped, err.Error()
		return out
	}
	out.Status, out.Outcome = c.status(s)
	switch out.Status {
	case client.StatusRunning, client.StatusStalled:
		out.Worker = s.Claim.Worker
	case client.StatusWaiting:
		out.WaitsFor = s.Open.WaitsFor
	case client.StatusIdle, client.StatusEnded, client.StatusStopped:
	}
	return out
}

// status derives a session's one state.
func (c *Coordinator) status(s session.State) (client.Status, session.EndOutcome) {
	switch {
	case s.Ended != nil:
		return client.StatusEnded, s.Ended.Outcome
	case s.Open != nil && s.Open.Parked && !s.Runnable():
		return client.StatusWaiting, ""
	case s.Runnable() && s.Epoch > 0 && s.Open != nil && !c.driven(s):
		return client.StatusStalled, ""
	case s.Runnable():
		return client.StatusRunning, ""
	case s.LastEnd != nil:
		return client.StatusIdle, delegation.OutcomeOf(s.LastEnd.Reason, s.Denials > 0)
	}
	return client.StatusIdle, ""
}

func (c *Coordinator) show(ctx context.Context, _ caller, in client.SessionRequest) (*client.Summary, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	e, err := c.cfg.Store.Session(in.ID)
	if err != nil {
		return nil, nil, err
	}
	out := c.summary(e)
	return &out, at(in.ID, e.Tail), nil
}

func (c *Coordinator) tree(_ context.Context, _ caller, in client.SessionRequest) (*client.ListReply, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	if _, err := c.cfg.Store.Session(in.ID); err != nil {
		return nil, nil, err
	}
	entries, err := c.cfg.Store.Tree(in.ID.Root())
	if err != nil {
		return nil, nil, err
	}
	return c.listReply(entries), nil, nil
}

func (c *Coordinator) list(_ context.Context, _ caller, in client.ListRequest) (*client.ListReply, *client.Position, error) {
	if err := c.checkList(in); err != nil {
		return nil, nil, err
	}
	const most = 1000
	limit := in.Limit
	if limit == 0 || limit > most {
		limit = most
	}
	entries, err := c.cfg.Store.Sessions(sessionstore.ListOptions{
		Root: in.Root, Parent: in.Parent, Origin: in.Origin, After: in.AfterID, Limit: limit,
	})
	if err != nil {
		return nil, nil, err
	}
	return c.listReply(entries), nil, nil
}

// checkList refuses a list that could only be empty, because it asks for what is
// not there.
func (c *Coordinator) checkList(in client.ListRequest) error {
	switch in.Origin {
	case "", session.OriginUser, session.OriginSubagent, session.OriginImport:
	default:
		return invalid("unknown origin %q (available: %s, %s, %s)", in.Origin, session.OriginUser, session.OriginSubagent, session.OriginImport)
	}
	for _, id := range []session.ID{in.Root, in.Parent, in.AfterID} {
		if id == "" {
			continue
		}
		if err := c.known(id); err != nil {
			return err
		}
		if _, err := c.cfg.Store.Session(id); err != nil {
			return err
		}
	}
	return notNegative("limit", in.Limit)
}

func (c *Coordinator) listReply(entries []sessionstore.Entry) *client.ListReply {
	reply := &client.ListReply{Sessions: make([]client.Summary, 0, len(entries))}
	for _, e := range entries {
		reply.Sessions = append(reply.Sessions, c.summary(e))
	}
	return reply
}
