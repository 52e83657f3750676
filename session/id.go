package session

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ID names a session. It is lower-case, one NATS token and at most 64 bytes
// (ARCHITECTURE 2): a root is two hex digits of its partition and a ULID, a
// session below it is the root, a dash and a suffix.
type ID string

const (
	ulidLen   = 26
	rootLen   = 2 + ulidLen
	suffixLen = 26
	dash      = "-"
	// crockford is the alphabet of Crockford's base32 in lower case.
	crockford = "0123456789abcdefghjkmnpqrstvwxyz"
)

var suffixEncoding = base32.NewEncoding(crockford).WithPadding(base32.NoPadding)

// ErrBadID is returned for an id that is not of the one form.
var ErrBadID = errors.New("not a session id")

// RootID makes the id of a root from a ULID in canonical (upper-case) or
// lower-case text and the deployment's partition count.
func RootID(ulid string, partitions int) (ID, error) {
	u := strings.ToLower(ulid)
	if !isULID(u) || len(ulid) != ulidLen {
		return "", fmt.Errorf("%s is not a ULID: %w", quote(ulid), ErrBadID)
	}
	if partitions < 1 || partitions > 256 {
		return "", fmt.Errorf("partition count %d is not in 1..256: %w", partitions, ErrBadID)
	}
	return ID(fmt.Sprintf("%02x", partitionOf(u, partitions)) + u), nil
}

// partitionOf hashes the canonical text of a ULID.
func partitionOf(lower string, partitions int) int {
	sum := sha256.Sum256([]byte(strings.ToUpper(lower)))
	return int(sum[0]) % partitions
}

// ChildID derives the id of the child that a call of a parent starts
// (SPEC 4.5): the same call always gives the same child.
func ChildID(parent ID, call CallID) ID {
	sum := hash("entail/child/1", []byte(parent), []byte(call))
	return parent.Root() + dash + ID(suffixEncoding.EncodeToString(sum[:16]))
}

// ForkID makes the id of a person's fork in the tree of root (SPEC 1.8).
func ForkID(root ID, ulid string) (ID, error) {
	u := strings.ToLower(ulid)
	if !isULID(u) || len(ulid) != ulidLen {
		return "", fmt.Errorf("%s is not a ULID: %w", quote(ulid), ErrBadID)
	}
	return ParseID(string(root.Root() + dash + ID(u)))
}

// ParseID accepts exactly the form that RootID, ChildID and ForkID give an id.
func ParseID(s string) (ID, error) {
	root, suffix, below := strings.Cut(s, dash)
	if len(root) != rootLen || !isULID(root[2:]) || !isHex(root[:2]) {
		return "", fmt.Errorf("%s: %w (a root is two hex digits and a ULID in lower case)", quote(s), ErrBadID)
	}
	if below && (len(suffix) != suffixLen || !inAlphabet(suffix)) {
		return "", fmt.Errorf("%s: %w (after the dash stand 26 letters of Crockford's base32)", quote(s), ErrBadID)
	}
	return ID(s), nil
}

// Root returns the id of the tree's root, which is i itself for a root.
func (i ID) Root() ID {
	root, _, _ := strings.Cut(string(i), dash)
	return ID(root)
}

// IsRoot reports whether i is the top of its tree.
func (i ID) IsRoot() bool { return !strings.Contains(string(i), dash) }

// Partition returns the partition that i's tree lives in. It must only be
// called on an id that ParseID accepts.
func (i ID) Partition() int {
	n, err := strconv.ParseUint(string(i[:2]), 16, 8)
	if err != nil {
		return -1
	}
	return int(n)
}

// isULID reports whether s is a ULID in lower case: its first letter holds three
// bits of the 128.
func isULID(s string) bool {
	return len(s) == ulidLen && inAlphabet(s) && s[0] <= '7'
}

// inAlphabet reports whether s is lower-case Crockford base32.
func inAlphabet(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
		case 'a' <= c && c <= 'z' && c != 'i' && c != 'l' && c != 'o' && c != 'u':
		default:
			return false
		}
	}
	return true
}

// isHex reports whether s is whole bytes in lower-case hex.
func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s)%2 == 0
}

// quote shows bad input in an error without letting it fill a screen.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.Quote(s[:most]) + fmt.Sprintf(" (%d bytes)", len(s))
	}
	return strconv.Quote(s)
}

// Seq is the 0-based position of an event in one session's log.
type Seq uint64

// CallID names a tool call: turn, step and index, joined by dots (SPEC 4.5).
// Turn and step count from 1, the index from 0.
type CallID string

// MakeCallID makes the id of the call at index of a step.
func MakeCallID(turn, step, index int) CallID {
	return CallID(fmt.Sprintf("%d.%d.%d", turn, step, index))
}

// Parts splits a call id; ok is false for anything MakeCallID cannot make.
func (c CallID) Parts() (turn, step, index int, ok bool) {
	p := strings.Split(string(c), ".")
	if len(p) != 3 {
		return 0, 0, 0, false
	}
	n := make([]int, 3)
	for i, s := range p {
		v, err := strconv.Atoi(s)
		if err != nil || strconv.Itoa(v) != s {
			return 0, 0, 0, false
		}
		n[i] = v
	}
	if n[0] < 1 || n[1] < 1 || n[2] < 0 {
		return 0, 0, 0, false
	}
	return n[0], n[1], n[2], true
}
