package stream

import (
	"errors"
	"fmt"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// Change is one append: a named precondition and what it writes. Both are
// evaluated on the view at exactly the tail the append expects, again on every
// retry, so they must not have effects. A view is good for the call it is given
// to.
type Change struct {
	// Name says in errors what was to be done.
	Name string
	// Check is the precondition. Its error is Append's. Nil means there is none.
	Check func(session.View) error
	// Class is the record's class: inbox, policy or turn.
	Class session.Class
	// Epoch is the epoch a record of class turn is written in; a claim names the
	// new one.
	Epoch func(session.View) uint64
	// Drafts are the events to write. None means that there is nothing to do.
	Drafts func(session.View) ([]session.Draft, error)
	// Genesis makes the record of a genesis, in place of Class, Epoch and
	// Drafts. For a root or a person's fork, which do not exist yet, the view has
	// a zero State.
	Genesis func(session.View) (session.Record, error)
	// Inherits is the prefix that a person's fork starts from. A child's is its
	// parent's cut.
	Inherits session.Prefix
	// Once says that a conflict is the caller's business: it is returned at once,
	// as a *[session.ConflictError].
	Once bool
}

// Done says where an append's record stands. It is zero when there was nothing
// to write. A merged record is the Done of each change in it.
type Done struct {
	StreamSeq uint64
	Record    session.Record
	// State is what the log whose tail the record moved folds to with it. It is
	// not changed.
	State *session.State
}

func (c Change) validate() error {
	switch {
	case c.Genesis != nil && (c.Drafts != nil || c.Class != "" && c.Class != session.ClassGenesis):
		return errors.New("a genesis has neither drafts nor another class")
	case c.Genesis != nil:
		return nil
	case c.Drafts == nil:
		return errors.New("it writes nothing")
	case c.Class == session.ClassTurn && c.Epoch == nil:
		return errors.New("class turn needs an epoch")
	case c.Class != session.ClassTurn && c.Class != session.ClassInbox && c.Class != session.ClassPolicy:
		return fmt.Errorf("class %q is not inbox, policy or turn", c.Class)
	}
	return nil
}

// mergeable reports whether the change may share a record with others.
func (c Change) mergeable() bool {
	return c.Drafts != nil && (c.Class == session.ClassInbox || c.Class == session.ClassTurn && !c.Once)
}

// piece is what one change adds to a record.
type piece struct {
	section session.Section
	epoch   uint64
	state   *session.State // after it
	size    int            // in a record's body
}

// draft evaluates a change on a view: its precondition, its events, and whether
// the log accepts them there (SPEC 3.3). A piece without events writes nothing.
func (c Change) draft(id session.ID, v session.View) (piece, error) {
	if c.Check != nil {
		if err := c.Check(v); err != nil {
			return piece{}, err
		}
	}
	drafts, err := c.Drafts(v)
	if err != nil || len(drafts) == 0 {
		return piece{}, err
	}
	var p piece
	if p.section, err = session.Compose(id, c.Class, v.State.Next, v.State.Link, drafts...); err != nil {
		return piece{}, err
	}
	if p.size = p.section.Size(); p.size > session.MaxRecord {
		return piece{}, fmt.Errorf("%d bytes, at most %d fit a record: %w", p.size, session.MaxRecord, session.ErrTooLarge)
	}
	if c.Class == session.ClassTurn {
		p.epoch = c.Epoch(v)
		if err := driven(v.State, p.section, p.epoch); err != nil {
			return piece{}, err
		}
		if delegates(p.section) {
			return piece{}, errDelegating
		}
	}
	after, err := session.FoldSection(v.State, p.section)
	if err != nil {
		return piece{}, err
	}
	p.state = &after
	return p, nil
}

// driven holds a turn section to the epoch in force, a claim to the next one.
func driven(s session.State, sec session.Section, epoch uint64) error {
	want := s.Epoch
	if isClaim(sec) {
		want++
	}
	if epoch != want || epoch == 0 {
		return fmt.Errorf("epoch %d is not in force: the log is in epoch %d", epoch, s.Epoch)
	}
	return nil
}

// errDelegating is returned for a decision that only a genesis may hold.
var errDelegating = errors.New("an allowing decision of a delegating call stands in a genesis only")

// delegates reports whether a section holds such a decision (SPEC 3.1).
func delegates(sec session.Section) bool {
	return slices.ContainsFunc(sec.Events, func(e session.Event) bool {
		d, ok := e.Payload.(*session.ToolDecision)
		return ok && d.Child != ""
	})
}

func isClaim(sec session.Section) bool {
	_, ok := sec.Events[0].Payload.(*session.Claim)
	return ok
}

// record makes the record of a section on a view.
func record(v session.View, sec session.Section, epoch uint64, w session.Writer) session.Record {
	r := session.Record{
		Address: session.Address{Session: sec.Session, Class: sec.Class},
		Format:  v.State.Format, Epoch: epoch, Writer: w, Own: &sec,
	}
	if v.State.Header.IsChild() {
		r.Creator = v.State.Header.ParentSession
	}
	return r
}

// genesis evaluates a change that brings a session into being. It returns the
// record and what the space's log folds to with it.
func (c Change) genesis(space session.ID, v session.View, w session.Writer) (session.Record, session.State, error) {
	if c.Check != nil {
		if err := c.Check(v); err != nil {
			return session.Record{}, session.State{}, err
		}
	}
	r, err := c.Genesis(v)
	if err != nil {
		return session.Record{}, session.State{}, err
	}
	r.Writer = w
	after, err := c.foldGenesis(space, v, r)
	if err != nil {
		return session.Record{}, session.State{}, fmt.Errorf("genesis of %s: %w", r.Address.Session, err)
	}
	return r, after, nil
}

// foldGenesis holds a genesis to what its readers will hold it to: its own
// section to the space's log, the birth to its header and what it inherits. It
// returns what the space's log folds to.
func (c Change) foldGenesis(space session.ID, v session.View, r session.Record) (session.State, error) {
	if err := fitsPlace(space, v, r); err != nil {
		return session.State{}, err
	}
	if r.Own == nil {
		return session.Begin(*r.Birth, c.Inherits)
	}
	after, err := foldParent(space, v.State, r)
	if err != nil {
		return session.State{}, err
	}
	var prefix session.Prefix
	if r.Birth.Header.Seeded() {
		prefix = v.State.Cut
	}
	_, err = session.Begin(*r.Birth, prefix)
	return after, err
}

// fitsPlace holds a genesis to the place it is to be written to.
func fitsPlace(space session.ID, v session.View, r session.Record) error {
	switch {
	case r.Birth == nil || r.Address.Class != session.ClassGenesis || r.Address.Space() != space || r.Birth.Header.ID != r.Address.Session:
		return fmt.Errorf("it does not fit its place in the space of %s", space)
	case r.Format != r.Birth.Header.FormatVersion:
		return fmt.Errorf("the record has format %d, its header %d", r.Format, r.Birth.Header.FormatVersion)
	case r.Own == nil && (r.Birth.Header.IsChild() || r.Address.Session != space):
		return errors.New("a child's genesis needs its parent's decision")
	case r.Own == nil && v.State.Next != 0:
		return errors.New("the session exists")
	}
	return nil
}

// foldParent holds the parent's section of a child's genesis to the parent's log
// and to the child it names, and folds it.
func foldParent(space session.ID, s session.State, r session.Record) (session.State, error) {
	if len(r.Own.Events) != 1 || r.Own.Class != session.ClassTurn || r.Own.Session != space {
		return s, errors.New("the parent's section is not one decision")
	}
	d, ok := r.Own.Events[0].Payload.(*session.ToolDecision)
	h := r.Birth.Header
	if !ok || d.Child != h.ID || d.ChildLink == nil || *d.ChildLink != r.Birth.First.After {
		return s, errors.New("the decision names another child than the genesis holds")
	}
	if !h.IsChild() || h.ParentSession != space || h.ID != session.ChildID(space, d.CallID) {
		return s, fmt.Errorf("child %s does not derive from call %s of %s", h.ID, d.CallID, space)
	}
	if r.Format != s.Format {
		return s, fmt.Errorf("the record has format %d, the parent's log %d", r.Format, s.Format)
	}
	if err := driven(s, *r.Own, r.Epoch); err != nil {
		return s, err
	}
	return session.FoldSection(s, *r.Own)
}
