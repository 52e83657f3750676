package chaos

import (
	"fmt"
	"maps"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// birth is a child that a log started and the prefix it was given.
type birth struct {
	id     session.ID
	prefix session.Prefix
}

// notice names the end of one turn of one child.
type notice struct {
	child session.ID
	turn  int
}

// log is what a judgement keeps of one session.
type log struct {
	id    session.ID
	chain *session.Chain
	links map[session.Seq]session.Link

	births  []birth
	allowed map[session.CallID]session.ID // allowed delegating calls and their children
	calls   map[session.CallID]string     // every call's tool
	results map[session.CallID]int
	notices map[notice]int
	inbox   map[string]int // messages by id
	open    map[session.CallID]Moment
	hits    map[Moment]int
	ended   bool
}

func newLog(id session.ID) *log {
	return &log{
		id: id, links: map[session.Seq]session.Link{}, allowed: map[session.CallID]session.ID{},
		calls: map[session.CallID]string{}, results: map[session.CallID]int{}, notices: map[notice]int{},
		inbox: map[string]int{}, open: map[session.CallID]Moment{}, hits: map[Moment]int{},
	}
}

// record takes the next record of the session's space. The error says what is
// wrong with the log, not with the reading of it.
func (l *log) record(raw session.Raw, p session.Prefix) error {
	if l.chain == nil {
		if raw.Address.Class != session.ClassGenesis || raw.Address.Session != l.id {
			return nil // in front of the genesis nothing counts
		}
		chain, first, err := session.Open(raw, p, l.link)
		if err != nil {
			return err
		}
		l.chain = chain
		l.take(first)
		return nil
	}
	before := l.chain.State()
	j, err := l.chain.Next(raw)
	if err != nil {
		return err
	}
	l.take(j.Events)
	if j.Birth != nil {
		b := birth{id: j.Birth.Header.ID}
		if j.Birth.Header.InheritedEventCount > 0 {
			b.prefix = before.Cut
		}
		l.births = append(l.births, b)
	}
	return nil
}

func (l *log) link(s session.Seq) (session.Link, bool) {
	link, ok := l.links[s]
	return link, ok
}

// take counts events of the log.
func (l *log) take(events []session.Event) {
	for _, e := range events {
		l.links[e.Seq] = e.Link
		switch p := e.Payload.(type) {
		case *session.UserMessage:
			l.inbox[p.ID]++
			if p.Source.Kind == session.FromSettled {
				l.notices[notice{p.Source.SenderSessionID, p.Source.Turn}]++
			}
		case *session.Claim:
			l.claim(p)
		case *session.ToolCall:
			l.calls[p.CallID] = p.Name
			if p.Name == session.ToolDelegate {
				l.open[p.CallID] = AtCall
			}
		case *session.ToolDecision:
			if p.Verdict == session.Allow && l.calls[p.CallID] == session.ToolDelegate {
				l.allowed[p.CallID] = p.Child
				l.open[p.CallID] = AtGenesis
			}
		case *session.ToolResult:
			l.results[p.CallID]++
			delete(l.open, p.CallID)
		case *session.End:
			l.ended = true
		}
	}
}

// claim counts the delegating calls that a dead worker left open. A worker that
// waits parks the turn first, and whoever wakes it takes over from nobody.
func (l *log) claim(c *session.Claim) {
	if c.Cause != session.CauseTakeover {
		return
	}
	for _, m := range l.open {
		l.hits[m]++
	}
}

// faults lists what a finished log must not show.
func (l *log) faults(logs map[session.ID]*log) []string {
	if l.chain == nil {
		return []string{"it has no genesis"}
	}
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !l.ended {
		add("it has not ended")
	}
	parents := map[session.ID][]session.CallID{}
	for _, call := range slices.Sorted(maps.Keys(l.allowed)) {
		child := l.allowed[call]
		parents[child] = append(parents[child], call)
		if logs[child] == nil {
			add("its allowed call %s has no child, it names %q", call, child)
		}
	}
	if len(l.births) != len(l.allowed) {
		add("it started %d children by %d allowed calls", len(l.births), len(l.allowed))
	}
	for _, child := range slices.Sorted(maps.Keys(parents)) {
		if calls := parents[child]; len(calls) > 1 {
			add("calls %s have one child together, %s", list(calls), child)
		}
	}
	for _, call := range slices.Sorted(maps.Keys(l.calls)) {
		if n := l.results[call]; n != 1 {
			add("call %s of %s has %d results", call, l.calls[call], n)
		}
	}
	for n, times := range l.notices {
		if times > 1 {
			add("it was told %d times of the end of turn %d of %s", times, n.turn, n.child)
		}
	}
	for id, times := range l.inbox {
		if times > 1 {
			add("message %s stands in it %d times", id, times)
		}
	}
	return out
}
