package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/session"
)

// maxReason bounds what a person says of why. It goes down a tree with a cancel.
const maxReason = 4 << 10

// invalid refuses a request that makes no sense, whatever the logs say.
func invalid(format string, args ...any) error {
	return &client.Error{Code: client.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

// decode reads a request strictly.
func decode(method string, body []byte, in any) error {
	if err := client.Decode(body, in); err != nil {
		return invalid("the request is not what %s takes: %v; the method %s publishes what each method takes", method, err, client.MethodSchemas)
	}
	return nil
}

// checkName holds an id or a name that the requester made to its form.
func checkName(field, value string) error {
	if value == "" || len(value) > session.MaxName || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
		return invalid("%s %q: give 1 to %d bytes without control characters", field, value, session.MaxName)
	}
	return nil
}

// reserved begins the ids of messages that a coordinator derives. Requesters have ids of
// their own: else one could take the place of a message before it comes.
const reserved = "entail/"

// checkMessage holds the id that a requester gives a message or a request to its form.
func checkMessage(field, value string) error {
	if strings.HasPrefix(value, reserved) {
		return invalid("%s %q: ids that begin with %q are the coordinators' own, give another", field, value, reserved)
	}
	return checkName(field, value)
}

func checkReason(reason string) error {
	if len(reason) > maxReason {
		return invalid("the reason has %d bytes, at most %d fit: say it shorter", len(reason), maxReason)
	}
	return nil
}

// checkCall holds the id of a call to its form.
func checkCall(id session.CallID) error {
	if _, _, _, ok := id.Parts(); !ok {
		return invalid("call %q is not turn.step.index, such as 1.2.0", id)
	}
	return nil
}

// checkBirth holds what every new session may be given to its form.
func checkBirth(label, traceparent string) error {
	if label != "" {
		if err := delegation.CheckLabel(label); err != nil {
			return err
		}
	}
	if traceparent != "" && !isTraceparent(traceparent) {
		return invalid("traceparent %q is none: give 00-TRACE-PARENT-FLAGS in 32, 16 and 2 lower-case hex digits, TRACE and PARENT not all zero, or leave it out", traceparent)
	}
	return nil
}

// isTraceparent reports whether s has the form of W3C Trace Context, version 00,
// which reads ids of zeros alone as none.
func isTraceparent(s string) bool {
	parts := strings.Split(s, "-")
	if len(parts) != 4 || parts[0] != "00" {
		return false
	}
	for i, digits := range []int{32, 16, 2} {
		p := parts[i+1]
		if len(p) != digits || strings.Trim(p, "0123456789abcdef") != "" {
			return false
		}
	}
	return strings.Trim(parts[1], "0") != "" && strings.Trim(parts[2], "0") != ""
}

// notNegative refuses a count that makes no sense; 0 stands for what the method
// does without one.
func notNegative(field string, n int) error {
	if n < 0 {
		return invalid("%s %d is negative: give how many, or leave it out", field, n)
	}
	return nil
}

// errDone ends a reading early.
var errDone = errors.New("done")
