package session

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxRecord is the most bytes a record's body may have (ARCHITECTURE 3).
const MaxRecord = 768 << 10

// MaxPrompt is the most bytes a prompt may have.
const MaxPrompt = 512 << 10

// The record headers. Their spelling is part of the format.
const (
	HeaderFormat     = "Entail-Format"
	HeaderSeq        = "Entail-Seq"
	HeaderCount      = "Entail-Count"
	HeaderLinkName   = "Entail-Link"
	HeaderEpoch      = "Entail-Epoch"
	HeaderCreator    = "Entail-Creator"
	HeaderWriter     = "Entail-Writer"
	HeaderChildSeq   = "Entail-Child-Seq"
	HeaderChildCount = "Entail-Child-Count"
	HeaderChildLink  = "Entail-Child-Link"
)

// Address says where a record stands: under whose subjects, in which class and,
// for a genesis, which session it brings into being.
type Address struct {
	// Session is the session the record is of; for a genesis, the one it starts.
	Session ID
	Class   Class
	// Creator is set for a genesis only: the session in whose space it stands.
	// It is the session itself for a root and for a person's fork.
	Creator ID
}

// Space returns the session under whose subjects the record stands, whose tail
// an append of it moves.
func (a Address) Space() ID {
	if a.Class == ClassGenesis {
		return a.Creator
	}
	return a.Session
}

// Writer is what a record says of who wrote it: a claim, not a proof.
type Writer struct {
	Component   string
	Instance    string
	Incarnation string
}

// String joins the writer's three parts by spaces.
func (w Writer) String() string {
	return w.Component + " " + w.Instance + " " + w.Incarnation
}

func parseWriter(s string) Writer {
	p := strings.SplitN(s, " ", 3)
	p = append(p, "", "", "")
	return Writer{Component: p[0], Instance: p[1], Incarnation: p[2]}
}

// Section is a run of consecutive events of one session and one class, with the
// link before its first and after its last.
type Section struct {
	Session ID
	Class   Class
	Seq     Seq
	Before  Link
	After   Link
	Events  []Event
}

// Next returns the seq right after the section.
func (s Section) Next() Seq { return s.Seq + Seq(len(s.Events)) }

// Size returns how many bytes the section takes in a record's body.
func (s Section) Size() int {
	n := 0
	for _, e := range s.Events {
		n += len(e.Line) + 1
	}
	return n
}

// Birth is the section of a genesis that brings a session into being: its
// header and its first own events.
type Birth struct {
	Header Header
	Line   []byte
	First  Section
}

// Record is one decoded message. Own is the section of the session whose space
// the record stands in; a root's or a person's fork's genesis has none. Birth is
// set for a genesis only.
type Record struct {
	Address Address
	Format  int
	Epoch   uint64
	Creator ID
	Writer  Writer
	Own     *Section
	Birth   *Birth
	// BirthErr says what is wrong with the section that would bring a session
	// into being. It is that session's trouble, not the space's (SPEC 3.1).
	BirthErr error
}

// Raw is a record as it stands in the stream.
type Raw struct {
	StreamSeq uint64
	Address   Address
	Headers   map[string]string
	Body      []byte
	// Hole says that the messages right before this one are gone from the
	// stream without an explanation.
	Hole bool
}

// Draft is an event before it has a place. Its payload is the log's from the
// moment it is composed: nobody changes it any more.
type Draft struct {
	Time    int64
	Payload Payload
}

// Compose places drafts after a log's last event.
func Compose(id ID, class Class, next Seq, before Link, drafts ...Draft) (Section, error) {
	s := Section{Session: id, Class: class, Seq: next, Before: before, After: before, Events: make([]Event, 0, len(drafts))}
	for _, d := range drafts {
		e, err := write(s.Next(), d.Time, d.Payload)
		if err != nil {
			return Section{}, err
		}
		if err := s.place(e); err != nil {
			return Section{}, err
		}
	}
	return s, nil
}

// ComposeBirth makes the genesis section of a session: header and first events.
// Prev is the link the prefix ends with, zero without one.
func ComposeBirth(h Header, prev Link, drafts ...Draft) (Birth, error) {
	h.Type = "session"
	line, err := EncodeHeader(h)
	if err != nil {
		return Birth{}, err
	}
	first, err := Compose(h.ID, ClassGenesis, h.FirstLiveSeq, HeaderLink(prev, line), drafts...)
	if err != nil {
		return Birth{}, err
	}
	return Birth{Header: h, Line: line, First: first}, nil
}

// add decodes a line and places it.
func (s *Section) add(line []byte) error {
	e, err := DecodeEvent(line)
	if err != nil {
		return err
	}
	return s.place(e)
}

