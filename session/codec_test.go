package session_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
)

// A5: decode(encode(e)) is e, over every policy field and every other one, zero
// and false values included.
func TestRoundTripIsTheIdentity_A5(t *testing.T) {
	t.Parallel()
	for _, p := range samples() {
		line, err := session.Encode(7, -1, p)
		if err != nil {
			t.Fatalf("%s: %v", p.Type(), err)
		}
		e, err := session.DecodeEvent(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		want := session.Event{Seq: 7, Time: -1, Type: p.Type(), Payload: p, Line: line}
		if h, ok := p.(*session.RequestHeader); ok && h.Tools == nil {
			h.Tools = []string{} // no tools have one form
		}
		if diff := cmp.Diff(want, e); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}

// A line has exactly one accepted form.
func TestDecodeEventAcceptsOneForm(t *testing.T) {
	t.Parallel()
	const good = `{"type":"sandbox/mode","seq":3,"time":9,"data":{"mode":"read-only","by":{"kind":"person","id":"ann"}}}`
	if _, err := session.DecodeEvent([]byte(good)); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, old, line string }{
		{"unknown key", `"time":9`, `"time":9,"extra":1`},
		{"unknown key in data", `"mode":"read-only"`, `"mode":"read-only","extra":1`},
		{"key twice", `"seq":3`, `"seq":3,"seq":3`},
		{"key twice in data, the shadowed value foreign", `"mode":"read-only"`, `"mode":"yolo","mode":"read-only"`},
		{"key in another case", `"seq"`, `"Seq"`},
		{"key in another case in data", `"mode"`, `"Mode"`},
		{"order of keys", `"type":"sandbox/mode","seq":3`, `"seq":3,"type":"sandbox/mode"`},
		{"whitespace", `"seq":3`, `"seq": 3`},
		{"whitespace in data", `{"mode"`, `{ "mode"`},
		{"leading byte", `{"type"`, ` {"type"`},
		{"trailing space", `}}}`, `}}} `},
		{"trailing object", `}}}`, `}}}{}`},
		{"trailing zero bytes", `}}}`, "}}}\x00\x00"},
		{"carriage return", `}}}`, "}}}\r"},
		{"number with a fraction", `"seq":3`, `"seq":3.0`},
		{"number with an exponent", `"time":9`, `"time":9e0`},
		{"number with a sign", `"time":9`, `"time":-0`},
		{"number as a string", `"seq":3`, `"seq":"3"`},
		{"negative seq", `"seq":3`, `"seq":-3`},
		{"seq too large", `"seq":3`, `"seq":18446744073709551616`},
		{"NaN", `"time":9`, `"time":NaN`},
		{"null for a number", `"seq":3`, `"seq":null`},
		{"null for data", `{"mode":"read-only","by":{"kind":"person","id":"ann"}}`, `null`},
		{"null for a value", `"read-only"`, `null`},
		{"null for an absent party", `{"kind":"person","id":"ann"}`, `null`},
		{"data of the wrong type", `{"mode":"read-only","by":{"kind":"person","id":"ann"}}`, `[]`},
		{"value of the wrong type", `"read-only"`, `7`},
		{"no data", `,"data":{"mode":"read-only","by":{"kind":"person","id":"ann"}}`, ``},
		{"ignorable written out", `}}}`, `}},"ignorable":false}`},
		{"known and ignorable", `}}}`, `}},"ignorable":true}`},
		{"escape that is not needed", `read-only`, `read\u002donly`},
		{"optional value written empty", `"read-only"`, `"read-only","source":""`},
		{"byte order mark", `{"type"`, "\ufeff" + `{"type"`},
		{"half a line", `,"data":{"mode":"read-only","by":{"kind":"person","id":"ann"}}}`, ``},
		{"an array", good, `[` + good + `]`},
		{"nothing", good, ``},
		{"zero bytes", good, "\x00\x00\x00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			line := strings.Replace(good, tt.old, tt.line, 1)
			if line == good {
				t.Fatal("the case changes nothing")
			}
			if e, err := session.DecodeEvent([]byte(line)); err == nil {
				t.Errorf("%s was read as %+v", line, e.Payload)
			}
		})
	}
}

