package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// intent is what a call wants once its arguments are understood: an operation
// behind the fence, or a child. What a coordinator relays is neither: it reads the
// arguments from the log.
type intent struct {
	op       sandbox.Op
	delegate *delegation
	escalate escalated
}

// escalated is the part of the arguments that asks for a wider mode.
type escalated struct {
	Mode          session.SandboxMode `json:"sandbox_permissions"`
	Justification string              `json:"justification"`
}

// delegation is a delegating call's arguments.
type delegation struct {
	client.DelegateSpec
	Background bool
}

// maxTimeout bounds what a call may take.
const maxTimeout = time.Hour

// strict decodes arguments into v. Whatever passes has one normal form: a key in
// another case would have told a repeat of a refused call from the call (SPEC 5.8).
func strict(raw string, v any) error {
	if strings.TrimSpace(raw) == "" {
		raw = "{}"
	}
	if err := client.Decode([]byte(raw), v); err != nil {
		return fmt.Errorf("the arguments are not as the tool's schema says: %w", err)
	}
	return nil
}

func missing(key string) error { return fmt.Errorf("the argument %q is missing", key) }

func decodeRead(raw string) (intent, error) {
	var a struct {
		Path   *string `json:"path"`
		Offset int     `json:"offset"`
		Limit  int     `json:"limit"`
	}
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	switch {
	case a.Path == nil:
		return intent{}, missing("path")
	case a.Offset < 0 || a.Limit < 0:
		return intent{}, errors.New("offset and limit are not negative")
	}
	return intent{op: sandbox.Op{Read: &sandbox.Read{Path: *a.Path, Offset: a.Offset, Limit: a.Limit}}}, nil
}

func decodeWrite(raw string) (intent, error) {
	var a struct {
		Path    *string `json:"path"`
		Content *string `json:"content"`
		escalated
	}
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	switch {
	case a.Path == nil:
		return intent{}, missing("path")
	case a.Content == nil:
		return intent{}, missing("content")
	}
	return intent{op: sandbox.Op{Write: &sandbox.Write{Path: *a.Path, Content: *a.Content}}, escalate: a.escalated}, nil
}

func decodeEdit(raw string) (intent, error) {
	var a struct {
		Path *string `json:"path"`
		Old  *string `json:"old"`
		New  *string `json:"new"`
		All  bool    `json:"all"`
		escalated
	}
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	switch {
	case a.Path == nil:
		return intent{}, missing("path")
	case a.Old == nil || *a.Old == "":
		return intent{}, missing("old")
	case a.New == nil:
		return intent{}, missing("new")
	}
	return intent{op: sandbox.Op{Edit: &sandbox.Edit{Path: *a.Path, Old: *a.Old, New: *a.New, All: a.All}}, escalate: a.escalated}, nil
}

func decodeList(raw string) (intent, error) {
	var a struct {
		Path string `json:"path"`
	}
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	return intent{op: sandbox.Op{List: &sandbox.List{Path: a.Path}}}, nil
}

func decodeGlob(raw string) (intent, error) {
	var a struct {
		Pattern string `json:"pattern"`
	}
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	if a.Pattern == "" {
		return intent{}, missing("pattern")
	}
	return intent{op: sandbox.Op{Glob: &sandbox.Glob{Pattern: a.Pattern}}}, nil
}

func decodeGrep(raw string) (intent, error) {
	var a struct {
		Pattern string `json:"pattern"`
		Path    string `json:"path"`
	}
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	if a.Pattern == "" {
		return intent{}, missing("pattern")
	}
	return intent{op: sandbox.Op{Grep: &sandbox.Grep{Pattern: a.Pattern, Path: a.Path}}}, nil
}

