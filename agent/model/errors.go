package model

import (
	"net/http"
	"strconv"
	"time"
)

// ErrorKind says what can be done about an [Error].
type ErrorKind string

// The kinds of errors of an endpoint.
const (
	// KindTransient may pass: a rate limit, a fault of the server, a connection
	// that was refused or cut, a stall. Step has already retried it.
	KindTransient ErrorKind = "transient"
	// KindRefused will not pass by itself: a wrong key, an unknown model, a
	// request the endpoint does not accept, an account without credit.
	KindRefused ErrorKind = "refused"
	// KindMalformed is an answer that is not this protocol's: a web page, a
	// stream of something else, or more than [MaxResponseBytes].
	KindMalformed ErrorKind = "malformed"
)

// Error is the failure of an endpoint to answer a step. Its text never holds
// the key. The end of the caller's context is not an Error.
type Error struct {
	// Kind says what can be done.
	Kind ErrorKind
	// Status is the HTTP status, or 0 when there was none.
	Status int
	// RetryAfter is how long the endpoint asked to wait, or 0.
	RetryAfter time.Duration
	// Err holds the cause as plain text. It wraps nothing, because what lies
	// beneath can hold the request with its headers.
	Err error
}

// Error returns the status and the cause in one line.
func (e *Error) Error() string {
	s := "model endpoint"
	if e.Status != 0 {
		s += ": " + strconv.Itoa(e.Status) + " " + http.StatusText(e.Status)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient reports whether the same request may succeed later.
func (e *Error) Transient() bool { return e.Kind == KindTransient }
