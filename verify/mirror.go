package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// loadRows reads the mirror before the logs, so that what it holds must be a
// prefix of what is read later.
func (r *run) loadRows(ctx context.Context) error {
	if r.opt.Mirror == nil {
		return nil
	}
	r.rows = map[session.ID]Row{}
	err := r.opt.Mirror.Rows(ctx, func(row Row) error {
		if _, twice := r.rows[row.ID]; twice {
			r.add(Finding{"I9", "9", row.ID, row.Next, 0, "the mirror holds two rows of the session"})
		}
		r.rows[row.ID] = row
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("read mirror: %w", err)
	}
	return nil
}

// checkRow is I9 for one session: a prefix, all of it at rest, and a policy that
// equals a fold from zero.
func (r *run) checkRow(h *history) {
	if r.rows == nil {
		return
	}
	row, ok := r.rows[h.id]
	delete(r.rows, h.id)
	flag := func(format string, args ...any) {
		r.add(Finding{"I9", "9", h.id, row.Next, 0, fmt.Sprintf(format, args...)})
	}
	if !ok {
		if r.opt.AtRest {
			flag("the mirror does not hold the session")
		}
		return
	}
	if h.stopped {
		return // what it should hold is not known
	}
	link, held := h.linkAt(row.Next - 1)
	switch {
	case row.Next < h.header.FirstLiveSeq+session.Seq(len(h.first)):
		flag("the mirror holds %d events, less than the first batch", row.Next)
		return
	case !held:
		flag("the mirror holds %d events, the log has %d", row.Next, h.next())
		return
	case link != row.Link:
		flag("the mirror's link is not the log's after seq %d", row.Next-1)
	case r.opt.AtRest && row.Next != h.next():
		flag("the mirror holds %d of %d events at rest", row.Next, h.next())
	}
	k := h.knobsAt(row.Next)
	if want := (Row{h.id, row.Next, row.Link, k.sandbox.value, k.approval.value, k.preset.value}); row != want {
		flag("the mirror's policy is %q, %q, %q; the log's first %d events give %q, %q, %q",
			row.Sandbox, row.Approval, row.Preset, row.Next, want.Sandbox, want.Approval, want.Preset)
	}
}

// strayRows reports rows of sessions that no log brings into being.
func (r *run) strayRows() {
	for _, id := range slices.Sorted(maps.Keys(r.rows)) {
		r.add(Finding{"I9", "9", id, r.rows[id].Next, 0, "the mirror holds a session that has no log"})
	}
}
