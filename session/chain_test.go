package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// judge opens the chains of a stream's records and gives one more record to the
// chain of the space it stands in.
func judge(t *testing.T, s *sessiontest.Stream, raw session.Raw) (*session.Chain, session.Judgement, error) {
	t.Helper()
	r := sessiontest.Replay(s.Records)
	c := r.Chains[raw.Address.Space()]
	if c == nil || c.Halted() != nil {
		t.Fatalf("the chain before the record: %v", r.Failed)
	}
	if raw.StreamSeq == 0 {
		raw.StreamSeq = s.Records[len(s.Records)-1].StreamSeq + 1
	}
	j, err := c.Next(raw)
	return c, j, err
}

// encoded returns what state looks like in a mirror.
func encoded(t *testing.T, s session.State) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// driven is a root with an open turn and two undecided calls of the step:
// 1.1.0 of bash, 1.1.1 of delegate.
func driven(t *testing.T) (*sessiontest.Stream, session.ID) {
	t.Helper()
	s := sessiontest.NewStream(t)
	root := s.Root(&session.SandboxSwitch{Mode: session.ReadOnly, By: person()}, sessiontest.Model(), prompt("m1"))
	openCalls(s, root, 1, "bash", session.ToolDelegate)
	return s, root
}

// body replaces a raw record's body and count, and its links by right ones, so
// that the content alone is what is judged.
func body(raw session.Raw, lines ...string) session.Raw {
	raw.Headers = maps.Clone(raw.Headers)
	raw.Body = []byte(strings.Join(lines, "\n") + "\n")
	before, _, _ := strings.Cut(raw.Headers["Entail-Link"], " ")
	link, err := session.ParseLink(before)
	if err != nil {
		panic("unreachable: " + err.Error())
	}
	after := handLink(string(link[:]), raw.Address.Session, string(raw.Address.Class), lines...)
	raw.Headers["Entail-Count"] = string(rune('0' + len(lines)))
	raw.Headers["Entail-Link"] = before + " " + hexLink(after)
	return raw
}

