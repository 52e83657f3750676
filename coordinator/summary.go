package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

// summary is a session as listings show it: its log's fold, as it was read, and
// whether its driver is alive (SPEC 7.5).
func (c *Coordinator) summary(ctx context.Context, e sessionstore.Entry, read time.Time) client.Summary {
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
	if why := c.stopped(ctx, e); why != "" {
		out.Status, out.Stopped = client.StatusStopped, why
		return out
	}
	if s.Open != nil && !s.Open.Parked && !c.driven(s) {
		c.lookAgain(ctx, read)
	}
	out.Status, out.Outcome = c.state(e)
	undriven := s.Runnable() && !c.driven(s)
	if undriven {
		var forWhat []session.Wait
		if out.Why, forWhat = c.waits(e.ID); out.Why != "" {
			out.Status, out.WaitsFor = client.StatusWaiting, forWhat // SPEC 7.9: and says for what
		}
	}
	switch out.Status {
	case client.StatusRunning, client.StatusStalled, client.StatusLost:
		out.Worker = s.Claim.Worker
	case client.StatusWaiting:
		switch {
		case len(out.WaitsFor) > 0:
		case undriven:
			out.WaitsFor = []session.Wait{{Kind: client.WaitWorker}}
		default:
			out.WaitsFor = s.Open.WaitsFor
		}
	case client.StatusIdle, client.StatusEnded, client.StatusStopped:
	}
	c.clock(&out, e)
	return out
}

// stopped says why a session does not go on by itself, empty if it does: nobody
// can fold its log, its partition is lost, or it is quarantined.
func (c *Coordinator) stopped(ctx context.Context, e sessionstore.Entry) string {
	if err := e.Err(); err != nil {
		return err.Error()
	}
	if err := c.lost(ctx, e.ID.Partition()); err != nil {
		return err.Error()
	}
	why, err := c.quarantine(ctx, e.State)
	if err != nil {
		c.cfg.Logger.Warn("read a turn that was taken over often", slog.String("session", string(e.ID)), slog.Any("error", err))
	}
	return why
}

// waits returns why workers do not drive a session that they were pointed at, and
// for what it waits; nothing if none says so.
func (c *Coordinator) waits(id session.ID) (string, []session.Wait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var why []string
	var forWhat []session.Wait
	for _, name := range slices.Sorted(maps.Keys(c.alive)) {
		for _, w := range c.alive[name].Waits {
			if w.Session != id {
				continue
			}
			why = append(why, name+": "+w.Why)
			for _, f := range w.For {
				if !slices.Contains(forWhat, f) {
					forWhat = append(forWhat, f)
				}
			}
		}
	}
	return strings.Join(why, "; "), forWhat
}

func (c *Coordinator) show(ctx context.Context, _ caller, in client.SessionRequest) (*client.Summary, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	read := time.Now()
	e, err := c.cfg.Store.Session(in.ID)
	if err != nil {
		return nil, nil, err
	}
	out := c.summary(ctx, e, read)
	return &out, at(in.ID, e.Tail), nil
}

func (c *Coordinator) tree(ctx context.Context, _ caller, in client.SessionRequest) (*client.ListReply, *client.Position, error) {
	if err := c.known(in.ID); err != nil {
		return nil, nil, err
	}
	if _, err := c.cfg.Store.Session(in.ID); err != nil {
		return nil, nil, err
	}
	read := time.Now()
	entries, err := c.cfg.Store.Tree(in.ID.Root())
	if err != nil {
		return nil, nil, err
	}
	reply, err := c.listReply(ctx, entries, read)
	if err == nil && reply.More {
		err = &client.Error{Code: client.CodeTooLarge, Session: in.ID, Message: fmt.Sprintf(
			"the tree of %s has %d sessions, an answer holds %d of them: list it page by page, with method %s and this root",
			in.ID.Root(), len(entries), len(reply.Sessions), client.MethodList)}
	}
	if err != nil {
		return nil, nil, err
	}
	return reply, nil, nil
}

// list lists a page of sessions.
func (c *Coordinator) list(ctx context.Context, _ caller, in client.ListRequest) (*client.ListReply, *client.Position, error) {
	if err := c.checkList(in); err != nil {
		return nil, nil, err
	}
	const most = 1000
	limit := in.Limit
	if limit == 0 || limit > most {
		limit = most
	}
	read := time.Now()
	entries, err := c.cfg.Store.Sessions(sessionstore.ListOptions{
		Root: in.Root, Parent: in.Parent, Origin: in.Origin, After: in.AfterID, Limit: limit + 1,
	})
	if err != nil {
		return nil, nil, err
	}
	more := len(entries) > limit
	reply, err := c.listReply(ctx, entries[:min(limit, len(entries))], read)
	if err != nil {
		return nil, nil, err
	}
	reply.More = reply.More || more
	return reply, nil, nil
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

// maxListed bounds the sessions of one answer, as bytes of JSON.
const maxListed = 1 << 20

// listReply holds the first of some sessions, as many as fit an answer.
func (c *Coordinator) listReply(ctx context.Context, entries []sessionstore.Entry, read time.Time) (*client.ListReply, error) {
	reply := &client.ListReply{Sessions: make([]client.Summary, 0, len(entries))}
	for p := range c.cfg.Partitions {
		if err := c.lost(ctx, p); err != nil {
			reply.Lost = append(reply.Lost, err.Error())
		}
	}
	size := 0
	for _, e := range entries {
		s := c.summary(ctx, e, read)
		text, err := encode(s)
		if err != nil {
			return nil, err
		}
		if size += len(text); size > maxListed && len(reply.Sessions) > 0 {
			reply.More = true
			break
		}
		reply.Sessions = append(reply.Sessions, s)
	}
	return reply, nil
}
