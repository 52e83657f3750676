package verify

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// checkChild holds the parent's section of a genesis to the child it brings
// into being (I3).
func (w *walker) checkChild(raw session.Raw, r session.Record) {
	p := at{seq: r.Own.Seq, stream: raw.StreamSeq}
	child := raw.Address.Session
	d, ok := r.Own.Events[0].Payload.(*session.ToolDecision)
	if len(r.Own.Events) != 1 || !ok {
		w.flag("I3", "4.4", p, "the genesis of %s holds more, or other, than the one decision", child)
		return
	}
	switch {
	case d.Child != child:
		w.flag("I3", "4.4", p, "call %s names child %q, the genesis is of %s", d.CallID, d.Child, child)
	case session.ChildID(w.h.id, d.CallID) != child:
		w.flag("I3", "4.5", p, "child %s does not derive from call %s", child, d.CallID)
	case r.Birth != nil && *d.ChildLink != r.Birth.First.After:
		w.flag("I3", "4.4", p, "call %s names another link than its child %s has after its first batch", d.CallID, child)
	case d.Defaults == nil:
		w.flag("I1", "4.4", p, "call %s does not name the defaults used", d.CallID)
	}
}

// checkBirth judges how a session started, by its own first batch and by its
// parent's log at N.
func (r *run) checkBirth(h *history) {
	hd := h.header
	p := Finding{Session: h.id, Seq: hd.FirstLiveSeq, StreamSeq: h.born.StreamSeq}
	flag := func(inv, clause, format string, args ...any) {
		f := p
		f.Invariant, f.Clause, f.Text = inv, clause, fmt.Sprintf(format, args...)
		r.add(f)
	}
	if why := batchFault(hd, h.first); why != "" {
		flag("I2", "4.3", "its first batch is not whole: %s", why)
	}
	switch {
	case h.parent == nil && hd.IsChild():
		flag("I3", "4.4", "its parent %s has no log", hd.ParentSession)
	case hd.IsChild():
		r.checkDelegation(h, flag)
	case h.parent != nil:
		if pd := h.parent.header; hd.DelegationDepth != pd.DelegationDepth || hd.Cwd != pd.Cwd || hd.Tenant != pd.Tenant {
			flag(Log, "1.8", "depth, cwd or tenant of a person's fork are not its source's")
		}
		if pd := h.parent.header; hd.Workspace != pd.Workspace || !hd.Needs.Equal(pd.Needs) {
			flag(Log, "7.9", "workspace or needs of a person's fork are not its source's")
		}
		if len(policyOf(h.first)) > 0 {
			flag("I12", "1.8", "a person's fork with policy of its own: it is what its prefix folds to")
		}
		if !within(h.filter, h.parent.filter) {
			flag("I12", "1.8", "a person's fork without the tool filter of its source %s", h.parent.id)
		}
	}
}

type flagger func(inv, clause, format string, args ...any)

// checkDelegation finds the decision that a child comes from and judges the
// child by it (I3, I1, I12).
func (r *run) checkDelegation(h *history, flag flagger) {
	d, ok := h.parent.delegation(h.id)
	if !ok {
		// Where a stopped log would have gone on nobody knows.
		if !h.parent.stopped || h.born.StreamSeq <= h.parent.until {
			flag("I3", "4.4", "no decision in the log of its parent %s allows it", h.parent.id)
		}
		return
	}
	if h.header.DelegationDepth != h.parent.header.DelegationDepth+1 {
		flag("I3", "4.6", "depth %d under a parent of depth %d", h.header.DelegationDepth, h.parent.header.DelegationDepth)
	}
	if !h.header.Needs.Equal(h.parent.header.Needs) {
		flag("I12", "7.9", "what it needs of a worker is not what its parent %s needs", h.parent.id)
	}
	if d.decision.Defaults == nil {
		return // flagged in the parent
	}
	a, err := parseWish(d.arguments)
	if err != nil {
		flag("I1", "4.11", "the arguments of call %s say nothing that can be derived from: %v", d.call(), err)
		return
	}
	r.checkCapture(h, d, a, flag)
	r.checkCut(h, d, a, flag)
	r.checkWidth(h, d, flag)
}

