package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// trail is a session's log as it stands in the stream: decoded records and
// nothing that anybody folded or cached.
type trail struct {
	header    session.Header
	inherited []entry
	own       []entry
	births    []birth // the children, in order
}

// entry is one event and the record it stands in.
type entry struct {
	session.Event
	writer session.Writer
}

// birth is a genesis that stands in a session's space.
type birth struct {
	header session.Header
	events []session.Event
}

// records reads a session's records off the stream, its genesis and its own space,
// up to the tail that the stream's leader tells. Reads are answered by any replica,
// which may be behind. The session must exist.
func (m *demo) records(ctx context.Context, id session.ID) (genesis session.Raw, own []session.Raw, err error) {
	tail, err := m.raw.Tail(ctx, id)
	if err != nil {
		return genesis, nil, err
	}
	err = await(ctx, lookEvery, func() (bool, error) {
		var err error
		if genesis, err = m.raw.Genesis(ctx, id, ""); err != nil {
			if errors.Is(err, session.ErrNotFound) {
				err = nil
			}
			return false, err
		}
		own = nil
		last, err := m.raw.Read(ctx, id, 0, func(raw session.Raw) error {
			own = append(own, raw)
			return nil
		})
		return last >= tail, err
	})
	if err != nil {
		return genesis, nil, fmt.Errorf("read %s up to %d: %w", id, tail, err)
	}
	return genesis, own, nil
}

// trail reads a session's log from the stream.
func (m *demo) trail(ctx context.Context, id session.ID) (trail, error) {
	genesis, own, err := m.records(ctx, id)
	if err != nil {
		return trail{}, err
	}
	rec, err := session.DecodeRecord(genesis)
	if err != nil || rec.Birth == nil {
		return trail{}, fmt.Errorf("genesis of %s: %w", id, errors.Join(err, rec.BirthErr))
	}
	t := trail{header: rec.Birth.Header}
	t.add(rec.Birth.First, rec.Writer)
	for _, raw := range own {
		rec, err := session.DecodeRecord(raw)
		if err != nil {
			return trail{}, err
		}
		if rec.Birth != nil && raw.Address.Session != id {
			t.births = append(t.births, birth{rec.Birth.Header, rec.Birth.First.Events})
		}
		if rec.Own != nil {
			t.add(*rec.Own, rec.Writer)
		}
	}
	if t.header.InheritedEventCount == 0 {
		return t, nil
	}
	parent, err := m.trail(ctx, t.header.ParentSession)
	if err != nil {
		return trail{}, err
	}
	all := slices.Concat(parent.inherited, parent.own)
	t.inherited = all[:min(len(all), int(t.header.InheritedEventCount))] //nolint:gosec // a demo's log is short
	return t, nil
}

func (t *trail) add(s session.Section, w session.Writer) {
	for _, e := range s.Events {
		t.own = append(t.own, entry{e, w})
	}
}

// child reads the log of the child that a session started under a label.
func (m *demo) child(ctx context.Context, parent session.ID, label string) (trail, error) {
	t, err := m.trail(ctx, parent)
	if err != nil {
		return trail{}, err
	}
	for _, b := range t.births {
		if b.header.Label == label {
			return m.trail(ctx, b.header.ID)
		}
	}
	return trail{}, fmt.Errorf("%s has no child %q in the stream: %w", parent, label, session.ErrNotFound)
}

// payloads returns the payloads of one type among events, in order.
func payloads[P any](events []entry) []*P {
	var out []*P
	for _, e := range events {
		if p, ok := any(e.Payload).(*P); ok {
			out = append(out, p)
		}
	}
	return out
}

// policies are the policy events of a session's own.
func (t trail) policies() []entry {
	var out []entry
	for _, e := range t.own {
		switch e.Payload.(type) {
		case *session.SandboxSwitch, *session.ApprovalSwitch, *session.PresetSwitch:
			out = append(out, e)
		}
	}
	return out
}

// policyText shows the policy events of a session's own.
func (t trail) policyText() string {
	var parts []string
	for _, e := range t.policies() {
		l := logged{typ: e.Type, payload: e.Payload}
		parts = append(parts, fmt.Sprintf("%d %s %s", e.Seq, e.Type, l.describe()))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// handedDown reports whether a session starts, right behind its seed, with this
// mode and the pin, both from its delegation.
func (t trail) handedDown(mode session.SandboxMode) bool {
	own := t.own
	if t.header.Seeded() && len(own) > 0 && own[0].Type == session.TypeEndSeed {
		own = own[1:]
	}
	if len(own) < 2 {
		return false
	}
	s, isMode := own[0].Payload.(*session.SandboxSwitch)
	p, isPin := own[1].Payload.(*session.ApprovalSwitch)
	return isMode && s.Mode == mode && s.Source == session.SourceDelegation &&
		isPin && p.Policy == session.Never && p.Source == session.SourceDelegation
}

// result finds the result of a session's nth call, from 0.
func (t trail) result(n int) (session.ToolCall, session.ToolResult, session.Writer, bool) {
	calls := payloads[session.ToolCall](t.own)
	if n >= len(calls) {
		return session.ToolCall{}, session.ToolResult{}, session.Writer{}, false
	}
	for _, e := range t.own {
		if r, ok := e.Payload.(*session.ToolResult); ok && r.CallID == calls[n].CallID {
			return *calls[n], *r, e.writer, true
		}
	}
	return *calls[n], session.ToolResult{}, session.Writer{}, false
}

// refused states that the fence refused a session's nth call as read-only, with
// the marker.
func (f *facts) refused(t trail, n int) {
	const marker = "[sandbox: file access denied under read-only mode]"
	call, r, _, ok := t.result(n)
	f.log(ok && r.Denied && strings.Contains(r.Content, marker), "%s of %s: %s", call.Name, name(t.header), resultWord(r, ok))
}

// succeeded states that a session's nth call had its effect.
func (f *facts) succeeded(t trail, n int) {
	call, r, _, ok := t.result(n)
	f.log(ok && !r.IsError && !r.Denied, "%s of %s: %s", call.Name, name(t.header), resultWord(r, ok))
}

func resultWord(r session.ToolResult, ok bool) string {
	switch {
	case !ok:
		return "no result"
	case r.Denied:
		return strings.TrimSpace("denied " + r.Code)
	case r.IsError:
		return strings.TrimSpace("failed " + r.Code)
	}
	return "succeeded"
}
