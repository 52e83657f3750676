//go:build linux && (amd64 || arm64)

package files_test

import (
	"strings"
	"testing"

	"github.com/entail-fleet/entail/internal/wire"
)

// BenchmarkRead reads 4 KiB.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	write(b, dir+"/f", strings.Repeat("a line of sixty-four bytes, which is what a line may well have.\n", 64))
	s := open(b, wire.Bounds{Root: dir, Temp: dir})
	for b.Loop() {
		if p := do(s, reading("f")); len(p.Output) != 4<<10 {
			b.Fatalf("got %+v", p)
		}
	}
}
