package verify

import (
	"context"
	"fmt"

	"github.com/entail-fleet/entail/session"
)

// lineSource is an export without its records file: it knows events and the
// header, but not how they were written.
type lineSource interface {
	Source
	Lines(ctx context.Context, id session.ID) (header []byte, own [][]byte, err error)
}

// tree is the sessions of one root that were read so far. A parent is read
// before its children: a child's start is judged by its parent's log.
type tree struct {
	run  *run
	logs map[session.ID]*history
	open map[session.ID]bool // being read, against a circle of parents
	ids  []session.ID        // of logs, parents first
}

func newTree(r *run) *tree {
	return &tree{run: r, logs: map[session.ID]*history{}, open: map[session.ID]bool{}}
}

// visit reads a session, its parent first, and the children that its log names.
// It returns nil for an id that has no genesis.
func (t *tree) visit(ctx context.Context, id session.ID) (*history, error) {
	if h, ok := t.logs[id]; ok || t.open[id] {
		return h, nil
	}
	t.open[id] = true
	w, err := t.load(ctx, id)
	if err != nil {
		return nil, err
	}
	t.run.add(w.findings...)
	t.run.report.Notes = append(t.run.report.Notes, w.notes...)
	if w.h.header.ID == "" {
		t.run.report.Records += w.h.records
		t.run.report.Void += w.h.voids
		return nil, nil
	}
	t.logs[id] = w.h
	t.ids = append(t.ids, id)
	t.run.checkBirth(w.h)
	t.run.done(w.h)
	for _, d := range w.h.delegations {
		h, err := t.visit(ctx, d.child)
		if err != nil {
			return nil, err
		}
		if h == nil {
			t.run.add(Finding{"I3", "4.4", id, d.seq, d.streamSeq, fmt.Sprintf("call %s was allowed and its child %s has no log", d.call(), d.child)})
		}
	}
	return w.h, nil
}

func (d delegation) call() session.CallID { return d.decision.CallID }

// load reads one session to its end.
func (t *tree) load(ctx context.Context, id session.ID) (*walker, error) {
	w := &walker{h: &history{id: id}, table: t.run.table}
	if src, ok := t.run.src.(lineSource); ok {
		return w, t.loadLines(ctx, src, w)
	}
	var raws []session.Raw
	err := t.run.src.Records(ctx, id, func(raw session.Raw) error {
		raws = append(raws, raw)
		return ctx.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	genesis := -1
	for i, raw := range raws {
		if genesis < 0 && isGenesis(raw, id) {
			genesis = i
		}
		if raw.Address.Space() == id {
			w.h.records++ // a child's genesis is counted with its parent's
		}
	}
	if genesis < 0 {
		w.unborn(raws)
		return w, nil
	}
	if err := t.begin(ctx, w, raws[genesis]); err != nil || w.h.header.ID == "" {
		return w, err
	}
	for i, raw := range raws {
		if i != genesis {
			w.record(raw)
		}
		raws[i] = session.Raw{} // one session's bodies at a time is enough
	}
	w.end()
	return w, nil
}

// begin reads the genesis, after the parent it builds on.
func (t *tree) begin(ctx context.Context, w *walker, genesis session.Raw) error {
	r, err := session.DecodeRecord(genesis)
	if err == nil {
		err = r.BirthErr
	}
	if err != nil {
		w.h.stopped = true
		w.halt(genesis, genesisFault(genesis, err))
		return nil
	}
	if p := r.Birth.Header.ParentSession; p != "" {
		if w.h.parent, err = t.visit(ctx, p); err != nil {
			return err
		}
	}
	w.begin(genesis, r)
	return nil
}

// loadLines follows an export that has no records: no link, no class, no
// stream sequence.
func (t *tree) loadLines(ctx context.Context, src lineSource, w *walker) error {
	line, own, err := src.Lines(ctx, w.h.id)
	if err != nil || line == nil {
		return err
	}
	h, err := session.DecodeHeader(line)
	if err != nil {
		return err
	}
	if p := h.ParentSession; p != "" {
		if w.h.parent, err = t.visit(ctx, p); err != nil {
			return err
		}
	}
	events := make([]session.Event, 0, len(own))
	for _, l := range own {
		e, err := session.DecodeEvent(l)
		if err != nil {
			return err
		}
		if next := h.FirstLiveSeq + session.Seq(len(events)); e.Seq != next {
			return fmt.Errorf("an event says seq %d where %d comes next", e.Seq, next)
		}
		events = append(events, e)
	}
	w.lines(h, events)
	return nil
}

func isGenesis(raw session.Raw, id session.ID) bool {
	return raw.Address.Class == session.ClassGenesis && raw.Address.Session == id
}