// No list and no null are second forms of an empty list.
func TestDecodeEventRefusesNullLists(t *testing.T) {
	t.Parallel()
	for _, p := range samples() {
		line, err := session.Encode(0, 0, p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range line {
			if !bytes.HasPrefix(line[i:], []byte(":[")) {
				continue
			}
			end := i + bytes.IndexByte(line[i:], ']') + 1
			bad := string(line[:i]) + ":null" + string(line[end:])
			if _, err := session.DecodeEvent([]byte(bad)); err == nil {
				t.Errorf("%s was read", bad)
			}
		}
	}
}

// E3: an unknown type is refused by name, or kept byte for byte where its writer
// said that it may be skipped (SPEC 1.4).
func TestUnknownTypes_E3(t *testing.T) {
	t.Parallel()
	_, err := session.DecodeEvent([]byte(`{"type":"policy/next","seq":0,"time":0,"data":{}}`))
	if !errors.Is(err, session.ErrUnknownType) || !strings.Contains(err.Error(), "policy/next") {
		t.Errorf("unknown type: %v", err)
	}
	const kept = `{"type":"todo/write","seq":5,"time":1,"data":{"b":1,"a":[1.50,null],"b":2},"ignorable":true}`
	e, err := session.DecodeEvent([]byte(kept))
	if err != nil || string(e.Line) != kept || e.Payload != nil || e.Type != "todo/write" || e.Seq != 5 {
		t.Errorf("ignorable event is %+v, %v", e, err)
	}
	for _, bad := range []string{
		`{"type":"todo/write","seq":5,"time":1,"data":{ },"ignorable":true}`,
		`{"type":"todo/write","seq":5,"time":1,"ignorable":true,"data":{}}`,
		`{"type":"","seq":5,"time":1,"data":{},"ignorable":true}`,
		`{"type":"a\u0007b","seq":5,"time":1,"data":{},"ignorable":true}`,
		`{"type":"` + strings.Repeat("x", 300) + `","seq":5,"time":1,"data":{},"ignorable":true}`,
	} {
		if _, err := session.DecodeEvent([]byte(bad)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func TestForeignValuesAreNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, typ, data, value string }{
		{"sandbox mode", "sandbox/mode", `{"mode":"yolo"}`, "yolo"},
		{"sandbox mode in another case", "sandbox/mode", `{"mode":"Read-Only"}`, "Read-Only"},
		{"sandbox mode empty", "sandbox/mode", `{"mode":""}`, `""`},
		{"source", "sandbox/mode", `{"mode":"read-only","source":"import"}`, "import"},
		{"source of approvals", "approval/policy", `{"policy":"ask","source":"switch"}`, "switch"},
		{"approval policy", "approval/policy", `{"policy":"always"}`, "always"},
		{"party", "sandbox/mode", `{"mode":"read-only","by":{"kind":"worker","id":"w"}}`, "worker"},
		{"derived preset", "permission/preset", `{"preset":"custom"}`, "custom"},
		{"outcome", "approval/decided", `{"id":"q","outcome":"allowed-forever"}`, "allowed-forever"},
		{"verdict", "tool/decision", `{"callId":"1.1.0","verdict":"maybe","mode":"read-only","basis":{"sandbox":{"value":"read-only"},"approval":{"value":"ask"},"preset":{"value":""}},"by":"policy","revision":0}`, "maybe"},
		{"mode of a decision", "tool/decision", `{"callId":"1.1.0","verdict":"deny","mode":"root","basis":{"sandbox":{"value":"read-only"},"approval":{"value":"ask"},"preset":{"value":""}},"by":"policy","revision":0}`, "root"},
		{"basis of a decision", "tool/decision", `{"callId":"1.1.0","verdict":"deny","mode":"read-only","basis":{"sandbox":{"value":"open"},"approval":{"value":"ask"},"preset":{"value":""}},"by":"policy","revision":0}`, "open"},
		{"approval basis of a decision", "tool/decision", `{"callId":"1.1.0","verdict":"deny","mode":"read-only","basis":{"sandbox":{"value":"read-only"},"approval":{"value":"sometimes"},"preset":{"value":""}},"by":"policy","revision":0}`, "sometimes"},
		{"stage", "tool/decision", `{"callId":"1.1.0","verdict":"deny","mode":"read-only","basis":{"sandbox":{"value":"read-only"},"approval":{"value":"ask"},"preset":{"value":""}},"by":"mood","revision":0}`, "mood"},
		{"rule without a name", "tool/decision", `{"callId":"1.1.0","verdict":"deny","mode":"read-only","basis":{"sandbox":{"value":"read-only"},"approval":{"value":"ask"},"preset":{"value":""}},"by":"rule:","revision":0}`, "rule:"},
		{"mode of a question", "approval/asked", `{"id":"q","callId":"1.1.0","toolName":"bash","digest":"","mode":"sudo","basis":{"sandbox":{"value":"read-only"},"approval":{"value":"ask"},"preset":{"value":""}},"reason":""}`, "sudo"},
		{"mode of a descriptor", "subagent/descriptor", `{"version":2,"mode":"forever","provider":"spawn","label":"c"}`, "forever"},
		{"kind of a descriptor", "subagent/descriptor", `{"version":2,"mode":"one-shot","provider":"clone","label":"c"}`, "clone"},
		{"version of a descriptor", "subagent/descriptor", `{"version":3,"mode":"one-shot","provider":"spawn","label":"c"}`, "3"},
		{"source kind", "user/message", `{"id":"m","role":"user","content":"","source":{"kind":"rumour"}}`, "rumour"},
		{"role", "user/message", `{"id":"m","role":"system","content":"","source":{"kind":"user"}}`, "system"},
		{"cause", "turn/claim", `{"epoch":1,"worker":"w","incarnation":"i","cause":"boredom"}`, "boredom"},
		{"reason of an end", "turn/end", `{"turn":1,"reason":{"kind":"bored"},"startSeq":0,"startTime":0,"worker":"","incarnation":"","attempt":0}`, "bored"},
		{"wait", "turn/park", `{"turn":1,"waitsFor":[{"kind":"rain","id":"x"}]}`, "rain"},
		{"outcome of a session", "session/end", `{"outcome":"won"}`, "won"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := session.DecodeEvent([]byte(`{"type":"` + tt.typ + `","seq":41,"time":0,"data":` + tt.data + `}`))
			if err == nil {
				t.Fatal("it was read")
			}
			for _, want := range []string{"41", tt.value} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not name %s", err, want)
				}
			}
		})
	}
}

