package stream

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
)

// Publish sends one record once.
type Publish func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error)

func (p Publish) publish(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	return p(ctx, m)
}

// Intercept puts a test between the log and the server.
func (l *Log) Intercept(between func(next Publish) Publish) {
	l.pub = between(l.pub.publish)
}

// Lanes counts the sessions that have an append waiting or in flight.
func (l *Log) Lanes() int {
	l.lanes.mu.Lock()
	defer l.lanes.mu.Unlock()
	return len(l.lanes.m)
}

// Waiting counts the changes behind the one in flight of a session.
func (l *Log) Waiting() int {
	l.lanes.mu.Lock()
	defer l.lanes.mu.Unlock()
	n := 0
	for _, q := range l.lanes.m {
		n += len(q.queue)
	}
	return n
}

// Budget is how long an append whose outcome is unknown is resent.
func (l *Log) Budget() time.Duration { return l.cfg.Budget }

// Conn is the log's connection.
func (l *Log) Conn() *nats.Conn { return l.nc }

// ReadAck is how an acknowledgement is read.
func ReadAck(data []byte) (*jetstream.PubAck, error) { return readAck(data) }

// Classified is what an error of the server's means for a publish: where the
// record stands or the tail is now, whether that is known, and whether the record
// is certainly not written.
func Classified(api *jetstream.APIError) (tail uint64, moved, certain bool) {
	a := classify(api)
	return a.seq, a.outcome == movedOutcome, a.outcome != unsettled
}

const movedOutcome = moved

// Answered is how an answer of a direct get is read: the record, whether nothing
// comes after it, whether the page is at its end.
func Answered(reply *nats.Msg) (r session.Raw, last, end bool, err error) {
	m, end, err := answered(reply)
	if err != nil || end {
		return session.Raw{}, false, end, err
	}
	return m.any(), m.behind == 0, false, nil
}

// ErrNoAnswer is a read that is tried again.
var ErrNoAnswer = errNoAnswer

// ReadGet is how a leader's answer to a get is read.
func ReadGet(data []byte) (session.Raw, error) {
	m, err := readGet(data)
	return m.any(), err
}
