package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
)

// Info is the state of one partition's stream.
type Info struct {
	// Incarnation tells one stream from another of the same name: the time it
	// was created, as RFC 3339 with nanoseconds.
	Incarnation string
	FirstSeq    uint64
	LastSeq     uint64
	// Deleted counts the sequences between first and last that hold nothing.
	Deleted  int
	Bytes    uint64
	MaxBytes uint64
}

// Info asks the leader for the state of a partition's stream. One that is gone is
// [session.ErrNotFound].
func (l *Log) Info(ctx context.Context, partition int) (Info, error) {
	i, err := l.info(ctx, partition)
	if err != nil {
		return Info{}, err
	}
	return Info{
		Incarnation: i.Created.UTC().Format(time.RFC3339Nano),
		FirstSeq:    i.State.FirstSeq,
		LastSeq:     i.State.LastSeq,
		Deleted:     i.State.NumDeleted,
		Bytes:       i.State.Bytes,
		MaxBytes:    uint64(max(i.Config.MaxBytes, 0)),
	}, nil
}

func (l *Log) info(ctx context.Context, partition int, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	var i *jetstream.StreamInfo
	err := l.persist(ctx, func(ctx context.Context) error {
		s, err := l.js.Stream(ctx, StreamName(partition))
		switch {
		case err != nil:
		case len(opts) == 0:
			i = s.CachedInfo() // of the request just made
		default:
			i, err = s.Info(ctx, opts...)
		}
		return unanswered(err)
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("%w: %w", session.ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ask for stream %s: %w", StreamName(partition), err)
	}
	return i, nil
}
