package agent

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// form is what of a call tells it from another one (SPEC 5.8).
type form struct {
	Tool     string
	Op       sandbox.Op
	Delegate *client.DelegateSpec `json:",omitempty"`
	Escalate session.SandboxMode  `json:",omitempty"`
}

// normal names what a call wants, however it is written: two calls of one normal
// form are the same call asked for again (SPEC 5.8). Values that are the default,
// timeout, justification and background are left out, paths are resolved, and of a
// command only the words count, without variables in front and however they are
// quoted and spaced.
func normal(cwd, name, arguments string) string {
	if !seesThrough {
		return name + " " + arguments
	}
	t, known := toolOf(name)
	if !known {
		return name + " " + string(canonical(arguments))
	}
	in, err := t.decode(arguments)
	if err != nil {
		return name + " " + string(canonical(arguments))
	}
	f := form{Tool: name, Op: resolved(cwd, in.op), Escalate: in.escalate.Mode}
	if d := in.delegate; d != nil {
		f.Delegate = &d.DelegateSpec
	}
	b, err := json.Marshal(f)
	if err != nil {
		panic("unreachable: what was decoded can be encoded: " + err.Error())
	}
	return string(b)
}

// resolved is an operation with its paths and its command in one form. It writes to
// copies.
func resolved(cwd string, op sandbox.Op) sandbox.Op {
	switch {
	case op.Shell != nil:
		return sandbox.Op{Shell: &sandbox.Shell{Command: plain(cwd, op.Shell.Command)}}
	case op.Read != nil:
		r := *op.Read
		r.Path = place(cwd, r.Path)
		return sandbox.Op{Read: &r}
	case op.Write != nil:
		w := *op.Write
		w.Path = place(cwd, w.Path)
		return sandbox.Op{Write: &w}
	case op.Edit != nil:
		e := *op.Edit
		e.Path = place(cwd, e.Path)
		return sandbox.Op{Edit: &e}
	case op.List != nil:
		return sandbox.Op{List: &sandbox.List{Path: place(cwd, op.List.Path)}}
	case op.Grep != nil:
		return sandbox.Op{Grep: &sandbox.Grep{Pattern: op.Grep.Pattern, Path: place(cwd, op.Grep.Path)}}
	}
	return op
}

// place is a path as seen from the workspace: below it without it, elsewhere from
// the root on.
func place(cwd, p string) string {
	if !path.IsAbs(p) {
		p = path.Join(cwd, p)
	}
	p = path.Clean(p)
	if below, ok := strings.CutPrefix(p, path.Clean(cwd)); ok && (below == "" || below[0] == '/') {
		return strings.TrimPrefix(below, "/")
	}
	return p
}

// plain is a command in one form. What is no shell command is told apart by its
// words alone.
func plain(cwd, command string) string {
	file, err := syntax.NewParser().Parse(strings.NewReader(command), "")
	if err != nil {
		return strings.Join(strings.Fields(command), " ")
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			if len(n.Args) > 0 {
				n.Assigns, n.Args = nil, unset(n.Args)
			}
		case *syntax.Word:
			if text, ok := literal(n); ok {
				n.Parts = []syntax.WordPart{&syntax.SglQuoted{Value: escaped(word(cwd, text))}}
				return false
			}
		}
		return true
	})
	var b bytes.Buffer
	if err := syntax.NewPrinter(syntax.SingleLine(true)).Print(&b, file); err != nil {
		return strings.Join(strings.Fields(command), " ")
	}
	return strings.TrimSpace(b.String())
}

// unset leaves the program env out that does nothing but to set variables.
func unset(args []*syntax.Word) []*syntax.Word {
	if name, ok := literal(args[0]); !ok || path.Base(name) != "env" {
		return args
	}
	i := slices.IndexFunc(args[1:], func(w *syntax.Word) bool { return !assigns(w) })
	if rest := args[1:]; i >= 0 {
		if text, ok := literal(rest[i]); !ok || !strings.HasPrefix(text, "-") {
			return rest[i:]
		}
	}
	return args
}

// assigns reports whether a word of env's sets a variable.
func assigns(w *syntax.Word) bool {
	first, ok := w.Parts[0].(*syntax.Lit)
	if !ok {
		return false
	}
	name, _, found := strings.Cut(first.Value, "=")
	return found && syntax.ValidName(name)
}

// literal is the text of a word that means just that text.
func literal(w *syntax.Word) (string, bool) {
	var b strings.Builder
	for _, p := range w.Parts {
		text, ok := part(p, false)
		if !ok {
			return "", false
		}
		b.WriteString(text)
	}
	return b.String(), true
}

func part(p syntax.WordPart, quoted bool) (string, bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		return unescaped(p.Value, quoted)
	case *syntax.SglQuoted:
		return p.Value, !p.Dollar
	case *syntax.DblQuoted:
		var b strings.Builder
		for _, in := range p.Parts {
			text, ok := part(in, true)
			if !ok {
				return "", false
			}
			b.WriteString(text)
		}
		return b.String(), !p.Dollar
	}
	return "", false
}

// unescaped is what a literal means, unless the shell makes something else of it.
func unescaped(s string, quoted bool) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && s[i+1] == '\n':
			i++
		case c == '\\' && i+1 < len(s) && (!quoted || strings.IndexByte("$`\"\\", s[i+1]) >= 0):
			i++
			b.WriteByte(s[i])
		case !quoted && strings.IndexByte("*?[{~", c) >= 0:
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// word is a literal word; one that is a path is resolved.
func word(cwd, text string) string {
	isPath := strings.Contains(text, "/") && !strings.Contains(text, "://") && !strings.HasPrefix(text, "-") || text == "." || text == ".."
	if !isPath || strings.ContainsAny(text, " \t\n") {
		return text
	}
	if p := place(cwd, text); p != "" {
		return p
	}
	return "."
}

// escaped lets no text look like the end of its quotes.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\x27`).Replace(text)
}
