package session

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Link is the running hash of a session's events (ARCHITECTURE 3). It chains
// events, not records, by the bytes they are stored as, so it survives export,
// import, another split into records, and restore.
type Link [sha256.Size]byte

// String returns the link in lower-case hex.
func (l Link) String() string { return hex.EncodeToString(l[:]) }

// IsZero reports whether l is the 32 zero bytes that stand before a log without
// a prefix.
func (l Link) IsZero() bool { return l == Link{} }

// MarshalText writes the link in lower-case hex.
func (l Link) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (l *Link) UnmarshalText(b []byte) error {
	v, err := ParseLink(string(b))
	*l = v
	return err
}

// ParseLink reads 64 lower-case hex digits.
func ParseLink(s string) (Link, error) {
	var l Link
	if len(s) != 2*len(l) || !isHex(s) {
		return Link{}, fmt.Errorf("link %s: %w", quote(s), errNotLink)
	}
	_, err := hex.Decode(l[:], []byte(s))
	return l, err
}

var errNotLink = errors.New("not 64 lower-case hex digits")

// hash is H of ARCHITECTURE 3: SHA-256 over each field as a 4-byte big-endian
// length and its bytes.
func hash(domain string, fields ...[]byte) Link {
	var room [1024]byte // most lines fit
	b := room[:0]
	write := func(f []byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f))) //nolint:gosec // a record is at most 768 KiB
		b = append(b, f...)
	}
	write([]byte(domain))
	for _, f := range fields {
		write(f)
	}
	return sha256.Sum256(b)
}

// HeaderLink is the base of a session's chain: what its first own event links
// to. Prev is zero without a prefix, the ancestor's link at the last event of
// the prefix for a fork, the last seed event's link for an import.
func HeaderLink(prev Link, header []byte) Link {
	return hash("entail/header/1", prev[:], header)
}

// EventLink is the link after one event. Session is the log the event was
// written to and class the class of the record it stands in.
func EventLink(before Link, session ID, class Class, line []byte) Link {
	return hash("entail/event/1", before[:], []byte(session), []byte(class), line)
}

// NoticeID derives the id of the one notice that tells a parent how a turn of a
// child ended (SPEC 7.3).
func NoticeID(child ID, turn int, end Seq) string {
	l := hash("entail/notice/1", []byte(child), fmt.Append(nil, turn), fmt.Append(nil, uint64(end)))
	return "n" + l.String()[:32]
}
