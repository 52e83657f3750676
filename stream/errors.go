package stream

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrUnknown is returned by a write whose answer never came: it may or may
	// not have been written. Read before you do anything else.
	ErrUnknown = errors.New("unknown outcome")
	// ErrFull is returned when a stream has no room left.
	ErrFull = errors.New("the stream is full: raise max_bytes or archive session trees")
	// ErrReset is returned by [Log.Follow] when the server began the delivery
	// anew: check the watermark, then follow again.
	ErrReset = errors.New("delivery was reset")
	// ErrNoWitness is returned when a session's space looks empty and no mirror
	// is configured that could confirm it.
	ErrNoWitness = errors.New("nobody can confirm that the session's space is empty: configure a full mirror as the witness")
	// ErrRevision is returned by an update of a setting that has changed since it
	// was read.
	ErrRevision = errors.New("the setting has changed since it was read: load it and try again")
	// ErrDuplicate is returned when the server took a record for a repetition and
	// dropped it. Entail sends no message ids, so somebody else does.
	ErrDuplicate = errors.New("the server dropped the record as a duplicate, which nobody may cause")
	// ErrSetting is returned for a stream setting that breaks a guarantee.
	ErrSetting = errors.New("stream setting breaks a guarantee")
)

// The server's answers that decide what an append does next.
const (
	codeWrongLast         = jetstream.JSErrCodeStreamWrongLastSequence         // with the last sequence
	codeWrongLastConstant = jetstream.JSErrCodeStreamWrongLastSequenceConstant // same filter in flight
	codeBatchIncomplete   = jetstream.ErrorCode(10176)
	codeNoMessage         = jetstream.JSErrCodeMessageNotFound
	statusUnavailable     = 503
)

// apiError finds the server's own answer in err.
func apiError(err error) (*jetstream.APIError, bool) {
	var api *jetstream.APIError
	ok := errors.As(err, &api)
	return api, ok
}

// unknown makes the error of a write whose outcome is not known. A publish that
// the broker does not permit is dropped without an answer, so it looks the same.
func unknown(nc *nats.Conn, cause error) error {
	if last := nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		return fmt.Errorf("%w: %w (the broker refused a publish of this connection: %w)", ErrUnknown, cause, last)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, cause)
}

// forbidden reports whether the connection's last error is a new one and says
// that publishing on subject is not permitted. The client gets it beside the
// request, never as its answer, and it names the subject in its text alone.
func forbidden(before, last error, subject string) bool {
	return last != before && errors.Is(last, nats.ErrPermissionViolation) && //nolint:errorlint // the very same, not one like it
		strings.Contains(last.Error(), `"`+subject+`"`)
}
