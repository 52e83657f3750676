package stream

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// BusyTries is how often a publish is repeated that met another in flight.
const BusyTries = busyTries

// Conn is the log's connection.
func (l *Log) Conn() *nats.Conn { return l.nc }

// ReadAck is how an acknowledgement is read.
func ReadAck(data []byte) (*jetstream.PubAck, error) { return readAck(data) }