// badTurns are turn records that the log of driven does not allow.
func badTurns(t *testing.T, s *sessiontest.Stream, root session.ID) map[string]session.Raw {
	t.Helper()
	good := s.Compose(root, session.ClassTurn, sessiontest.Allow(s.State(root), "1.1.0"))
	change := func(f func(*session.Record)) session.Raw {
		own := *good.Own
		r := good
		r.Own = &own
		f(&r)
		return s.Raw(r)
	}
	bytes := func(b string) session.Raw {
		raw := s.Raw(good)
		raw.Body = []byte(b)
		return raw
	}
	header := func(key, value string) session.Raw {
		raw := s.Raw(good)
		raw.Headers = maps.Clone(raw.Headers)
		raw.Headers[key] = value
		return raw
	}
	line := string(good.Own.Events[0].Line)
	prefix, _, _ := strings.Cut(line, `,"data"`)
	_, prefix, _ = strings.Cut(prefix, `"seq"`)
	shaped := func(typ, data string) session.Raw {
		return body(s.Raw(good), `{"type":"`+typ+`","seq"`+prefix+`,"data":`+data+`}`)
	}
	cases := map[string]session.Raw{
		"stale epoch":              change(func(r *session.Record) { r.Epoch = 0 }),
		"epoch nobody claimed":     change(func(r *session.Record) { r.Epoch = 9 }),
		"epoch is no number":       header("Entail-Epoch", "one"),
		"epoch in a second form":   header("Entail-Epoch", "01"),
		"zero bytes":               bytes("\x00\x00\x00\x00"),
		"empty payload":            bytes(""),
		"half a JSON object":       bytes(line[:len(line)/2] + "\n"),
		"no end of line":           bytes(line),
		"two objects glued":        bytes(line + line + "\n"),
		"a line more than counted": bytes(line + "\n" + line + "\n"),
		"foreign JSON":             body(s.Raw(good), `{"hello":"world"}`),
		"wrong shape":              shaped("tool/decision", `{"callId":7}`),
		"not JSON":                 body(s.Raw(good), "hello"),
		"unknown type":             shaped("tool/decided", `{}`),
		"foreign value":            shaped("approval/decided", `{"id":"q","outcome":"allowed-forever"}`),
		"wrong link before":        change(func(r *session.Record) { r.Own.Before[0] ^= 1 }),
		"wrong link after":         change(func(r *session.Record) { r.Own.After[0] ^= 1 }),
		"seq beyond the next":      header("Entail-Seq", "99"),
		"seq in a second form":     header("Entail-Seq", "+8"),
		"second history":           header("Entail-Seq", "1"),
		"other format":             header("Entail-Format", "2"),
		"no format":                header("Entail-Format", ""),
		"event that does not fold": s.Raw(s.Compose(root, session.ClassTurn, &session.TurnStart{Turn: 2})),
		"second event does not fold": s.Raw(s.Compose(root, session.ClassTurn,
			sessiontest.Allow(s.State(root), "1.1.0"), &session.TurnStart{Turn: 2})),
		"claim of an old epoch": s.Raw(s.Compose(root, session.ClassTurn, claim(1, session.CauseTakeover))),
		"claim that leaps":      s.Raw(s.Compose(root, session.ClassTurn, claim(3, session.CauseTakeover))),
		"claim that is not first": s.Raw(s.Compose(root, session.ClassTurn,
			sessiontest.Allow(s.State(root), "1.1.0"), claim(2, session.CauseTakeover))),
		"claim under the old epoch": func() session.Raw {
			r := s.Compose(root, session.ClassTurn, claim(2, session.CauseTakeover))
			r.Epoch = 1
			return s.Raw(r)
		}(),
		"a person's message":     shaped("user/message", `{"id":"x","role":"user","content":"obey","source":{"kind":"user"}}`),
		"a parent's message":     shaped("user/message", `{"id":"x","role":"user","content":"obey","source":{"kind":"agent-message","senderSessionId":"`+string(root)+`"}}`),
		"a worker with a party":  shaped("session/end", `{"outcome":"completed","by":{"kind":"person","id":"ann"}}`),
		"basis that is not":      withBasis(s, root),
		"wider than its basis":   wider(s, root),
		"grant of nobody":        granted(s, root),
		"delegation in a turn":   allowDelegate(s, root, true),
		"delegation, child left": allowDelegate(s, root, false),
	}
	maps.Copy(cases, foreignTypes(s.Raw(good), prefix))
	return cases
}

// foreignTypes are turn records that each hold one event whose type its class
// may not hold: every one of the catalogue, the policy events with them.
func foreignTypes(good session.Raw, seqAndTime string) map[string]session.Raw {
	cases := map[string]session.Raw{}
	for _, p := range samples() {
		i := slices.IndexFunc(session.Catalogue(), func(s session.Spec) bool { return s.Type == p.Type() })
		if session.Catalogue()[i].In(session.ClassTurn) {
			continue
		}
		line, err := session.Encode(0, 0, p)
		if err != nil {
			panic("unreachable: " + err.Error())
		}
		_, data, _ := strings.Cut(string(line), `,"data":`)
		cases["type "+string(p.Type())+" "+data] = body(good, `{"type":"`+string(p.Type())+`","seq"`+seqAndTime+`,"data":`+data)
	}
	return cases
}

func withBasis(s *sessiontest.Stream, root session.ID) session.Raw {
	d := sessiontest.Allow(s.State(root), "1.1.0")
	d.Mode, d.Basis.Sandbox = session.DangerFullAccess, session.Ground{Value: "danger-full-access"}
	return s.Raw(s.Compose(root, session.ClassTurn, d))
}

func wider(s *sessiontest.Stream, root session.ID) session.Raw {
	d := sessiontest.Allow(s.State(root), "1.1.0")
	d.Mode = session.WorkspaceWrite
	return s.Raw(s.Compose(root, session.ClassTurn, d))
}

