package agent

import (
	"context"
	"slices"
	"time"

	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// Normal is normal, for tests.
func Normal(cwd, name, arguments string) string { return normal(cwd, name, arguments) }

// Digest is digest, for tests.
func Digest(arguments string) string { return digest(arguments) }

// Offered lists the tools that a model request offers, for tests.
func (f Facts) Offered() []model.Tool { return offered(f.State.Filter()) }

// Stable is what Replica.Stable asks about one event, for tests.
func (f Facts) Stable(seq session.Seq) bool {
	e, ok := f.at(seq)
	return ok && f.stable(e)
}

// Exactly is the change that a driver commits decisions with, for tests.
func Exactly(f Facts, record []session.Payload) stream.Change {
	d := &driver{id: f.State.Header.ID, epoch: f.State.Epoch}
	return d.exactly(f, "decide", d.epoch, record)
}

// Replicas are the sessions that a worker has in memory, for tests.
type Replicas struct{ *replicas }

// NewReplicas are those of a worker with a configuration and bounds of its own.
func NewReplicas(cfg Config, keep time.Duration, most, bytes int) Replicas {
	r := newReplicas(cfg.withDefaults())
	r.keep, r.most, r.bytes = keep, most, bytes
	return Replicas{r}
}

// Replicas are a worker's.
func (w *Worker) Replicas() Replicas { return Replicas{w.replicas} }

// Open is replicas.open.
func (s Replicas) Open(ctx context.Context, id session.ID) (*Replica, func(), error) {
	return s.open(ctx, id, "")
}

// Forget forgets what was used last before a time.
func (s Replicas) Forget(before time.Time) { s.forget(before) }

// Kept lists what is in memory, and about how many bytes it takes.
func (s Replicas) Kept() (ids []session.ID, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range s.all {
		ids = append(ids, id)
		if k.rep != nil {
			bytes += k.rep.bytes()
		}
	}
	slices.Sort(ids)
	return ids, bytes
}

// FewEvents is fewEvents.
const FewEvents = fewEvents

// DecodeArguments is how a tool reads a call's arguments, for tests.
func DecodeArguments(name, raw string) error {
	t, _ := toolOf(name)
	_, err := t.decode(raw)
	return err
}
