package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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
				func(n int) (time.Duration, error) {
					shelves, err := each(at.writers, func() (*rawShelf, error) { return newRawShelf(ctx, log, n) })
					if err != nil {
						return 0, err
					}
					return spreadIndexed(at.writers, n, func(c, i int) error {
						return shelves[c].following().publishBatch(g.conn, strconv.FormatInt(time.Now().UnixNano(), 36)+"-"+strconv.Itoa(i))
					})
				},
				func(n int) (time.Duration, error) {
					shelves, err := each(at.writers, func() (*rawShelf, error) { return newRawShelf(ctx, log, n) })
					if err != nil {
						return 0, err
					}
					return spread(at.writers, n, func(c int) error { return shelves[c].following().publish(g.conn) })
				})
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
func (b *rawBook) publishBatch(conn *nats.Conn, id string) error {
	r := b.records[b.next%len(b.records)]
	first, rest := split(r)
	for i, body := range [][]byte{first, rest} {
		m := &nats.Msg{Subject: r.subject, Data: body, Header: make(nats.Header, len(r.header)+5)}
		maps.Copy(m.Header, r.header)
		m.Header["Nats-Batch-Id"] = []string{id}
		m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{strconv.FormatUint(b.tail, 10)}
		m.Header["Nats-Expected-Last-Subject-Sequence-Subject"] = []string{b.filter}
		if i == 0 {
			m.Subject = b.own
			if err := conn.PublishMsg(m); err != nil {
				return err
			}
			continue
		}
		m.Header["Nats-Batch-Commit"] = []string{"1"}
		answer, err := conn.RequestMsg(m, 5*time.Second)
		if err != nil {
			return err
		}
		var ack struct {
			Seq   uint64          `json:"seq"`
			Count int             `json:"count"`
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(answer.Data, &ack); err != nil {
			return err
		}
		if ack.Error != nil || ack.Count != 2 {
			return fmt.Errorf("raw batch: %s", answer.Data)
		}
		b.tail = ack.Seq
	}
	b.next++
	return nil
}

// split cuts a child's genesis behind the parent's section, which is one event.
func split(r rawRecord) (parents, childs []byte) {
	at := bytes.IndexByte(r.body, '\n') + 1
	return r.body[:at], r.body[at:]
}
