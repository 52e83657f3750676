package agent

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// mostWaits is how many sessions a worker says of why it does not drive them, the
// ones that it looked at last.
const mostWaits = 64

// waits are the reasons why a worker does not drive sessions that it was pointed
// at. A worker may write no log that is not its own to drive, so it says them with
// its signs of life, and they are gone with it.
type waits struct {
	mu  sync.Mutex
	all map[session.ID]wait // guarded by mu
}

type wait struct {
	why   string
	waits []session.Wait // what of a worker it waits for
	until time.Time      // when it is looked at again, or by somebody else
}

// reason is why a session is left, short and as text.
func reason(why error) string { return client.Shorten(strings.ToValidUTF8(why.Error(), "")) }

// note says why a session waits, until about when.
func (w *waits) note(id session.ID, why wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[session.ID]wait{}
	}
	w.all[id] = why
	if len(w.all) <= mostWaits {
		return
	}
	first := id
	for other, o := range w.all {
		if o.until.Before(w.all[first].until) {
			first = other
		}
	}
	delete(w.all, first)
}

// over says that a session does not wait any more.
func (w *waits) over(id session.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, id)
}

// list returns the reasons that still hold.
func (w *waits) list(now time.Time) []client.AliveWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.all, func(_ session.ID, o wait) bool { return o.until.Before(now) })
	var out []client.AliveWait
	for _, id := range slices.Sorted(maps.Keys(w.all)) {
		out = append(out, client.AliveWait{Session: id, Why: w.all[id].why, For: w.all[id].waits})
	}
	return out
}
