package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Event is one immutable fact at a Seq. Payload is nil for an ignorable event of
// a type this format does not know; its line is kept byte for byte.
type Event struct {
	Session ID
	Class   Class
	Seq     Seq
	Time    int64 // milliseconds since 1970, informs only (ARCHITECTURE 8)
	Type    Type
	Payload Payload
	Line    []byte
	Link    Link
}

// envelope is an event line of a type outside the catalogue. The order of its
// fields is the order on the wire.
type envelope struct {
	Type      Type            `json:"type"`
	Seq       Seq             `json:"seq"`
	Time      int64           `json:"time"`
	Data      json.RawMessage `json:"data"`
	Ignorable bool            `json:"ignorable,omitempty"`
}

// Encode writes the line of an event, without a newline. It refuses a payload
// that a reader would refuse.
func Encode(seq Seq, timeMs int64, p Payload) ([]byte, error) {
	e, err := write(seq, timeMs, p)
	return e.Line, err
}

// write makes the event that readers will find. Its payload is p itself, or, where
// the line could not say p as it is, what the line says: nobody holds what a log
// does not say.
func write(seq Seq, timeMs int64, p Payload) (Event, error) {
	if err := p.check(); err != nil {
		return Event{}, fmt.Errorf("event %d: %w", seq, err)
	}
	spec, known := specOf(p.Type())
	if !known {
		return Event{}, fmt.Errorf("event %d: %w %s", seq, ErrUnknownType, quote(string(p.Type())))
	}
	const usual = 448 // bytes
	line := append(make([]byte, 0, usual), beforeType...)
	line = append(line, spec.Type...) // a type of the catalogue needs no escape
	line = strconv.AppendUint(append(line, beforeSeq...), uint64(seq), 10)
	line = strconv.AppendInt(append(line, beforeTime...), timeMs, 10)
	line = append(line, beforeData...)
	from := len(line)
	line, same := spec.codec.encode(line, p)
	if !same {
		again := spec.Payload()
		if err := spec.codec.decode(&reader{data: line[from:]}, again); err != nil {
			return Event{}, fmt.Errorf("event %d: read %s back: %w", seq, p.Type(), err)
		}
		p = again
	}
	return Event{Seq: seq, Time: timeMs, Type: p.Type(), Payload: p, Line: append(line, '}')}, nil
}

// What stands around the values of an event line.
const (
	beforeType = `{"type":"`
	beforeSeq  = `","seq":`
	beforeTime = `,"time":`
	beforeData = `,"data":`
)

// DecodeEvent reads one line. It accepts exactly what Encode writes and, for a
// type outside the catalogue, an ignorable event in the same form.
func DecodeEvent(line []byte) (Event, error) {
	r := &reader{data: line}
	if r.take(beforeType) {
		if spec, known := specs[Type(r.run())]; known {
			return decodeKnown(r, spec, line)
		}
	}
	return decodeForeign(line)
}

// decodeKnown reads on after the type.
func decodeKnown(r *reader, spec Spec, line []byte) (Event, error) {
	e := Event{Type: spec.Type, Line: line}
	if err := r.place(&e); err != nil {
		return Event{}, fmt.Errorf("event line %s: %w", quote(string(line)), err)
	}
	p := spec.Payload()
	err := spec.codec.decode(r, p)
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return Event{}, fmt.Errorf("event %d: %s: %w", e.Seq, e.Type, err)
	}
	if err := p.check(); err != nil {
		return Event{}, fmt.Errorf("event %d: %w", e.Seq, err)
	}
	e.Payload = p
	return e, nil
}

// place reads seq and time, up to the data.
func (r *reader) place(e *Event) error {
	if err := r.want(beforeSeq); err != nil {
		return err
	}
	seq, err := r.uint()
	if err == nil {
		err = r.want(beforeTime)
	}
	if err != nil {
		return err
	}
	e.Seq = Seq(seq)
	if e.Time, err = r.int(); err != nil {
		return err
	}
	return r.want(beforeData)
}

// end reads the end of a line after its data.
func (r *reader) end() error {
	if r.take(`,"ignorable":true}`) {
		return errors.New("it is known and cannot be ignorable")
	}
	if err := r.want("}"); err != nil {
		return err
	}
	if r.at < len(r.data) {
		return r.fail("something follows the line")
	}
	return nil
}

// decodeForeign keeps an ignorable event of a type outside the catalogue. Its
// data can be any that the one encoder would write as it is.
func decodeForeign(line []byte) (Event, error) {
	var env envelope
	if err := json.Unmarshal(line, &env); err != nil {
		return Event{}, fmt.Errorf("event line %s: %w", quote(string(line)), err)
	}
	var again bytes.Buffer
	enc := json.NewEncoder(&again)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(env); err != nil {
		return Event{}, fmt.Errorf("event line %s: %w", quote(string(line)), err)
	}
	if !bytes.Equal(bytes.TrimSuffix(again.Bytes(), []byte("\n")), line) {
		return Event{}, fmt.Errorf("event line %s: %w", quote(string(line)), errNotCanonical)
	}
	switch {
	case env.Type == "" || len(env.Type) > MaxName || !printable(string(env.Type)):
		return Event{}, fmt.Errorf("event %d: %s cannot be a type", env.Seq, quote(string(env.Type)))
	case !env.Ignorable:
		return Event{}, fmt.Errorf("event %d: %w %s", env.Seq, ErrUnknownType, quote(string(env.Type)))
	}
	return Event{Seq: env.Seq, Time: env.Time, Type: env.Type, Line: line}, nil
}

// typeOf reads the type of a line that may be refused for anything else.
func typeOf(line []byte) (Type, bool) {
	var env struct {
		Type Type `json:"type"`
	}
	if json.Unmarshal(line, &env) != nil || env.Type == "" || len(env.Type) > MaxName || !printable(string(env.Type)) {
		return "", false
	}
	return env.Type, true
}
