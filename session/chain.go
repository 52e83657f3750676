package session

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// Ruling is what a chain says of one raw record.
type Ruling int

// The rulings.
const (
	// Valid records are part of the log.
	Valid Ruling = iota + 1
	// Void records are skipped, counted and alarmed.
	Void
	// Repeated records equal one already read.
	Repeated
	// Skipped records stand in a release.
	Skipped
)

// Judgement is the judgement of one raw record. Events are set for Valid, Alarm for
// Void.
type Judgement struct {
	Ruling Ruling
	Events []Event
	Birth  *Birth // the child that a valid genesis in a parent's space starts
	Alarm  *Alarm
}

// Alarm names a void record: one worker wrote something that the log does not
// allow, and it changed nothing (SPEC 1.4).
type Alarm struct {
	Session   ID
	StreamSeq uint64
	Types     []Type
	Writer    Writer
	Reason    error
}

// String is the alarm's one line.
func (a Alarm) String() string {
	return fmt.Sprintf("void record in session %s at stream sequence %d (types %v, says it is from %s): %v",
		a.Session, a.StreamSeq, a.Types, a.Writer, a.Reason)
}

// Chain judges the records of one session, one after the other in stream order,
// and folds the valid ones. Two chains over the same records say the same.
//
// A Chain is not safe for use by two goroutines.
type Chain struct {
	state  State
	tail   uint64
	born   uint64 // stream sequence of the genesis
	voids  int
	links  func(Seq) (Link, bool)
	last   uint64 // stream sequence of the record judged last
	halted *CorruptError
	since  []uint64     // stream sequences from the halt on
	newer  *FormatError // the log went on to a format this build does not know
}

// Decoded is a raw record with what it says, or why it says nothing. A child's
// genesis is judged by two chains and decoded once.
type Decoded struct {
	Raw    Raw
	Record Record
	Err    error // DecodeRecord's
}

// Decode decodes a raw record for the chains that judge it.
func Decode(raw Raw) Decoded {
	r, err := DecodeRecord(raw)
	return Decoded{raw, r, err}
}

// Open starts the chain of a session from its genesis. For a fork, p is what its
// prefix folds to. Links finds the link after an own event that was read before;
// it tells a repeated record from a second history.
func Open(genesis Raw, p Prefix, links func(Seq) (Link, bool)) (*Chain, []Event, error) {
	return OpenDecoded(Decode(genesis), p, links)
}

// OpenDecoded is Open for a record that was decoded before.
func OpenDecoded(d Decoded, p Prefix, links func(Seq) (Link, bool)) (*Chain, []Event, error) {
	genesis, r := d.Raw, d.Record
	id := genesis.Address.Session
	fail := func(err error) (*Chain, []Event, error) {
		if _, newer := errors.AsType[*FormatError](err); newer {
			return nil, nil, err
		}
		return nil, nil, &CorruptError{Session: id, StreamSeq: genesis.StreamSeq, Unborn: true, Reason: err}
	}
	if d.Err != nil {
		return fail(d.Err)
	}
	if r.BirthErr != nil {
		return fail(r.BirthErr)
	}
	if r.Birth == nil {
		return fail(errors.New("the record is no genesis"))
	}
	if err := checkGenesis(r); err != nil {
		return fail(err)
	}
	s, err := Begin(*r.Birth, p)
	if err != nil {
		return fail(err)
	}
	c := &Chain{state: s, born: genesis.StreamSeq, links: links}
	if genesis.Address.Creator == id {
		c.tail = genesis.StreamSeq
	}
	return c, r.Birth.First.Events, nil
}

// Resume goes on with a chain from a snapshot. A chain that was stopped is given
// the records from the one that stopped it on once more: it stops again and
// learns again what a release must name.
func Resume(s State, born, tail uint64, links func(Seq) (Link, bool)) *Chain {
	return &Chain{state: s, born: born, tail: tail, links: links}
}

