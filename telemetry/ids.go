package telemetry

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// TraceID is the trace of a session's whole tree.
func TraceID(h session.Header) []byte {
	if trace, _, ok := caller(h); ok {
		return trace
	}
	return derive("trace", string(h.Root))[:16]
}

// SessionSpan is the id of a session's span.
func SessionSpan(id session.ID) []byte { return derive("session", string(id))[:8] }

// TurnSpan is the id of a turn's span.
func TurnSpan(id session.ID, turn int) []byte {
	return derive("turn", string(id), string(session.MakeCallID(turn, 1, 0)))[:8]
}

// CallSpan is the id of a call's span.
func CallSpan(id session.ID, call session.CallID) []byte {
	return derive("call", string(id), string(call))[:8]
}

// derive hashes names; no name holds a zero byte.
func derive(parts ...string) []byte {
	sum := sha256.Sum256([]byte("entail/span/1\x00" + strings.Join(parts, "\x00")))
	return sum[:]
}

// caller reads a W3C traceparent that the session's creator sent along.
func caller(h session.Header) (trace, span []byte, ok bool) {
	p := strings.Split(h.Traceparent, "-")
	if len(p) < 4 || p[0] != "00" || len(p[1]) != 32 || len(p[2]) != 16 {
		return nil, nil, false
	}
	trace, err := hex.DecodeString(p[1])
	if err != nil || allZero(trace) {
		return nil, nil, false
	}
	span, err = hex.DecodeString(p[2])
	if err != nil || allZero(span) {
		return nil, nil, false
	}
	return trace, span, true
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
