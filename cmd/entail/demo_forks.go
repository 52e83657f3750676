package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

func stepFork(ctx context.Context, m *demo, f *facts) error {
	const ws = "fork"
	root, err := m.play(ctx, plot{name: ws, prompt: "one", sandbox: session.WorkspaceWrite, script: `sessions:
  root:
    - calls: [{id: a, tool: write, args: {path: before.txt, content: x}}]
    - text: one is done
    - calls: [{id: c, tool: delegate, args: {kind: fork, label: forked, prompt: write}}]
    - text: two is done
  forked:
    - calls: [{id: b, tool: write, args: {path: after.txt, content: x}}]
    - text: end
`})
	if err != nil {
		return err
	}
	if err := m.switchTo(ctx, root, session.ReadOnly); err != nil {
		return err
	}
	if err := m.say(ctx, root, "two"); err != nil {
		return err
	}
	t, err := m.child(ctx, root, "forked")
	if err != nil {
		return err
	}
	modes := payloads[session.SandboxSwitch](t.inherited)
	completed := len(t.inherited) > 0 && t.inherited[len(t.inherited)-1].Type == session.TypeTurnEnd
	f.log(completed && len(modes) == 1 && modes[0].Mode == session.WorkspaceWrite, "inherited are %d events, a completed turn under %s", len(t.inherited), lastMode(modes))
	seedEnd := len(t.own) > 0 && t.own[0].Type == session.TypeEndSeed && t.own[0].Seq == t.header.FirstLiveSeq
	f.log(seedEnd && t.handedDown(session.ReadOnly), "its own begin with %s", firstTypes(t.own, 3))
	f.refused(t, 0)
	f.disk(m.exists(ws, "before.txt"), "before.txt is %s", there(m.exists(ws, "before.txt")))
	f.disk(!m.exists(ws, "after.txt"), "after.txt is %s", there(m.exists(ws, "after.txt")))
	return nil
}

func lastMode(modes []*session.SandboxSwitch) session.SandboxMode {
	if len(modes) == 0 {
		return "no mode"
	}
	return modes[len(modes)-1].Mode
}

// firstTypes shows the first events.
func firstTypes(events []entry, n int) string {
	var parts []string
	for _, e := range events[:min(n, len(events))] {
		l := logged{typ: e.Type, payload: e.Payload}
		parts = append(parts, strings.TrimSpace(string(e.Type)+" "+l.describe()))
	}
	return strings.Join(parts, ", ")
}

// stepIdentity: the two presets have one bundle, so that only the identity tells
// them apart. Under auto this deployment's reviewer denies a write; under Full
// access nothing does.
func stepIdentity(ctx context.Context, m *demo, f *facts) error {
	if err := m.set(ctx, "reviewer", string(policy.DelegateOnly)); err != nil {
		return err
	}
	for _, c := range []struct {
		ws             string
		history, after session.Preset
		writes         bool
	}{
		{"auto-first", session.PresetAuto, session.PresetFullAccess, true},
		{"full-first", session.PresetFullAccess, session.PresetAuto, false},
	} {
		root, err := m.play(ctx, plot{name: c.ws, prompt: "one", preset: c.history, script: `sessions:
  root:
    - text: one is done
    - calls: [{id: c, tool: delegate, args: {kind: fork, label: forked, prompt: write}}]
    - text: two is done
  forked:
    - calls: [{id: b, tool: write, args: {path: forked.txt, content: x}}]
    - text: end
`})
		if err != nil {
			return err
		}
		if err := m.d.Call(ctx, client.MethodPolicySet, client.PolicySetRequest{Head: m.d.head, ID: root, Preset: c.after}, nil); err != nil {
			return err
		}
		if err := m.say(ctx, root, "two"); err != nil {
			return err
		}
		t, err := m.child(ctx, root, "forked")
		if err != nil {
			return err
		}
		history, own := payloads[session.PresetSwitch](t.inherited), payloads[session.PresetSwitch](t.own)
		f.log(len(history) == 1 && history[0].Preset == c.history && len(own) == 1 && own[0].Preset == c.after,
			"%s was inherited as history, %s", c.history, t.policyText())
		decisions := payloads[session.ToolDecision](t.own)
		want := session.Deny
		if c.writes {
			want = session.Allow
		}
		f.log(len(decisions) == 1 && decisions[0].Verdict == want, "the write under %s: %s", c.after, verdictText(decisions))
		f.disk(m.exists(c.ws, "forked.txt") == c.writes, "forked.txt is %s", there(m.exists(c.ws, "forked.txt")))
	}
	return m.set(ctx, "reviewer", string(policy.NoReviewer))
}