// checkGenesis holds a genesis to what it can say alone (SPEC 3.1, 1.8).
func checkGenesis(r Record) error {
	h, at := r.Birth.Header, r.Address
	if h.FormatVersion != r.Format {
		return fmt.Errorf("record has format %d, header %d", r.Format, h.FormatVersion)
	}
	if r.Own == nil {
		if h.IsChild() {
			return errors.New("a child's genesis stands in its parent's space")
		}
		return nil
	}
	if !h.IsChild() || h.ParentSession != at.Creator {
		return fmt.Errorf("stands in the space of %s, its header names parent %s", at.Creator, quote(string(h.ParentSession)))
	}
	d, err := delegation(*r.Own)
	if err != nil {
		return err
	}
	if h.ID != ChildID(at.Creator, d.CallID) {
		return fmt.Errorf("id %s does not derive from call %s of %s", h.ID, d.CallID, at.Creator)
	}
	return nil
}

// delegation returns the one decision that a genesis' parent's section holds.
func delegation(own Section) (*ToolDecision, error) {
	if len(own.Events) == 1 {
		if d, ok := own.Events[0].Payload.(*ToolDecision); ok && d.Verdict == Allow && d.Child != "" {
			return d, nil
		}
	}
	return nil, errors.New("the parent's section is not one allowing decision that names a child")
}

// State returns what the valid records fold to.
func (c *Chain) State() State { return c.state }

// Tail returns the stream sequence to expect on an append.
func (c *Chain) Tail() uint64 { return c.tail }

// Born returns the stream sequence of the session's genesis.
func (c *Chain) Born() uint64 { return c.born }

// Voids returns how many void records were met.
func (c *Chain) Voids() int { return c.voids }

// Halted returns the error that stopped the session, nil if it runs.
func (c *Chain) Halted() error {
	switch {
	case c.newer != nil:
		return c.newer
	case c.halted != nil:
		return c.halted
	}
	return nil
}

// Next judges the next record of the session's space. An error stops the
// session: a *CorruptError, or a *FormatError for a session that needs a newer
// build. A stopped chain judges on, looking for its release.
func (c *Chain) Next(raw Raw) (Judgement, error) { return c.NextDecoded(Decode(raw)) }

// NextDecoded is Next for a record that was decoded before.
func (c *Chain) NextDecoded(d Decoded) (Judgement, error) {
	raw, r, err := d.Raw, d.Record, d.Err
	if raw.Address.Space() != c.state.Header.ID {
		return Judgement{}, fmt.Errorf("record of %s given to the chain of %s", raw.Address.Space(), c.state.Header.ID)
	}
	if c.last > 0 && raw.StreamSeq <= c.last {
		return Judgement{Ruling: Repeated}, c.Halted() // delivered again
	}
	c.last, c.tail = raw.StreamSeq, max(c.tail, raw.StreamSeq)
	if c.newer != nil {
		return Judgement{Ruling: Skipped}, c.newer
	}
	if c.halted != nil {
		return c.afterHalt(d)
	}
	if err == nil {
		err = c.position(raw, r)
	}
	if errors.Is(err, errRepeated) {
		return Judgement{Ruling: Repeated}, nil
	}
	if err == nil {
		return c.accept(raw, r)
	}
	return c.refuse(raw, r, err)
}

var (
	errRepeated = errors.New("equal to one already read")
	errSecond   = errors.New("a second genesis")
	errHistory  = errors.New("a second history: its place is taken by another record")
	errGap      = errors.New("its seq is beyond the next one")
	errLost     = errors.New("records before it are missing from the stream")
)

// position checks that a decoded record is the next of the log and folds.
func (c *Chain) position(raw Raw, r Record) error {
	if r.Own == nil {
		if raw.StreamSeq == c.born || c.hasBirth(r.Birth) {
			return errRepeated
		}
		return errSecond
	}
	if raw.StreamSeq < c.born {
		return errors.New("it stands before the session's genesis")
	}
	if r.Format != c.state.Format {
		return fmt.Errorf("record has format %d, the session %d", r.Format, c.state.Format)
	}
	switch own := r.Own; {
	case own.Seq < c.state.Next:
		if l, ok := c.links(own.Next() - 1); ok && l == own.After {
			return errRepeated
		}
		return errHistory
	case own.Seq > c.state.Next && raw.Hole:
		return errLost
	case own.Seq > c.state.Next:
		return errGap
	case own.Before != c.state.Link:
		return errors.New("its link does not follow from the last valid record")
	}
	return c.driver(r)
}

