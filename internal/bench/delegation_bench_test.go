package bench

import (
	"testing"

	"github.com/entail-fleet/entail/session"
)

// BenchmarkDelegation is a delegation and its append, for profiles.
func BenchmarkDelegation(b *testing.B) {
	g, err := open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := g.close(); err != nil {
			b.Error(err)
		}
	}()
	log, err := g.log()
	if err != nil {
		b.Fatal(err)
	}
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