// place links an event behind the section's last and appends it.
func (s *Section) place(e Event) error {
	if e.Seq != s.Next() {
		return fmt.Errorf("event line says seq %d, its place is %d", e.Seq, s.Next())
	}
	if spec, known := specOf(e.Type); known && !spec.In(s.Class) {
		return fmt.Errorf("event %d: %s cannot stand in a record of class %s", e.Seq, e.Type, s.Class)
	}
	e.Session, e.Class = s.Session, s.Class
	e.Link = EventLink(s.After, s.Session, s.Class, e.Line)
	s.After = e.Link
	s.Events = append(s.Events, e)
	return nil
}

// EncodeRecord turns a record into headers and body. It refuses one that is too
// large before anything is written.
func EncodeRecord(r Record) (map[string]string, []byte, error) {
	h := map[string]string{}
	body, err := r.Encode(func(name, value string) { h[name] = value })
	if err != nil {
		return nil, nil, err
	}
	return h, body, nil
}

// Encode is EncodeRecord for a caller that keeps headers in its own way: it gives
// each, once, to header.
func (r Record) Encode(header func(name, value string)) (body []byte, err error) {
	size := bodySize(r)
	if size > MaxRecord {
		return nil, fmt.Errorf("record of %s has %d bytes, at most %d fit: %w", r.Address.Session, size, MaxRecord, ErrTooLarge)
	}
	body = make([]byte, 0, size)
	header(HeaderFormat, strconv.Itoa(r.Format))
	header(HeaderWriter, r.Writer.String())
	if r.Own != nil {
		putSection(header, HeaderSeq, HeaderCount, HeaderLinkName, *r.Own)
		header(HeaderEpoch, strconv.FormatUint(r.Epoch, 10))
		body = appendLines(body, r.Own.Events)
	}
	if r.Creator != "" {
		header(HeaderCreator, string(r.Creator))
	}
	if b := r.Birth; b != nil {
		body = append(append(body, b.Line...), '\n')
		body = appendLines(body, b.First.Events)
		if r.Own != nil {
			putSection(header, HeaderChildSeq, HeaderChildCount, HeaderChildLink, b.First)
		} else {
			putSection(header, HeaderSeq, HeaderCount, HeaderLinkName, b.First)
		}
	}
	return body, nil
}

// bodySize is how many bytes a record's body has.
func bodySize(r Record) int {
	n := 0
	if r.Own != nil {
		n = r.Own.Size()
	}
	if r.Birth != nil {
		n += len(r.Birth.Line) + 1 + r.Birth.First.Size()
	}
	return n
}

func putSection(header func(name, value string), seq, count, link string, s Section) {
	header(seq, strconv.FormatUint(uint64(s.Seq), 10))
	header(count, strconv.Itoa(len(s.Events)))
	var links [4*len(Link{}) + 1]byte
	hex.Encode(links[:], s.Before[:])
	links[2*len(Link{})] = ' '
	hex.Encode(links[2*len(Link{})+1:], s.After[:])
	header(link, string(links[:]))
}

func appendLines(b []byte, events []Event) []byte {
	for _, e := range events {
		b = append(append(b, e.Line...), '\n')
	}
	return b
}

// DecodeRecord reads a raw record on its own: form, vocabulary, classes and the
// links inside it. Whether it is the next of its session is [Chain]'s to say.
func DecodeRecord(raw Raw) (Record, error) {
	r := Record{Address: raw.Address, Creator: ID(raw.Headers[HeaderCreator]), Writer: parseWriter(raw.Headers[HeaderWriter])}
	var err error
	if r.Format, err = strconv.Atoi(raw.Headers[HeaderFormat]); err != nil || r.Format < 1 || strconv.Itoa(r.Format) != raw.Headers[HeaderFormat] {
		return r, fmt.Errorf("%s %s is not a positive number", HeaderFormat, quote(raw.Headers[HeaderFormat]))
	}
	if r.Format > FormatVersion {
		return r, &FormatError{Session: raw.Address.Space(), Have: FormatVersion, Want: r.Format}
	}
	if !raw.Address.Class.Valid() {
		return r, fmt.Errorf("unknown class %s", quote(string(raw.Address.Class)))
	}
	if len(raw.Body) > MaxRecord {
		return r, fmt.Errorf("body has %d bytes: %w", len(raw.Body), ErrTooLarge)
	}
	lines, err := splitLines(raw.Body)
	if err != nil {
		return r, err
	}
	if raw.Address.Class != ClassGenesis {
		return r, r.decodeOwn(raw, lines, raw.Address.Class)
	}
	return r, r.decodeGenesis(raw, lines)
}