// hasBirth reports whether b is what the session began with: its header, and by
// their link its first events.
func (c *Chain) hasBirth(b *Birth) bool {
	if b == nil {
		return false
	}
	header, err := EncodeHeader(c.state.Header)
	l, ok := c.links(b.First.Next() - 1)
	return err == nil && bytes.Equal(header, b.Line) && ok && l == b.First.After
}

// driver checks the epoch of a turn section and where decisions of delegating
// calls stand (SPEC 1.4, 3.1).
func (c *Chain) driver(r Record) error {
	if r.Own.Class != ClassTurn {
		return nil
	}
	want := c.state.Epoch
	if claim, ok := r.Own.Events[0].Payload.(*Claim); ok {
		want = claim.Epoch
	}
	if r.Epoch != want || r.Epoch == 0 {
		return fmt.Errorf("it names epoch %d, in force is %d", r.Epoch, c.state.Epoch)
	}
	if r.Address.Class == ClassGenesis {
		// Whether the child's section is right is for the child's chain to say.
		d, err := delegation(*r.Own)
		if err == nil && d.Child != r.Address.Session {
			err = fmt.Errorf("the decision names %s, the subject %s", d.Child, r.Address.Session)
		}
		return err
	}
	for _, e := range r.Own.Events {
		if d, ok := e.Payload.(*ToolDecision); ok && d.Child != "" {
			return errDelegating
		}
	}
	return nil
}

func (c *Chain) accept(raw Raw, r Record) (Judgement, error) {
	next, err := FoldSection(c.state, *r.Own)
	if errors.As(err, &c.newer) {
		return Judgement{}, c.newer
	}
	if err != nil {
		return c.refuse(raw, r, err)
	}
	c.state = next
	return Judgement{Ruling: Valid, Events: r.Own.Events, Birth: r.Birth}, nil
}

// refuse voids an invalid turn record and stops the session for any other.
func (c *Chain) refuse(raw Raw, r Record, reason error) (Judgement, error) {
	if raw.Address.Class == ClassTurn && !errors.Is(reason, errLost) {
		c.voids++
		a := &Alarm{Session: raw.Address.Session, StreamSeq: raw.StreamSeq, Writer: r.Writer, Reason: reason, Types: typesOf(raw.Body)}
		return Judgement{Ruling: Void, Alarm: a}, nil
	}
	c.halted = &CorruptError{
		Session: c.state.Header.ID, Seq: c.state.Next, StreamSeq: raw.StreamSeq,
		Loss: errors.Is(reason, errLost), Reason: reason,
	}
	c.since = []uint64{raw.StreamSeq}
	return Judgement{}, c.halted
}

// afterHalt looks for the release that names exactly what stands since the halt
// and goes on from the last valid record (SPEC 1.7).
func (c *Chain) afterHalt(d Decoded) (Judgement, error) {
	raw, r := d.Raw, d.Record
	if d.Err == nil && c.releases(raw, r) {
		if next, err := FoldSection(c.state, *r.Own); err == nil {
			c.state, c.halted, c.since = next, nil, nil
			return Judgement{Ruling: Valid, Events: r.Own.Events}, nil
		}
	}
	c.since = append(c.since, raw.StreamSeq)
	return Judgement{Ruling: Skipped}, c.halted
}

// releases reports whether r is the release of exactly this halt.
func (c *Chain) releases(raw Raw, r Record) bool {
	if raw.Address.Class != ClassPolicy || len(r.Own.Events) != 1 {
		return false
	}
	p, ok := r.Own.Events[0].Payload.(*Release)
	return ok && slices.Equal(p.Skip, c.since) && p.Link == c.state.Link && c.position(raw, r) == nil
}

// SinceHalt returns what a release must name: the stream sequences from the halt
// on.
func (c *Chain) SinceHalt() []uint64 { return slices.Clone(c.since) }

// typesOf reads the event types of a body that may be anything, for an alarm.
func typesOf(body []byte) []Type {
	lines, err := splitLines(body)
	if err != nil {
		return nil
	}
	var out []Type
	for _, line := range lines {
		if t, ok := typeOf(line); ok {
			out = append(out, t)
		}
	}
	return out
}
