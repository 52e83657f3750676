package sessionstore

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
)

// recordsAt makes n records that only their stream sequences tell apart.
func recordsAt(from, n uint64) []session.Decoded {
	out := make([]session.Decoded, n)
	for i := range out {
		out[i].Raw.StreamSeq = from + uint64(i)
	}
	return out
}

func TestIntakeAppliesAllInOrder(t *testing.T) {
	t.Parallel()
	const batches, size = 100, 300
	var got []uint64
	most := 0
	in := newIntake(func(records []session.Decoded) error {
		most = max(most, len(records))
		for _, d := range records {
			got = append(got, d.Raw.StreamSeq)
		}
		return nil
	})
	var want []uint64
	for i := range uint64(batches) {
		if err := in.take(recordsAt(i*size, size), i%7 == 6); err != nil {
			t.Fatal(err)
		}
		if i%7 == 6 && uint64(len(got)) != (i+1)*size { // it waited, so nothing runs
			t.Fatalf("take returned with %d records applied of %d", len(got), (i+1)*size)
		}
		for s := range uint64(size) {
			want = append(want, i*size+s)
		}
	}
	if err := in.close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-taken +applied):\n%s", diff)
	}
	if most >= mostAtOnce+size {
		t.Errorf("%d records were applied at once, the bound is %d and what was taken last", most, mostAtOnce)
	}
}

// What follows records that could not be applied would stand behind a gap.
func TestIntakeAppliesNothingAfterAFailure(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		full := errors.New("the disk is full")
		calls := 0
		in := newIntake(func([]session.Decoded) error { calls++; return full })
		var err error
		for i := uint64(0); err == nil; i++ {
			err = in.take(recordsAt(i, 1), wait)
		}
		if !errors.Is(err, full) {
			t.Errorf("take says %v", err)
		}
		if err := in.close(); !errors.Is(err, full) {
			t.Errorf("close says %v", err)
		}
		if calls != 1 {
			t.Errorf("records were applied %d times, once was enough to know", calls)
		}
	}
}

// What a feed gives again is not joined to what it was given before: the store passes
// over it only at the beginning of what it applies.
func TestIntakeJoinsOnlyWhatFollows(t *testing.T) {
	t.Parallel()
	var got [][]uint64
	begun, goOn := make(chan struct{}), make(chan struct{})
	in := newIntake(func(records []session.Decoded) error {
		if len(got) == 0 {
			close(begun)
			<-goOn
		}
		var seqs []uint64
		for _, d := range records {
			seqs = append(seqs, d.Raw.StreamSeq)
		}
		got = append(got, seqs)
		return nil
	})
	give := func(from, n uint64) {
		t.Helper()
		if err := in.take(recordsAt(from, n), false); err != nil {
			t.Fatal(err)
		}
	}
	give(1, 2)
	<-begun
	go close(goOn)
	for _, from := range []uint64{3, 5, 4, 6, 6, 8} { // 4 and the second 6 come again
		give(from, 2)
	}
	if err := in.close(); err != nil {
		t.Fatal(err)
	}
	for _, seqs := range got {
		for i := range seqs {
			if i > 0 && seqs[i] != seqs[i-1]+1 {
				t.Errorf("%v was applied as one", seqs)
			}
		}
	}
	if n := len(slices.Concat(got...)); n != 14 {
		t.Errorf("%d records were applied, want all 14", n)
	}
}
