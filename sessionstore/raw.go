package sessionstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// appendRaw writes a raw record: session, class, creator, the number of headers,
// each header's name and value in the order of the names, and then the body. A
// text stands behind its length; lengths are unsigned varints. The stream sequence
// is in the key.
func appendRaw(b []byte, raw session.Raw) []byte {
	text := func(s string) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	text(string(raw.Address.Session))
	text(string(raw.Address.Class))
	text(string(raw.Address.Creator))
	b = binary.AppendUvarint(b, uint64(len(raw.Headers)))
	var room [16]string
	for _, name := range namesOf(raw, room[:0]) {
		text(name)
		text(raw.Headers[name])
	}
	return append(b, raw.Body...)
}

// namesOf puts the names of a record's headers behind names, in order.
func namesOf(raw session.Raw, names []string) []string {
	for name := range raw.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// decodeRaw reads what appendRaw wrote. The result shares nothing with value.
func decodeRaw(streamSeq uint64, value []byte) (session.Raw, error) {
	if n, used := binary.Uvarint(value); used > 0 && n > 0 && used < len(value) && value[used] == '{' {
		return decodeEnveloped(streamSeq, n, value[used:])
	}
	cut := false
	number := func() uint64 {
		n, used := binary.Uvarint(value)
		padded := used > 1 && value[used-1] == 0 // never written
		if used <= 0 || n > uint64(len(value)) || padded {
			cut, value = true, nil
			return 0
		}
		value = value[used:]
		return n
	}
	text := func() string {
		n := number()
		if n > uint64(len(value)) {
			cut, value = true, nil
			return ""
		}
		s := string(value[:n])
		value = value[n:]
		return s
	}
	raw := session.Raw{StreamSeq: streamSeq}
	raw.Address = session.Address{Session: session.ID(text()), Class: session.Class(text()), Creator: session.ID(text())}
	if n := number(); n > 0 {
		raw.Headers = make(map[string]string)
		for before := ""; n > 0 && !cut; n-- {
			name := text()
			cut = cut || (name <= before && len(raw.Headers) > 0) // not in their order
			raw.Headers[name] = text()
			before = name
		}
	}
	if cut {
		return session.Raw{}, damaged("record", streamSeq, errors.New("it is cut off or not in order"))
	}
	raw.Body = bytes.Clone(value)
	return raw, nil
}

// decodeEnveloped reads a record as the first builds wrote it: behind its length a
// JSON object, where now a session's id stands, and then the body.
func decodeEnveloped(streamSeq, n uint64, value []byte) (session.Raw, error) {
	var env struct {
		Session session.ID        `json:"session"`
		Class   session.Class     `json:"class"`
		Creator session.ID        `json:"creator"`
		Headers map[string]string `json:"headers"`
	}
	if n > uint64(len(value)) {
		return session.Raw{}, damaged("record", streamSeq, errors.New("it is cut off"))
	}
	if err := json.Unmarshal(value[:n], &env); err != nil {
		return session.Raw{}, damaged("record", streamSeq, err)
	}
	return session.Raw{
		StreamSeq: streamSeq, Headers: env.Headers, Body: bytes.Clone(value[n:]),
		Address: session.Address{Session: env.Session, Class: env.Class, Creator: env.Creator},
	}, nil
}

// recordHash is what a watermark knows a record by. Of the headers it takes our
// own: a server adds others, depending on how a record is read.
func recordHash(raw session.Raw) string {
	h := sha256.New()
	var room [128]byte
	put := func(s string) { h.Write(append(binary.BigEndian.AppendUint64(room[:0], uint64(len(s))), s...)) }
	put(string(raw.Address.Session))
	put(string(raw.Address.Class))
	put(string(raw.Address.Creator))
	var names [16]string
	for _, name := range namesOf(raw, names[:0]) {
		if strings.HasPrefix(name, "Entail-") {
			put(name)
			put(raw.Headers[name])
		}
	}
	h.Write(binary.BigEndian.AppendUint64(room[:0], uint64(len(raw.Body))))
	h.Write(raw.Body)
	return hex.EncodeToString(h.Sum(nil))
}

// damaged is the error for something in the store that cannot be what was
// written. The mirror is rebuilt from the stream, so that is the way out.
func damaged(what string, at any, err error) error {
	return fmt.Errorf("mirror is damaged at %s %v: %w: %w; stop, move its directory away and start again to rebuild it", what, at, ErrDamaged, err)
}