func (r *Record) decodeOwn(raw Raw, lines [][]byte, class Class) error {
	var err error
	if class == ClassTurn {
		if r.Epoch, err = number(raw.Headers, HeaderEpoch); err != nil {
			return err
		}
	}
	s, err := decodeSection(raw.Address.Space(), class, raw.Headers, HeaderSeq, HeaderCount, HeaderLinkName, lines)
	r.Own = &s
	return err
}

// decodeGenesis splits a child's genesis into the parent's section and the
// child's, and checks what each alone can say (SPEC 3.1).
func (r *Record) decodeGenesis(raw Raw, lines [][]byte) error {
	at, err := headerLine(raw, lines)
	if err != nil {
		return err
	}
	seq, count, link := HeaderSeq, HeaderCount, HeaderLinkName
	if at > 0 {
		if err := r.decodeOwn(raw, lines[:at], ClassTurn); err != nil {
			return fmt.Errorf("parent's section: %w", err)
		}
		seq, count, link = HeaderChildSeq, HeaderChildCount, HeaderChildLink
	}
	h, err := DecodeHeader(lines[at])
	if err == nil && h.ID != raw.Address.Session {
		err = fmt.Errorf("genesis of %s holds the header of %s", raw.Address.Session, h.ID)
	}
	var first Section
	if err == nil {
		first, err = decodeSection(h.ID, ClassGenesis, raw.Headers, seq, count, link, lines[at+1:])
	}
	if err == nil && first.Seq != h.FirstLiveSeq {
		err = fmt.Errorf("genesis of %s starts at seq %d, its header says %d", h.ID, first.Seq, h.FirstLiveSeq)
	}
	if err == nil {
		err = r.promised(first)
	}
	if r.BirthErr = err; err == nil {
		r.Birth = &Birth{Header: h, Line: lines[at], First: first}
	}
	return nil // BirthErr is the child's trouble, not the record's
}

// headerLine finds the line of a genesis that holds the session's header: the
// first one, in a child's the first after the parent's section.
func headerLine(raw Raw, lines [][]byte) (int, error) {
	if raw.Address.Creator == raw.Address.Session {
		return 0, nil
	}
	n, err := strconv.Atoi(raw.Headers[HeaderCount])
	if err != nil || n < 1 || n >= len(lines) { // its one form is checked with the section
		return 0, fmt.Errorf("%s %s does not fit a child's genesis of %d lines", HeaderCount, quote(raw.Headers[HeaderCount]), len(lines))
	}
	return n, nil
}

// promised holds a child's section to the link that the parent's decision gives
// it.
func (r *Record) promised(first Section) error {
	if r.Own == nil {
		return nil
	}
	if d, err := delegation(*r.Own); err == nil && *d.ChildLink != first.After {
		return errors.New("the first batch is not the one that the parent's decision names")
	}
	return nil
}

func decodeSection(id ID, class Class, h map[string]string, seqName, countName, linkName string, lines [][]byte) (Section, error) {
	seq, err := number(h, seqName)
	if err != nil {
		return Section{}, err
	}
	if h[countName] != strconv.Itoa(len(lines)) || len(lines) == 0 {
		return Section{}, fmt.Errorf("%s %s, the body has %d event lines", countName, quote(h[countName]), len(lines))
	}
	before, after, ok := strings.Cut(h[linkName], " ")
	s := Section{Session: id, Class: class, Seq: Seq(seq)}
	if s.Before, err = ParseLink(before); err != nil || !ok {
		return Section{}, fmt.Errorf("%s %s: want two links", linkName, quote(h[linkName]))
	}
	s.After, s.Events = s.Before, make([]Event, 0, len(lines))
	for _, line := range lines {
		if err := s.add(line); err != nil {
			return Section{}, err
		}
	}
	if s.After.String() != after {
		return Section{}, fmt.Errorf("link of seq %d is not what its bytes give", s.Next()-1)
	}
	return s, nil
}

// number reads a header that holds a number in its one form.
func number(h map[string]string, key string) (uint64, error) {
	n, err := strconv.ParseUint(h[key], 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != h[key] {
		return 0, fmt.Errorf("%s %s is not a number", key, quote(h[key]))
	}
	return n, nil
}

// splitLines cuts a body into its lines. Every line ends with a newline.
func splitLines(body []byte) ([][]byte, error) {
	if len(body) == 0 {
		return nil, errors.New("the body is empty")
	}
	if body[len(body)-1] != '\n' {
		return nil, errors.New("the last line has no end")
	}
	return bytes.Split(body[:len(body)-1], []byte("\n")), nil
}
