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
	for t := range in.queue {
		records, waiting := in.gathered(t)
		if in.err != nil {
			continue // what follows a gap must not be applied
		}
		if in.err = in.apply(records); in.err != nil {
			close(in.failed)
			continue
		}
		for _, applied := range waiting {
			close(applied)
		}
	}
}

// gathered joins to some records what was taken after them by now.
func (in *intake) gathered(t taken) (records []session.Decoded, waiting []chan struct{}) {
	for {
		records = append(records, t.records...)
		if t.applied != nil {
			waiting = append(waiting, t.applied)
		}
		if len(records) >= mostAtOnce {
			return records, waiting
		}
		var more bool
		select {
		case t, more = <-in.queue:
			if !more {
				return records, waiting
			}
		default:
			return records, waiting
		}
	}
}
