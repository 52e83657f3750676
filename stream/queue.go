package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
)

// pull is how long one pull request stands at the server, at least: its silence is
// heard only while it stands.
const pull = 5 * time.Second

// Queue hands out hints that a session may have something to do: one for each
// record of class inbox or genesis. A hint may come twice, late, or to two
// workers; the log decides (ARCHITECTURE 4). A queue that gives no sign for
// [Config.Silence] while it is asked, or that does not hand out hints that the
// stream's leader holds, is asked anew; each time is a warning of [Config.Logger].
type Queue struct {
	log       *Log
	partition int

	mu       sync.Mutex
	consumer jetstream.Consumer // guarded by mu, nil until the first Next
	due      time.Time          // guarded by mu: when the queue is looked at again
	owing    time.Time          // guarded by mu: since when hints wait, zero if none do
	handed   uint64             // guarded by mu: how many had been handed out then
}

// Queue returns the work queue of a partition. It asks the server nothing.
func (l *Log) Queue(partition int) (*Queue, error) {
	if partition < 0 || partition >= l.cfg.Partitions {
		return nil, fmt.Errorf("work queue of partition %d: the deployment has %d", partition, l.cfg.Partitions)
	}
	return &Queue{log: l, partition: partition}, nil
}

// open binds the queue's consumer and refuses one that would lose hints.
func (q *Queue) open(ctx context.Context) (jetstream.Consumer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.consumer != nil {
		return q.consumer, nil
	}
	c, err := q.log.js.Consumer(ctx, StreamName(q.partition), workConsumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: provision the deployment first", err)
	}
	if err != nil {
		return nil, err
	}
	have, want := c.CachedInfo().Config, workConfig(q.partition, 0)
	for _, d := range []deviation{
		is("ack policy", have.AckPolicy, want.AckPolicy, "a hint stays until it is acknowledged"),
		is("max deliver", have.MaxDeliver, want.MaxDeliver, "a hint is given out until it is acknowledged"),
		is("max ack pending", have.MaxAckPending, want.MaxAckPending, "delayed hints would hold up all others"),
	} {
		if d.differs {
			return nil, fmt.Errorf("consumer %s of stream %s has %s %v, it must be %v: %s; provision the deployment again: %w",
				workConsumer, StreamName(q.partition), d.setting, d.have, d.want, d.why, ErrSetting)
		}
	}
	q.consumer = c
	return c, nil
}

// Hint is one delivery. Session is the session it speaks of: for a genesis the
// one that was born.
type Hint struct {
	// Address is where the record stands.
	Address session.Address
	// Session is the session that may have something to do.
	Session session.ID
	// StreamSeq is the record's place.
	StreamSeq uint64
	// Deliveries counts how often the hint was given out, this time included.
	Deliveries uint64

	msg     jetstream.Msg
	timeout time.Duration
}

// Next waits for a hint. It takes one at a time: a hint in a buffer would lose
// its lease unseen.
func (q *Queue) Next(ctx context.Context) (*Hint, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		h, err := q.take(ctx)
		if d, ok := ctx.Deadline(); ok && time.Now().After(d) {
			<-ctx.Done() // the library looks at the clock, not at the context
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
			return nil, fmt.Errorf("take work of partition %d: %w", q.partition, err)
		}
		if h != nil {
			return h, nil
		}
	}
}

// take asks for one hint. It returns none when there is none for a while.
func (q *Queue) take(ctx context.Context) (*Hint, error) {
	silence := q.log.cfg.Silence
	ctx, cancel := context.WithTimeout(ctx, max(pull, 3*silence))
	defer cancel()
	consumer, err := q.open(ctx)
	if err != nil {
		return nil, err
	}
	q.watch(ctx, consumer)
	opts := []jetstream.FetchOpt{jetstream.FetchContext(ctx)}
	if d, ok := ctx.Deadline(); ok && time.Until(d) > 2*silence {
		opts = append(opts, jetstream.FetchHeartbeat(silence/2)) // missed after two
	}
	msg, err := consumer.Next(opts...)
	if errors.Is(err, jetstream.ErrNoHeartbeat) {
		q.anew(silence, err)
		return nil, nil //nolint:nilnil // asked anew
	}
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil //nolint:nilnil // no hint, and nothing wrong
	}
	if err != nil {
		return nil, err
	}
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	a, ok := place(msg.Subject())
	if !ok || !a.Class.Valid() {
		return nil, msg.Term() // stands in no log
	}
	return &Hint{
		Address: a, Session: a.Session, StreamSeq: meta.Sequence.Stream, Deliveries: meta.NumDelivered,
		msg: msg, timeout: q.log.cfg.Timeout,
	}, nil
}

