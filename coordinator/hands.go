package coordinator

import (
	"context"
	"sync"
)

// hands do the requests, so many at a time at most. A hand stays when its request
// is done and takes the next: a new goroutine for each would grow its stack anew
// for each.
type hands struct {
	ctx   context.Context //nolint:containedctx // how long idle hands stay
	slots chan struct{}   // holds one word for each hand
	next  chan func()     // handed to an idle hand
	all   sync.WaitGroup
}

// newHands keeps hands until ctx ends.
func newHands(ctx context.Context, most int) *hands {
	return &hands{ctx: ctx, slots: make(chan struct{}, most), next: make(chan func())}
}

// do hands work to an idle hand or to a new one, and waits while there are as many
// as may be and none is idle.
func (h *hands) do(work func()) {
	select {
	case h.next <- work:
		return
	default:
	}
	select {
	case h.next <- work:
	case h.slots <- struct{}{}:
		h.all.Go(func() { h.serve(work) })
	}
}

func (h *hands) serve(work func()) {
	defer func() { <-h.slots }()
	for {
		work()
		select {
		case work = <-h.next:
		case <-h.ctx.Done():
			return
		}
	}
}

// wait returns once ctx has ended and no hand is at work.
func (h *hands) wait() { h.all.Wait() }
