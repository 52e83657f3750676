package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
)

const (
	followBatch   = 512
	followWait    = 5 * time.Millisecond
	followLinger  = 50 * time.Microsecond // enough to take what has come already
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
// A delivery that only fell silent is no break. One that gives no sign for
// [Config.Silence], or that gives signs but not what the stream's leader holds, is
// made again after the last record that was given to fn, provided that this record
// still stands where it stood; each time is a warning of [Config.Logger].
//
// The library's ordered consumer would begin again by itself. It takes a stored
// message whose headers claim a status for one of the server's and would begin
// again at it for ever; Follow reads the first message as what it is.
func (l *Log) Follow(ctx context.Context, partition int, after uint64, fn func([]session.Raw) error) error {
	f := follower{last: after}
	f.hear()
	for more := l.again(); ; {
		heard := f.heard
		err := l.follow(ctx, partition, &f, fn)
		if f.heard != heard {
			more = l.again()
		}
		if quiet, ok := errors.AsType[*silence](err); ok {
			l.cfg.Logger.Warn("delivery of a partition fell silent, asking for it again", slog.Int("partition", partition),
				slog.Uint64("after", f.last), slog.Duration("silent", quiet.lasted), slog.Any("error", quiet.err))
			if err = l.unbroken(ctx, partition, &f); err == nil {
				if more.wait(ctx) {
					continue
				}
				err = resetBy(ctx, quiet.err)
			}
		}
		if err != nil {
			return fmt.Errorf("follow partition %d after %d: %w", partition, f.last, err)
		}
		return nil
	}
}

// silence is a delivery that neither broke nor went on.
type silence struct {
	lasted time.Duration
	err    error
}

// Error implements error.
func (s *silence) Error() string { return fmt.Sprintf("silent for %v: %v", s.lasted, s.err) }

// follow delivers from a consumer of its own until something breaks or falls
// silent. It asks the leader for the first message, because the library does not
// give out one that claims a status.
func (l *Log) follow(ctx context.Context, partition int, f *follower, fn func([]session.Raw) error) error {
	m, err := l.get(ctx, StreamName(partition), getRequest{Seq: f.last + 1, NextFor: partitionFilter(partition)})
	if err == nil {
		err = f.deliver([]message{m}, fn)
	}
	switch {
	case errors.Is(err, errNoAnswer):
		return resetBy(ctx, err)
	case err != nil && !errors.Is(err, session.ErrNotFound):
		return err
	}
	consumer, err := l.js.CreateConsumer(ctx, StreamName(partition), jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.last + 1,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: followForget,
	})
	if err != nil && ctx.Err() == nil && f.mark.seq > 0 && time.Since(f.heard) < l.cfg.Budget {
		return &silence{time.Since(f.heard), err}
	}
	if err != nil {
		return resetBy(ctx, err)
	}
	defer l.forget(ctx, partition, consumer.CachedInfo().Name)
	messages, err := consumer.Messages(jetstream.PullMaxMessages(2*followBatch), jetstream.PullHeartbeat(l.cfg.Silence/2),
		jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return resetBy(ctx, err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	f.delivered, f.owed = 0, 0
	f.hear()
	for {
		batch, broken := f.collect(messages, 2*l.cfg.Silence)
		if err := f.deliver(batch, fn); err != nil {
			return err
		}
		if errors.Is(broken, nats.ErrTimeout) && len(batch) == 0 {
			broken = l.owes(ctx, partition, f)
		}
		switch {
		case broken == nil:
			f.hear()
		case ctx.Err() == nil && (errors.Is(broken, jetstream.ErrNoHeartbeat) || errors.Is(broken, errOwes)):
			return &silence{time.Since(f.heard), broken}
		default:
			return resetBy(ctx, broken)
		}
	}
}

// errOwes is a delivery that lives and does not bring what there is.
var errOwes = errors.New("the stream goes on and its delivery does not")

// owes asks the leader about a delivery that lives and brings nothing. What it
// names may be on its way; when it is the same the next time, it is not.
func (l *Log) owes(ctx context.Context, partition int, f *follower) error {
	m, err := l.lookAt(ctx, partition, getRequest{Seq: f.last + 1, NextFor: partitionFilter(partition)})
	switch {
	case errors.Is(err, session.ErrNotFound):
		f.owed = 0
		return nil
	case err != nil:
		return fmt.Errorf("%w, or nobody leads it: %w", errOwes, err)
	case m.seq == f.owed:
		return fmt.Errorf("%w: %d", errOwes, m.seq)
	}
	f.owed = m.seq
	return nil
}

// unbroken holds a stream that was silent to what it gave before: its last record
// must stand where it stood. Losing a leader stalls the answer.
func (l *Log) unbroken(ctx context.Context, partition int, f *follower) error {
	if f.mark.seq == 0 {
		return fmt.Errorf("%w: it fell silent before its first record", ErrReset)
	}
	for more := l.again(); ; {
		m, err := l.lookAt(ctx, partition, getRequest{Seq: f.mark.seq})
		switch {
		case err == nil && m.same(f.mark):
			return nil
		case err == nil || errors.Is(err, session.ErrNotFound):
			return fmt.Errorf("%w: the record at %d is another one", ErrReset, f.mark.seq)
		}
		if !more.wait(ctx) {
			return resetBy(ctx, err)
		}
	}
}

// lookAt is one try to read a message from a partition's leader.
func (l *Log) lookAt(ctx context.Context, partition int, r getRequest) (m message, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return message{}, err
	}
	err = l.once(ctx, func(ctx context.Context) error {
		m, err = l.getOnce(ctx, StreamName(partition), body)
		return err
	})
	return m, err
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
	last      uint64    // stream sequence
	mark      message   // the last one given out, none at first
	delivered uint64    // by the consumer
	heard     time.Time // when all was as it should be
	owed      uint64    // what was there and did not come
}

func (f *follower) hear() { f.heard = time.Now() }

// same reports whether two messages are one, as far as a stream can tell.
func (m message) same(o message) bool {
	return m.seq == o.seq && m.subject == o.subject && m.time.Equal(o.time) && bytes.Equal(m.data, o.data)
}

// collect waits for a message and takes what comes right after it.
func (f *follower) collect(messages jetstream.MessagesContext, wait time.Duration) ([]message, error) {
	msg, err := messages.Next(jetstream.NextMaxWait(wait))
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
	m = message{subject: msg.Subject(), seq: meta.Sequence.Stream, time: meta.Timestamp, header: msg.Headers(), data: msg.Data()}
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
	f.mark = batch[len(batch)-1]
	return fn(raws)
}
