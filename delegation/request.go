package delegation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Request is what a delegating call asks for. Its fields are what its digest is
// of.
type Request struct {
	Kind    session.Kind        `json:"kind"`
	Mode    session.Mode        `json:"mode"`
	Label   string              `json:"label"`
	Prompt  string              `json:"prompt"`
	Sandbox session.SandboxMode `json:"sandbox,omitempty"`
	Tools   *session.ToolFilter `json:"tools,omitempty"`
	Persona string              `json:"persona,omitempty"`
}

// Check holds a request to its form. What it asks for is policy's to judge.
func (r Request) Check() error {
	switch {
	case r.Kind != session.Spawn && r.Kind != session.Fork:
		return invalid("unknown kind %q (available: %s, %s)", r.Kind, session.Spawn, session.Fork)
	case r.Mode != session.OneShot && r.Mode != session.Continuable:
		return invalid("unknown mode %q (available: %s, %s)", r.Mode, session.OneShot, session.Continuable)
	case r.Tools != nil && r.Tools.Allow == nil && len(r.Tools.Deny) == 0:
		return invalid("a tool filter holds allow, deny or both")
	case len(r.Persona) > session.MaxPrompt:
		return invalid("the persona has %d bytes, at most %d fit", len(r.Persona), session.MaxPrompt)
	}
	if err := CheckLabel(r.Label); err != nil {
		return err
	}
	return CheckPrompt(r.Prompt)
}

// Wish is what the request asks policy for.
func (r Request) Wish() policy.Wish { return policy.Wish{Sandbox: r.Sandbox, Filter: r.Tools} }

// CheckLabel holds a label to its form.
func CheckLabel(label string) error {
	if label == "" || len(label) > session.MaxName || !utf8.ValidString(label) ||
		strings.ContainsFunc(label, unicode.IsControl) {
		return invalid("label %q: give 1 to %d bytes without control characters", label, session.MaxName)
	}
	return nil
}

// CheckPrompt holds a prompt to its size.
func CheckPrompt(prompt string) error {
	switch {
	case strings.TrimSpace(prompt) == "":
		return invalid("the prompt is empty: say what is to be done")
	case len(prompt) > session.MaxPrompt:
		return invalid("the prompt has %d bytes, at most %d fit: put the material into a file of the workspace", len(prompt), session.MaxPrompt)
	case !utf8.ValidString(prompt):
		return invalid("the prompt is not UTF-8: give it as text")
	}
	return nil
}

// Digest is the SHA-256, in hex, of a request's RFC 8785 JSON. It tells a retry
// from something else (SPEC 1.10).
func Digest(request any) (string, error) {
	plain, err := json.Marshal(request)
	if err != nil {
		return "", fmt.Errorf("encode request: %w", err)
	}
	v := jsontext.Value(plain)
	if err := v.Canonicalize(); err != nil {
		return "", fmt.Errorf("canonicalise request: %w", err)
	}
	sum := sha256.Sum256(v)
	return hex.EncodeToString(sum[:]), nil
}