// checkCapture is I1: the policy events and the filter of the first batch are
// exactly the derived ones.
func (r *run) checkCapture(h *history, d delegation, a wish, flag flagger) {
	want, err := r.table.without(d.decision.LeftOut).derive(d, a)
	if err != nil {
		flag("I1", "4.11", "should have been refused: %v", err)
		return
	}
	got := policyOf(h.first)
	if !reflect.DeepEqual(got, want) {
		flag("I1", "4.2", "starts with [%s], the log of %s at seq %d gives [%s]", list(got), h.parent.id, d.seq, list(want))
	}
	if filter := meet(d.filter, a.Tools); !within(h.filter, filter) || !within(filter, h.filter) {
		flag("I1", "4.11", "its tool filter is not its parent's and the call's together")
	}
}

// policyOf is the policy events of a first batch.
func policyOf(first []session.Event) []session.Payload {
	var out []session.Payload
	for _, e := range first {
		if _, changed := (knobs{}).turn(e); changed {
			out = append(out, e.Payload)
		}
	}
	return out
}

// checkCut holds the prefix of a child to SPEC 4.1.
func (r *run) checkCut(h *history, d delegation, a wish, flag flagger) {
	want := session.Seq(0)
	if a.Kind == session.Fork {
		want = d.cut
	}
	if got := h.header.InheritedEventCount; got != want {
		flag("I1", "4.1", "a %s that inherits %d events, its parent's last ended turn gives %d", a.Kind, got, want)
	}
}

// checkWidth is I12 on one edge of the tree. Every edge holds, so that every
// descendant does.
func (r *run) checkWidth(h *history, d delegation, flag flagger) {
	def := *d.decision.Defaults
	child := h.knobsAt(h.header.FirstLiveSeq + session.Seq(len(h.first)))
	have, got := d.at.sandbox.or(def.Sandbox), child.sandbox.or(def.Sandbox)
	switch {
	case got.Wider(have):
		flag("I12", "4.2", "has mode %q, its parent %s had %q at seq %d", got, h.parent.id, have, d.seq)
	case child.sandbox.seq == nil && d.at.sandbox.seq != nil:
		flag("I12", "4.2", "follows the default, its parent %s was switched to %q at seq %d", h.parent.id, have, *d.at.sandbox.seq)
	}
	t := r.table.without(d.decision.LeftOut)
	if t.approvals && child.approval.value != session.Never {
		flag("I12", "4.2", "may ask: its approvals are not pinned to %q", session.Never)
	}
	if !within(h.filter, d.filter) {
		flag("I12", "4.11", "has tools that the filter of its parent %s stops", h.parent.id)
	}
	if got == session.DangerFullAccess && t.current(d.at, def) == session.PresetAuto && t.current(child, def) != session.PresetAuto {
		flag("I12", "6.1", "its parent %s was under preset %q and its own calls are not reviewed", h.parent.id, session.PresetAuto)
	}
}

// list shows policy events in a finding.
func list(events []session.Payload) string {
	out := make([]string, 0, len(events))
	for _, e := range events {
		out = append(out, strings.TrimSpace(fmt.Sprint(e.Type(), " ", value(e), " ", source(e))))
	}
	return strings.Join(out, ", ")
}

func value(e session.Payload) string {
	switch p := e.(type) {
	case *session.SandboxSwitch:
		return string(p.Mode)
	case *session.ApprovalSwitch:
		return string(p.Policy)
	case *session.PresetSwitch:
		return string(p.Preset)
	}
	return ""
}

// source says where a policy event says that it is from.
func source(e session.Payload) string {
	var s session.Source
	var by *session.Party
	switch p := e.(type) {
	case *session.SandboxSwitch:
		s, by = p.Source, p.By
	case *session.ApprovalSwitch:
		s, by = p.Source, p.By
	case *session.PresetSwitch:
		by = p.By
	}
	if by != nil {
		return fmt.Sprintf("(by %s %s)", by.Kind, by.ID)
	}
	if s == "" {
		return ""
	}
	return "(" + string(s) + ")"
}
