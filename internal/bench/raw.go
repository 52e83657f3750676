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
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// rawRecord is a record of ours, ready to be published.
type rawRecord struct {
	subject string
	header  nats.Header
	body    []byte
}

func newRawRecord(r session.Record) (rawRecord, error) {
	headers, body, err := session.EncodeRecord(r)
	if err != nil {
		return rawRecord{}, err
	}
	h := nats.Header{}
	for k, v := range headers {
		h[k] = []string{v}
	}
	return rawRecord{stream.Subject(r.Address), h, body}, nil
}

// rawBook is what the raw side publishes for one session: records of ours, one
// after the other and then from the first on again, each with the compare-and-set
// on the tail that the last one made.
type rawBook struct {
	filter  string
	own     string // subject of the session's turn records
	records []rawRecord
	next    int
	tail    uint64
}

// repeating publishes one record over and over.
func (b *book) repeating(r session.Record) (*rawBook, error) {
	raw, err := newRawRecord(r)
	return &rawBook{filter: stream.TailFilter(b.id()), records: []rawRecord{raw}, tail: b.view.Tail}, err
}

// delegating publishes the geneses that the calls of the open step would write.
func (b *book) delegating() (*rawBook, error) {
	r := &rawBook{
		filter: stream.TailFilter(b.id()), tail: b.view.Tail,
		own: stream.Subject(session.Address{Session: b.id(), Class: session.ClassTurn}),
	}
	for range callsPerBook {
		o, err := b.order(session.Spawn)
		if err != nil {
			return nil, err
		}
		record, err := o.Child(b.view, deployed())
		if err != nil {
			return nil, err
		}
		record.Writer = session.Writer{Component: "bench", Instance: "b", Incarnation: "1"}
		if b.view.State, err = session.FoldSection(b.view.State, *record.Own); err != nil {
			return nil, err
		}
		raw, err := newRawRecord(record)
		if err != nil {
			return nil, err
		}
		r.records = append(r.records, raw)
	}
	return r, nil
}

// rawShelf is raw books enough for one caller's delegations.
type rawShelf struct{ books []*rawBook }

func newRawShelf(ctx context.Context, log *stream.Log, delegations int) (*rawShelf, error) {
	s, err := newShelf(ctx, log, delegations)
	if err != nil {
		return nil, err
	}
	var r rawShelf
	for _, b := range s.books {
		raw, err := b.delegating()
		if err != nil {
			return nil, err
		}
		r.books = append(r.books, raw)
	}
	return &r, nil
}

// following is a raw book that is not used up.
func (s *rawShelf) following() *rawBook {
	if s.books[0].next == callsPerBook {
		s.books = s.books[1:]
	}
	return s.books[0]
}

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
