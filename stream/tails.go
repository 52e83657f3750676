package stream

import (
	"sync"

	"github.com/entail-fleet/entail/session"
)

// tailsKept bounds what one generation of tails remembers.
const tailsKept = 1 << 16

// tails remembers the highest tail this process has seen of each session: a
// server that answers with a lower one has lost records. Sessions not seen for
// two generations are forgotten; for them a loss is the mirror's to find.
type tails struct {
	mu       sync.Mutex
	now, old map[session.ID]uint64 // guarded by mu
}

// seen returns the highest tail noted, zero if none.
func (t *tails) seen(id session.ID) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(t.now[id], t.old[id])
}

// note remembers a tail.
func (t *tails) note(id session.ID, tail uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil || len(t.now) >= tailsKept {
		t.now, t.old = make(map[session.ID]uint64), t.now
	}
	t.now[id] = max(t.now[id], t.old[id], tail)
}
