//go:build linux && (amd64 || arm64)

package sandbox

import "sync"

// pool keeps launchers that wait for a call, of each kind that was asked for so far.
// One that is taken is followed by another in the background. The zero value keeps
// none.
type pool struct {
	bear func(kind) (*launcher, error)
	warm int // how many of each kind

	mu     sync.Mutex
	idle   map[kind][]*launcher // guarded by mu
	coming map[kind]int         // that are being born; guarded by mu
	closed bool                 // guarded by mu

	births sync.WaitGroup
}

// take returns a launcher that waits, or nil. Once the call is over, or at once where
// no other waits for the next call, fill is due: to start a launcher takes as long as
// a short call, and would take that from it.
func (p *pool) take(k kind) *launcher {
	for {
		l, last := p.pop(k)
		if last {
			p.fill(k)
		}
		if l == nil || !l.stale() {
			return l
		}
		l.end()
	}
}

// pop takes the one that has waited longest, which has certainly come up. Last reports
// that no other waits.
func (p *pool) pop(k kind) (l *launcher, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.idle[k]
	if len(waiting) == 0 {
		return nil, true
	}
	p.idle[k] = waiting[1:]
	return waiting[0], len(waiting) == 1
}

// fill starts what is missing of a kind.
func (p *pool) fill(k kind) {
	if p.warm <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle, p.coming = map[kind][]*launcher{}, map[kind]int{}
	}
	for !p.closed && len(p.idle[k])+p.coming[k] < p.warm {
		p.coming[k]++
		p.births.Go(func() { p.add(k) })
	}
}

// add starts one. One that cannot be started is not missed: the next call tries
// for itself, and says why it cannot.
func (p *pool) add(k kind) {
	l, err := p.bear(k)
	if kept := p.keep(k, l, err); err == nil && !kept {
		l.end()
	}
}

// keep puts one where calls find it.
func (p *pool) keep(k kind, l *launcher, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.coming[k]--
	if err != nil || p.closed {
		return false
	}
	p.idle[k] = append(p.idle[k], l)
	return true
}

// close ends all that wait. What is taken afterwards is nil.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	p.births.Wait()
	for _, waiting := range idle {
		for _, l := range waiting {
			l.end()
		}
	}
}
