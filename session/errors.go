package session

import (
	"errors"
	"fmt"
)

// The sentinels that control what a caller does next.
var (
	// ErrConflict is returned by an append whose expected tail has moved:
	// fold what is new, evaluate the precondition again, try again.
	ErrConflict = errors.New("tail has moved")
	// ErrNotFound is returned for a session that has no genesis.
	ErrNotFound = errors.New("no such session")
	// ErrCorrupt is returned by readers of a session that SPEC 1.4 stops.
	// A person can release it (SPEC 1.7).
	ErrCorrupt = errors.New("session is stopped")
	// ErrLoss is returned when the log that was read is shorter than one read
	// before. Nothing may be appended to it.
	ErrLoss = errors.New("records are missing")
	// ErrFormat is returned for a record of a format this build cannot read.
	ErrFormat = errors.New("unknown format")
	// ErrUnknownType is returned for an event type outside the catalogue that
	// is not ignorable.
	ErrUnknownType = errors.New("unknown event type")
	// ErrTooLarge is returned for a record over MaxRecord, before anything is
	// written.
	ErrTooLarge = errors.New("record is too large")

	errNotCanonical = errors.New("not in the one form this format has (a key twice, unknown or in another case, or stray bytes)")
)

// ConflictError says which append lost a race, and the tail that won it.
type ConflictError struct {
	Session ID
	Want    uint64
	Tail    uint64 // zero when the server did not say
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("append %s after %d: %v (now %d)", e.Session, e.Want, ErrConflict, e.Tail)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// CorruptError says where and why a session was stopped.
type CorruptError struct {
	Session   ID
	Seq       Seq
	StreamSeq uint64
	Loss      bool
	Unborn    bool // it is the session's genesis that was refused
	Reason    error
}

// Error implements error.
func (e *CorruptError) Error() string {
	wayOut := "release it with `entail session release`"
	switch {
	case errors.Is(e.Reason, ErrLoss):
		wayOut = "nothing is appended to it until the broker's store is restored from another node or a backup"
	case e.Unborn:
		wayOut = "there is nothing to release: start another session"
	}
	return fmt.Sprintf("session %s is stopped at seq %d (stream sequence %d): %v; %s", e.Session, e.Seq, e.StreamSeq, e.Reason, wayOut)
}

// Is reports whether target is ErrCorrupt, or ErrLoss for a loss.
func (e *CorruptError) Is(target error) bool {
	return target == ErrCorrupt || (e.Loss && target == ErrLoss)
}

// Unwrap returns the reason.
func (e *CorruptError) Unwrap() error { return e.Reason }

// FormatError names both versions when a session needs a newer build.
type FormatError struct {
	Session ID
	Have    int
	Want    int
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("session %s has format %d, this build reads up to %d: use a newer build", e.Session, e.Want, e.Have)
}

// Is reports whether target is ErrFormat.
func (e *FormatError) Is(target error) bool { return target == ErrFormat }
