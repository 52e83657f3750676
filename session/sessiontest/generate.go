package sessiontest

import (
	"fmt"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// Log is the raw records of one tree in stream order, and what is true of them.
type Log struct {
	Records []session.Raw
	// Sessions lists every session, parents first.
	Sessions []session.ID
	// States is what each session folds to.
	States map[session.ID]session.State
	// Voids counts each session's void records.
	Voids map[session.ID]int
}

// Pick chooses one of n by chance: rapid.IntRange(0, n-1) or rand.IntN.
type Pick func(n int) int

// Generate writes a tree of sessions: turns and their takeovers, switches,
// messages, questions, delegations of both kinds, people's forks, ends; and in
// between void records and records written twice. Everything else is valid.
func Generate(t T, pick Pick, steps int) Log {
	t.Helper()
	g := &generator{s: NewStream(t), pick: pick, voids: map[session.ID]int{}}
	g.born(g.s.Root(g.first()...))
	for range steps {
		g.act(g.ids[pick(len(g.ids))])
	}
	return Log{Records: g.s.Records, Sessions: g.ids, States: g.s.states, Voids: g.voids}
}

type generator struct {
	s     *Stream
	pick  Pick
	ids   []session.ID
	voids map[session.ID]int
	names int
}

func (g *generator) born(id session.ID) { g.ids = append(g.ids, id) }

// name makes a new message or question id.
func (g *generator) name(kind string) string {
	g.names++
	return fmt.Sprintf("%s%d", kind, g.names)
}

// first is a root's first batch: flags of its creation, model, prompt (SPEC 1.10).
func (g *generator) first() []session.Payload {
	var out []session.Payload
	if g.pick(3) == 0 {
		out = append(out, &session.PresetSwitch{Preset: session.PresetReadOnly, By: By()})
	}
	if g.pick(2) == 0 {
		out = append(out, &session.SandboxSwitch{Mode: session.ReadOnly, By: By()})
	}
	out = append(out, Model())
	if g.pick(2) == 0 {
		out = append(out, g.prompt())
	}
	return out
}

func (g *generator) prompt() session.Payload {
	return &session.UserMessage{
		ID: g.name("m"), Role: "user", Content: "go on", By: By(),
		Source: session.MessageSource{Kind: session.FromUser},
	}
}

// act lets something happen to a session.
func (g *generator) act(id session.ID) {
	s := g.s.State(id)
	switch n := g.pick(20); {
	case n < 2 && s.Ended == nil:
		g.s.Write(id, session.ClassPolicy, g.policySwitch(s))
	case n < 5 && s.Ended == nil:
		g.s.Write(id, session.ClassInbox, g.input(s))
	case n == 5:
		g.void(id)
	case n == 6:
		g.twice(id)
	case n == 7 && s.Open == nil && len(g.ids) < 8:
		g.born(g.s.Fork(id))
	case n == 8:
		g.childNews(id)
	default:
		g.drive(id)
	}
}

func (g *generator) policySwitch(s session.State) session.Payload {
	switch g.pick(4) {
	case 0:
		if !s.Header.IsChild() { // a child's pin stays
			return &session.ApprovalSwitch{Policy: []session.ApprovalPolicy{session.Ask, session.Never}[g.pick(2)], By: By()}
		}
	case 1:
		presets := []session.Preset{session.PresetAuto, session.PresetFullAccess, session.PresetReadOnly, "house-style"}
		return &session.PresetSwitch{Preset: presets[g.pick(len(presets))], By: By()}
	}
	return &session.SandboxSwitch{Mode: session.SandboxModes()[g.pick(3)], By: By()}
}

// input is a record of class inbox that is not about a child.
func (g *generator) input(s session.State) session.Payload {
	if q := openQuestion(s); q != nil && g.pick(2) == 0 {
		if g.pick(4) == 0 {
			return &session.Expired{ID: g.name("x"), Ask: q.ID, By: By()}
		}
		outcomes := []session.Outcome{session.AllowedOnce, session.Rejected, session.Cancelled}
		return &session.ApprovalDecided{ID: q.ID, Outcome: outcomes[g.pick(3)], By: By()}
	}
	switch g.pick(12) {
	case 0:
		return &session.Interrupt{ID: g.name("i"), Turn: max(s.Turn, 1), By: By()}
	case 1:
		return &session.Nudge{ID: g.name("n"), By: By()}
	case 2:
		if g.pick(4) == 0 {
			return &session.Cancel{ID: g.name("c"), By: By()}
		}
	}
	return g.prompt()
}

func openQuestion(s session.State) *session.Question {
	if s.Open == nil {
		return nil
	}
	for _, c := range s.Open.Calls {
		if c.Ask != nil && c.Ask.Outcome == "" {
			return c.Ask
		}
	}
	return nil
}

// childNews tells a parent of a child's turn, or closes a child that returned.
func (g *generator) childNews(id session.ID) {
	s := g.s.State(id)
	if len(s.Children) == 0 {
		return
	}
	c := s.Children[g.pick(len(s.Children))]
	by := &session.Party{Kind: session.CoordinatorOwn, ID: "c1"}
	if c.Returned && g.pick(2) == 0 {
		g.s.Write(id, session.ClassInbox, &session.Closed{ID: g.name("d"), Child: c.ID, By: by})
		return
	}
	turn, end := c.Noticed+1, session.Seq(9)
	g.s.Write(id, session.ClassInbox, &session.UserMessage{
		ID: session.NoticeID(c.ID, turn, end), Role: "user", Content: "done", By: by,
		Source: session.MessageSource{
			Kind: session.FromSettled, SenderSessionID: c.ID, Turn: turn, Seq: end, Outcome: string(session.EndCompleted),
		},
	})
}

// twice writes a record of the session's space again, at the stream's end.
func (g *generator) twice(id session.ID) {
	var own []session.Raw
	for _, raw := range g.s.Records {
		if raw.Address.Space() == id && raw.Address.Session != id || raw.Address.Class == session.ClassInbox && raw.Address.Session == id {
			own = append(own, raw)
		}
	}
	if len(own) > 0 {
		g.s.Put(own[g.pick(len(own))])
	}
}

// void writes a turn record that the log does not allow.
func (g *generator) void(id session.ID) {
	r := g.s.Compose(id, session.ClassTurn, &session.TurnStart{Turn: g.s.State(id).Turn + 1})
	switch g.pick(5) {
	case 0:
		r.Epoch += 7
	case 1:
		r.Own.Before[0] ^= 1
	case 2:
		r.Own.Seq++
	default:
		raw := g.s.Raw(r)
		bodies := []string{"", "\x00\x00\x00\x00", `{"type":"turn/st`, "{}\n", string(raw.Body) + string(raw.Body)}
		raw.Body = []byte(bodies[g.pick(len(bodies))])
		g.s.Put(raw)
		g.voids[id]++
		return
	}
	g.s.Put(g.s.Raw(r))
	g.voids[id]++
}

// drive lets a driver write one record of one or more groups of events.
func (g *generator) drive(id session.ID) {
	const mostInARecord = 64 // each event more composes all before it again
	s := g.s.State(id)
	var batch []session.Payload
	for {
		call, delegates := dueDelegation(s)
		if delegates && len(batch) == 0 && g.pick(3) > 0 && len(g.ids) < 8 {
			g.born(g.s.Delegate(id, Delegation{Call: call.ID, Kind: []session.Kind{session.Spawn, session.Fork}[g.pick(2)]}))
			return
		}
		group := g.turn(s, len(batch) == 0)
		if len(group) == 0 {
			break
		}
		batch = append(batch, group...)
		if g.pick(3) == 0 || len(batch) >= mostInARecord {
			break
		}
		s = g.peek(id, batch)
	}
	if len(batch) > 0 {
		g.s.Write(id, session.ClassTurn, batch...)
	}
}

// peek returns the state after a record that is not written yet.
func (g *generator) peek(id session.ID, batch []session.Payload) session.State {
	s, err := session.FoldSection(g.s.State(id), *g.s.Compose(id, session.ClassTurn, batch...).Own)
	g.s.must(err)
	return s
}

func dueDelegation(s session.State) (session.Call, bool) {
	if s.Open == nil || s.Open.Parked || s.Stopping() {
		return session.Call{}, false
	}
	i := slices.IndexFunc(s.Open.Calls, func(c session.Call) bool {
		return c.State == session.CallUndecided && c.Name == session.ToolDelegate
	})
	if i < 0 {
		return session.Call{}, false
	}
	return s.Open.Calls[i], true
}
