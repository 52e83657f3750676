package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/entail-fleet/entail/session"
)

// logged is an event as it came from the coordinator.
type logged struct {
	Session session.ID      `json:"session"`
	Class   session.Class   `json:"class"`
	Event   json.RawMessage `json:"event"`

	seq     session.Seq
	typ     session.Type
	payload session.Payload // nil for a type this build does not know
}

// read decodes an event line for showing it. The log's readers hold a line to its
// one form; here a line may have travelled in another.
func read(id session.ID, class session.Class, line []byte) (logged, error) {
	var env struct {
		Type session.Type    `json:"type"`
		Seq  session.Seq     `json:"seq"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(line, &env); err != nil {
		return logged{}, fmt.Errorf("decode an event of %s: %w", id, err)
	}
	l := logged{Session: id, Class: class, Event: bytes.Clone(line), seq: env.Seq, typ: env.Type}
	for _, spec := range session.Catalogue() {
		if spec.Type != env.Type {
			continue
		}
		p := spec.Payload()
		if err := json.Unmarshal(env.Data, p); err != nil {
			return logged{}, fmt.Errorf("decode event %d of %s: %w", env.Seq, id, err)
		}
		l.payload = p
	}
	return l, nil
}

// describe says in one line what an event is.
func (l logged) describe() string {
	switch p := l.payload.(type) {
	case *session.SandboxSwitch:
		return string(p.Mode) + from(p.Source, p.By)
	case *session.ApprovalSwitch:
		return string(p.Policy) + from(p.Source, p.By)
	case *session.PresetSwitch:
		return string(p.Preset) + from("", p.By)
	case *session.UserMessage:
		return string(p.Source.Kind) + ": " + brief(p.Content)
	case *session.Claim:
		return fmt.Sprintf("epoch %d by %s (%s)", p.Epoch, p.Worker, p.Cause)
	case *session.TurnEnd:
		return fmt.Sprintf("turn %d %s %s", p.Turn, p.Reason.Kind, brief(p.Reason.Message))
	case *session.TurnPark:
		return fmt.Sprintf("waits for %v", p.WaitsFor)
	case *session.AssistantMessage:
		return brief(p.Content)
	case *session.ToolCall:
		return fmt.Sprintf("%s %s %s", p.CallID, p.Name, brief(p.Arguments))
	case *session.ToolDecision:
		return decisionText(*p)
	case *session.ToolResult:
		return resultText(*p)
	case *session.ApprovalAsked:
		return fmt.Sprintf("%s: may %s run under %s?", p.CallID, p.ToolName, p.Mode)
	case *session.ApprovalDecided:
		return string(p.Outcome)
	case *session.End:
		return string(p.Outcome)
	case *session.Interrupt:
		return fmt.Sprintf("turn %d", p.Turn) + because(p.By, p.Reason)
	case *session.Cancel:
		return strings.TrimSpace(because(p.By, p.Reason))
	case *session.Release:
		return fmt.Sprintf("stream sequences %v are skipped", p.Skip) + because(p.By, p.Reason)
	case *session.Descriptor:
		return fmt.Sprintf("%s %s %q", p.Provider, p.Mode, p.Label)
	case *session.ModelSelected:
		return p.Provider + ":" + p.Model
	case nil:
		return "(a newer build's event)"
	}
	return ""
}

func decisionText(d session.ToolDecision) string {
	s := fmt.Sprintf("%s %s under %s by %s", d.CallID, d.Verdict, d.Mode, d.By)
	if d.Network != "" {
		s += ", network " + string(d.Network)
	}
	if d.Child != "" {
		s += ", child " + string(d.Child)
	}
	if d.Reason != "" {
		s += ": " + brief(d.Reason)
	}
	return s
}

func resultText(r session.ToolResult) string {
	mark := "ok"
	switch {
	case r.Denied:
		mark = "denied"
	case r.IsError:
		mark = "failed"
	}
	words := []string{string(r.CallID), mark, r.Code}
	if r.Effect != nil {
		if facts := effectFacts(*r.Effect); len(facts) > 0 {
			words = append(words, "["+strings.Join(facts, ", ")+"]")
		}
	}
	return strings.Join(slices.DeleteFunc(append(words, brief(r.Content)), func(w string) bool { return w == "" }), " ")
}

// effectFacts says of a call what is out of the ordinary.
func effectFacts(e session.Effect) []string {
	var out []string
	for _, fact := range []struct {
		holds bool
		text  string
	}{
		{e.ExitCode != 0, fmt.Sprintf("exit code %d", e.ExitCode)},
		{e.Signal != "", "signal " + e.Signal},
		{e.TimedOut, "timed out"},
		{e.Limit != "", "limit " + string(e.Limit)},
		{e.Truncated, "shown in part"},
		{e.Denial == session.DenialCertain || e.Denial == session.DenialSuspected, "denial " + string(e.Denial)},
		{e.Sandbox.Enforcement == session.EnforcedPartly, "enforcement " + string(e.Sandbox.Enforcement)},
	} {
		if fact.holds {
			out = append(out, fact.text)
		}
	}
	return out
}

// heldText says what held a call.
func heldText(c session.Confinement) string {
	s := fmt.Sprintf("%s, network %s, tier %s, enforcement %s", c.Mode, c.Network, c.Tier, c.Enforcement)
	if len(c.Gaps) > 0 {
		names := make([]string, len(c.Gaps))
		for i, g := range c.Gaps {
			names[i] = string(g)
		}
		s += " (" + strings.Join(names, " ") + ")"
	}
	return s
}

// from says who set a value.
func from(source session.Source, by *session.Party) string {
	switch {
	case source != "":
		return " (" + string(source) + ")"
	case by != nil:
		return " (by " + string(by.Kind) + " " + by.ID + ")"
	}
	return ""
}

// because says who did something, and why if they said it.
func because(by *session.Party, reason string) string {
	if reason == "" {
		return from("", by)
	}
	return from("", by) + ": " + brief(reason)
}

// brief is the start of a text in one line without control characters.
func brief(s string) string {
	const most = 160
	s = strings.Map(func(r rune) rune {
		if steers(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}

// clean is a text for a terminal: its lines, without other control characters.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, s)
}

// steers reports whether a terminal shows something else because of a character: what is
// shown must be what there is.
func steers(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
