package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// holes holds a partition's stream to having all that it says it has. Nothing is
// ever deleted from it, so a hole, or an end that cannot be read, is a loss: a
// server that has found a damaged block passes over what stood there and says no
// more than that.
func (f feed) holes(ctx context.Context, partition int, i stream.Info) error {
	switch {
	case !seesHoles || i.LastSeq == 0:
		return nil
	case i.Deleted > 0:
		return fmt.Errorf("%w: the stream ends at %d and %d before that are gone", session.ErrLoss, i.LastSeq, i.Deleted)
	}
	_, err := f.log.At(ctx, partition, i.LastSeq)
	if !errors.Is(err, session.ErrNotFound) {
		return err
	}
	// Two servers may have answered, of which one leads no more.
	again, err := f.log.Info(ctx, partition)
	if err == nil && again.LastSeq < i.LastSeq {
		err = fmt.Errorf("the stream ended at %d and now at %d", i.LastSeq, again.LastSeq)
	}
	if err != nil {
		return err
	}
	if _, err = f.log.At(ctx, partition, i.LastSeq); errors.Is(err, session.ErrNotFound) {
		return fmt.Errorf("%w: the stream ends at %d and that one cannot be read", session.ErrLoss, again.LastSeq)
	}
	return err
}
