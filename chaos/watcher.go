package chaos

import (
	"cmp"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// Sighting is an open delegating call at one moment of its life.
type Sighting struct {
	Session session.ID
	Call    session.CallID
	Moment  Moment
	// Worker is the name of the worker that drives the session.
	Worker string
}

// Watcher follows the events of one session. It is not safe for use by two
// goroutines.
type Watcher struct {
	id     session.ID
	worker string
	open   map[session.CallID]Moment
}

// NewWatcher returns a watcher of a session from its first own event on.
func NewWatcher(id session.ID) *Watcher {
	return &Watcher{id: id, open: map[session.CallID]Moment{}}
}

// See takes the next events of the log and returns the delegating calls that
// they brought to a new moment and that are open at the last of them, held by a
// worker: a parked turn is nobody's.
func (w *Watcher) See(events ...session.Event) []Sighting {
	moved := map[session.CallID]bool{}
	for _, e := range events {
		switch p := e.Payload.(type) {
		case *session.Claim:
			w.worker = p.Worker
		case *session.TurnPark, *session.TurnEnd, *session.End:
			w.worker = ""
		case *session.ToolCall:
			if p.Name == session.ToolDelegate {
				w.open[p.CallID], moved[p.CallID] = AtCall, true
			}
		case *session.ToolDecision:
			if p.Child != "" {
				w.open[p.CallID], moved[p.CallID] = AtGenesis, true
			}
		case *session.ToolResult:
			delete(w.open, p.CallID)
		}
	}
	var seen []Sighting
	for call := range moved {
		if m, open := w.open[call]; open && w.worker != "" {
			seen = append(seen, Sighting{Session: w.id, Call: call, Moment: m, Worker: w.worker})
		}
	}
	slices.SortFunc(seen, func(a, b Sighting) int { return cmp.Compare(a.Call, b.Call) })
	return seen
}
