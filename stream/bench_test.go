package stream_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// benchReason makes an event of about 300 bytes.
const benchReason = "the sweep found it runnable, with no live claim and no progress for two leases; " +
	"it has an open turn, one unconsumed message and a notice of a child that ended, and the coordinator that found it is c1"

// driver is the view of a writer that folds its own appends, as a worker does.
type driver struct{ view session.View }

func (d *driver) View(context.Context, session.ID, uint64) (session.View, error) { return d.view, nil }

func (d *driver) took(done stream.Done) { d.view.State, d.view.Tail = *done.State, done.StreamSeq }

// BenchmarkAppend is the one append; each writer has a session.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			w := newWorld(b)
			l, v := w.log(b)
			drivers := make([]*driver, writers)
			for i := range drivers {
				view, err := v.View(b.Context(), begin(b, l, v, i), 0)
				if err != nil {
					b.Fatal(err)
				}
				drivers[i] = &driver{view}
			}
			spread(b, writers, func(i, n int) {
				d := drivers[i]
				done, err := l.Append(b.Context(), d, d.view.State.Header.ID, stream.Change{
					Name: "nudge", Class: session.ClassInbox, Drafts: drafts(&session.Nudge{ID: strconv.Itoa(n), Reason: benchReason, By: person}),
				})
				if err != nil {
					b.Error(err)
					return
				}
				d.took(done)
			})
		})
	}
}

// BenchmarkRawPublish publishes the same bytes with the same headers and nothing
// around it.
func BenchmarkRawPublish(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			w := newWorld(b)
			l, v := w.log(b)
			js := w.js(b)
			var sent []*nats.Msg
			l.Intercept(func(next stream.Publish) stream.Publish { return record(&sent, next) })
			ids := make([]session.ID, writers)
			tails := make([]uint64, writers)
			for i := range ids {
				ids[i] = begin(b, l, v, i)
				c := nudge("x")
				c.Drafts = drafts(&session.Nudge{ID: "x", Reason: benchReason, By: person})
				done, err := l.Append(b.Context(), v, ids[i], c)
				if err != nil {
					b.Fatal(err)
				}
				tails[i] = done.StreamSeq
			}
			like := sent[len(sent)-1]
			spread(b, writers, func(i, _ int) {
				m := &nats.Msg{
					Subject: stream.Subject(session.Address{Session: ids[i], Class: session.ClassInbox}),
					Data:    like.Data, Header: make(nats.Header, len(like.Header)),
				}
				maps.Copy(m.Header, like.Header)
				ack, err := js.PublishMsg(b.Context(), m, jetstream.WithExpectLastSequenceForSubject(tails[i], stream.TailFilter(ids[i])))
				if err != nil {
					b.Error(err)
					return
				}
				tails[i] = ack.Sequence
			})
		})
	}
}

// spread runs b.N operations on a number of writers.
func spread(b *testing.B, writers int, op func(writer, n int)) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for {
				n := left.Add(-1)
				if n < 0 {
					return
				}
				op(i, int(n))
			}
		})
	}
	wg.Wait()
}

// BenchmarkAppendUnsent is what an append costs beside the server: every publish
// is answered at once.
func BenchmarkAppendUnsent(b *testing.B) {
	w := newWorld(b)
	l, v := w.log(b)
	id := begin(b, l, v, 0)
	view, err := v.View(b.Context(), id, 0)
	if err != nil {
		b.Fatal(err)
	}
	d := &driver{view}
	seq := view.Tail
	l.Intercept(func(stream.Publish) stream.Publish {
		return func(context.Context, *nats.Msg) (*jetstream.PubAck, error) {
			seq++
			return &jetstream.PubAck{Sequence: seq}, nil
		}
	})
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		done, err := l.Append(b.Context(), d, id, stream.Change{
			Name: "nudge", Class: session.ClassInbox, Drafts: drafts(&session.Nudge{ID: strconv.Itoa(n), Reason: benchReason, By: person}),
		})
		if err != nil {
			b.Fatal(err)
		}
		d.took(done)
	}
}
