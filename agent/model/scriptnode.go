package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fields returns the keys and values of a mapping. With known keys given,
// another key is an error; a repeated key always is.
func (p *scriptParser) fields(n *yaml.Node, what string, known ...string) ([]field, error) {
	if n.Kind != yaml.MappingNode {
		return nil, p.errorAt(n, "%s is %s, want a map", what, kindName(n))
	}
	out := make([]field, 0, len(n.Content)/2)
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		f := field{key: n.Content[i], value: n.Content[i+1]}
		key := f.key.Value
		switch {
		case f.key.Kind != yaml.ScalarNode || f.key.ShortTag() == "!!merge" || f.key.ShortTag() == "!!null":
			return nil, p.errorAt(f.key, "a key of %s is %s, want a plain word", what, kindName(f.key))
		case len(known) > 0 && !slices.Contains(known, key):
			return nil, p.errorAt(f.key, "unknown key %q of %s, want %s", key, what, strings.Join(known, ", "))
		case seen[key]:
			return nil, p.errorAt(f.key, "%s has the key %q twice", what, key)
		}
		seen[key] = true
		out = append(out, f)
	}
	return out, nil
}

// elements returns the elements of a sequence.
func (p *scriptParser) elements(n *yaml.Node, what string) ([]*yaml.Node, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, p.errorAt(n, "%s is %s, want a list", what, kindName(n))
	}
	return n.Content, nil
}

// text returns the value of a string. A number is none, so that what reaches
// the log is what stands in the file.
func (p *scriptParser) text(n *yaml.Node, what string) (string, error) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return "", p.errorAt(n, "%s is %s, want a string", what, kindName(n))
	}
	return n.Value, nil
}

// arguments returns a mapping as compact JSON.
func (p *scriptParser) arguments(n *yaml.Node) (string, error) {
	if n.Kind != yaml.MappingNode {
		return "", p.errorAt(n, "args is %s, want a map", kindName(n))
	}
	var b bytes.Buffer
	if err := p.encode(&b, n); err != nil {
		return "", err
	}
	return b.String(), nil
}

// encode appends the JSON of a node. It walks the nodes itself because a decoded
// map would lose the order of its keys.
func (p *scriptParser) encode(b *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		return p.encodeMap(b, n)
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, e := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := p.encode(b, e); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case yaml.ScalarNode:
		return p.encodeScalar(b, n)
	default:
		return p.errorAt(n, "%s cannot stand in args", kindName(n))
	}
}

func (p *scriptParser) encodeMap(b *bytes.Buffer, n *yaml.Node) error {
	fields, err := p.fields(n, "args")
	if err != nil {
		return err
	}
	b.WriteByte('{')
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := p.writeJSON(b, f.key, f.key.Value); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := p.encode(b, f.value); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func (p *scriptParser) encodeScalar(b *bytes.Buffer, n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null", "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return p.errorAt(n, "%s cannot stand in args", kindName(n))
		}
		return p.writeJSON(b, n, v)
	case "!!str", "!!timestamp":
		// NB: a date is a string here, as it is for a model.
		return p.writeJSON(b, n, n.Value)
	default:
		return p.errorAt(n, "a value tagged %s cannot stand in args", n.ShortTag())
	}
}

// writeJSON appends v as a model would write it: no HTML escapes, no newline.
func (p *scriptParser) writeJSON(b *bytes.Buffer, n *yaml.Node, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return p.errorAt(n, "%q cannot be written as JSON", n.Value)
	}
	b.Truncate(b.Len() - 1)
	return nil
}

// kindName says in words what a node is.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!null":
			return "empty"
		case "!!str":
			return "a string"
		default:
			return fmt.Sprintf("the value %q", n.Value)
		}
	default:
		return "nothing"
	}
}
