package broker

import (
	"fmt"
	"log/slog"
)

const hidden = "[hidden]"

// Secret is a string that does not show: not in fmt with any verb, not in slog,
// not in JSON or text. [Secret.Reveal] is the only way to the value.
type Secret struct {
	// A pointer, because fmt cannot call Format on an unexported field of
	// somebody else's struct; it then prints an address instead of the text.
	value *string
}

// NewSecret returns a Secret that holds value.
func NewSecret(value string) Secret { return Secret{value: &value} }

// Reveal returns the secret text, empty for the zero Secret.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Equal reports whether both hold the same text.
func (s Secret) Equal(other Secret) bool { return s.Reveal() == other.Reveal() }

// String returns a placeholder.
func (s Secret) String() string { return hidden }

// GoString returns a placeholder.
func (s Secret) GoString() string { return hidden }

// Format writes a placeholder for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText returns a placeholder.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
