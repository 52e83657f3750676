package policy

import (
	"fmt"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// Call is a tool call as far as policy needs to know it.
type Call struct {
	ID   session.CallID
	Tool string
	// Effect says that the tool can change something: files, processes, sessions.
	Effect bool
	// Digest is of the call's arguments; a question and its grant name it.
	Digest string
	// Escalate and Justification ask for a wider mode for this call only.
	Escalate      session.SandboxMode
	Justification string
	// Wish is what a delegating call asks for its child; nil for all others.
	Wish *Wish
}

// Decide says whether a call may run, on the state that s folds to and the
// deployment's settings (SPEC 5, 4.6, 6.6). Tools are the names a filter may
// speak of. A *RefusalError means that the call makes no sense: it was not
// decided and is no denial.
//
// The form of an escalation comes before any stage. The stages are, in order: the
// tool filter, the reviewer, for a delegation its caps and what it asks for, and
// the escalation. A grant therefore never lifts a cap, and nobody is asked about
// a delegation that cannot be. Whatever no stage stops is allowed under the
// effective mode; the fence holds it to that.
func Decide(s session.State, d Deployment, c Call, tools []string) (Decision, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	r := newRuling(&s, &d, c)
	if Filtered(s.Filter(), c.Tool) {
		return r.deny(session.StageFilter, "", "the tool "+c.Tool+" is not among the tools this session was given"), nil
	}
	if r.effective.Preset == session.PresetAuto && c.effects() {
		if d := r.review(d.Reviewer); d != nil {
			return d, nil
		}
	}
	if c.Wish != nil {
		if d := r.delegate(&s, &d, tools); d != nil {
			return d, nil
		}
	}
	if c.Escalate != "" {
		return r.escalate(&s, d.Composition), nil
	}
	return r.permit(&s, r.record(session.Allow, r.effective.Sandbox, session.StagePolicy)), nil
}

// effects reports whether the call is of the kind that a reviewer judges
// (SPEC 6.6): a delegation and an escalation are, whatever the tool says.
func (c *Call) effects() bool { return c.Effect || c.Wish != nil || c.Escalate != "" }

func (c *Call) check() error {
	justified := strings.TrimSpace(c.Justification) != ""
	if (c.Escalate != "") != justified {
		return refuse(CodeArguments, "sandbox_permissions and a justification come together, and the justification says something")
	}
	return nil
}

// ruling is the making of one decision: what all of its endings share. State and
// deployment are passed beside it, because what is in it ends up on the heap.
type ruling struct {
	call      Call
	effective Effective
	shared    session.ToolDecision
	terms     Confinement
}

func newRuling(s *session.State, d *Deployment, c Call) ruling {
	e := effective(&s.Knobs, d)
	r := ruling{call: c, effective: e, shared: session.ToolDecision{
		CallID: c.ID, Basis: e.Basis, Revision: d.Revision, Settings: d.Hash,
	}, terms: d.Confinement}
	if n := s.Header.Needs; n != nil && r.terms.Require.Weaker(n.Tier) {
		r.terms.Require = n.Tier
	}
	if c.Wish != nil {
		defaults := d.Defaults
		r.shared.Defaults = &defaults
		r.shared.LeftOut = d.Composition.leftOut()
	}
	return r
}

func (r ruling) record(v session.Verdict, mode session.SandboxMode, by session.Stage) session.ToolDecision {
	rec := r.shared
	rec.Verdict, rec.Mode, rec.By = v, mode, by
	return rec
}

// permit allows what rec says, on the deployment's terms. A delegation has no
// effect that a network would matter to.
func (r ruling) permit(s *session.State, rec session.ToolDecision) Permit {
	if r.call.Wish == nil {
		rec.Network = r.terms.Network.Of(rec.Mode)
	}
	return Permit{session: s.Header.ID, record: rec, terms: r.terms}
}

func (r ruling) deny(by session.Stage, code, reason string) Denial {
	rec := r.record(session.Deny, r.effective.Sandbox, by)
	rec.Reason, rec.Final = reason, true
	return Denial{record: rec, code: code, text: reason}
}

// review stands in for the reviewer where there is none (SPEC 6.6): nil lets the
// call pass on to the later stages.
func (r ruling) review(by Reviewer) Decision {
	reason := "no reviewer in this deployment"
	if by == DelegateOnly {
		if r.call.Wish != nil {
			return nil
		}
		reason = "this deployment's reviewer lets delegations pass and nothing else"
	}
	d := r.deny(session.StageReviewer, session.CodeAutoReviewDenied, reason)
	d.text = fmt.Sprintf("Review did not allow the call of %q. It was not executed.", r.call.Tool)
	return d
}

// escalate decides a call that asks for a wider mode (SPEC 5.6). The order is:
// strictly wider, sandbox switching composed, already stopped, approvals composed,
// policy, somebody to ask.
func (r ruling) escalate(s *session.State, composed Composition) Decision {
	want, have := r.call.Escalate, r.effective.Sandbox
	switch {
	case !want.Wider(have):
		return r.deny(session.StagePolicy, "", fmt.Sprintf("sandbox mode %q is not strictly wider than %q, which this call has already", want, have))
	case !composed.Sandbox:
		return r.deny(session.StagePolicy, string(CodeLeftOut), fmt.Sprintf("sandbox switching is left out of this deployment: no call can ask for %q", want))
	case s.Stopping():
		return r.unasked(s, session.Cancelled)
	case !composed.Approvals:
		return r.unasked(s, session.Unavailable)
	case r.effective.Approval == session.Never:
		return r.unasked(s, session.Rejected)
	}
	if d := r.answered(s); d != nil {
		return d
	}
	if s.Header.Surface == session.SurfaceNone {
		return r.unasked(s, session.Unavailable)
	}
	return Question{record: r.record(session.AskPerson, have, session.StageApproval), ask: r.ask(s)}
}

// answered decides by the answer to the call's last question, if it has one that
// still counts: the basis has not moved and the arguments are the same.
func (r ruling) answered(s *session.State) Decision {
	call, ok := s.Call(r.call.ID)
	if !ok || call.Ask == nil || call.Ask.Outcome == "" || !call.Ask.Basis.Equal(r.effective.Basis) {
		return nil
	}
	q := *call.Ask
	if q.Outcome != session.AllowedOnce {
		return r.refused(q.Outcome)
	}
	if q.Used || q.Digest != r.call.Digest || q.Mode != r.call.Escalate {
		return nil
	}
	rec := r.record(session.Allow, q.Mode, session.StageApproval)
	rec.Grant = q.ID
	return r.permit(s, rec)
}

// Stale reports whether what a question was asked under does not hold any more: a
// switch or a new default stands between, or the deployment has left out what it is
// about. An answer to it would not count (SPEC 5.6, 2.6).
func Stale(s session.State, d Deployment, q session.Question) bool {
	composed := d.Composition.Sandbox && d.Composition.Approvals
	return noticesChanges && (!composed || !q.Basis.Equal(effective(&s.Knobs, &d).Basis))
}

// unasked denies an escalation that nobody is asked about, and logs the question
// and its outcome all the same.
func (r ruling) unasked(s *session.State, o session.Outcome) Denial {
	d := r.refused(o)
	ask := r.ask(s)
	d.asked = &ask
	return d
}

// refused denies an escalation; each outcome has a text of its own.
func (r ruling) refused(o session.Outcome) Denial {
	var text string
	switch o {
	case session.Rejected:
		text = fmt.Sprintf("Escalating this call to %q was rejected. Do not retry it; report the limitation.", r.call.Escalate)
		if r.effective.Approval == session.Never {
			text = fmt.Sprintf("Escalating this call to %q was rejected: approvals are off in this session. Do not retry it; report the limitation.", r.call.Escalate)
		}
	case session.Cancelled:
		text = fmt.Sprintf("The question whether to escalate this call to %q was cancelled.", r.call.Escalate)
	case session.Unavailable, session.AllowedOnce:
		text = fmt.Sprintf("Nobody can be asked whether to escalate this call to %q.", r.call.Escalate)
	}
	d := r.deny(session.StageApproval, "", "escalation "+string(o))
	d.text, d.outcome = text, o
	d.record.Final = o != session.Cancelled
	return d
}

func (r ruling) ask(s *session.State) session.ApprovalAsked {
	n := session.Seq(1)
	if call, ok := s.Call(r.call.ID); ok && call.Ask != nil {
		n = call.Ask.Seq
	}
	return session.ApprovalAsked{
		ID: fmt.Sprintf("ask-%s-%d", r.call.ID, n), CallID: r.call.ID, ToolName: r.call.Tool,
		Digest: r.call.Digest, Mode: r.call.Escalate, Basis: r.effective.Basis,
		Reason: fmt.Sprintf("escalate sandbox to %s: %s", r.call.Escalate, r.call.Justification),
	}
}

// delegate checks what a delegation asks for and the exact caps. The cap on the
// tree is the coordinator's, which alone can count it.
func (r ruling) delegate(s *session.State, d *Deployment, tools []string) Decision {
	depth, caps := s.Header.DelegationDepth+1, d.Caps
	if depth > caps.Depth {
		return r.deny(session.StageDepth, "", fmt.Sprintf("a child would have depth %d, at most %d is allowed here", depth, caps.Depth))
	}
	if len(s.Children) >= caps.Live {
		full := r.deny(session.StageDepth, string(CodeActivations), fmt.Sprintf("%d children hold a slot, at most %d may: wait for one to end or cancel it", len(s.Children), caps.Live))
		full.record.Final = false
		return full
	}
	if _, err := capture(s, d, *r.call.Wish, tools); err != nil {
		return r.deny(session.StagePolicy, string(CodeOf(err)), err.Error())
	}
	return nil
}
