package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/failpoint"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// errOldSettings says that the log knows newer settings than this worker.
var errOldSettings = errors.New("the log names a newer settings revision than this worker has read")

// decide decides calls, commits the decisions on exactly the log that they were
// made on, and then runs what is allowed. If anything slipped in it is a
// conflict, nothing has run, and the calls are decided anew.
func (d *driver) decide(ctx context.Context, f Facts, ids []session.CallID) error {
	if err := d.beat.renew(ctx); err != nil {
		return err
	}
	var v verdicts
	err := d.worker.pulse.decided(func(dep policy.Deployment) error {
		f.Deployment = dep
		if f.seenRevision() > dep.Revision {
			return errOldSettings
		}
		var err error
		if v, err = f.decide(ids); err != nil {
			return err
		}
		if len(v.delegations) > 0 {
			return d.delegate(ctx, f, v.delegations)
		}
		failpoint.Reach("before-decision")
		return d.append(ctx, d.exactly(f, "decide", d.epoch, v.events))
	})
	if err != nil || len(v.launches) == 0 {
		return err
	}
	failpoint.Reach("after-decision")
	return d.launch(ctx, f, v.launches)
}

// rerun runs calls again that only read, and closes those that may not be.
func (d *driver) rerun(ctx context.Context, f Facts, ids []session.CallID) error {
	var v verdicts
	err := d.worker.pulse.decided(func(dep policy.Deployment) error {
		f.Deployment = dep
		var err error
		v, err = f.rerun(ids)
		return err
	})
	if err == nil && len(v.events) > 0 {
		err = d.append(ctx, d.exactly(f, "close calls", d.epoch, v.events))
	}
	if err != nil {
		return err
	}
	return d.launch(ctx, f, v.launches)
}

// launch runs allowed calls beside each other and writes each result when it is
// there.
func (d *driver) launch(ctx context.Context, f Facts, launches []launch) error {
	d.beat.allow(limitCall)
	running, stop := d.watch(ctx)
	defer stop()
	var g errgroup.Group
	for _, l := range launches {
		g.Go(func() error { return d.run(ctx, running, f, l) })
	}
	return g.Wait()
}

// run runs one call, in a context of its own, and writes its result.
func (d *driver) run(ctx, running context.Context, f Facts, l launch) error {
	result, err := d.carry(running, f, l)
	if err != nil {
		return err
	}
	failpoint.Reach("after-effect")
	open := func(s session.State) bool {
		c, ok := s.Call(l.call.ID)
		return ok && c.State == session.CallAllowed
	}
	err = d.append(ctx, d.whileMine("result", open, []session.Payload{result}))
	failpoint.Reach("after-result")
	return err
}

// carry runs one call where it belongs: behind the fence, or at a coordinator.
func (d *driver) carry(ctx context.Context, f Facts, l launch) (*session.ToolResult, error) {
	if l.relay {
		return d.relay(ctx, f, l.call)
	}
	return d.effect(ctx, f, l)
}

// relay has a coordinator carry out a call by which the session speaks to another. What
// it refuses is an error of the call's, with the code. Without an answer the call is left
// to be carried out again: it comes to the same.
func (d *driver) relay(ctx context.Context, f Facts, c session.Call) (*session.ToolResult, error) {
	view, err := d.rep.View(ctx, d.id, 0)
	if err != nil {
		return nil, err
	}
	var reply client.RelayReply
	err = d.worker.cfg.Client.Call(ctx, client.MethodRelay, client.RelayRequest{
		Head: client.Head{Version: client.APIVersion}, Session: d.id, Call: c.ID, Epoch: d.epoch, Tail: view.Tail,
	}, &reply)
	refused, ok := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		r := f.result(c, reply.Text, "", false)
		r.IsError = false
		return r, nil
	case ok && !refused.Temporary():
		return f.result(c, refused.Message, string(refused.Code), false), nil
	case errors.Is(context.Cause(ctx), errStopped):
		return f.unknown(c), nil
	}
	return nil, fmt.Errorf("%s from %s: %w", c.Name, d.id, err)
}

// effect runs one call to its result. An error says that there is none that
// this loop may write.
func (d *driver) effect(ctx context.Context, f Facts, l launch) (*session.ToolResult, error) {
	ws, err := d.workspace(f.State)
	if err != nil {
		return f.result(l.call, "The call was not run: "+err.Error(), session.CodeSandboxUnavailable, false), nil
	}
	lease := d.beat.lease()
	defer lease.close()
	res, err := ws.Run(ctx, l.permit, l.op, lease)
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return f.outcome(l, res), nil
	case errors.Is(err, sandbox.ErrNotStarted) && (cause == nil || errors.Is(cause, errStopped)):
		return f.notRun(l.call, err), nil
	case errors.Is(cause, errStopped):
		r := f.result(l.call, strings.TrimSpace(res.Output+"\nInterrupted: the call was ended before it was done."), "", false)
		r.Effect = effectOf(res)
		return r, nil
	case cause != nil:
		return nil, cause
	case errors.Is(err, sandbox.ErrNotPermitted):
		return nil, err
	}
	return f.unknown(l.call), nil
}