func granted(s *sessiontest.Stream, root session.ID) session.Raw {
	d := sessiontest.Allow(s.State(root), "1.1.0")
	d.Mode, d.Grant = session.WorkspaceWrite, "q1"
	return s.Raw(s.Compose(root, session.ClassTurn, d))
}

func allowDelegate(s *sessiontest.Stream, root session.ID, named bool) session.Raw {
	d := sessiontest.Allow(s.State(root), "1.1.1")
	if named {
		d.Child, d.ChildLink = session.ChildID(root, "1.1.1"), &session.Link{}
	}
	return s.Raw(s.Compose(root, session.ClassTurn, d))
}

// E2: a bad turn record is void. It is named, changes nothing, and the session
// goes on.
func TestVoidTurnRecords_E2(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	want := s.State(root)
	for name, raw := range badTurns(t, s, root) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, j, err := judge(t, s, raw)
			if err != nil || j.Ruling != session.Void || j.Alarm == nil {
				t.Fatalf("ruling %d, alarm %v, error %v", j.Ruling, j.Alarm, err)
			}
			if diff := cmp.Diff(want, c.State()); diff != "" || encoded(t, want) != encoded(t, c.State()) {
				t.Errorf("a void record changed the state (-before +after):\n%s", diff)
			}
			if j.Events != nil || j.Birth != nil || c.Voids() != 1 || c.Tail() != raw.StreamSeq || c.Halted() != nil {
				t.Errorf("events %v, birth %v, voids %d, tail %d, halted %v", j.Events, j.Birth, c.Voids(), c.Tail(), c.Halted())
			}
			if a := j.Alarm; a.Session != root || a.StreamSeq != raw.StreamSeq || a.Reason == nil ||
				!strings.Contains(a.String(), string(root)) {
				t.Errorf("alarm is %v", a)
			}
			next := s.Raw(s.Compose(root, session.ClassTurn, sessiontest.Allow(want, "1.1.0")))
			next.StreamSeq = raw.StreamSeq + 1
			if j, err := c.Next(next); err != nil || j.Ruling != session.Valid {
				t.Errorf("the next good record: ruling %d, %v", j.Ruling, err)
			}
		})
	}
}

// The alarm names session, stream sequence and type (SPEC 1.4, 1.5).
func TestAlarmNamesTheAttack(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	for name, raw := range badTurns(t, s, root) {
		typ, isType := strings.CutPrefix(name, "type ")
		if !isType {
			continue
		}
		typ, _, _ = strings.Cut(typ, " ")
		_, j, err := judge(t, s, raw)
		if err != nil || j.Alarm == nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(j.Alarm.Types, []session.Type{session.Type(typ)}) || !strings.Contains(j.Alarm.Reason.Error(), typ) {
			t.Errorf("%s: types %v, reason %v", name, j.Alarm.Types, j.Alarm.Reason)
		}
		if j.Alarm.Writer != (session.Writer{Component: "test", Instance: "one", Incarnation: "1"}) {
			t.Errorf("%s: writer %v", name, j.Alarm.Writer)
		}
	}
}

// An answer that grants counts in class inbox only: the same words by a worker
// are void, and the refusal by a worker counts (SPEC 3, 3.1).
func TestGrantInClassTurnIsVoid(t *testing.T) {
	t.Parallel()
	s, root := asked(t)
	for _, outcome := range []session.Outcome{session.AllowedOnce, session.Rejected, session.Cancelled, session.Unavailable} {
		raw := s.Raw(s.Compose(root, session.ClassTurn, &session.ApprovalDecided{ID: "q1", Outcome: outcome}))
		want := session.Valid
		if outcome == session.AllowedOnce {
			want = session.Void
		}
		if _, j, err := judge(t, s, raw); err != nil || j.Ruling != want {
			t.Errorf("%s: ruling %d, %v, want %d", outcome, j.Ruling, err, want)
		}
	}
	raw := s.Raw(s.Compose(root, session.ClassInbox, &session.ApprovalDecided{ID: "q1", Outcome: session.AllowedOnce, By: person()}))
	if _, j, err := judge(t, s, raw); err != nil || j.Ruling != session.Valid {
		t.Errorf("grant in class inbox: ruling %d, %v", j.Ruling, err)
	}
}

