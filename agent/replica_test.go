package agent_test

import (
	"strings"
	"testing"
	"time"
)

// A replicated stream is read from any copy, so what a worker has just appended
// may not be there yet.
func TestRefreshWaitsForACopyThatIsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.root("sessions: {root: [{text: done}]}")
	r := w.open(id)
	_, tail := r.State()
	refreshed := make(chan error, 1)
	go func() { refreshed <- r.Refresh(t.Context(), tail+1) }()
	select {
	case err := <-refreshed:
		t.Fatalf("Refresh() = %v before the record was there", err)
	case <-time.After(100 * time.Millisecond):
	}
	w.send(id, "more")
	if err := <-refreshed; err != nil {
		t.Errorf("Refresh() = %v", err)
	}
}

func TestRefreshGivesUpOnWhatNeverComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.open(w.root("sessions: {root: [{text: done}]}"))
	_, tail := r.State()
	if err := r.Refresh(t.Context(), tail+1); err == nil || !strings.Contains(err.Error(), "the read is stale") {
		t.Errorf("Refresh() = %v, want a stale read", err)
	}
}
