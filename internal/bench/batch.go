package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/stream"
)

// batches compares a delegation as the one record that it is with the same bytes as
// an atomic batch of two messages, the parent's section and the child's: the other
// design of ADR 1. It is a report, no target.
func batches(where string, loads ...load) onGround {
	return func(ctx context.Context, g *ground, s scale, tell func(Figure)) error {
		log, err := g.log()
		if err != nil {
			return err
		}
		if err := g.allowBatches(ctx); err != nil {
			return err
		}
		for _, at := range loads {
			f, err := compare(fmt.Sprintf("delegation as one record, against an atomic batch, %d callers%s", at.writers, where), 0, s.of(at.n),
				shelved(ctx, log, at.writers, newRawShelf, func(s *rawShelf) error { return s.following().publishBatch(ctx, g.conn) }),
				shelved(ctx, log, at.writers, newRawShelf, func(s *rawShelf) error { return s.following().publish(ctx, g.conn) }))
			if err != nil {
				return err
			}
			tell(f)
		}
		return nil
	}
}

// allowBatches sets what no stream of a deployment may have.
func (g *ground) allowBatches(ctx context.Context) error {
	nc, err := g.connect(broker.Provisioner, string(broker.Provisioner))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	have, err := js.Stream(ctx, stream.StreamName(0))
	if err != nil {
		return err
	}
	cfg := have.CachedInfo().Config
	cfg.AllowAtomicPublish = true
	_, err = js.UpdateStream(ctx, cfg)
	return err
}

// publishBatch publishes the next record as two messages that stand or fall
// together: the parent's section under its own subject, and the rest. Both carry the
// compare-and-set, without which a replicated stream can be passed in mid-batch.
func (b *rawBook) publishBatch(ctx context.Context, conn *nats.Conn) error {
	r := b.records[b.next%len(b.records)]
	first, rest := split(r)
	return b.untilTaken(ctx, func() (rawAck, error) {
		id := ulid.Make().String() // a batch that was refused is over: its id is not good again
		opening, closing := b.message(b.own, r.header, first), b.message(r.subject, r.header, rest)
		for i, m := range []*nats.Msg{opening, closing} {
			m.Header["Nats-Batch-Id"] = []string{id}
			m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		}
		closing.Header["Nats-Batch-Commit"] = []string{"1"}
		if err := conn.PublishMsg(opening); err != nil {
			return rawAck{}, err
		}
		ack, err := ask(conn, closing)
		if err == nil && ack.Error == nil && ack.Count != 2 {
			err = fmt.Errorf("raw batch: %d messages were stored, want 2", ack.Count)
		}
		return ack, err
	})
}

// split cuts a child's genesis behind the parent's section, which is one event.
func split(r rawRecord) (parents, childs []byte) {
	at := bytes.IndexByte(r.body, '\n') + 1
	return r.body[:at], r.body[at:]
}
