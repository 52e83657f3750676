package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// progress shows a run as it goes: what the agents say and do, and on a terminal
// a line below it with who is at work.
type progress struct {
	p     *printer
	names map[session.ID]string
	held  map[session.ID]string // what was last said of why a session does not go on
	shown bool                  // the line of who is at work is on the screen
}

func newProgress(p *printer) *progress {
	return &progress{p: p, names: map[session.ID]string{}, held: map[session.ID]string{}}
}

// name is what a session is called in front of its lines.
func name(h session.Header) string {
	switch {
	case h.Label != "":
		return h.Label
	case h.ID.IsRoot():
		return "root"
	}
	_, suffix, _ := strings.Cut(string(h.ID), "-")
	return suffix
}

// event shows one event, if people want to see it.
func (g *progress) event(s client.Summary, l logged) {
	if g.p.json {
		_ = g.p.value(l, nil)
		return
	}
	if text := g.text(l); text != "" {
		g.clear()
		g.p.line("%s %s", g.p.paint(blue, "["+name(s.Header)+"]"), text)
	}
	if p, ok := l.payload.(*session.TurnPark); ok && slices.ContainsFunc(p.WaitsFor, func(w session.Wait) bool { return w.Kind == session.WaitApproval }) {
		g.clear()
		g.p.line("%s %s", g.p.paint(blue, "["+name(s.Header)+"]"), g.p.paint(yellow, fmt.Sprintf(
			"waits for an answer: entail approvals show %s, then entail approve or entail deny", s.Header.ID)))
	}
}

func (g *progress) text(l logged) string {
	switch p := l.payload.(type) {
	case *session.AssistantMessage:
		return clean(strings.TrimSpace(p.Content))
	case *session.ToolCall:
		return g.p.paint(grey, fmt.Sprintf("%s: %s %s", p.CallID, p.Name, brief(p.Arguments)))
	case *session.ToolResult:
		colour := green
		if p.Denied || p.IsError {
			colour = red
		}
		return g.p.paint(colour, resultText(*p))
	case *session.ToolDecision:
		if p.Verdict != session.Allow {
			return g.p.paint(yellow, decisionText(*p))
		}
		if p.Child != "" {
			return g.p.paint(grey, "started "+string(p.Child))
		}
	case *session.SandboxSwitch, *session.ApprovalSwitch, *session.PresetSwitch, *session.Interrupt, *session.Cancel, *session.End:
		return g.p.paint(grey, strings.TrimSpace(string(l.typ)+" "+l.describe()))
	case *session.TurnEnd:
		if p.Reason.Kind != session.EndCompleted {
			return g.p.paint(red, l.describe())
		}
	}
	return ""
}

// holdText says why a session does not go on by itself though it could, empty if it
// does or nobody has to know.
func holdText(s client.Summary) string {
	switch {
	case s.Why != "":
		return "waits: " + s.Why
	case s.Status == client.StatusLost:
		return fmt.Sprintf("has lost its worker %s, and no other one has taken it yet", s.Worker)
	case s.Status == client.StatusStalled && s.Worker != "":
		return fmt.Sprintf("is stalled: its worker %s gives no sign of progress", s.Worker)
	case s.Status == client.StatusStalled:
		return "is stalled: no worker takes it; `entail worker ls` lists them"
	}
	return ""
}

// look shows who is at work, and says once of each session why it does not go on.
func (g *progress) look(tree []client.Summary) {
	for _, s := range tree {
		text := holdText(s)
		if was := g.held[s.Header.ID]; text != "" && text != was {
			g.clear()
			g.p.warn("%s %s", name(s.Header), brief(text))
		}
		g.held[s.Header.ID] = text
	}
	if !g.p.live {
		return
	}
	var at []string
	for _, s := range tree {
		if !settled(s) {
			at = append(at, strings.TrimSpace(fmt.Sprintf("%s %s %s", name(s.Header), s.Status, doingText(s))))
		}
	}
	g.clear()
	if len(at) > 0 {
		fmt.Fprint(g.p.out, g.p.paint(grey, brief(strings.Join(at, ", "))))
		g.shown = true
	}
}

// doingText is what a session does now, in a word.
func doingText(s client.Summary) string {
	if len(s.Current) == 0 {
		return ""
	}
	c := s.Current[0]
	return fmt.Sprintf("(%s %s)", cmp.Or(c.Tool, c.What), span(ms(c.Elapsed).Round(time.Second)))
}

// clear takes the line of who is at work off the screen.
func (g *progress) clear() {
	if g.shown {
		fmt.Fprint(g.p.out, "\r\x1b[K")
		g.shown = false
	}
}
