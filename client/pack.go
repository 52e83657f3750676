package client

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// errPacked says that bytes are not what Pack writes.
var errPacked = errors.New("packed records are cut off or hold something else")

// Pack appends a raw record to b as [ColdReply] carries it: its stream sequence,
// the number of its headers, and then texts, each behind its length: session,
// class, creator, each header's name and value, the body. Numbers are varints. Of
// the headers it takes our own; what a server added says nothing here.
func Pack(b []byte, r session.Raw) []byte {
	own := 0
	for name := range r.Headers {
		if strings.HasPrefix(name, "Entail-") {
			own++
		}
	}
	b = binary.AppendUvarint(b, r.StreamSeq)
	b = binary.AppendUvarint(b, uint64(own))
	b = packText(b, string(r.Address.Session), string(r.Address.Class), string(r.Address.Creator))
	for name, value := range r.Headers {
		if strings.HasPrefix(name, "Entail-") {
			b = packText(b, name, value)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(r.Body)))
	return append(b, r.Body...)
}

func packText(b []byte, texts ...string) []byte {
	for _, t := range texts {
		b = binary.AppendUvarint(b, uint64(len(t)))
		b = append(b, t...)
	}
	return b
}

// Unpack calls fn with each record that Pack wrote into b, whose bytes the records
// go on using. It fails on anything else, after the records before it.
func Unpack(b []byte, fn func(session.Raw) error) error {
	p := packed{rest: b}
	for len(p.rest) > 0 {
		r := session.Raw{StreamSeq: p.number()}
		headers := p.number()
		r.Address = session.Address{
			Session: session.ID(p.bytes()), Class: session.Class(p.bytes()), Creator: session.ID(p.bytes()),
		}
		r.Headers = map[string]string{}
		for range headers {
			if p.bad {
				break
			}
			name := string(p.bytes())
			r.Headers[name] = string(p.bytes())
		}
		r.Body = p.bytes()
		if p.bad {
			return errPacked
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// packed reads what Pack wrote, and is bad once that went wrong.
type packed struct {
	rest []byte
	bad  bool
}

func (p *packed) number() uint64 {
	n, used := binary.Uvarint(p.rest)
	if used <= 0 {
		p.rest, p.bad = nil, true
		return 0
	}
	p.rest = p.rest[used:]
	return n
}

func (p *packed) bytes() []byte {
	n := p.number()
	if n > uint64(len(p.rest)) {
		p.rest, p.bad = nil, true
		return nil
	}
	b := p.rest[:n:n]
	p.rest = p.rest[n:]
	return b
}
