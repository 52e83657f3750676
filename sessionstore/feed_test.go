package sessionstore_test

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/entail-fleet/entail/session"
)

// feed is a stream in a slice: the other side of the interface, with the faults
// that a stream can have. Record n stands at index n-1.
type feed struct {
	mu          sync.Mutex // guards what follows
	incarnation string
	first       uint64
	raws        []session.Raw
	gone        bool  // there is no stream
	err         error // it cannot be reached
	infos       int
	changed     chan struct{} // closed and replaced at each change
	reset       chan struct{} // closed and replaced to end a consumer
}

func newFeed(raws []session.Raw) *feed {
	return &feed{
		incarnation: incarnation, raws: slices.Clone(raws), first: 1,
		changed: make(chan struct{}), reset: make(chan struct{}),
	}
}

// change edits the stream and wakes who follows it.
func (f *feed) change(edit func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	edit()
	close(f.changed)
	f.changed = make(chan struct{})
}

// restart edits the stream and makes its consumer anew.
func (f *feed) restart(edit func()) {
	f.change(func() {
		edit()
		close(f.reset)
		f.reset = make(chan struct{})
	})
}

// looked returns a channel that is closed at the next change, and how often Info
// was asked.
func (f *feed) looked() (n int, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.infos, f.changed
}

func (f *feed) Info(context.Context, int) (string, uint64, uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.infos++
	switch {
	case f.err != nil:
		return "", 0, 0, f.err
	case f.gone:
		return "", 0, 0, session.ErrNotFound
	}
	return f.incarnation, f.first, uint64(len(f.raws)), nil
}

func (f *feed) At(_ context.Context, _ int, seq uint64) (session.Raw, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return session.Raw{}, f.err
	}
	if seq < 1 || seq > uint64(len(f.raws)) || f.raws[seq-1].StreamSeq != seq {
		return session.Raw{}, session.ErrNotFound
	}
	return f.raws[seq-1], nil
}

func (f *feed) Follow(ctx context.Context, _ int, after uint64, fn func([]session.Raw) error) error {
	f.mu.Lock()
	reset := f.reset
	f.mu.Unlock()
	for {
		f.mu.Lock()
		var fresh []session.Raw
		for _, raw := range f.raws {
			if raw.StreamSeq > after {
				fresh = append(fresh, raw)
			}
		}
		changed, err := f.changed, f.err
		f.mu.Unlock()
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(fresh, 3) {
			if err := fn(chunk); err != nil {
				return err
			}
			after = chunk[len(chunk)-1].StreamSeq
		}
		select {
		case <-changed:
		case <-reset:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

var errDown = errors.New("no responders")
