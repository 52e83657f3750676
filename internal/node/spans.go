package node

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
	"github.com/entail-fleet/entail/telemetry"
)

// exportSpans sends the spans of every partition to an OTLP endpoint until ctx
// ends. Its cursor stands beside the mirror.
func exportSpans(ctx context.Context, cfg CoordinatorConfig, log *stream.Log, store *sessionstore.Store, logger *slog.Logger) error {
	x, err := telemetry.New(telemetry.Config{
		Endpoint: cfg.OTLP, Dir: filepath.Join(filepath.Dir(cfg.Store), "telemetry"), Logger: logger,
	}, spanLog{log: log, store: store})
	if err != nil {
		return err
	}
	var g errgroup.Group
	for p := range max(cfg.Partitions, 1) {
		g.Go(func() error {
			if err := x.Run(ctx, p); err != nil {
				logger.Error("the spans of a partition are not sent any more; restart the coordinator to go on behind the last one sent",
					slog.Int("partition", p), slog.Any("error", err))
			}
			return nil // telemetry stops nothing else
		})
	}
	return g.Wait()
}

// spanLog is what the exporter reads: records from the stream, logs from the
// mirror.
type spanLog struct {
	log   *stream.Log
	store *sessionstore.Store
}

// Follow implements telemetry.Log. A delivery that broke begins again behind what
// was taken.
func (l spanLog) Follow(ctx context.Context, partition int, after uint64, fn func([]session.Raw) error) error {
	for {
		err := l.log.Follow(ctx, partition, after, func(raws []session.Raw) error {
			if err := fn(raws); err != nil {
				return err
			}
			after = raws[len(raws)-1].StreamSeq
			return nil
		})
		if !errors.Is(err, stream.ErrReset) || !delay.For(ctx, watchInterval) {
			return err
		}
	}
}

// WaitFor implements telemetry.Log.
func (l spanLog) WaitFor(ctx context.Context, partition int, seq uint64) error {
	return l.store.WaitFor(ctx, partition, seq)
}

// Header implements telemetry.Log.
func (l spanLog) Header(id session.ID) (session.Header, error) {
	e, err := l.store.Session(id)
	return e.State.Header, err
}

// Events implements telemetry.Log.
func (l spanLog) Events(id session.ID, from, to session.Seq, fn func(session.Event) error) error {
	return l.store.Events(id, from, to, fn)
}
