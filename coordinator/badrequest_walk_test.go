package coordinator_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// schema is what these tests read of a published JSON schema.
type schema struct {
	Type       string            `json:"type"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	Items      *schema           `json:"items"`
}

// UnmarshalJSON takes true, which allows everything, for a schema of no type.
func (s *schema) UnmarshalJSON(b []byte) error {
	type plain schema
	if string(b) == "true" {
		return nil
	}
	return json.Unmarshal(b, (*plain)(s))
}

// field is one place in a request: names, and 0 in an array.
type field struct {
	path     []string
	schema   schema
	required bool
}

// fields lists the places of a request, an object before what is in it.
func (s schema) fields(at ...string) []field {
	var out []field
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		f := field{append(slices.Clone(at), name), s.Properties[name], slices.Contains(s.Required, name)}
		out = append(append(out, f), f.schema.fields(f.path...)...)
		if items := f.schema.Items; items != nil {
			in := field{append(slices.Clone(f.path), "0"), *items, false}
			out = append(append(out, in), items.fields(in.path...)...)
		}
	}
	return out
}

// names lists what the field is called, the most telling name first.
func (f field) names(method string) []string {
	path := slices.Clone(f.path)
	if n := len(path); path[n-1] == "0" {
		path = append(path[:n-2], path[n-2]+".0")
	}
	path = slices.DeleteFunc(path, func(s string) bool { return s == "0" })
	last := path[len(path)-1]
	if len(path) == 1 {
		return []string{method + "." + last, last}
	}
	return []string{path[len(path)-2] + "." + last, method + "." + last, last}
}

// absent stands for a field that is left out.
type absent struct{}

// with returns a request with the value of one place replaced.
func with(request any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if path[0] == "0" {
		list, _ := request.([]any)
		out := append(slices.Clone(list), nil)[:max(len(list), 1)]
		out[0] = with(out[0], path[1:], value)
		return out
	}
	object, _ := request.(map[string]any)
	out := maps.Clone(object)
	if out == nil {
		out = map[string]any{}
	}
	out[path[0]] = with(out[path[0]], path[1:], value)
	if (out[path[0]] == absent{}) {
		delete(out, path[0])
	}
	return out
}

// plain is a request as JSON has it.
func plain(t *testing.T, request any) any {
	t.Helper()
	var out any
	dec := json.NewDecoder(bytes.NewReader(encoded(t, request)))
	dec.UseNumber()
	if err := dec.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// named is how a message calls the field: an item by its list.
func (f field) named() string {
	path := slices.DeleteFunc(slices.Clone(f.path), func(s string) bool { return s == "0" })
	return path[len(path)-1]
}