// What cannot be read cannot be written either (SPEC 1.5).
func TestEncodeRefusesWhatReadersRefuse(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]session.Payload{
		"mode":            &session.SandboxSwitch{Mode: "yolo"},
		"no mode":         &session.SandboxSwitch{},
		"policy":          &session.ApprovalSwitch{Policy: "always"},
		"custom":          &session.PresetSwitch{Preset: session.PresetCustom},
		"party of none":   &session.SandboxSwitch{Mode: session.ReadOnly, By: &session.Party{}},
		"both":            &session.SandboxSwitch{Mode: session.ReadOnly, Source: session.SourceDelegation, By: person()},
		"escape":          &session.PresetSwitch{Preset: "a\x1b[2J"},
		"second escape":   &session.PresetSwitch{Preset: "a\u009b2J"},
		"long name":       &session.PresetSwitch{Preset: session.Preset(strings.Repeat("x", 257))},
		"empty release":   &session.Release{Reason: "r"},
		"no reason":       &session.Release{Skip: []uint64{1}},
		"epoch 0":         &session.Claim{Worker: "w", Incarnation: "i", Cause: session.CauseStart},
		"turn 0":          &session.TurnStart{},
		"foreign call id": &session.ToolCall{Turn: 1, Step: 1, CallID: "1.1.1", Name: "bash"},
		"calls in disorder": &session.AssistantMessage{
			Turn: 1, Step: 1, Calls: []int{1, 0},
		},
		"child without a link": &session.ToolDecision{
			CallID: "1.1.0", Verdict: session.Allow, Mode: session.ReadOnly, Basis: sampleBasis(), By: session.StagePolicy, Child: childID,
		},
		"seqs in disorder":   &session.Consumed{Turn: 1, Seqs: []session.Seq{5, 3}},
		"nothing consumed":   &session.Consumed{Turn: 1},
		"waits for nothing":  &session.TurnPark{Turn: 1},
		"notice of no turn":  &session.UserMessage{ID: "m", Role: "user", Source: session.MessageSource{Kind: session.FromSettled, SenderSessionID: childID, Outcome: "completed"}},
		"agent without name": &session.UserMessage{ID: "m", Role: "user", Source: session.MessageSource{Kind: session.FromAgent}},
		"empty filter":       &session.Descriptor{Version: session.DescriptorVersion, Mode: session.OneShot, Provider: session.Spawn, Label: "c", ToolFilter: &session.ToolFilter{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if line, err := session.Encode(0, 0, p); err == nil {
				t.Errorf("%s was written", line)
			}
		})
	}
}

// Tools print bytes that are no UTF-8. They are written as U+FFFD, in the form
// that every reader accepts.
func TestEncodeSettlesBytesThatAreNoText(t *testing.T) {
	t.Parallel()
	p := &session.ToolResult{Turn: 1, Step: 1, CallID: "1.1.0", Content: "a\xff\xfeb \\ufffd \u2028"}
	line, err := session.Encode(0, 0, p)
	if err != nil {
		t.Fatal(err)
	}
	e, err := session.DecodeEvent(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if got := e.Payload.(*session.ToolResult).Content; got != "a\ufffd\ufffdb \\ufffd \u2028" {
		t.Errorf("content is %q", got)
	}
}
