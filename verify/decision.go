package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// decide holds a decision to SPEC 5.1 and 5.2: of a call that waits for one, on
// exactly the log right before it; and to 3.1 and 4.4: it allows a delegating
// call if, and only if, it stands in a genesis.
func (w *walker) decide(d *session.ToolDecision, p at) {
	c, known := w.st.calls[d.CallID]
	delegates := c.name == session.ToolDelegate && d.Verdict == session.Allow
	switch {
	case !known:
		w.flag("I4", "5.1", p, "decides call %s, which is not of the open step", d.CallID)
	case c.ended:
		w.flag("I4", "5.1", p, "decides call %s, which has its result", d.CallID)
	case c.verdict == session.Allow && delegates:
		w.flag("I3", "4.5", p, "call %s is allowed twice and would have two children", d.CallID)
	case c.verdict == session.Allow || c.verdict == session.Deny:
		w.flag("I4", "5.1", p, "decides call %s a second time", d.CallID)
	case c.verdict == session.AskPerson && c.outcome == "":
		w.flag("I4", "5.6", p, "decides call %s, which waits for an answer", d.CallID)
	}
	if delegates != p.genesis {
		w.flag("I3", "4.4", p, "call %s of tool %q: verdict %q in a genesis: %v; an allowed delegation and no other call stands in one", d.CallID, c.name, d.Verdict, p.genesis)
	}
	if why := basisFault(d, w.st.knobs); why != "" {
		w.flag("I4", "5.2", p, "decides call %s on a basis that is not the log right before it: %s", d.CallID, why)
	}
	if d.Verdict == session.Allow {
		w.allow(d, &c, p)
	}
	c.verdict, c.mode, c.network = d.Verdict, d.Mode, d.Network
	w.st.calls[d.CallID] = c
	if d.Child != "" {
		w.h.delegations = append(w.h.delegations, delegation{
			child: d.Child, seq: p.seq, streamSeq: p.stream, decision: d, arguments: c.arguments,
			at: w.st.knobs, cut: w.h.cutAt(p.seq), filter: w.h.filter,
		})
	}
}

// basisFault compares a basis with the knobs: a ground names the last event of
// its knob, or none if there is none.
func basisFault(d *session.ToolDecision, k knobs) string {
	why := groundFault("sandbox", d.Basis.Sandbox, k.sandbox) +
		groundFault("approval", d.Basis.Approval, k.approval) +
		groundFault("preset", d.Basis.Preset, k.preset)
	if def := d.Defaults; why == "" && def != nil {
		s, a := k.sandbox.or(def.Sandbox), k.approval.or(def.Approval)
		if d.Basis.Sandbox.Value != string(s) || d.Basis.Approval.Value != string(a) {
			why = fmt.Sprintf("it says %s and %s, its own defaults give %s and %s", d.Basis.Sandbox.Value, d.Basis.Approval.Value, s, a)
		}
	}
	return why
}

func groundFault[V ~string](knob string, g session.Ground, k setting[V]) string {
	switch {
	case k.seq == nil && g.Seq == nil:
		return ""
	case k.seq == nil:
		return fmt.Sprintf("%s at seq %d, the log never set it. ", knob, *g.Seq)
	case g.Seq == nil:
		return fmt.Sprintf("%s as a default, the log set it at seq %d. ", knob, *k.seq)
	case *g.Seq != *k.seq || g.Value != string(k.value):
		return fmt.Sprintf("%s %q at seq %d, the log has %q at seq %d. ", knob, g.Value, *g.Seq, k.value, *k.seq)
	}
	return ""
}

// allow holds an allowing decision to the authority of its session: the
// effective mode (I4) or an unused grant for this very call (I6), and no tool, grant
// or unreviewed auto call that the delegation did not hand down (I12).
func (w *walker) allow(d *session.ToolDecision, c *call, p at) {
	switch {
	case d.Grant == "" && string(d.Mode) != d.Basis.Sandbox.Value:
		w.flag("I4", "5.2", p, "allows call %s mode %q, its basis is %q", d.CallID, d.Mode, d.Basis.Sandbox.Value)
	case d.Grant != "" && (c.ask != d.Grant || c.outcome != session.AllowedOnce || c.wants != d.Mode || c.used):
		w.flag("I6", "5.6", p, "allows call %s mode %q by grant %q, which the log does not give it", d.CallID, d.Mode, d.Grant)
	case d.Grant != "" && moved(c.under, d.Basis):
		w.flag("I6", "5.6", p, "allows call %s by grant %q, and the policy has changed since its question was asked", d.CallID, d.Grant)
	}
	c.used = c.used || d.Grant != ""
	if d.Grant != "" && d.Basis.Approval.Value == string(session.Never) {
		w.flag("I12", "5.6", p, "allows call %s by a grant under approval policy %q", d.CallID, session.Never)
	}
	if c.name != "" && !permits(w.h.filter, c.name) {
		w.flag("I12", "4.11", p, "allows call %s of tool %q, which the session's filter keeps from it", d.CallID, c.name)
	}
	if w.unreviewed(d, *c) {
		w.flag("I12", "6.1", p, "allows call %s of tool %q under preset %q without a review", d.CallID, c.name, session.PresetAuto)
	}
}

