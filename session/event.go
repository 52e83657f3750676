package session

import (
	"bytes"
	"encoding/json"
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

// envelope is an event line. The order of its fields is the order on the wire.
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
	line, _, err := encode(seq, timeMs, p)
	return line, err
}

// encode is Encode, and the data inside the line.
func encode(seq Seq, timeMs int64, p Payload) (line, data []byte, err error) {
	if err := p.check(); err != nil {
		return nil, nil, fmt.Errorf("event %d: %w", seq, err)
	}
	data, err = marshal(p)
	if err == nil && bytes.Contains(data, replaced) {
		data, err = settle(data, p)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("event %d: encode %s: %w", seq, p.Type(), err)
	}
	return enclose(p.Type(), seq, timeMs, data), data, nil
}

// enclose writes the line around data as marshal writes an envelope of a type in
// the catalogue, whose name needs no escape, without reading data once more.
func enclose(t Type, seq Seq, timeMs int64, data []byte) []byte {
	const most = len(`{"type":"","seq":,"time":,"data":}`) + 2*len("-9223372036854775808")
	line := make([]byte, 0, most+len(t)+len(data))
	line = append(line, `{"type":"`...)
	line = append(line, t...)
	line = append(line, `","seq":`...)
	line = strconv.AppendUint(line, uint64(seq), 10)
	line = append(line, `,"time":`...)
	line = strconv.AppendInt(line, timeMs, 10)
	line = append(line, `,"data":`...)
	line = append(line, data...)
	return append(line, '}')
}

// written is the event that readers will find in a line that encode has just
// made: its payload is read back from the data, so that nobody holds what a log
// does not say. That the line has the one form need not be checked again.
func written(seq Seq, timeMs int64, p Payload, line, data []byte) (Event, error) {
	spec, known := specOf(p.Type())
	if !known {
		return Event{}, fmt.Errorf("event %d: %w %s", seq, ErrUnknownType, quote(string(p.Type())))
	}
	again := spec.Payload()
	if err := json.Unmarshal(data, again); err != nil {
		return Event{}, fmt.Errorf("event %d: read %s back: %w", seq, p.Type(), err)
	}
	return Event{Seq: seq, Time: timeMs, Type: p.Type(), Payload: again, Line: line}, nil
}

// replaced is how encoding/json writes a byte that is no UTF-8. It writes the
// same character in another way when it is read and written again.
var replaced = []byte(`\ufffd`)

// settle gives data, which holds bytes that were no UTF-8 (a tool printed them),
// the form that a second writing has, so that readers find the one form.
func settle(data []byte, p Payload) ([]byte, error) {
	spec, known := specOf(p.Type())
	if !known {
		return nil, ErrUnknownType
	}
	again := spec.Payload()
	if err := json.Unmarshal(data, again); err != nil {
		return nil, err
	}
	return marshal(again)
}

// DecodeEvent reads one line. It accepts exactly what Encode writes and, for a
// type outside the catalogue, an ignorable event in the same form.
func DecodeEvent(line []byte) (Event, error) {
	var env envelope
	if err := unmarshal(line, &env); err != nil {
		return Event{}, fmt.Errorf("event line %s: %w", quote(string(line)), err)
	}
	e := Event{Seq: env.Seq, Time: env.Time, Type: env.Type, Line: line}
	spec, known := specOf(env.Type)
	switch {
	case known && env.Ignorable:
		return Event{}, fmt.Errorf("event %d: %s is known and cannot be ignorable", env.Seq, env.Type)
	case !known && (env.Type == "" || len(env.Type) > MaxName || !printable(string(env.Type))):
		return Event{}, fmt.Errorf("event %d: %s cannot be a type", env.Seq, quote(string(env.Type)))
	case !known && !env.Ignorable:
		return Event{}, fmt.Errorf("event %d: %w %s", env.Seq, ErrUnknownType, quote(string(env.Type)))
	case known:
		p := spec.Payload()
		if err := unmarshal(env.Data, p); err != nil {
			return Event{}, fmt.Errorf("event %d: %s: %w", env.Seq, env.Type, err)
		}
		if err := p.check(); err != nil {
			return Event{}, fmt.Errorf("event %d: %w", env.Seq, err)
		}
		e.Payload = p
	}
	return e, nil
}

// unmarshal decodes b into v and holds b to the one form that marshal writes, so
// that no two readers can understand it differently.
func unmarshal(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	again, err := marshal(v)
	if err != nil {
		return fmt.Errorf("encode again: %w", err)
	}
	if !bytes.Equal(again, b) {
		return errNotCanonical
	}
	return nil
}

// marshal is the one encoder of everything that is linked.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
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
