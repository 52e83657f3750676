package model

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// hidden is what stands wherever a key would be printed.
const hidden = "[key]"

// Key gives the key of an endpoint each time one is needed, so that it can be
// exchanged while the client runs. It is a function so that no printer, however
// deep it looks, finds the key itself. A nil Key sends none.
type Key func() string

// NewKey returns the Key that always gives secret, without the white space around
// it that a file or a terminal adds.
func NewKey(secret string) Key {
	secret = strings.TrimSpace(secret)
	return func() string { return secret }
}

// String returns a placeholder.
func (Key) String() string { return hidden }

// Format writes a placeholder for every verb.
func (Key) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// LogValue returns a placeholder.
func (Key) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText returns a placeholder.
func (Key) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// reveal returns the key for one request.
func (k Key) reveal() (string, error) {
	if k == nil {
		return "", nil
	}
	secret := k()
	for _, r := range secret {
		if r <= ' ' || r >= 0x7f {
			return "", &Error{Kind: KindRefused, Err: errors.New(
				"the key holds white space or a character outside ASCII: check the file or variable it comes from")}
		}
	}
	return secret, nil
}

// scrub returns text without the secret.
func scrub(text, secret string) string {
	if secret == "" {
		return text
	}
	return strings.ReplaceAll(text, secret, hidden)
}