// moved reports whether a knob has another value, or one from another event, in the
// second basis.
func moved(from, to session.Basis) bool {
	differ := func(a, b session.Ground) bool {
		unset := a.Seq == nil || b.Seq == nil
		return a.Value != b.Value || unset && a.Seq != b.Seq || !unset && *a.Seq != *b.Seq
	}
	return differ(from.Sandbox, to.Sandbox) || differ(from.Approval, to.Approval) || differ(from.Preset, to.Preset)
}

// unreviewed reports whether a call with an effect was allowed under auto by
// policy alone. A delegating call may pass so: its child is judged anew.
func (w *walker) unreviewed(d *session.ToolDecision, c call) bool {
	under := w.table.current(w.st.knobs, session.Defaults{
		Sandbox: session.SandboxMode(d.Basis.Sandbox.Value), Approval: session.ApprovalPolicy(d.Basis.Approval.Value),
	})
	harmless := slices.Contains([]string{"", "read", "list", "glob", "grep", "send", "report", "interrupt", "cancel", session.ToolDelegate}, c.name)
	return under == session.PresetAuto && !harmless && d.By != session.StageReviewer && !isRule(d.By)
}

// result holds a result to SPEC 5.1: of a call that ran after it was allowed, or
// one that says that nothing ran.
func (w *walker) result(d *session.ToolResult, p at) {
	c, known := w.st.calls[d.CallID]
	notStarted := d.IsError && d.Code == session.CodeToolNotStarted
	switch {
	case !known:
		w.flag("I4", "5.1", p, "a result of call %s, which is not of the open step", d.CallID)
	case c.ended:
		w.flag("I4", "5.1", p, "a second result of call %s", d.CallID)
	case (c.verdict == "" || c.verdict == session.AskPerson) && !notStarted:
		w.flag("I4", "5.1", p, "call %s has a result without a decision; only %s may end it", d.CallID, session.CodeToolNotStarted)
	case c.verdict == session.Deny && (!d.IsError || d.Code == session.CodeToolOutcomeUnknown || d.Effect != nil):
		w.flag("I4", "5.1", p, "call %s was denied and has the result of an effect", d.CallID)
	case c.ask != "" && c.outcome == "":
		w.flag(Log, "5.7", p, "call %s ends with its question %q open", d.CallID, c.ask)
	case d.Effect != nil && notStarted:
		w.flag("I4", "5.1", p, "call %s was not started and has the result of an effect", d.CallID)
	case d.Effect != nil && c.verdict == session.Allow:
		w.width(d.CallID, d.Effect.Sandbox, c, p)
	}
	c.ended = true
	w.st.calls[d.CallID] = c
}

// width holds what a call ran under to what was decided for it: no wider mode, no
// wider network, and a fence where the mode confines (I5).
func (w *walker) width(id session.CallID, ran session.Confinement, c call, p at) {
	if ran.Mode.Wider(c.mode) {
		w.flag("I5", "5.4", p, "call %s ran under mode %q, its decision has %q", id, ran.Mode, c.mode)
	}
	if ran.Network.Wider(cmp.Or(c.network, session.NetworkDeny)) {
		w.flag("I5", "5.4", p, "call %s ran with network %q, its decision has %q", id, ran.Network, c.network)
	}
	if c.mode != session.DangerFullAccess && (ran.Tier == session.TierNone || ran.Enforcement == session.NotEnforced) {
		w.flag("I5", "5.4", p, "call %s ran behind tier %q with enforcement %q, its decision has mode %q, which confines", id, ran.Tier, ran.Enforcement, c.mode)
	}
}
