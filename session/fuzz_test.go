package session_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// What decodes is what Encode writes: the same payload gives the same bytes.
func FuzzDecodeEvent(f *testing.F) {
	for i, p := range samples() {
		line, err := session.Encode(session.Seq(i), int64(i), p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Add([]byte(`{"type":"todo/write","seq":5,"time":1,"data":{"a":[1.50,null]},"ignorable":true}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		kept := bytes.Clone(line)
		e, err := session.DecodeEvent(line)
		if err != nil {
			return
		}
		if !bytes.Equal(e.Line, kept) {
			t.Fatalf("line %q is kept as %q", kept, e.Line)
		}
		if e.Payload == nil {
			return
		}
		again, err := session.Encode(e.Seq, e.Time, e.Payload)
		if err != nil || !bytes.Equal(again, kept) {
			t.Fatalf("%q is written again as %q, %v", kept, again, err)
		}
	})
}

func FuzzDecodeHeader(f *testing.F) {
	line, err := session.EncodeHeader(sessiontest.HeaderOf(rootID))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Fuzz(func(t *testing.T, line []byte) {
		h, err := session.DecodeHeader(line)
		if err != nil {
			return
		}
		again, err := session.EncodeHeader(h)
		if err != nil || !bytes.Equal(again, line) {
			t.Fatalf("%q is written again as %q, %v", line, again, err)
		}
	})
}

var recordHeaders = []string{
	"Entail-Format", "Entail-Seq", "Entail-Count", "Entail-Link", "Entail-Epoch",
	"Entail-Child-Seq", "Entail-Child-Count", "Entail-Child-Link",
}

// A record that decodes is written again as it was. Whatever a record is, a
// chain judges it, and only a valid one changes the state.
func FuzzDecodeRecord(f *testing.F) {
	s := sessiontest.NewStream(f)
	root := s.Root(&session.SandboxSwitch{Mode: session.ReadOnly, By: person()}, sessiontest.Model(), prompt("m1"))
	s.Fork(root)
	openCalls(s, root, 1, "bash", session.ToolDelegate)
	known := len(s.Records)
	s.Delegate(root, sessiontest.Delegation{Call: "1.1.1", Kind: session.Spawn})
	s.Write(root, session.ClassInbox, prompt("m2"))
	s.Write(root, session.ClassPolicy, &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()})
	s.Write(root, session.ClassTurn, sessiontest.Allow(s.State(root), "1.1.0"))
	for _, raw := range s.Records {
		var h []string
		for _, key := range recordHeaders {
			h = append(h, raw.Headers[key])
		}
		f.Add(string(raw.Address.Session), string(raw.Address.Creator), string(raw.Address.Class), strings.Join(h, "|"), raw.Body)
	}
	f.Fuzz(func(t *testing.T, id, creator, class, headers string, body []byte) {
		raw := session.Raw{
			StreamSeq: 100, Headers: map[string]string{}, Body: body,
			Address: session.Address{Session: session.ID(id), Class: session.Class(class), Creator: session.ID(creator)},
		}
		values := append(strings.Split(headers, "|"), make([]string, len(recordHeaders))...)
		for i, key := range recordHeaders {
			raw.Headers[key] = values[i]
		}
		writtenAgain(t, raw)
		judged(t, sessiontest.Replay(s.Records[:known]), raw)
	})
}

func writtenAgain(t *testing.T, raw session.Raw) {
	t.Helper()
	r, err := session.DecodeRecord(raw)
	if err != nil || r.BirthErr != nil {
		return
	}
	headers, body, err := session.EncodeRecord(r)
	if err != nil || !bytes.Equal(body, raw.Body) {
		t.Fatalf("body %q is written again as %q, %v", raw.Body, body, err)
	}
	for key, value := range headers {
		own := key != "Entail-Writer" && key != "Entail-Epoch" || key == "Entail-Epoch" && r.Own.Class == session.ClassTurn
		if own && value != raw.Headers[key] {
			t.Fatalf("%s %q is written again as %q", key, raw.Headers[key], value)
		}
	}
}

func judged(t *testing.T, r *sessiontest.Replica, raw session.Raw) {
	t.Helper()
	if c := r.Chains[raw.Address.Space()]; c != nil {
		before := c.State()
		kept := encoded(t, before)
		j, err := c.Next(raw)
		if after := encoded(t, c.State()); (err != nil || j.Ruling != session.Valid) && after != kept {
			t.Fatalf("ruling %d, %v changed the state:\n%s", j.Ruling, err, cmp.Diff(kept, after))
		}
		if err != nil && raw.Address.Class == session.ClassTurn {
			t.Fatalf("a turn record stopped the session: %v", err)
		}
	}
	if _, _, err := session.Open(raw, session.Prefix{}, nil); err == nil && raw.Address.Class != session.ClassGenesis {
		t.Fatal("a session starts without a genesis")
	}
}

// FuzzFold lets bytes write a tree of sessions and then events that may fit or
// not. The fold never panics, an event that it refuses changes nothing, and a
// state that went through JSON folds on the same.
func FuzzFold(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x0c\x13\x08\x02\x01\x10\x0f\x0e\x0d\x0c\x0b\x0a"))
	f.Add(bytes.Repeat([]byte{9, 17, 4, 1, 12, 0, 8, 19, 3}, 12))
	f.Add(bytes.Repeat([]byte{13, 1, 0, 2, 7, 5, 2, 11, 18, 1}, 12))
	f.Add(bytes.Repeat([]byte{0x7f}, 8192)) // a driver that never stops writing
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &picker{data: data}
		log := sessiontest.Generate(t, p.pick, min(len(data)/6, 40))
		for _, id := range log.Sessions {
			s := log.States[id]
			for range 8 {
				s = foldAny(t, s, p)
			}
		}
	})
}

// picker turns bytes into choices; without any left it takes the first.
type picker struct{ data []byte }

func (p *picker) pick(n int) int {
	if len(p.data) == 0 {
		return 0
	}
	b := p.data[0]
	p.data = p.data[1:]
	return int(b) % n
}

// foldAny folds an event that may fit, on the state and on its snapshot.
func foldAny(t *testing.T, s session.State, p *picker) session.State {
	t.Helper()
	all := samples()
	payload := all[p.pick(len(all))]
	fit(reflect.ValueOf(payload).Elem(), s, p)
	class := []session.Class{session.ClassTurn, session.ClassInbox, session.ClassPolicy, session.ClassGenesis}[p.pick(4)]
	sec, err := session.Compose(s.Header.ID, class, s.Next, s.Link, session.Draft{Time: 1, Payload: payload})
	if err != nil {
		return s
	}
	kept := encoded(t, s)
	next, err := session.Fold(s, sec.Events[0])
	if encoded(t, s) != kept {
		t.Fatalf("%s wrote to the state it was given", payload.Type())
	}
	if err != nil {
		if diff := cmp.Diff(s, next); diff != "" {
			t.Fatalf("%s was refused and changed:\n%s", payload.Type(), diff)
		}
		return s
	}
	var snapshot session.State
	if err := json.Unmarshal([]byte(kept), &snapshot); err != nil {
		t.Fatal(err)
	}
	again, err := session.Fold(snapshot, sec.Events[0])
	if diff := cmp.Diff(next, again); err != nil || diff != "" {
		t.Fatalf("%s on a snapshot, %v (-state +snapshot):\n%s", payload.Type(), err, diff)
	}
	return next
}

// fit gives the fields of a payload values that the state knows, or nearly.
func fit(v reflect.Value, s session.State, p *picker) {
	for i := range v.NumField() {
		field := v.Field(i)
		switch x := field.Addr().Interface().(type) {
		case *session.Basis:
			*x = sessiontest.Basis(s)
		case *session.CallID:
			*x = session.MakeCallID(max(s.Turn, 1), 1, p.pick(3))
		case *session.ID:
			if len(s.Children) > 0 && p.pick(2) == 0 {
				*x = s.Children[0].ID
			}
		case *[]session.Seq:
			if len(s.Pending) > 0 && p.pick(2) == 0 {
				*x = []session.Seq{s.Pending[p.pick(len(s.Pending))].Seq}
			}
		case *uint64:
			*x = s.Epoch + uint64(p.pick(2))
		case **session.Party:
			if p.pick(2) == 0 {
				*x = nil
			}
		case *int:
			switch v.Type().Field(i).Name {
			case "Turn":
				*x = s.Turn + p.pick(2)
			case "Step":
				*x = p.pick(3)
			}
		}
	}
}