// watch asks, once in a while, whether there are hints that nobody is handed: the
// consumer's server may have lost touch with the stream, and a library its count of
// what it asked for. Hints that wait are on their way; when none was handed out
// until the next look, they are not.
func (q *Queue) watch(ctx context.Context, consumer jetstream.Consumer) {
	q.mu.Lock()
	now := time.Now()
	look := now.After(q.due)
	if look {
		q.due = now.Add(q.log.cfg.Silence)
	}
	q.mu.Unlock()
	if !look {
		return
	}
	handed, owes, err := q.owes(ctx, consumer)
	if err != nil {
		if ctx.Err() == nil {
			q.log.cfg.Logger.Warn("work queue does not answer", slog.Int("partition", q.partition), slog.Any("error", err))
		}
		return
	}
	q.mu.Lock()
	since := q.owing
	stalled := owes && !since.IsZero() && handed == q.handed
	if q.handed = handed; !owes {
		q.owing = time.Time{}
	} else if !stalled {
		q.owing = now
	}
	q.mu.Unlock()
	if stalled {
		q.anew(time.Since(since), errOwes)
	}
}

// owes compares the consumer with the stream's leader: the last hint handed out
// with the last one there. Handed counts every delivery, those of one hint too.
func (q *Queue) owes(ctx context.Context, consumer jetstream.Consumer) (handed uint64, owes bool, err error) {
	info, err := consumer.Info(ctx)
	if err != nil {
		return 0, false, err
	}
	for _, filter := range workFilters(q.partition) {
		m, err := q.log.lookAt(ctx, q.partition, getRequest{LastFor: filter})
		if err != nil && !errors.Is(err, session.ErrNotFound) {
			return 0, false, err
		}
		owes = owes || m.seq > info.Delivered.Stream
	}
	return info.Delivered.Consumer, owes, nil
}

// anew has the next pull bind to the consumer again.
func (q *Queue) anew(silent time.Duration, why error) {
	q.log.cfg.Logger.Warn("work queue fell silent, asking it anew", slog.Int("partition", q.partition),
		slog.Duration("silent", silent), slog.Any("error", why))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.consumer = nil
}

// Record is the record that the hint is about. Whether it is one of its session's
// log is for the session's chain to say.
func (h *Hint) Record() session.Raw {
	return message{subject: h.msg.Subject(), seq: h.StreamSeq, header: h.msg.Headers(), data: h.msg.Data()}.any()
}

// Ack takes the hint out of the queue and returns when the server has said so.
// It is right only on a stable fact. If it fails the hint may come again.
func (h *Hint) Ack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	if err := h.msg.DoubleAck(ctx); err != nil {
		return fmt.Errorf("acknowledge the hint of %s at %d: %w", h.Session, h.StreamSeq, err)
	}
	return nil
}

// Later puts the hint back for a while.
func (h *Hint) Later(delay time.Duration) error {
	if err := h.msg.NakWithDelay(delay); err != nil {
		return fmt.Errorf("put back the hint of %s at %d: %w", h.Session, h.StreamSeq, err)
	}
	return nil
}

// Working renews the hint's lease.
func (h *Hint) Working() error {
	if err := h.msg.InProgress(); err != nil {
		return fmt.Errorf("renew the hint of %s at %d: %w", h.Session, h.StreamSeq, err)
	}
	return nil
}
