package sessionstore

import (
	"container/list"
	"sync"

	"github.com/entail-fleet/entail/session"
)

// cacheRows is how many decoded rows a store keeps.
const cacheRows = 4096

// cache keeps the rows that were written last. Only whoever applied a batch puts
// rows in: a reader could put back what a batch has just replaced.
type cache struct {
	mu    sync.Mutex // guards what follows
	size  int
	order *list.List // of row, newest first
	rows  map[session.ID]*list.Element
}

func newCache() *cache {
	return &cache{size: cacheRows, order: list.New(), rows: make(map[session.ID]*list.Element)}
}

func (c *cache) get(id session.ID) (row, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.rows[id]
	if !ok {
		return row{}, false
	}
	c.order.MoveToFront(el)
	r, ok := el.Value.(row)
	return r, ok
}

func (c *cache) put(r row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.rows[r.ID]; ok {
		el.Value = r
		c.order.MoveToFront(el)
		return
	}
	c.rows[r.ID] = c.order.PushFront(r)
	if c.order.Len() <= c.size {
		return
	}
	last := c.order.Back()
	if r, ok := c.order.Remove(last).(row); ok {
		delete(c.rows, r.ID)
	}
}
