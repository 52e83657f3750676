package model

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// delegateTool is the tool whose calls give labels to children.
const delegateTool = "delegate"

// scriptTools are the tools a script may call when the caller names none.
var scriptTools = [...]string{"read", "write", "edit", "list", "glob", "grep", "bash", delegateTool}

// ScriptError is a fault of a script, with its place.
type ScriptError struct {
	// Name is the script's name as given to [ParseScript].
	Name string
	// Line and Column count from 1. They are 0 where the fault has no place,
	// and Column alone is 0 where the text is not YAML.
	Line, Column int
	// Msg says what is wrong.
	Msg string
}

// Error returns "name:line:column: message".
func (e *ScriptError) Error() string {
	switch {
	case e.Line == 0:
		return e.Name + ": " + e.Msg
	case e.Column == 0:
		return fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Msg)
	default:
		return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Column, e.Msg)
	}
}

// ParseScript parses the text of a script. The name stands in errors, which are
// all of type *[ScriptError]. A script is strict: it may hold only known keys and
// calls of the given tools, or of Entail's own tools if none are given; each
// label that has a list is "root" or given by exactly one delegate call; no
// two delegate calls give the same label; and what is waited for has an
// absolute path.
func ParseScript(name string, data []byte, tools ...string) (*Script, error) {
	if len(data) > MaxScriptBytes {
		return nil, &ScriptError{Name: name, Msg: fmt.Sprintf(
			"the script has %d bytes, at most %d are allowed", len(data), MaxScriptBytes)}
	}
	if len(tools) == 0 {
		tools = scriptTools[:]
	}
	p := scriptParser{name: name, tools: tools, given: map[string]bool{}}
	root, err := p.document(data)
	if err != nil {
		return nil, err
	}
	s := &Script{data: slices.Clone(data), lists: map[string][]item{}}
	if err := p.script(s, root); err != nil {
		return nil, err
	}
	return s, nil
}

// scriptParser turns nodes into a script. The set given holds the labels of the
// delegate calls seen so far.
type scriptParser struct {
	name  string
	tools []string
	given map[string]bool
}

// field is one key of a mapping with its value.
type field struct{ key, value *yaml.Node }

func (p *scriptParser) errorAt(n *yaml.Node, format string, args ...any) error {
	return &ScriptError{Name: p.name, Line: n.Line, Column: n.Column, Msg: fmt.Sprintf(format, args...)}
}

// document returns the one node of the one document in data.
func (p *scriptParser) document(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, &ScriptError{Name: p.name, Msg: "the script is empty, want a map with the key sessions"}
	} else if err != nil {
		return nil, p.syntaxError(err)
	}
	if err := dec.Decode(&more); err == nil {
		return nil, p.errorAt(&more, "a second document begins here, a script is one")
	} else if !errors.Is(err, io.EOF) {
		return nil, p.syntaxError(err)
	}
	if len(doc.Content) != 1 {
		return nil, p.errorAt(&doc, "the script is empty, want a map with the key sessions")
	}
	return doc.Content[0], nil
}

// syntaxError puts the line that the YAML parser names where ours stand.
func (p *scriptParser) syntaxError(err error) error {
	e := &ScriptError{Name: p.name, Msg: strings.TrimPrefix(err.Error(), "yaml: ")}
	var line int
	if n, _ := fmt.Sscanf(e.Msg, "line %d: ", &line); n == 1 {
		e.Line = line
		_, e.Msg, _ = strings.Cut(e.Msg, ": ")
	}
	e.Msg = "not YAML: " + e.Msg
	return e
}