func verdictText(decisions []*session.ToolDecision) string {
	if len(decisions) == 0 {
		return "not decided"
	}
	return string(decisions[0].Verdict) + " by " + string(decisions[0].By)
}

// listener hears every message that reaches a coordinator, from whomever.
type listener struct {
	nc    *nats.Conn
	heard chan *nats.Msg
}

// listen opens an ear with the coordinator's rights: what it may hear is all that
// the broker lets anybody send besides records, which stand in the stream.
func (m *demo) listen() (*listener, error) {
	nc, err := node.Connect(m.site.coordinator, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	l := &listener{nc: nc, heard: make(chan *nats.Msg, 4096)}
	for _, subject := range []string{"entail.api.v1.>", "entail.worker.>", "$SRV.>"} {
		if _, err := nc.ChanSubscribe(subject, l.heard); err != nil {
			nc.Close()
			return nil, err
		}
	}
	return l, nc.Flush()
}

// close ends the listening and returns what was heard.
func (l *listener) close() []*nats.Msg {
	l.nc.Close()
	var all []*nats.Msg
	for {
		select {
		case msg := <-l.heard:
			all = append(all, msg)
		default:
			return all
		}
	}
}

// questions counts the messages that speak of an ask, by its type or its id.
func questions(heard []*nats.Msg, asked []*session.ApprovalAsked) int {
	words := []string{string(session.TypeApprovalAsked), string(session.AllowedOnce)}
	for _, a := range asked {
		words = append(words, a.ID)
	}
	n := 0
	for _, msg := range heard {
		text := msg.Subject + string(msg.Data)
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) }) {
			n++
		}
	}
	return n
}

func stepEscalation(ctx context.Context, m *demo, f *facts) error {
	const ws = "escalation"
	ear, err := m.listen()
	if err != nil {
		return err
	}
	root, err := m.play(ctx, plot{name: ws, prompt: "go", sandbox: session.ReadOnly, surface: session.SurfaceAny, script: `sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, label: asking, prompt: write}}]
    - text: done
  asking:
    - calls: [{id: a, tool: write, args: {path: asked.txt, content: x, sandbox_permissions: workspace-write, justification: it is needed}}]
    - text: end
`})
	heard := ear.close()
	if root == "" {
		return err
	}
	t, missing := m.child(ctx, root, "asking")
	if missing != nil {
		return missing
	}
	asked, decided := payloads[session.ApprovalAsked](t.own), payloads[session.ApprovalDecided](t.own)
	outcome := session.Outcome("open")
	if len(decided) > 0 {
		outcome = decided[0].Outcome
	}
	f.log(len(asked) == 1 && len(decided) == 1 && outcome == session.Rejected, "asked %d, decided %d: %s", len(asked), len(decided), outcome)
	_, r, _, ok := t.result(0)
	f.log(ok && r.Denied && !strings.Contains(r.Content, sandbox.Hint(session.ReadOnly)), "the call: %s, %q", resultWord(r, ok), brief(r.Content))
	n := questions(heard, asked)
	f.log(n == 0 && len(heard) > 0, "%d messages of the broker, %d of them a question", len(heard), n)
	f.disk(!m.exists(ws, "asked.txt"), "asked.txt is %s", there(m.exists(ws, "asked.txt")))
	return err
}