func decodeBash(raw string) (intent, error) {
	var a struct {
		Command string  `json:"command"`
		Timeout float64 `json:"timeout"`
		escalated
	}
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	switch {
	case strings.TrimSpace(a.Command) == "":
		return intent{}, missing("command")
	case strings.ContainsRune(a.Command, 0):
		return intent{}, errors.New("the command holds a zero byte")
	case a.Timeout < 0 || a.Timeout > maxTimeout.Seconds():
		return intent{}, fmt.Errorf("timeout is between 0 and %v seconds", maxTimeout.Seconds())
	}
	shell := &sandbox.Shell{Command: a.Command, Timeout: time.Duration(a.Timeout * float64(time.Second))}
	return intent{op: sandbox.Op{Shell: shell}, escalate: a.escalated}, nil
}

func decodeDelegate(raw string) (intent, error) {
	var a struct {
		Kind       session.Kind        `json:"kind"`
		Mode       session.Mode        `json:"mode"`
		Label      string              `json:"label"`
		Prompt     string              `json:"prompt"`
		Background bool                `json:"background"`
		Sandbox    session.SandboxMode `json:"sandbox"`
		Tools      *session.ToolFilter `json:"tools"`
		Persona    string              `json:"persona"`
		escalated
	}
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	if a.Mode == "" {
		a.Mode = session.OneShot
	}
	switch {
	case a.Kind != session.Spawn && a.Kind != session.Fork:
		return intent{}, fmt.Errorf("kind %q is neither %q nor %q", a.Kind, session.Spawn, session.Fork)
	case a.Mode != session.OneShot && a.Mode != session.Continuable:
		return intent{}, fmt.Errorf("mode %q is neither %q nor %q", a.Mode, session.OneShot, session.Continuable)
	case a.Label == "" || len(a.Label) > session.MaxName:
		return intent{}, fmt.Errorf("label has 1 to %d bytes", session.MaxName)
	case a.Prompt == "":
		return intent{}, missing("prompt")
	case len(a.Prompt) > session.MaxPrompt:
		return intent{}, fmt.Errorf("the prompt has %d bytes, at most %d are allowed", len(a.Prompt), session.MaxPrompt)
	}
	return intent{escalate: a.escalated, delegate: &delegation{
		Background: a.Background,
		DelegateSpec: client.DelegateSpec{
			Kind: a.Kind, Mode: a.Mode, Label: a.Label, Prompt: a.Prompt,
			Sandbox: a.Sandbox, Tools: a.Tools, Persona: a.Persona,
		},
	}}, nil
}

func decodeSend(raw string) (intent, error) {
	var a client.Send
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	if a.To == "" {
		return intent{}, missing("to")
	}
	return intent{}, relayable(a.Message)
}

func decodeReport(raw string) (intent, error) {
	var a client.Report
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	return intent{}, relayable(a.Message)
}

// relayable holds a message to another session to what its log takes.
func relayable(message string) error {
	switch {
	case strings.TrimSpace(message) == "":
		return missing("message")
	case len(message) > session.MaxPrompt:
		return fmt.Errorf("the message has %d bytes, at most %d are allowed", len(message), session.MaxPrompt)
	}
	return nil
}

func decodeStop(raw string) (intent, error) {
	var a client.Stop
	if err := strict(raw, &a); err != nil {
		return intent{}, err
	}
	if a.Session == "" {
		return intent{}, missing("session")
	}
	return intent{}, nil
}

// subject is what policy needs to know of a call.
func (i intent) subject(id session.CallID, t tool, arguments string) policy.Call {
	c := policy.Call{
		ID: id, Tool: t.name, Effect: t.effect, Digest: digest(arguments),
		Escalate: i.escalate.Mode, Justification: i.escalate.Justification,
	}
	if d := i.delegate; d != nil {
		c.Wish = &policy.Wish{Sandbox: d.Sandbox, Filter: d.Tools}
	}
	return c
}

// digest is the SHA-256 of arguments in one form: sorted keys, no white space.
func digest(arguments string) string {
	sum := sha256.Sum256(canonical(arguments))
	return hex.EncodeToString(sum[:])
}

// canonical gives arguments that say the same the same bytes. What is no JSON is
// its own form.
func canonical(arguments string) []byte {
	dec := json.NewDecoder(strings.NewReader(arguments))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return []byte(arguments)
	}
	b, err := compact(v)
	if err != nil {
		return []byte(arguments)
	}
	return b
}

func compact(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
