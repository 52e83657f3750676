package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
)

const (
	followBatch   = 512
	followWait    = 5 * time.Millisecond
	followLinger  = 50 * time.Microsecond // enough to take what has come already
	followBeat    = time.Second           // a silent server is noticed after two
	followForget  = 5 * time.Minute       // the server drops an abandoned consumer
	followTidying = 2 * time.Second
)

// Follow calls fn with every record of a partition after a stream sequence, in
// order, in batches of up to 512 records or what comes in 5 ms; behind the last
// record that the stream holds only what has come already is taken. Hole is set where stream sequences are
// missing in front of a record. A message that stands in no session's space was
// put there with a worker's key and is part of no log; it comes with a zero
// Address, so that its sequence is accounted for. Follow returns when ctx ends,
// when fn fails, or with [ErrReset] when the delivery broke: the caller then
// checks its watermark and follows again from it.
//
// The library's ordered consumer would begin again by itself. It takes a stored
// message whose headers claim a status for one of the server's and would begin
// again at it for ever; Follow reads the first message as what it is.
func (l *Log) Follow(ctx context.Context, partition int, after uint64, fn func([]session.Raw) error) error {
	f := follower{last: after}
	m, err := l.get(ctx, StreamName(partition), getRequest{Seq: after + 1, NextFor: partitionFilter(partition)})
	if err == nil {
		err = f.deliver([]message{m}, fn)
	}
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return fmt.Errorf("follow partition %d after %d: %w", partition, after, err)
	}
	if err := l.follow(ctx, partition, &f, fn); err != nil {
		return fmt.Errorf("follow partition %d after %d: %w", partition, f.last, err)
	}
	return nil
}

// follow delivers from a consumer of its own until something breaks.
func (l *Log) follow(ctx context.Context, partition int, f *follower, fn func([]session.Raw) error) error {
	consumer, err := l.js.CreateConsumer(ctx, StreamName(partition), jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.last + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: followForget,
	})
	if err != nil {
		return resetBy(ctx, err)
	}
	defer l.forget(ctx, partition, consumer.CachedInfo().Name)
	messages, err := consumer.Messages(jetstream.PullMaxMessages(2*followBatch), jetstream.PullHeartbeat(followBeat),
		jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return resetBy(ctx, err)
	}
	defer messages.Stop()
	for {
		batch, broken := f.collect(ctx, messages)
		if err := f.deliver(batch, fn); err != nil {
			return err
		}
		if broken != nil {
			return resetBy(ctx, broken)
		}
	}
}

// forget deletes a consumer; if that fails the server does it later.
func (l *Log) forget(ctx context.Context, partition int, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), followTidying)
	defer cancel()
	_ = l.js.DeleteConsumer(ctx, StreamName(partition), name)
}

// resetBy makes the error of a delivery that broke.
func resetBy(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrReset, err)
}

// follower is how far a delivery has come.
type follower struct {
	last      uint64 // stream sequence
	delivered uint64 // by the consumer
}

// collect waits for a message and takes what comes right after it.
func (f *follower) collect(ctx context.Context, messages jetstream.MessagesContext) ([]message, error) {
	msg, err := messages.Next(jetstream.NextContext(ctx))
	var batch []message
	for deadline := time.Now().Add(followWait); err == nil; {
		var m message
		var last bool
		if m, last, err = f.check(msg); err != nil {
			break
		}
		batch = append(batch, m)
		left := time.Until(deadline)
		if len(batch) == followBatch || left <= 0 {
			return batch, nil
		}
		if last {
			left = followLinger
		}
		if msg, err = messages.Next(jetstream.NextMaxWait(left)); errors.Is(err, nats.ErrTimeout) {
			return batch, nil
		}
	}
	return batch, err
}

// check holds a delivery to the consumer's own count: a gap in it is a message
// that was lost on the way, not one that the stream lacks. Last reports that
// nothing waited behind it.
func (f *follower) check(msg jetstream.Msg) (m message, last bool, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return message{}, false, err
	}
	if meta.Sequence.Consumer != f.delivered+1 {
		return message{}, false, fmt.Errorf("delivery %d came after %d", meta.Sequence.Consumer, f.delivered)
	}
	f.delivered++
	m = message{subject: msg.Subject(), seq: meta.Sequence.Stream, header: msg.Headers(), data: msg.Data()}
	return m, meta.NumPending == 0, nil
}

// deliver gives messages to fn as records.
func (f *follower) deliver(batch []message, fn func([]session.Raw) error) error {
	raws := make([]session.Raw, 0, len(batch))
	hole := false
	for _, m := range batch {
		if m.seq <= f.last {
			return fmt.Errorf("%w: stream sequence %d came after %d", ErrReset, m.seq, f.last)
		}
		hole = hole || m.seq != f.last+1
		f.last = m.seq
		raw := m.any()
		raw.Hole, hole = hole, false
		raws = append(raws, raw)
	}
	if len(raws) == 0 {
		return nil
	}
	return fn(raws)
}
