package bench

import (
	"testing"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// openFor opens a deployment to measure on, and the one append over it, until the
// test ends.
func openFor(b testing.TB) (*ground, *stream.Log) {
	b.Helper()
	g, err := open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := g.close(); err != nil {
			b.Error(err)
		}
	})
	log, err := g.log()
	if err != nil {
		b.Fatal(err)
	}
	return g, log
}

// BenchmarkDelegation is a delegation and its append, for profiles.
func BenchmarkDelegation(b *testing.B) {
	_, log := openFor(b)
	s, err := newShelf(b.Context(), log, b.N)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := s.next().delegate(b.Context(), session.Spawn); err != nil {
			b.Fatal(err)
		}
	}
}
