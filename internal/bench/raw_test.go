package bench

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/internal/delay"
)

// TestARefusedPublishIsSentAgain gives a raw book a tail that its session has only
// after the server has refused it once. Its parts share a stream and guess its next
// sequence, so they run one after the other.
func TestARefusedPublishIsSentAgain(t *testing.T) {
	g, log := openFor(t)
	if err := g.allowBatches(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, publish := range map[string]func(*rawBook) error{
		"publish": func(b *rawBook) error { return b.publish(t.Context(), g.conn) },
		"batch":   func(b *rawBook) error { return b.publishBatch(t.Context(), g.conn) },
	} {
		t.Run(name, func(t *testing.T) {
			b, err := newBook(t.Context(), log, callsPerBook)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := b.delegating()
			if err != nil {
				t.Fatal(err)
			}
			info, err := log.Info(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			raw.tail = info.LastSeq + 1
			ended := make(chan error, 1)
			before := g.conn.Stats().InMsgs
			go func() { ended <- publish(raw) }()
			for g.conn.Stats().InMsgs == before {
				if !delay.For(t.Context(), time.Millisecond) {
					t.Fatal("the publish was not answered")
				}
			}
			if err := b.nudges(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil || raw.next != 1 || raw.tail <= b.view.Tail {
				t.Errorf("it ended with %v, %d records and tail %d, want one record behind %d", err, raw.next, raw.tail, b.view.Tail)
			}
		})
	}
}

// TestAnotherRefusalIsNotSentAgain: only a refusal of the expected tail passes.
func TestAnotherRefusalIsNotSentAgain(t *testing.T) {
	t.Parallel()
	tries := 0
	full := &jetstream.APIError{Code: 400, ErrorCode: 10077, Description: "maximum messages exceeded"}
	err := new(rawBook).untilTaken(t.Context(), func() (rawAck, error) { tries++; return rawAck{Error: full}, nil })
	if !errors.Is(err, full) || tries != 1 {
		t.Errorf("untilTaken = %v after %d tries, want the refusal after one", err, tries)
	}
}
