package stream

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// headerOperation marks the removal of a key, as JetStream's buckets do.
const headerOperation = "KV-Operation"

// Liveness holds one value of each live worker. A value that is not renewed
// expires. A worker writes its own; what it says is the caller's business.
type Liveness struct{ log *Log }

// Liveness returns the liveness bucket. It asks the server nothing.
func (l *Log) Liveness() Liveness { return Liveness{log: l} }

// Put sets a worker's value and returns when the server has it. It is tried once:
// a renewal that is not acknowledged does not count.
func (v Liveness) Put(ctx context.Context, worker string, value []byte) error {
	m := nats.NewMsg(bucketKey(liveBucket, worker))
	m.Data = value
	if a := v.log.try(ctx, m); a.outcome != stored {
		return fmt.Errorf("renew the liveness of %s: %w", worker, a.err)
	}
	return nil
}

// Delete takes a worker's value away before it expires.
func (v Liveness) Delete(ctx context.Context, worker string) error {
	m := nats.NewMsg(bucketKey(liveBucket, worker))
	m.Header[headerOperation] = []string{"DEL"}
	if a := v.log.try(ctx, m); a.outcome != stored {
		return fmt.Errorf("end the liveness of %s: %w", worker, a.err)
	}
	return nil
}

// All returns the value of every live worker.
func (v Liveness) All(ctx context.Context) (map[string][]byte, error) {
	listed, err := v.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(listed))
	for worker, s := range listed {
		out[worker] = s.Value
	}
	return out, nil
}

// List returns the value of every live worker, and when the server had it.
func (v Liveness) List(ctx context.Context) (map[string]Setting, error) {
	out := make(map[string]Setting)
	prefix := bucketKey(liveBucket, "")
	err := v.log.pages(ctx, bucketStream(liveBucket), bucketKey(liveBucket, ">"), func(m message) error {
		worker := strings.TrimPrefix(m.subject, prefix)
		if delete(out, worker); len(m.header[headerOperation]) == 0 {
			out[worker] = Setting{Value: m.data, Revision: m.seq, Time: m.time}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list live workers: %w", err)
	}
	return out, nil
}

// Watch calls fn with the values of all live workers each time it has read them, and
// with when it began to, which is each [Config.Poll], until ctx ends or fn fails. It polls because a value
// expires without a word; a look that fails is left out.
func (v Liveness) Watch(ctx context.Context, fn func(began time.Time, listed map[string]Setting) error) error {
	return v.log.poll(ctx, func(ctx context.Context) error {
		began := time.Now()
		listed, err := v.List(ctx)
		if err != nil {
			return nil //nolint:nilerr // looked at again
		}
		return fn(began, listed)
	})
}
