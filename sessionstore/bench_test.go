package sessionstore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

// BenchmarkApply mirrors batches of 512 records of 32 sessions that run turns.
// One operation is one record.
func BenchmarkApply(b *testing.B) {
	const size = 512
	tp := newTape(b)
	for range 32 {
		tp.root()
	}
	for len(tp.raws) < max(b.N, size) {
		for _, id := range tp.ids {
			tp.turn2(id)
		}
	}
	raws := tp.raws[:b.N]
	var bytes int64
	for _, raw := range raws {
		bytes += int64(len(raw.Body))
	}
	s := open(b, sessionstore.Config{})
	b.SetBytes(bytes / int64(b.N))
	b.ResetTimer()
	for chunk := range slices.Chunk(raws, size) {
		apply(b, s, chunk)
	}
	sessionstore.Sync(b, s)
}

// BenchmarkForkPrefix finds what a fork inherits, at the end of the last turn and
// at the last event. It must cost the same for every length of the log.
func BenchmarkForkPrefix(b *testing.B) {
	for _, length := range []session.Seq{10, 1_000, 100_000} {
		tp := newTape(b)
		id := tp.root()
		tp.turn(id)
		for tp.states[id].Next < length {
			tp.turn2(id)
		}
		tp.add(id, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: person()})
		s := open(b, sessionstore.Config{})
		for chunk := range slices.Chunk(tp.raws, 512) {
			apply(b, s, chunk)
		}
		st := tp.states[id]
		for name, cut := range map[string]session.Seq{"turn": st.Cut.Count, "event": st.Next} {
			b.Run(fmt.Sprintf("%s/%d", name, length), func(b *testing.B) {
				for b.Loop() {
					if _, err := s.Prefix(id, cut); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkView views a session that was written lately.
func BenchmarkView(b *testing.B) {
	tp := newTape(b)
	id := tp.root()
	tp.turn(id)
	s := open(b, sessionstore.Config{})
	apply(b, s, tp.raws)
	for b.Loop() {
		if _, err := s.View(b.Context(), id, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApplyDelegations mirrors geneses of children in small batches, as a
// mirror that keeps up meets them. One operation is one record.
func BenchmarkApplyDelegations(b *testing.B) {
	const size, children = 4, 8
	tp := newTape(b)
	for len(tp.raws) < b.N {
		root := tp.root()
		for range children {
			tp.delegate(root, session.Spawn)
		}
	}
	raws := tp.raws[:b.N]
	s := open(b, sessionstore.Config{})
	b.ReportAllocs()
	b.ResetTimer()
	for chunk := range slices.Chunk(raws, size) {
		apply(b, s, chunk)
	}
	sessionstore.Sync(b, s)
}
