package sessionstore

import (
	"sync"

	"github.com/entail-fleet/entail/session"
)

// trees knows how many sessions the trees have that were asked about, so that a
// cap on a tree's size costs no listing of it.
type trees struct {
	mu    sync.Mutex
	sizes map[session.ID]int // by root; guarded by mu
}

// treesKept bounds how many sizes are kept. Forgetting one costs a listing.
const treesKept = 4096

// size returns the size of a tree, counted if it is not known.
func (t *trees) size(root session.ID, count func() (int, error)) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n, known := t.sizes[root]; known {
		return n, nil
	}
	n, err := count()
	if err != nil {
		return 0, err
	}
	if t.sizes == nil || len(t.sizes) >= treesKept {
		t.sizes = map[session.ID]int{}
	}
	t.sizes[root] = n
	return n, nil
}

// commit commits a batch in which so many sessions were added to trees. Nobody
// counts meanwhile: a listing that sees some of them would count those twice.
func (t *trees) commit(added map[session.ID]int, commit func() error) error {
	if len(added) == 0 {
		return commit()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := commit()
	for root, n := range added {
		if _, known := t.sizes[root]; !known {
			continue
		}
		if t.sizes[root] += n; err != nil {
			delete(t.sizes, root) // whether they were added is not known
		}
	}
	return err
}
