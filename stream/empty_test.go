package stream_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// The rule of tail 0 (ARCHITECTURE 2): a read and a mirror must both find nothing.
func TestTailZeroNeedsAWitness(t *testing.T) {
	t.Parallel()
	notEmpty := errors.New("I hold records of it")
	tests := map[string]struct {
		witness stream.Witness
		want    error
	}{
		"none":           {nil, stream.ErrNoWitness},
		"says otherwise": {witness(func(session.ID, uint64) error { return notEmpty }), notEmpty},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l, v := w.log(t, func(c *stream.Config) { c.Witness = tt.witness })
			id := rootID(t, 1)
			if _, err := l.Append(t.Context(), v, id, genesisChange(id)); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if n := len(records(t, l, id)); n != 0 {
				t.Errorf("%d records, want none", n)
			}
		})
	}
}

func TestWitnessOfANewRootIsPastTheStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, v := w.log(t)
	other := begin(t, first, v, 1)
	for _, n := range []string{"a", "b"} {
		if _, err := first.Append(t.Context(), v, other, nudge(n)); err != nil {
			t.Fatal(err)
		}
	}
	var asked []uint64
	l, v := w.log(t, func(c *stream.Config) {
		c.Witness = witness(func(_ session.ID, past uint64) error { asked = append(asked, past); return nil })
	})
	begin(t, l, v, 2)
	if len(asked) != 1 || asked[0] != 3 {
		t.Errorf("the witness was asked for %v, want once, past 3", asked)
	}
}

// blind is a view that takes a session's space for empty, as one read from a
// damaged leader would.
type blind struct{ stream.Viewer }

func (b blind) View(ctx context.Context, id session.ID, least uint64) (session.View, error) {
	v, err := b.Viewer.View(ctx, id, least)
	if least == 0 {
		v.Tail = 0
	}
	return v, err
}

func TestTailZeroIsNotBelievedWhenAReadFindsSomething(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, v := w.log(t)
	id := begin(t, first, v, 1)
	l, v2 := w.log(t)
	c := nudge("a")
	c.Once = true
	var conflict *session.ConflictError
	if _, err := l.Append(t.Context(), blind{v2}, id, c); !errors.As(err, &conflict) || conflict.Want != 0 || conflict.Tail != 1 {
		t.Errorf("got %v, want the conflict of 0 with 1", err)
	}
}

// A worker's key can plant a turn record in any space. It is void, but it moves
// the tail, and a root is created behind it.
func TestRootIsCreatedBehindPlantedRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := rootID(t, 1)
	plant(t, w, stream.Subject(session.Address{Session: id, Class: session.ClassTurn}), nil, "")
	done, err := l.Append(t.Context(), v, id, genesisChange(id))
	if err != nil || done.StreamSeq != 2 {
		t.Fatalf("got %d, %v, want the genesis at 2", done.StreamSeq, err)
	}
	if _, err := l.Append(t.Context(), v, id, nudge("a")); err != nil {
		t.Error(err)
	}
}

// plant stores a message past the package.
func plant(t testing.TB, w world, subject string, header nats.Header, body string) uint64 {
	t.Helper()
	ack, err := w.js(t).PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: header, Data: []byte(body)})
	if err != nil {
		t.Fatalf("plant on %s: %v", subject, err)
	}
	return ack.Sequence
}
