package client

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads text strictly: one JSON value of into's fields, each once and of its
// type. What encoding/json reads leniently, a name in another case or given twice, is
// refused: of two readers of such a text each could see another one. Errors speak of
// JSON and its fields, not of Go: people and models are shown them.
func Decode(text []byte, into any) error {
	err := json.Unmarshal(text, into, json.RejectUnknownMembers(true))
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok {
		return inFields(wrong)
	}
	bad, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case !ok:
		return err
	case errors.Is(bad, jsontext.ErrDuplicateName):
		return fmt.Errorf("field %q is given twice", dotted(bad.JSONPointer))
	}
	return fmt.Errorf("it is not one JSON value: %v at byte %d", bad.Err, bad.ByteOffset) //nolint:errorlint // text for people
}

// inFields says in the words of JSON what the library says in those of Go.
func inFields(wrong *json.SemanticError) error {
	what := kindName(wrong.JSONKind)
	if len(wrong.JSONValue) > 0 {
		what += " " + wrong.JSONValue.String()
	}
	switch p := wrong.JSONPointer; {
	case errors.Is(wrong, json.ErrUnknownName) && p.Parent() == "":
		return fmt.Errorf("there is no field %q", p.LastToken())
	case errors.Is(wrong, json.ErrUnknownName):
		return fmt.Errorf("there is no field %q in %s", p.LastToken(), dotted(p.Parent()))
	case p == "":
		return fmt.Errorf("it is a JSON %s", what)
	case wrong.JSONKind != '"' || wrong.Err == nil || errors.Is(wrong.Err, strconv.ErrSyntax):
		return fmt.Errorf("field %q takes no JSON %s", dotted(p), what)
	default: // a text that its type does not read
		return fmt.Errorf("field %q: %v", dotted(p), wrong.Err) //nolint:errorlint // text for people
	}
}

// dotted writes a pointer as our documents write fields: calls.0.spec.
func dotted(p jsontext.Pointer) string { return strings.Join(slices.Collect(p.Tokens()), ".") }

func kindName(k jsontext.Kind) string {
	if name, ok := map[jsontext.Kind]string{'{': "object", '[': "array"}[k]; ok {
		return name
	}
	return k.String()
}
