package agent

import (
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
