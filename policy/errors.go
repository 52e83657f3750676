package policy

import (
	"errors"
	"fmt"
)

// Code is a stable reason that programs match on.
type Code string

// The codes of refusals.
const (
	CodeUnknownMode   Code = "UNKNOWN_MODE"
	CodeUnknownPolicy Code = "UNKNOWN_POLICY"
	CodeUnknownPreset Code = "UNKNOWN_PRESET"
	CodeUnknownTool   Code = "UNKNOWN_TOOL"
	CodeLeftOut       Code = "NOT_COMPOSED"
	CodePinned        Code = "APPROVALS_PINNED"
	CodeNoReviewer    Code = "NO_REVIEWER"
	CodeWider         Code = "WIDER_THAN_PARENT"
	CodeUnderAuto     Code = "NARROWING_UNDER_AUTO"
	CodeArguments     Code = "INVALID_ARGUMENTS"
	CodeActivations   Code = "ACTIVATION_LIMIT_REACHED"
)

// RefusalError says why a wish was refused. Nothing was written.
type RefusalError struct {
	Code Code
	Text string
}

// Error implements error.
func (e *RefusalError) Error() string { return e.Text }

func refuse(c Code, format string, args ...any) error {
	return &RefusalError{Code: c, Text: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of a refusal, or "".
func CodeOf(err error) Code {
	if r, ok := errors.AsType[*RefusalError](err); ok {
		return r.Code
	}
	return ""
}
