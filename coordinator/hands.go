package coordinator

import "sync"

// hands do the requests, so many at a time at most. A hand stays when its request
// is done and takes the next: a new goroutine for each would grow its stack anew
// for each.
type hands struct {
	done  <-chan struct{} // closed when idle hands are to go
	slots chan struct{}   // holds one word for each hand
	next  chan func()     // handed to an idle hand
	all   sync.WaitGroup
}

// newHands keeps hands until done is closed.
func newHands(done <-chan struct{}, most int) *hands {
	return &hands{done: done, slots: make(chan struct{}, most), next: make(chan func())}
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
		case <-h.done:
			return
		}
	}
}

// wait returns once done is closed and no hand is at work.
func (h *hands) wait() { h.all.Wait() }
