package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/internal/delay"
)

// publish publishes the next record.
func (b *rawBook) publish(ctx context.Context, conn *nats.Conn) error {
	r := b.records[b.next%len(b.records)]
	m := b.message(r.subject, r.header, r.body)
	return b.untilTaken(ctx, func() (rawAck, error) { return ask(conn, m) })
}

// message is a message with the compare-and-set on the book's tail.
func (b *rawBook) message(subject string, header nats.Header, body []byte) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: body, Header: make(nats.Header, len(header)+5)}
	maps.Copy(m.Header, header)
	m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{strconv.FormatUint(b.tail, 10)}
	m.Header["Nats-Expected-Last-Subject-Sequence-Subject"] = []string{b.filter}
	return m
}

// rawAck is the server's answer to a publish, or to the end of a batch.
type rawAck struct {
	Seq   uint64              `json:"seq"`
	Count int                 `json:"count"`
	Error *jetstream.APIError `json:"error"`
}

func ask(conn *nats.Conn, m *nats.Msg) (rawAck, error) {
	var ack rawAck
	answer, err := conn.RequestMsg(m, 5*time.Second)
	if err != nil {
		return ack, err
	}
	return ack, json.Unmarshal(answer.Data, &ack)
}

const (
	patience   = 5 * time.Second // how long a publish is sent again
	retryPause = time.Millisecond
)

// untilTaken publishes until the server takes it. A replicated leader may refuse an
// expected tail that is right: another publish with the filter counts as in flight,
// or its own copy is behind. A refusal means that nothing was stored, and a book has
// one writer, so it is sent again, as our append looks again.
func (b *rawBook) untilTaken(ctx context.Context, publish func() (rawAck, error)) error {
	for start := time.Now(); ; {
		ack, err := publish()
		switch {
		case err != nil:
			return err
		case ack.Error == nil:
			b.tail = ack.Seq
			b.next++
			return nil
		case !misplaced(ack.Error) || time.Since(start) > patience || !delay.For(ctx, retryPause):
			return fmt.Errorf("raw publish: %w", ack.Error)
		}
	}
}

// misplaced reports whether a publish was refused for its expected tail.
func misplaced(refusal *jetstream.APIError) bool {
	return refusal.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refusal.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}
