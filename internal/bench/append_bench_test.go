package bench

import (
	"fmt"
	"testing"
)

// BenchmarkAppend is the two sides of the figure of appends, for profiles.
func BenchmarkAppend(b *testing.B) {
	const writers = 64
	g, log := openFor(b)
	books, raws := make([]*book, writers), make([]*rawBook, writers)
	for w := range writers {
		var err error
		if books[w], raws[w], err = appenders(b.Context(), log); err != nil {
			b.Fatal(err)
		}
	}
	for name, do := range map[string]func(w int) error{
		"raw":  func(w int) error { return raws[w].publish(b.Context(), g.conn) },
		"ours": func(w int) error { return books[w].nudges(b.Context(), 1) },
	} {
		b.Run(fmt.Sprintf("%s/writers=%d", name, writers), func(b *testing.B) {
			b.ReportAllocs()
			b.ResetTimer()
			if _, err := spread(writers, b.N, do); err != nil {
				b.Fatal(err)
			}
		})
	}
}
