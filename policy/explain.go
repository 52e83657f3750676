package policy

import (
	"fmt"

	"github.com/entail-fleet/entail/session"
)

// From says how a session came to a value.
type From string

// The ways to a value.
const (
	FromDefault   From = "default"
	FromSwitch    From = "switch"
	FromInherited From = "inherited"
	FromDerived   From = "derived"
)

// Origin is one step of where a value came from: in which session, by which
// event, caused by whom. A chain of them leads up the tree to a switch or to a
// default.
type Origin struct {
	Session session.ID     `json:"session"`
	From    From           `json:"from"`
	Value   string         `json:"value"`
	Seq     *session.Seq   `json:"seq,omitempty"`
	By      *session.Party `json:"by,omitempty"`
	// At is the seq in the parent of the decision that handed the value down.
	At *session.Seq `json:"at,omitempty"`
}

// Explained is one knob of a session and where its value came from, nearest
// first.
type Explained struct {
	Knob    string   `json:"knob"`
	Value   string   `json:"value"`
	Origins []Origin `json:"origins"`
}

// Lineage finds what Explain needs of the logs above a session.
type Lineage interface {
	// Delegation returns who started child: the parent, the decision in its
	// log, and the seq it stands at.
	Delegation(child session.ID) (session.ID, session.ToolDecision, session.Seq, error)
	// Event returns one event of a session's log, prefix included.
	Event(id session.ID, seq session.Seq) (session.Event, error)
}

// Explain tells every value of a session's policy, the event that set it, and
// where that came from, up the tree.
func Explain(s session.State, d Deployment, l Lineage) ([]Explained, error) {
	e := EffectiveOf(s.Knobs, d)
	cur := e.Preset
	sandbox, err := origins(s.Header.ID, "sandbox", e.Basis.Sandbox, l)
	if err != nil {
		return nil, err
	}
	approval, err := origins(s.Header.ID, "approval", e.Basis.Approval, l)
	if err != nil {
		return nil, err
	}
	preset := []Origin{{Session: s.Header.ID, From: FromDerived, Value: string(cur)}}
	if s.Knobs.Preset.Set() && s.Knobs.Preset.Value == cur {
		if preset, err = origins(s.Header.ID, "preset", e.Basis.Preset, l); err != nil {
			return nil, err
		}
	}
	return []Explained{
		{Knob: "sandbox", Value: string(e.Sandbox), Origins: sandbox},
		{Knob: "approval", Value: string(e.Approval), Origins: approval},
		{Knob: "preset", Value: string(cur), Origins: preset},
	}, nil
}

// origins follows a ground up the tree until a switch or a default.
func origins(id session.ID, knob string, g session.Ground, l Lineage) ([]Origin, error) {
	var out []Origin
	for seen := map[session.ID]bool{}; ; {
		if g.Seq == nil {
			from := FromDefault
			if knob == "preset" {
				from = FromDerived // an identity has no default: the other two knobs gave it
			}
			return append(out, Origin{Session: id, From: from, Value: g.Value}), nil
		}
		ev, err := l.Event(id, *g.Seq)
		if err != nil {
			return nil, fmt.Errorf("explain %s of %s: %w", knob, id, err)
		}
		o := Origin{Session: ev.Session, From: FromSwitch, Value: g.Value, Seq: g.Seq}
		handedDown := false
		switch p := ev.Payload.(type) {
		case *session.SandboxSwitch:
			o.By, handedDown = p.By, p.Source == session.SourceDelegation
		case *session.ApprovalSwitch:
			o.By, handedDown = p.By, p.Source == session.SourceDelegation
		case *session.PresetSwitch:
			o.By, handedDown = p.By, p.By == nil
		case *session.Release:
			o.By = p.By
		}
		if !handedDown {
			return append(out, o), nil
		}
		if seen[ev.Session] { // logs that are damaged may name each other
			return nil, fmt.Errorf("explain %s of %s: %s was handed down to itself", knob, id, ev.Session)
		}
		seen[ev.Session] = true
		parent, dec, at, err := l.Delegation(ev.Session)
		if err != nil {
			return nil, fmt.Errorf("explain %s of %s: %w", knob, ev.Session, err)
		}
		o.From, o.At = FromInherited, &at
		out = append(out, o)
		next := map[string]session.Ground{"sandbox": dec.Basis.Sandbox, "preset": dec.Basis.Preset}[knob]
		if next.Value != g.Value {
			return out, nil // pinned, narrowed or derived there: the delegation itself set it
		}
		id, g = parent, next
	}
}
