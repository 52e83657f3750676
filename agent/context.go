package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// The marks of what a driver tells the model.
const (
	plugin       = "entail"
	formSnapshot = "snapshot"
	formNotice   = "notice"
)

// systemPrompt is the same for parents and children (SPEC 4.12): what differs is
// in the runtime context.
const systemPrompt = `You are an agent that works in a directory, the workspace, through tools.
Every call is decided by policy before it runs. A refused call was not executed. Do not
look for another way to the same effect: go on without it, or say that it was refused.
Messages that begin with [entail] come from the system you run in. When you are done,
answer with a short closing message and no calls.`

// systemDigest names the system prompt in the log.
func systemDigest() string {
	sum := sha256.Sum256([]byte(systemPrompt))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// context lists what the model must be told before its next step: its runtime
// context, before the first request of a turn, when it has changed; and what a
// person switched since.
func (f Facts) context() []session.Payload {
	var events []session.Payload
	if f.answeredAt() == 0 {
		text, sections := f.snapshot()
		if text != f.lastSnapshot() {
			events = append(events, f.tell(formSnapshot, text, sections, len(events)))
		}
	}
	if text := f.narration(); text != "" {
		events = append(events, f.tell(formNotice, text, nil, len(events)))
	}
	return events
}

func (f Facts) tell(form, text string, sections []string, n int) *session.UserMessage {
	return &session.UserMessage{
		ID:   fmt.Sprintf("entail-%s-%d", form, f.State.Next+session.Seq(n)), //nolint:gosec // at most 1
		Role: "user", Content: text,
		Source: session.MessageSource{Kind: session.FromPlugin, Plugin: plugin, Form: form, Sections: sections},
	}
}

// toldAs returns a message that a driver wrote in a form.
func toldAs(p session.Payload, form string) (*session.UserMessage, bool) {
	m, ok := p.(*session.UserMessage)
	return m, ok && m.Source.Kind == session.FromPlugin && m.Source.Plugin == plugin && m.Source.Form == form
}

func (f Facts) lastSnapshot() string {
	at := f.last(f.State.Header.FirstLiveSeq, func(p session.Payload) bool { _, ok := toldAs(p, formSnapshot); return ok })
	if at == 0 {
		return ""
	}
	e, _ := f.at(at - 1)
	m, _ := toldAs(e.Payload, formSnapshot)
	return m.Content
}

// snapshot is the runtime context: sandbox, approvals and, for a child, its
// delegation, in this order (SPEC 4.12).
func (f Facts) snapshot() (text string, sections []string) {
	s := f.State
	e := policy.EffectiveOf(s.Knobs, f.Deployment)
	parts := []string{
		"[entail] sandbox: " + sandboxText(e.Sandbox, s.Header.Cwd),
		"[entail] approvals: " + approvalText(e.Approval, f.Deployment.Composition.Approvals),
	}
	sections = []string{"sandbox:policy", "approval:policy"}
	if s.Header.IsChild() {
		text := "[entail] delegation: you are a child session. Your scope was fixed when you were started and cannot be " +
			"widened from inside. Operations that need approval are refused. If something is refused, report the limitation " +
			"in your closing message instead of retrying."
		if d := s.Descriptor; d != nil && d.Persona != "" {
			text += " Your persona: " + d.Persona
		}
		parts, sections = append(parts, text), append(sections, "subagent:delegation")
	}
	return strings.Join(parts, "\n"), sections
}

func sandboxText(m session.SandboxMode, cwd string) string {
	switch m {
	case session.ReadOnly:
		return fmt.Sprintf("mode %q. The workspace is %s. Nothing can be changed on disk.", m, cwd)
	case session.WorkspaceWrite:
		return fmt.Sprintf("mode %q. The workspace is %s. Only files in it and in the temp directory can be changed.", m, cwd)
	case session.DangerFullAccess:
	}
	return fmt.Sprintf("mode %q. The workspace is %s. Commands are not confined.", m, cwd)
}

func approvalText(p session.ApprovalPolicy, composed bool) string {
	switch {
	case !composed:
		return "none in this deployment. Escalations are refused."
	case p == session.Never:
		return fmt.Sprintf("policy %q. Nobody is asked; escalations are refused.", p)
	}
	return fmt.Sprintf("policy %q. A call that asks for a wider sandbox mode needs a person's approval.", p)
}

// narration says, once, what people switched since the model was last told. A
// delegation's values are no switch, and a switch to what was in force already
// changes nothing (SPEC 2.5).
func (f Facts) narration() string {
	first := f.State.Header.FirstLiveSeq
	since := f.last(first, func(p session.Payload) bool { _, ok := toldAs(p, formNotice); return ok })
	var lines []string
	var k session.Knobs
	for _, e := range f.Events {
		old := k
		if !turnKnob(&k, e) || e.Class != session.ClassPolicy || e.Seq < max(first, since) {
			continue
		}
		if line := f.changed(old, k, e); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// turnKnob folds a knob's value alone.
func turnKnob(k *session.Knobs, e session.Event) bool {
	switch p := e.Payload.(type) {
	case *session.SandboxSwitch:
		k.Sandbox.Value = p.Mode
	case *session.ApprovalSwitch:
		k.Approval.Value = p.Policy
	case *session.PresetSwitch:
		k.Preset.Value = p.Preset
	default:
		return false
	}
	return true
}

func (f Facts) changed(old, now session.Knobs, e session.Event) string {
	was, is := policy.EffectiveOf(old, f.Deployment), policy.EffectiveOf(now, f.Deployment)
	line := func(knob, from, to string) string {
		if from == to {
			return ""
		}
		return fmt.Sprintf("[entail] The %s changed from %q to %q (changed by a person).", knob, from, to)
	}
	switch e.Payload.(type) {
	case *session.SandboxSwitch:
		return line("sandbox mode", string(was.Sandbox), string(is.Sandbox))
	case *session.ApprovalSwitch:
		return line("approval policy", string(was.Approval), string(is.Approval))
	}
	return line("permission preset", string(policy.Current(old, f.Deployment)), string(now.Preset.Value))
}
