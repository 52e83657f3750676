package races_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/internal/races"
	"github.com/entail-fleet/entail/session"
)

// author says which operation of a session a record is of: the person who
// switched, or the call that was decided.
type author struct {
	id     session.ID
	person string
	call   session.CallID
}

func (op *operation) author() author {
	a := author{id: op.input.Session, call: op.input.Call}
	if op.person >= 0 {
		a.person = person(op.person).ID
	}
	return a
}

// readBack reads a session's raw records from the stream, after those that it
// begins with, and says whose each is. It does not judge them: what a chain would
// void or stop at is read too.
func (w *world) readBack(id session.ID, from session.Seq) (map[author]*races.Record, error) {
	w.t.Helper()
	tail, err := w.log().Tail(w.t.Context(), id)
	w.must(err)
	var out map[author]*races.Record
	var odd error
	for {
		out, odd = map[author]*races.Record{}, nil
		read, err := w.log().Read(w.t.Context(), id, 0, func(raw session.Raw) error {
			r, err := session.DecodeRecord(raw)
			if err != nil {
				return fmt.Errorf("record at %d: %w", raw.StreamSeq, err)
			}
			if r.Own == nil || raw.Address.Session == id && raw.Address.Class == session.ClassGenesis || r.Own.Seq < from {
				return nil
			}
			who, rec := recordOf(raw, r)
			switch {
			case who == author{}:
				odd = errors.Join(odd, fmt.Errorf("nobody wrote the %s record of %s at %d", raw.Address.Class, id, raw.StreamSeq))
			case out[who] != nil:
				odd = errors.Join(odd, fmt.Errorf("%+v is written twice, at %d and at %d", who, out[who].StreamSeq, raw.StreamSeq))
			default:
				out[who] = rec
			}
			return nil
		})
		w.must(err)
		// A copy of the stream that answers may be behind the leader.
		if read >= tail {
			return out, odd
		}
		if !delay.For(w.t.Context(), 10*time.Millisecond) {
			w.t.Fatalf("read %s up to %d, its tail is %d", id, read, tail)
		}
	}
}

// recordOf is a record as the model speaks of it, and whose it is: the zero author
// for one that no raced operation writes.
func recordOf(raw session.Raw, r session.Record) (author, *races.Record) {
	who := author{id: raw.Address.Space()}
	out := &races.Record{StreamSeq: raw.StreamSeq, Seq: r.Own.Seq, Events: len(r.Own.Events)}
	if raw.Address.Class == session.ClassPolicy {
		for _, e := range r.Own.Events {
			ev, by := knobEvent(e.Payload)
			if by == nil {
				return author{}, nil
			}
			who.person = by.ID
			out.Switched = append(out.Switched, ev)
		}
		return who, out
	}
	d, ok := r.Own.Events[0].Payload.(*session.ToolDecision)
	if !ok {
		return author{}, nil
	}
	who.call = d.CallID
	out.Verdict, out.By, out.Mode = d.Verdict, d.By, d.Mode
	out.Basis = races.Basis{Sandbox: groundOf(d.Basis.Sandbox), Approval: groundOf(d.Basis.Approval), Preset: groundOf(d.Basis.Preset)}
	if r.Birth != nil {
		out.Child = []races.Event{}
		for _, e := range r.Birth.First.Events {
			if ev, _ := knobEvent(e.Payload); ev != (races.Event{}) {
				out.Child = append(out.Child, ev)
			}
		}
	}
	return who, out
}

func groundOf(g session.Ground) races.Knob {
	k := races.Knob{Value: g.Value}
	if g.Seq != nil {
		k.Set, k.Seq = true, *g.Seq
	}
	return k
}

// knobEvent reads an event of one of the three knobs; the zero value for any
// other.
func knobEvent(p session.Payload) (races.Event, *session.Party) {
	switch p := p.(type) {
	case *session.SandboxSwitch:
		return races.Event{Knob: races.Sandbox, Value: string(p.Mode)}, p.By
	case *session.ApprovalSwitch:
		return races.Event{Knob: races.Approval, Value: string(p.Policy)}, p.By
	case *session.PresetSwitch:
		return races.Event{Knob: races.Preset, Value: string(p.Preset)}, p.By
	}
	return races.Event{}, nil
}

// sound folds a log as every reader does: nothing in it is void, nothing stops it.
func (w *world) sound(t *testing.T, id session.ID) {
	t.Helper()
	_, err := agent.OpenReplica(t.Context(), w.log(), id, "", func(a session.Alarm) { t.Error(a) })
	if err != nil {
		t.Error(err)
	}
}
