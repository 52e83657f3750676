package sessionstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// envelope is what stands before the body of a stored raw record.
type envelope struct {
	Session session.ID        `json:"session"`
	Class   session.Class     `json:"class"`
	Creator session.ID        `json:"creator,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// encodeRaw writes a raw record: length of the envelope, envelope, body. The
// stream sequence is in the key.
func encodeRaw(raw session.Raw) ([]byte, error) {
	env, err := json.Marshal(envelope{
		Session: raw.Address.Session, Class: raw.Address.Class, Creator: raw.Address.Creator, Headers: raw.Headers,
	})
	if err != nil {
		return nil, fmt.Errorf("encode record %d: %w", raw.StreamSeq, err)
	}
	b := make([]byte, 0, binary.MaxVarintLen64+len(env)+len(raw.Body))
	b = binary.AppendUvarint(b, uint64(len(env)))
	b = append(b, env...)
	return append(b, raw.Body...), nil
}

// decodeRaw reads what encodeRaw wrote. The result shares nothing with value.
func decodeRaw(streamSeq uint64, value []byte) (session.Raw, error) {
	n, used := binary.Uvarint(value)
	if used <= 0 || n > uint64(len(value)-used) { //nolint:gosec // used is positive
		return session.Raw{}, damaged("record", streamSeq, errors.New("its envelope is cut off"))
	}
	var env envelope
	rest := value[used:]
	if err := json.Unmarshal(rest[:n], &env); err != nil {
		return session.Raw{}, damaged("record", streamSeq, err)
	}
	return session.Raw{
		StreamSeq: streamSeq,
		Address:   session.Address{Session: env.Session, Class: env.Class, Creator: env.Creator},
		Headers:   env.Headers,
		Body:      bytes.Clone(rest[n:]),
	}, nil
}

// recordHash is what a watermark knows a record by. Of the headers it takes our
// own: a server adds others, depending on how a record is read.
func recordHash(raw session.Raw) string {
	h := sha256.New()
	put := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		_, _ = io.WriteString(h, s) // a hash never fails
	}
	put(string(raw.Address.Session))
	put(string(raw.Address.Class))
	put(string(raw.Address.Creator))
	for _, name := range slices.Sorted(maps.Keys(raw.Headers)) {
		if strings.HasPrefix(name, "Entail-") {
			put(name)
			put(raw.Headers[name])
		}
	}
	put(string(raw.Body))
	return hex.EncodeToString(h.Sum(nil))
}

// damaged is the error for something in the store that cannot be what was
// written. The mirror is rebuilt from the stream, so that is the way out.
func damaged(what string, at any, err error) error {
	return fmt.Errorf("mirror is damaged at %s %v: %w: %w; stop, move its directory away and start again to rebuild it", what, at, ErrDamaged, err)
}
