package client_test

import (
	"strings"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
)

// What is not taken is refused in the words of JSON, with the field's name.
func TestDecodeSpeaksOfFields(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"name":"a","count":2,"lease":"5s","calls":[{"id":"x"}]}`: "",
		`{"name":1}`:             `field "name" takes no JSON number`,
		`{"name":{}}`:            `field "name" takes no JSON object`,
		`{"count":1.5}`:          `field "count" takes no JSON number 1.5`,
		`{"count":1e99}`:         `field "count" takes no JSON number 1e99`,
		`{"Name":"a"}`:           `there is no field "Name"`,
		`{"calls":[{"ID":"x"}]}`: `there is no field "ID" in calls.0`,
		`{"calls":[{"id":7}]}`:   `field "calls.0.id" takes no JSON number`,
		`{"lease":"5 apples"}`:   `field "lease": time: unknown unit " apples" in duration "5 apples"`,
		`{"lease":5}`:            `field "lease" takes no JSON number`,
		`{"name":"a","name":""}`: `field "name" is given twice`,
		`[]`:                     `it is a JSON array`,
		`{"name":"a"} {}`:        `it is not one JSON value: invalid character '{' after top-level value at byte 13`,
		`{"name":`:               `it is not one JSON value: unexpected EOF at byte 8`,
		``:                       `it is not one JSON value: unexpected EOF at byte 0`,
		"{\"name\":\"\xff\"}":    `it is not one JSON value: invalid UTF-8 at byte 9`,
	} {
		var into struct {
			Name  string          `json:"name"`
			Count int             `json:"count"`
			Lease policy.Duration `json:"lease"`
			Calls []struct {
				ID string `json:"id"`
			} `json:"calls"`
		}
		got := ""
		if err := client.Decode([]byte(text), &into); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		for _, word := range []string{"Go ", "struct", "jsontext", "unmarshal"} {
			if strings.Contains(got, word) {
				t.Errorf("%q: %q speaks of %q", text, got, word)
			}
		}
	}
}
