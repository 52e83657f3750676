package client

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// read decodes an answer: its result into out, if out is not nil, or its error. What
// is no answer of this version's is not taken for a success.
func read(method string, answer []byte, out any) (*Position, error) {
	if out == nil {
		out = new(Done)
	}
	reply := struct { // a Reply whose result is decoded in place
		Version  int       `json:"v"`
		Position *Position `json:"position"`
		Error    *Error    `json:"error"`
		Result   result    `json:"result"`
	}{Result: result{into: out}}
	if err := json.Unmarshal(answer, &reply); err != nil {
		return nil, fmt.Errorf("decode the answer to %s: %w", method, err)
	}
	switch {
	case reply.Error != nil:
		return nil, reply.Error
	case reply.Version != APIVersion:
		return nil, &Error{Code: CodeVersion, Message: fmt.Sprintf(
			"the answer to %s has version %d, this client reads %d: use a client of that version", method, reply.Version, APIVersion)}
	case !reply.Result.there:
		return nil, fmt.Errorf("decode the answer to %s: it holds neither a result nor an error", method)
	}
	return reply.Position, nil
}

// result is decoded to where the caller wants it.
type result struct {
	into  any
	there bool
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. A null is as
// good as nothing.
func (r *result) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == 'n' {
		return d.SkipValue()
	}
	r.there = true
	return json.UnmarshalDecode(d, r.into)
}
