package delegation

import (
	"fmt"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Order is one delegating call that a worker decided and asks to commit.
type Order struct {
	CallID   session.CallID
	Request  Request
	Decision session.ToolDecision // as made at the tail
	Epoch    uint64               // the requester's
	Time     int64                // now, in milliseconds
	Tools    []string             // the names a filter may speak of
}

// Check is the precondition of a delegation, evaluated on the fold at exactly
// the tail that the commit expects (SPEC 4.4): the parent's turn is open, the
// call stands in it undecided, the requester's epoch is in force, nothing waits
// to be obeyed, and policy decides there what the worker decided.
func (o Order) Check(s session.State, d policy.Deployment) error {
	if err := o.Request.Check(); err != nil {
		return err
	}
	call, ok := s.Call(o.CallID)
	switch {
	case s.Ended != nil:
		return missed("session %s has ended", s.Header.ID)
	case s.Open == nil || s.Open.Parked:
		return missed("no turn of %s is being driven", s.Header.ID)
	case !ok:
		return missed("call %s is not of the open step", o.CallID)
	case call.State != session.CallUndecided:
		return missed("call %s is decided", o.CallID)
	case call.Name != session.ToolDelegate:
		return missed("call %s is of tool %q", o.CallID, call.Name)
	case o.Epoch != s.Epoch:
		return missed("epoch %d is not in force, %d is", o.Epoch, s.Epoch)
	case s.Stopping():
		return missed("an interrupt or a cancel of %s waits to be obeyed", s.Header.ID)
	}
	return o.decide(s, d)
}

// decide makes the decision again and holds the worker's to it.
func (o Order) decide(s session.State, d policy.Deployment) error {
	wish := o.Request.Wish()
	decision, err := policy.Decide(s, d, policy.Call{ID: o.CallID, Tool: session.ToolDelegate, Effect: true, Wish: &wish}, o.Tools)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	switch v := decision.(type) {
	case policy.Permit:
		have := o.Decision
		want := v.Record()
		if have.Verdict != want.Verdict || have.Mode != want.Mode || have.Network != want.Network || !have.Basis.Equal(want.Basis) ||
			have.Revision != want.Revision || have.Settings != want.Settings {
			return missed("call %s was decided on another basis or revision (%d, now %d)", o.CallID, have.Revision, want.Revision)
		}
		return nil
	case policy.Denial:
		return &DeniedError{Record: v.Record(), Text: v.Text()}
	case policy.Question:
	}
	return missed("call %s waits for an answer", o.CallID)
}

// Child composes the one record of a delegation: the parent's decision and the
// child's header and first batch. It checks the precondition itself, so that no
// caller can forget it. That both sections are accepted where they will stand is
// the append's to check, of this record as of every other (SPEC 3.3).
func (o Order) Child(v session.View, d policy.Deployment) (session.Record, error) {
	s := v.State
	if err := o.Check(s, d); err != nil {
		return session.Record{}, err
	}
	captured, err := policy.Capture(s, d, o.Request.Wish(), o.Tools)
	if err != nil {
		return session.Record{}, err
	}
	header, prefix, err := o.header(s)
	if err != nil {
		return session.Record{}, err
	}
	birth, err := session.ComposeBirth(header, prefix.Link, o.drafts(s, header, captured)...)
	if err != nil {
		return session.Record{}, fmt.Errorf("%w: compose child %s: %w", ErrInvalid, header.ID, err)
	}
	decision := o.Decision
	decision.Child, decision.ChildLink = header.ID, &birth.First.After
	own, err := session.Compose(s.Header.ID, session.ClassTurn, s.Next, s.Link, session.Draft{Time: o.Time, Payload: &decision})
	if err != nil {
		return session.Record{}, fmt.Errorf("%w: compose decision of %s: %w", ErrInvalid, o.CallID, err)
	}
	return session.Record{
		Address: session.Address{Session: header.ID, Class: session.ClassGenesis, Creator: s.Header.ID},
		Format:  s.Format, Epoch: o.Epoch, Creator: s.Header.ParentSession, Own: &own, Birth: &birth,
	}, nil
}

// header makes the child's immutable facts, and the prefix it inherits.
func (o Order) header(s session.State) (session.Header, session.Prefix, error) {
	digest, err := Digest(o.Request)
	if err != nil {
		return session.Header{}, session.Prefix{}, err
	}
	var prefix session.Prefix
	if o.Request.Kind == session.Fork {
		prefix = s.Cut // zero without an ended turn: then the fork has no seed
	}
	h := s.Header
	return session.Header{
		ID: session.ChildID(h.ID, o.CallID), Tenant: h.Tenant, Root: h.Root, ParentSession: h.ID,
		Origin: session.OriginSubagent, Cwd: h.Cwd, Workspace: h.Workspace,
		DelegationDepth: h.DelegationDepth + 1, InheritedEventCount: prefix.Count, FirstLiveSeq: prefix.Count,
		CreatedAt: o.Time, CreatedBy: session.Party{Kind: session.SessionParty, ID: string(h.ID)},
		Request: digest, Surface: h.Surface, Label: o.Request.Label,
		FormatVersion: s.Format, Traceparent: h.Traceparent, Needs: h.Needs,
	}, prefix, nil
}

// drafts lists the first batch in the order of SPEC 4.3.
func (o Order) drafts(s session.State, h session.Header, c policy.Captured) []session.Draft {
	var out []session.Draft
	add := func(p session.Payload) { out = append(out, session.Draft{Time: o.Time, Payload: p}) }
	policyFirst := !seedEndsFirst
	if h.Seeded() && !policyFirst {
		add(&session.EndSeed{Inherited: true})
	}
	for _, p := range c.Events() {
		add(p)
	}
	if h.Seeded() && policyFirst {
		add(&session.EndSeed{Inherited: true})
	}
	add(&session.Descriptor{
		Version: session.DescriptorVersion, Mode: o.Request.Mode, Provider: o.Request.Kind,
		Label: o.Request.Label, Persona: o.Request.Persona, ToolFilter: c.Filter,
	})
	add(modelBelow(s))
	add(&session.UserMessage{
		ID: "prompt-" + string(h.ID), Role: "user", Content: o.Request.Prompt,
		Source: session.MessageSource{Kind: session.FromUser},
		By:     &session.Party{Kind: session.SessionParty, ID: string(s.Header.ID)},
	})
	return out
}

// modelBelow hands the model down. A script's text stays where it stands; below,
// its place and digest are named.
func modelBelow(s session.State) *session.ModelSelected {
	m := *s.Model
	if m.Script != nil && m.Script.Text != "" {
		seq := s.ModelSeq
		m.Script = &session.Script{Session: s.Header.ID, Seq: &seq, SHA256: m.Script.SHA256}
	}
	return &m
}