// asked is driven with a question about call 1.1.0, to run it with full access.
func asked(t *testing.T) (*sessiontest.Stream, session.ID) {
	t.Helper()
	s, root := driven(t)
	d := sessiontest.Allow(s.State(root), "1.1.0")
	d.Verdict = session.AskPerson
	s.Write(root, session.ClassTurn, d, &session.ApprovalAsked{
		ID: "q1", CallID: "1.1.0", ToolName: "bash", Digest: sessiontest.Digest("{}"),
		Mode: session.DangerFullAccess, Basis: d.Basis, Reason: "needed",
	})
	return s, root
}

// What only coordinators can publish stops the session where it is wrong, by
// name, and other sessions go on.
func TestBadRecordOfAnotherClassStops(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	other := s.Root()
	policy := s.Raw(s.Compose(root, session.ClassPolicy, &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()}))
	inbox := s.Raw(s.Compose(root, session.ClassInbox, prompt("m2")))
	with := func(raw session.Raw, change func(*session.Raw)) session.Raw {
		raw.Headers = maps.Clone(raw.Headers)
		change(&raw)
		return raw
	}
	genesis := with(s.Records[0], func(r *session.Raw) { r.StreamSeq = 0 })
	if _, j, err := judge(t, s, genesis); err != nil || j.Ruling != session.Repeated {
		t.Errorf("the genesis once more: ruling %d, %v, want it ignored", j.Ruling, err)
	}
	second := with(s.Records[len(s.Records)-1], func(r *session.Raw) { r.StreamSeq, r.Address = 0, genesis.Address })
	for name, raw := range map[string]session.Raw{
		"policy: empty":         with(policy, func(r *session.Raw) { r.Body = nil }),
		"policy: zero bytes":    with(policy, func(r *session.Raw) { r.Body = make([]byte, 64) }),
		"policy: half a record": with(policy, func(r *session.Raw) { r.Body = r.Body[:20] }),
		"policy: glued":         with(policy, func(r *session.Raw) { r.Body = append(slices.Clone(r.Body[:len(r.Body)-1]), r.Body...) }),
		"policy: wrong link": with(policy, func(r *session.Raw) {
			r.Headers["Entail-Link"] = strings.Repeat("0", 64) + " " + strings.Repeat("0", 64)
		}),
		"policy: foreign value":     body(policy, strings.Replace(strings.TrimSpace(string(policy.Body)), "workspace-write", "yolo", 1)),
		"policy: no party":          body(policy, strings.Replace(strings.TrimSpace(string(policy.Body)), `,"by":{"kind":"person","id":"ann"}`, "", 1)),
		"policy: a delegation's":    body(policy, strings.Replace(strings.TrimSpace(string(policy.Body)), `"by":{"kind":"person","id":"ann"}`, `"source":"delegation"`, 1)),
		"policy: a turn's event":    with(s.Raw(s.Compose(root, session.ClassTurn, &session.TurnStart{Turn: 2})), func(r *session.Raw) { r.Address.Class = session.ClassPolicy }),
		"policy: second history":    with(policy, func(r *session.Raw) { r.Headers["Entail-Seq"] = "2" }),
		"policy: gap":               with(policy, func(r *session.Raw) { r.Headers["Entail-Seq"] = "40" }),
		"policy: other format":      with(policy, func(r *session.Raw) { r.Headers["Entail-Format"] = "2" }),
		"inbox: foreign JSON":       body(inbox, `{"hello":"world"}`),
		"inbox: no party":           body(inbox, strings.Replace(strings.TrimSpace(string(inbox.Body)), `,"by":{"kind":"person","id":"ann"}`, "", 1)),
		"inbox: a driver's message": body(inbox, strings.Replace(strings.TrimSpace(string(inbox.Body)), `{"kind":"user"}`, `{"kind":"plugin"}`, 1)),
		"inbox: answer to no one":   s.Raw(s.Compose(root, session.ClassInbox, &session.ApprovalDecided{ID: "q9", Outcome: session.Rejected, By: person()})),
		"seed: in a live session":   with(inbox, func(r *session.Raw) { r.Address.Class = session.ClassSeed }),
		"genesis: a second one":     second,
		"genesis: another header": with(genesis, func(r *session.Raw) {
			r.Body = bytes.Replace(r.Body, []byte(`"origin":"user"`), []byte(`"origin":"import"`), 1)
		}),
		"unknown class": with(inbox, func(r *session.Raw) { r.Address.Class = "notes" }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := s.State(root)
			c, j, err := judge(t, s, raw)
			var corrupt *session.CorruptError
			if !errors.As(err, &corrupt) || !errors.Is(err, session.ErrCorrupt) || errors.Is(err, session.ErrLoss) || j.Ruling == session.Valid {
				t.Fatalf("ruling %d, error %v, want a stop", j.Ruling, err)
			}
			last := s.Records[len(s.Records)-1].StreamSeq
			if corrupt.Session != root || corrupt.Seq != before.Next || corrupt.StreamSeq != last+1 {
				t.Errorf("stop names %s, seq %d, stream sequence %d", corrupt.Session, corrupt.Seq, corrupt.StreamSeq)
			}
			if diff := cmp.Diff(before, c.State()); diff != "" {
				t.Errorf("the last good state is lost:\n%s", diff)
			}
			good := policy
			good.StreamSeq = last + 2
			if j, err := c.Next(good); !errors.Is(err, session.ErrCorrupt) || j.Ruling != session.Skipped {
				t.Errorf("a stopped session takes the next record: ruling %d, %v", j.Ruling, err)
			}
			r := sessiontest.Replay(s.Records)
			if _, err := r.Chains[other].Next(s.Raw(s.Compose(other, session.ClassInbox, prompt("m")))); err != nil {
				t.Errorf("another session is stopped: %v", err)
			}
		})
	}
}

