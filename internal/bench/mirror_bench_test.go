package bench

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkIngest is a mirror that reads a partition, for profiles; one operation
// is a record.
func BenchmarkIngest(b *testing.B) {
	g, log := openFor(b)
	if err := fill(b.Context(), log, 20_000); err != nil {
		b.Fatal(err)
	}
	info, err := log.Info(b.Context(), 0)
	if err != nil {
		b.Fatal(err)
	}
	dir := 0
	b.ReportAllocs()
	b.ResetTimer()
	for n := uint64(0); n < uint64(b.N); n += info.LastSeq {
		dir++
		if _, err := mirror(b.Context(), log, filepath.Join(g.dir, fmt.Sprint("mirror", dir)), info.LastSeq); err != nil {
			b.Fatal(err)
		}
	}
}