func (f Facts) notRun(c session.Call, why error) *session.ToolResult {
	return f.result(c, fmt.Sprintf("Not started: %v.", why), session.CodeToolNotStarted, false)
}

// outcome is the result of a call that ran.
func (f Facts) outcome(l launch, res sandbox.Result) *session.ToolResult {
	text := res.Output
	add := func(format string, args ...any) {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += fmt.Sprintf(format, args...)
	}
	switch {
	case res.Limit != "":
		add("[ended by limit %s]", res.Limit)
	case l.op.Shell != nil && res.Code == "" && res.Signal != "":
		add("[ended by signal %s]", res.Signal)
	case l.op.Shell != nil && res.ExitCode != 0:
		add("[exit code %d]", res.ExitCode)
	}
	if hint := sandbox.Hint(l.permit.Mode()); res.Denied() && hint != "" && f.mayAsk() {
		add("%s", hint)
	}
	r := f.result(l.call, text, res.Code, res.Denied())
	r.IsError = res.Failed || res.Denied() || res.Limit != "" || res.ExitCode != 0
	r.Effect = effectOf(res)
	return r
}

// effectOf is what is known of a call that ran, or nil if it did not.
func effectOf(res sandbox.Result) *session.Effect {
	if res.Sandbox.Mode == "" {
		return nil
	}
	return &session.Effect{
		ExitCode: res.ExitCode, Signal: res.Signal, TimedOut: res.TimedOut, Truncated: res.Truncated,
		Limit: res.Limit, Denial: res.Denial, Sandbox: res.Sandbox,
	}
}

// mayAsk reports whether a call of this session could be escalated at all: the
// hint stands nowhere else (SPEC 5.5).
func (f Facts) mayAsk() bool {
	composed := f.Deployment.Composition
	return composed.Sandbox && composed.Approvals && f.State.Header.Surface != session.SurfaceNone &&
		policy.EffectiveOf(f.State.Knobs, f.Deployment).Approval == session.Ask
}

// delegate has a coordinator commit delegations, the first at exactly the tail
// they were decided at. What it refuses is a denial, and it says why.
func (d *driver) delegate(ctx context.Context, f Facts, calls []client.Delegation) error {
	d.beat.allow(limitAppend)
	view, err := d.rep.View(ctx, d.id, 0)
	if err != nil {
		return err
	}
	if view.State.Next != f.State.Next || view.State.Link != f.State.Link {
		return &session.ConflictError{Session: d.id, Tail: view.Tail}
	}
	req := client.DelegateRequest{
		Head: client.Head{Version: client.APIVersion}, Session: d.id, Tail: view.Tail, Epoch: d.epoch, Calls: calls,
	}
	var reply client.DelegateReply
	if err := d.worker.cfg.Client.Call(ctx, client.MethodDelegate, req, &reply); err != nil {
		if e, ok := errors.AsType[*client.Error](err); ok && !e.Temporary() {
			return d.refused(ctx, f, calls[0], e)
		}
		return fmt.Errorf("delegate from %s: %w", d.id, err)
	}
	if err := d.rep.Refresh(ctx, reply.Tail); err != nil {
		return err
	}
	for i, o := range reply.Outcomes {
		if o.Error == nil || i >= len(calls) {
			continue
		}
		if o.Error.Temporary() {
			return &session.ConflictError{Session: d.id, Tail: reply.Tail}
		}
		f.State, f.Events = d.rep.both()
		return d.refused(ctx, f, calls[i], o.Error)
	}
	return nil
}

// refused writes what a coordinator refused that the worker would have allowed:
// what it alone can count.
func (d *driver) refused(ctx context.Context, f Facts, c client.Delegation, why *client.Error) error {
	call, ok := f.State.Call(c.CallID)
	if !ok || call.State != session.CallUndecided {
		return &session.ConflictError{Session: d.id}
	}
	if why.Code != client.CodeDenied && why.Code != client.Code(policy.CodeActivations) {
		return d.append(ctx, d.exactly(f, "close call", d.epoch, f.notStarted(call, why.Message)))
	}
	rec := c.Decision
	rec.Verdict, rec.By, rec.Reason = session.Deny, session.StageDepth, why.Message
	return d.append(ctx, d.exactly(f, "deny", d.epoch, []session.Payload{&rec, f.result(call, why.Message, string(why.Code), true)}))
}