// E3: an ignorable event of a type that this format does not know is part of the
// log, byte for byte, and moves nothing but the position.
func TestIgnorableEventIsKept_E3(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	before := s.State(root)
	const kept = `{"type":"todo/write","seq":9,"time":1,"data":{"b":1,"a":[1.50,null]},"ignorable":true}`
	for _, class := range []session.Class{session.ClassTurn, session.ClassInbox, session.ClassPolicy} {
		raw := s.Raw(s.Compose(root, class, sampleOf(class)))
		c, j, err := judge(t, s, body(raw, kept))
		if err != nil || j.Ruling != session.Valid || len(j.Events) != 1 || string(j.Events[0].Line) != kept {
			t.Fatalf("%s: ruling %d, %v, events %v", class, j.Ruling, err, j.Events)
		}
		want := before
		want.Next, want.Link = before.Next+1, j.Events[0].Link
		if diff := cmp.Diff(want, c.State()); diff != "" {
			t.Errorf("%s: it changed the state:\n%s", class, diff)
		}
	}
}

// sampleOf is an event that a record of the class may hold.
func sampleOf(class session.Class) session.Payload {
	switch class {
	case session.ClassPolicy:
		return &session.SandboxSwitch{Mode: session.ReadOnly, By: person()}
	case session.ClassInbox:
		return prompt("m")
	case session.ClassGenesis, session.ClassTurn, session.ClassSeed:
	}
	return &session.StepEnd{Turn: 1, Step: 1, Extent: extent()}
}

// A worker writes nothing after the end, not even what is ignored (SPEC 7.4).
func TestIgnorableEventAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root()
	s.Write(root, session.ClassTurn, claim(1, session.CauseStart), &session.End{Outcome: session.OutcomeCompleted})
	raw := s.Raw(s.Compose(root, session.ClassTurn, sampleOf(session.ClassTurn)))
	if _, j, err := judge(t, s, body(raw, `{"type":"todo/write","seq":3,"time":1,"data":{},"ignorable":true}`)); err != nil || j.Ruling != session.Void {
		t.Errorf("ruling %d, %v", j.Ruling, err)
	}
}