// script fills s from the top node.
func (p *scriptParser) script(s *Script, root *yaml.Node) error {
	top, err := p.fields(root, "the script", "sessions")
	if err != nil {
		return err
	}
	if len(top) == 0 {
		return p.errorAt(root, "the script has no key sessions")
	}
	lists, err := p.fields(top[0].value, "sessions")
	if err != nil {
		return err
	}
	for _, f := range lists {
		label := f.key.Value
		if label == "" {
			return p.errorAt(f.key, "a label is empty")
		}
		if s.lists[label], err = p.list(f.value, label); err != nil {
			return err
		}
		s.labels = append(s.labels, label)
	}
	// Only now is every delegate call known: a child may be listed before
	// the session that delegates to it.
	for _, f := range lists {
		if label := f.key.Value; label != RootLabel && !p.given[label] {
			return p.errorAt(f.key, "no delegate call of this script gives the label %q", label)
		}
	}
	return nil
}

// list parses the responses of one label.
func (p *scriptParser) list(n *yaml.Node, label string) ([]item, error) {
	nodes, err := p.elements(n, fmt.Sprintf("the list of %q", label))
	if err != nil {
		return nil, err
	}
	items := make([]item, 0, len(nodes))
	for _, node := range nodes {
		it, err := p.item(node)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}

// item parses one response.
func (p *scriptParser) item(n *yaml.Node) (item, error) {
	var it item
	fields, err := p.fields(n, "a response", "text", "calls", "wait_for")
	if err != nil {
		return it, err
	}
	for _, f := range fields {
		switch f.key.Value {
		case "text":
			it.text, err = p.text(f.value, "text")
		case "calls":
			it.calls, err = p.calls(f.value)
		case "wait_for":
			it.waitFor, err = p.path(f.value)
		}
		if err != nil {
			return it, err
		}
	}
	return it, nil
}

// calls parses the calls of one response.
func (p *scriptParser) calls(n *yaml.Node) ([]Call, error) {
	nodes, err := p.elements(n, "calls")
	if err != nil {
		return nil, err
	}
	calls := make([]Call, 0, len(nodes))
	for _, node := range nodes {
		c, err := p.call(node)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// call parses one call. Its arguments become compact JSON with the keys in the
// order of the file.
func (p *scriptParser) call(n *yaml.Node) (Call, error) {
	c := Call{Arguments: "{}"}
	fields, err := p.fields(n, "a call", "id", "tool", "args")
	if err != nil {
		return c, err
	}
	var args *yaml.Node
	for _, f := range fields {
		switch f.key.Value {
		case "id":
			c.ID, err = p.text(f.value, "id")
		case "tool":
			c.Name, err = p.tool(f.value)
		case "args":
			args = f.value
			c.Arguments, err = p.arguments(args)
		}
		if err != nil {
			return c, err
		}
	}
	if c.Name == "" {
		return c, p.errorAt(n, "a call names no tool")
	}
	if c.Name == delegateTool && args != nil {
		return c, p.giveLabel(args)
	}
	return c, nil
}

// giveLabel notes the label that a delegate call gives to its child. A call
// without one, or with one of another type, is for the tool to refuse.
func (p *scriptParser) giveLabel(args *yaml.Node) error {
	for i := 0; i+1 < len(args.Content); i += 2 {
		label := args.Content[i+1]
		if args.Content[i].Value != "label" || label.ShortTag() != "!!str" {
			continue
		}
		if label.Value == RootLabel {
			return p.errorAt(label, "the label %q is the root's own", RootLabel)
		}
		if p.given[label.Value] {
			return p.errorAt(label, "two delegate calls give the label %q", label.Value)
		}
		p.given[label.Value] = true
	}
	return nil
}

func (p *scriptParser) tool(n *yaml.Node) (string, error) {
	name, err := p.text(n, "tool")
	if err != nil {
		return "", err
	}
	if !slices.Contains(p.tools, name) {
		return "", p.errorAt(n, "unknown tool %q, want one of %s", name, strings.Join(p.tools, ", "))
	}
	return name, nil
}

func (p *scriptParser) path(n *yaml.Node) (string, error) {
	path, err := p.text(n, "wait_for")
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", p.errorAt(n, "wait_for is %q, want an absolute path", path)
	}
	return path, nil
}
