package sessionstore

import "github.com/entail-fleet/entail/session"

// intake applies what a feed gives, in its order. A mirror that catches up gets
// full batches: those are read and decoded while what came before them is applied,
// and what has gathered meanwhile is applied as one.
type intake struct {
	apply  func([]session.Decoded) error
	queue  chan taken
	failed chan struct{} // closed once err is set
	ended  chan struct{} // closed when nothing runs any more
	err    error         // the first one; after it nothing is applied
}

// taken is some records, and who waits until they are applied, if anybody does.
type taken struct {
	records []session.Decoded
	applied chan struct{}
}

// mostAtOnce bounds how many records are applied as one. More save nothing, and
// their memory is held until they are.
const mostAtOnce = 2048

// newIntake starts an intake. Whoever made it closes it.
func newIntake(apply func([]session.Decoded) error) *intake {
	in := &intake{
		apply: apply, queue: make(chan taken, 1),
		failed: make(chan struct{}), ended: make(chan struct{}),
	}
	go in.run()
	return in
}

// take gives records to be applied and, if wait is set, returns once they are.
// It returns the error of the first ones that could not be.
func (in *intake) take(records []session.Decoded, wait bool) error {
	t := taken{records: records}
	if wait {
		t.applied = make(chan struct{})
	}
	select {
	case in.queue <- t:
	case <-in.failed:
		return in.err
	}
	if !wait {
		return nil
	}
	select {
	case <-t.applied:
		return nil
	case <-in.failed:
		return in.err
	}
}

// close applies what was taken and returns the error of the first records that
// could not be applied.
func (in *intake) close() error {
	close(in.queue)
	<-in.ended
	return in.err
}

func (in *intake) run() {
	defer close(in.ended)
	for t, more := <-in.queue; more; {
		records, waiting := t.records, t.waits(nil)
		// Only what follows is joined: a feed may give again what it gave before.
		for t, more = in.next(len(records) < mostAtOnce); more && follows(records, t.records); {
			records, waiting = append(records, t.records...), t.waits(waiting)
			t, more = in.next(len(records) < mostAtOnce)
		}
		in.give(records, waiting)
		if more && t.records == nil { // nothing had gathered
			t, more = <-in.queue
		}
	}
}

// next is what was taken by now, with no records if that is nothing or is not wanted. It
// reports false once nothing will be.
func (in *intake) next(wanted bool) (t taken, more bool) {
	if !wanted {
		return taken{}, true
	}
	select {
	case t, more = <-in.queue:
		return t, more
	default:
		return taken{}, true
	}
}

// follows reports whether some records go on where others end.
func follows(records, more []session.Decoded) bool {
	return len(records) > 0 && len(more) > 0 && more[0].Raw.StreamSeq == records[len(records)-1].Raw.StreamSeq+1
}

// waits adds who waits for these records, if anybody does.
func (t taken) waits(others []chan struct{}) []chan struct{} {
	if t.applied == nil {
		return others
	}
	return append(others, t.applied)
}

// give applies records and tells who waits for them. What follows a gap is not applied.
func (in *intake) give(records []session.Decoded, waiting []chan struct{}) {
	if in.err != nil {
		return
	}
	if in.err = in.apply(records); in.err != nil {
		close(in.failed)
		return
	}
	for _, applied := range waiting {
		close(applied)
	}
}
