package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// Log is the invariant of findings that say that a session cannot be followed to
// its end (SPEC 1.4). It is always checked.
const Log = "log"

// Source gives the raw records of a deployment or of an export.
type Source interface {
	// Sessions lists every session that has a record.
	Sessions(ctx context.Context) ([]session.ID, error)
	// Records calls fn with the records of a session's own space in stream
	// order. The session's own genesis is among them; a child's stands in its
	// creator's space.
	Records(ctx context.Context, id session.ID, fn func(session.Raw) error) error
}

// Mirror gives the rows of a mirror.
type Mirror interface {
	Rows(ctx context.Context, fn func(Row) error) error
}

// Row is what a mirror holds of one session: how far it got and the policy it
// folded. An empty value is a knob that was never set.
type Row struct {
	ID       session.ID
	Next     session.Seq
	Link     session.Link
	Sandbox  session.SandboxMode
	Approval session.ApprovalPolicy
	Preset   session.Preset
}

// Bundle is one row of a preset table (SPEC 2.2).
type Bundle struct {
	Name     session.Preset
	Sandbox  session.SandboxMode
	Approval session.ApprovalPolicy
}

// Options say what to check against. The zero value checks a deployment with the
// shipped preset table and every capability, without a mirror.
type Options struct {
	// Progress is called after each session; nil for none.
	Progress func(Progress)
	// Mirror is what I9 is checked on; nil leaves I9 out.
	Mirror Mirror
	// AtRest says that nothing is written any more, so that a mirror must hold
	// everything.
	AtRest bool
	// Presets is the deployment's table; nil is the shipped one.
	Presets []Bundle
}

// Progress says how far a run is.
type Progress struct {
	Session  session.ID
	Sessions int // done
	Total    int // known so far
	Records  int
	Findings int
}

// Finding is one violation, or one note.
type Finding struct {
	Invariant string      `json:"invariant"`
	Clause    string      `json:"clause"`
	Session   session.ID  `json:"session"`
	Seq       session.Seq `json:"seq"`
	StreamSeq uint64      `json:"streamSeq"`
	Text      string      `json:"text"`
}

// String is the finding's one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s (SPEC %s): session %s, seq %d, stream sequence %d: %s",
		f.Invariant, f.Clause, f.Session, f.Seq, f.StreamSeq, f.Text)
}

// Report is what a run found. Two runs over the same records give the same
// report.
type Report struct {
	Sessions   int       `json:"sessions"`
	Records    int       `json:"records"`
	Events     int       `json:"events"`
	Void       int       `json:"void"`
	Checked    []string  `json:"checked"`
	NotChecked []string  `json:"notChecked"` // "id: reason"
	Findings   []Finding `json:"findings"`
	// Notes are no violations: void records and releases.
	Notes []Finding `json:"notes"`
}

// Clean reports whether nothing was found.
func (r Report) Clean() bool { return len(r.Findings) == 0 }

// run is one verification.
type run struct {
	src    Source
	opt    Options
	table  table
	on     map[string]bool
	rows   map[session.ID]Row
	total  int
	report Report
}

// Run checks every session of src. The error is about reading, never about what
// was found.
func Run(ctx context.Context, src Source, opt Options) (Report, error) {
	r := &run{src: src, opt: opt, table: newTable(opt)}
	// Empty lists, not null, for programs that read the report.
	r.report = Report{Checked: []string{}, NotChecked: []string{}, Findings: []Finding{}, Notes: []Finding{}}
	r.choose()
	if err := r.loadRows(ctx); err != nil {
		return Report{}, err
	}
	ids, err := src.Sessions(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("list sessions: %w", err)
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	r.total = len(ids)
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n].Root() == ids[0].Root() {
			n++
		}
		if err := r.tree(ctx, ids[:n]); err != nil {
			return Report{}, err
		}
		ids = ids[n:]
	}
	r.strayRows()
	slices.SortStableFunc(r.report.Findings, order)
	slices.SortStableFunc(r.report.Notes, order)
	return r.report, nil
}

func order(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Seq, b.Seq),
		cmp.Compare(a.Invariant, b.Invariant), cmp.Compare(a.StreamSeq, b.StreamSeq))
}

// check is one invariant and whether this build checks it.
type check struct {
	id string
	on bool
}

func checks() []check {
	return []check{
		{"I1", checkI1},
		{"I2", checkI2},
		{"I3", checkI3},
		{"I4", checkI4},
		{"I5", checkI5},
		{"I6", checkI6},
		{"I7", checkI7},
		{"I9", checkI9},
		{"I11", checkI11},
		{"I12", checkI12},
	}
}

// choose settles which invariants this run checks, and says why not the others.
func (r *run) choose() {
	_, partial := r.src.(lineSource)
	r.on = map[string]bool{Log: !partial}
	for _, c := range checks() {
		reason := ""
		switch {
		case !c.on:
			reason = "left out of this build"
		case c.id == "I9" && r.opt.Mirror == nil:
			reason = "no mirror was given"
		case partial && c.id != "I1" && c.id != "I12":
			reason = "the export has no records file"
		}
		if reason != "" {
			r.report.NotChecked = append(r.report.NotChecked, c.id+": "+reason)
			continue
		}
		r.on[c.id] = true
		r.report.Checked = append(r.report.Checked, c.id)
	}
}

// add reports what was found, as far as it is checked here.
func (r *run) add(found ...Finding) {
	for _, f := range found {
		if r.on[f.Invariant] {
			r.report.Findings = append(r.report.Findings, f)
		}
	}
}

// tree checks the sessions of one tree.
func (r *run) tree(ctx context.Context, ids []session.ID) error {
	t := newTree(r)
	for _, id := range ids {
		if _, err := t.visit(ctx, id); err != nil {
			return fmt.Errorf("verify session %s: %w", id, err)
		}
	}
	return ctx.Err()
}

// done counts a session and tells how far the run is.
func (r *run) done(h *history) {
	r.report.Sessions++
	r.report.Records += h.records
	r.report.Events += len(h.links)
	r.report.Void += h.voids
	r.checkRow(h)
	if h.header.Origin == session.OriginImport && h.header.Seeded() {
		r.report.NotChecked = append(r.report.NotChecked, fmt.Sprintf("I11: the imported history of %s is not read", h.id))
	}
	if r.opt.Progress == nil {
		return
	}
	r.opt.Progress(Progress{
		Session: h.id, Sessions: r.report.Sessions, Total: max(r.total, r.report.Sessions),
		Records: r.report.Records, Findings: len(r.report.Findings),
	})
}
