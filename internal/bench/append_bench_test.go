package bench

import (
	"fmt"
	"testing"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// BenchmarkAppend is the two sides of the figure of appends, for profiles.
func BenchmarkAppend(b *testing.B) {
	const writers = 64
	g, log := openFor(b)
	books, raws := make([]*book, writers), make([]*rawBook, writers)
	for w := range writers {
		var err error
		if books[w], err = newBook(b.Context(), log, 0); err != nil {
			b.Fatal(err)
		}
		done, err := log.Append(b.Context(), books[w], books[w].id(), stream.Change{Name: "nudge", Class: session.ClassInbox, Drafts: drafts(nudge(1))})
		if err != nil {
			b.Fatal(err)
		}
		books[w].took(done)
		if raws[w], err = books[w].repeating(done.Record); err != nil {
			b.Fatal(err)
		}
	}
	for name, do := range map[string]func(w int) error{
		"raw":  func(w int) error { return raws[w].publish(b.Context(), g.conn) },
		"ours": func(w int) error { return books[w].nudges(b.Context(), 1) },
	} {
		b.Run(fmt.Sprintf("%s/writers=%d", name, writers), func(b *testing.B) {
			for w := range writers {
				raws[w].tail, raws[w].next = books[w].view.Tail, 0
			}
			b.ReportAllocs()
			b.ResetTimer()
			if _, err := spread(writers, b.N, do); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			for w := range writers { // go on behind what the raw side wrote
				if raws[w].next > 0 {
					books[w].view.Tail = raws[w].tail
				}
			}
		})
	}
}
