package verify

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// Names and version of an export's files.
const (
	eventsSuffix  = ".jsonl"
	recordsSuffix = ".records.jsonl"
	// exportVersion is the version of the reference's file format whose shape
	// the events file has.
	exportVersion = 3
)

// recordLine is one record of a session's own space, as the records file holds
// it. The events of a record of the log stand in the events file; every other
// record brings its body, and its headers if the fields do not give them.
type recordLine struct {
	StreamSeq uint64            `json:"streamSeq"`
	Hole      bool              `json:"hole,omitempty"`
	Class     session.Class     `json:"class"`
	Session   session.ID        `json:"session,omitempty"` // of a genesis: the one it starts
	Writer    string            `json:"writer"`
	Epoch     string            `json:"epoch,omitempty"`
	Creator   string            `json:"creator,omitempty"`
	Format    string            `json:"format"`
	Seq       uint64            `json:"seq"`
	Count     int               `json:"count"`
	Link      string            `json:"link"`
	Child     *partLine         `json:"child,omitempty"`
	Headers   map[string]string `json:"headers,omitzero"`
	Body      *[]byte           `json:"body,omitempty"`
}

// partLine is where a section stands: "before after" in Link.
type partLine struct {
	Seq   uint64 `json:"seq"`
	Count int    `json:"count"`
	Link  string `json:"link"`
}

// newRecordLine describes a record; inLog says that its events stand in the
// events files.
func newRecordLine(raw session.Raw, inLog bool) recordLine {
	h := raw.Headers
	l := recordLine{
		StreamSeq: raw.StreamSeq, Hole: raw.Hole, Class: raw.Address.Class,
		Writer: h[session.HeaderWriter], Epoch: h[session.HeaderEpoch], Creator: h[session.HeaderCreator], Format: h[session.HeaderFormat],
	}
	own := section(h, session.HeaderSeq, session.HeaderCount, session.HeaderLinkName)
	l.Seq, l.Count, l.Link = own.Seq, own.Count, own.Link
	if raw.Address.Class == session.ClassGenesis {
		l.Session = raw.Address.Session
		if raw.Address.Creator != raw.Address.Session {
			c := section(h, session.HeaderChildSeq, session.HeaderChildCount, session.HeaderChildLink)
			l.Child = &c
		}
	}
	if !maps.Equal(l.headers(), h) {
		l.Headers = map[string]string{}
		maps.Copy(l.Headers, h)
	}
	if !inLog {
		body := append([]byte{}, raw.Body...) // not nil, which would read as no body
		l.Body = &body
	}
	return l
}

// section reads a section's headers; what is no number reads as 0 and is then
// kept in Headers.
func section(h map[string]string, seq, count, link string) partLine {
	s, err := strconv.ParseUint(h[seq], 10, 64)
	if err != nil {
		s = 0
	}
	n, err := strconv.Atoi(h[count])
	if err != nil {
		n = 0
	}
	return partLine{s, n, h[link]}
}

// headers gives the headers that the fields stand for.
func (l recordLine) headers() map[string]string {
	if l.Headers != nil {
		return l.Headers
	}
	out := map[string]string{}
	put := func(name, value string) {
		if value != "" {
			out[name] = value
		}
	}
	put(session.HeaderWriter, l.Writer)
	put(session.HeaderEpoch, l.Epoch)
	put(session.HeaderCreator, l.Creator)
	put(session.HeaderFormat, l.Format)
	out[session.HeaderSeq] = strconv.FormatUint(l.Seq, 10)
	out[session.HeaderCount] = strconv.Itoa(l.Count)
	out[session.HeaderLinkName] = l.Link
	if l.Child != nil {
		out[session.HeaderChildSeq] = strconv.FormatUint(l.Child.Seq, 10)
		out[session.HeaderChildCount] = strconv.Itoa(l.Child.Count)
		out[session.HeaderChildLink] = l.Child.Link
	}
	return out
}

// raw turns a line of the records file of space back into a record without its
// body.
func (l recordLine) raw(space session.ID) session.Raw {
	a := session.Address{Session: space, Class: l.Class}
	if l.Class == session.ClassGenesis {
		a.Session, a.Creator = l.Session, space
	}
	return session.Raw{StreamSeq: l.StreamSeq, Hole: l.Hole, Address: a, Headers: l.headers()}
}

// headerTail is what an events file's first line has beyond the header line.
func headerTail(seeded bool) string {
	return fmt.Sprintf(`,"version":%d,"isSeeded":%v}`, exportVersion, seeded)
}

// exportHeader adds version and isSeeded to a header line, keeping its bytes.
func exportHeader(line []byte, h session.Header) []byte {
	return append(bytes.TrimSuffix(bytes.Clone(line), []byte("}")), headerTail(h.Seeded())...)
}

var errHeaderLine = errors.New("the first line is not a session's header with version and isSeeded")

// importHeader gives back the header line as it was linked.
func importHeader(line []byte) ([]byte, session.Header, error) {
	for _, seeded := range []bool{false, true} {
		if s, ok := strings.CutSuffix(string(line), headerTail(seeded)); ok {
			own := []byte(s + "}")
			h, err := session.DecodeHeader(own)
			if err == nil && h.Seeded() != seeded {
				err = errHeaderLine
			}
			return own, h, err
		}
	}
	return nil, session.Header{}, errHeaderLine
}
