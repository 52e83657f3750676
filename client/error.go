package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// Code says what kind of error a reply holds. Codes are stable.
type Code string

// The codes. Those of package policy are passed on as they are.
const (
	CodeInvalid      Code = "INVALID_REQUEST"
	CodeVersion      Code = "UNKNOWN_VERSION"
	CodeUnauthorized Code = "UNAUTHORIZED"
	CodeNotFound     Code = "SESSION_NOT_FOUND"
	CodeNoCall       Code = "CALL_NOT_FOUND"
	CodeNoQuestion   Code = "QUESTION_NOT_FOUND"
	CodeAnswered     Code = "ALREADY_ANSWERED"
	CodeSettled      Code = "ALREADY_SETTLED"
	// CodeIDTaken is of a request under an id that another request was accepted under.
	CodeIDTaken Code = "ID_TAKEN"
	// CodeNotResumable is of a message to a session that takes none from its parent: it
	// is one-shot, was closed, has ended, or is none.
	CodeNotResumable Code = "NOT_RESUMABLE"
	// CodeNoParent is of a report whose receiver cannot be written to.
	CodeNoParent Code = "PARENT_UNAVAILABLE"
	// CodeDraining is of a message to or from a session that is being cancelled.
	CodeDraining     Code = "DRAINING"
	CodeExists       Code = "SESSION_ALREADY_EXISTS"
	CodeConflict     Code = "CONFLICT"
	CodeStopped      Code = "SESSION_STOPPED"
	CodeEnded        Code = "SESSION_ENDED"
	CodeOpenTurn     Code = "OPEN_TURN"
	CodeTooLarge     Code = "TOO_LARGE"
	CodeFull         Code = "STORE_FULL"
	CodeInboxFull    Code = "INBOX_FULL"
	CodeDenied       Code = "DENIED"
	CodePrecondition Code = "PRECONDITION"
	CodeUnknown      Code = "OUTCOME_UNKNOWN"
	CodeLoss         Code = "LOSS"
	CodeUnavailable  Code = "UNAVAILABLE"
	CodeInternal     Code = "INTERNAL"
)

// Error is a refusal or a failure. Its message says what, and the way out.
type Error struct {
	Code    Code         `json:"code"`
	Message string       `json:"message"`
	Session session.ID   `json:"session,omitempty"`
	Seq     *session.Seq `json:"seq,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// Shorten keeps both ends of a message that quotes what was sent: the beginning
// names what is wrong, the way out stands at the end.
func Shorten(message string) string {
	const end = 400
	if len(message) <= 2*end+100 {
		return message
	}
	cut := message[:end] + fmt.Sprintf(" ... (%d bytes in all) ... ", len(message)) + message[len(message)-end:]
	return strings.ToValidUTF8(cut, "")
}

// CodeOf returns the code of an error that came from the coordinator, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Temporary reports whether sending the same request again can help.
func (e *Error) Temporary() bool {
	return e.Code == CodeConflict || e.Code == CodeUnknown || e.Code == CodeUnavailable
}
