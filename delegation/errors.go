package delegation

import (
	"errors"
	"fmt"

	"github.com/entail-fleet/entail/session"
)

// The reasons a delegation, a root or a fork is refused for. Nothing was
// written.
var (
	// ErrInvalid is a request that makes no sense, whatever the log says.
	ErrInvalid = errors.New("invalid request")
	// ErrOpenTurn is a person's fork inside an open turn (SPEC 1.8).
	ErrOpenTurn = errors.New("a turn is open")
	// ErrPrecondition is a delegation whose call, turn or driver is not what the
	// requester thought. Folding what is new tells it why.
	ErrPrecondition = errors.New("precondition does not hold")
	// ErrOtherRequest is an id that is taken by another request (SPEC 1.10).
	ErrOtherRequest = errors.New("this id was made by another request")
)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

func missed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrPrecondition, fmt.Sprintf(format, args...))
}

// DeniedError is a delegation that policy does not allow at the tail. Record is
// the refusal, ready to be logged by the parent's driver as an ordinary turn
// event.
type DeniedError struct {
	Record session.ToolDecision
	Text   string
}

// Error implements error.
func (e *DeniedError) Error() string { return e.Text }
