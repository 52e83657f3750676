//go:build linux && (amd64 || arm64)

package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/entail-fleet/entail/internal/wire"
)

const (
	maxGrepFile = 16 << 20 // larger files are data, not text
	maxGrepLine = 500      // what is shown of a matching line
)

// list shows the entries of a directory, directories with a slash.
func (o *operation) list(l *wire.List) error {
	p, err := o.find(orRoot(l.Path))
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(p.root.FS(), p.rel)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !o.emitName(e.Name(), kind(e)) {
			break
		}
	}
	o.explain()
	return nil
}

// kind is what follows a name in a list.
func kind(e fs.DirEntry) string {
	switch {
	case e.IsDir():
		return "/"
	case e.Type()&fs.ModeSymlink != 0:
		return "@"
	}
	return ""
}

func orRoot(path string) string {
	if path == "" {
		return "."
	}
	return path
}

// glob shows the files whose path matches. The part of the pattern before the
// first wildcard is a path like any other, so it may not lead outside; links met
// on the walk are shown and not followed.
func (o *operation) glob(g *wire.Glob) error {
	base, pattern := splitPattern(g.Pattern)
	if pattern == "" {
		return faultf(wire.CodeInvalid, "the pattern is empty")
	}
	parts := strings.Split(pattern, "/")
	for _, part := range parts {
		if _, err := path.Match(part, ""); err != nil {
			return faultf(wire.CodeInvalid, "the pattern %q is malformed", g.Pattern)
		}
	}
	err := o.walk(orRoot(base), func(p *place, rel string, d fs.DirEntry) error {
		if d.IsDir() || !matches(parts, strings.Split(rel, "/")) || o.emitName(o.show(p.path), "") {
			return nil
		}
		return fs.SkipAll
	})
	o.explain()
	return err
}

// splitPattern cuts a pattern before its first part with a wildcard, or before
// its last part.
func splitPattern(pattern string) (base, rest string) {
	parts := strings.Split(pattern, "/")
	i := 0
	for i < len(parts)-1 && !strings.ContainsAny(parts[i], `*?[\`) {
		i++
	}
	base = strings.Join(parts[:i], "/")
	if base == "" && i > 0 {
		base = "/"
	}
	return base, strings.Join(parts[i:], "/")
}

// matches matches path components, with ** for any number of them.
func matches(pattern, parts []string) bool {
	if len(pattern) == 0 {
		return len(parts) == 0
	}
	if pattern[0] == "**" {
		for i := range len(parts) + 1 {
			if matches(pattern[1:], parts[i:]) {
				return true
			}
		}
		return false
	}
	if len(parts) == 0 {
		return false
	}
	ok, err := path.Match(pattern[0], parts[0])
	return err == nil && ok && matches(pattern[1:], parts[1:])
}

// grep shows matching lines as file:line:text.
func (o *operation) grep(g *wire.Grep) error {
	re, err := regexp.Compile(g.Pattern)
	if err != nil {
		return faultf(wire.CodeInvalid, "the pattern does not parse: %v", err)
	}
	err = o.walk(orRoot(g.Path), func(p *place, _ string, d fs.DirEntry) error {
		if !d.Type().IsRegular() {
			return nil
		}
		return o.grepFile(re, p)
	})
	if err == nil && o.output.Len() == 0 {
		o.output.WriteString("no line matches")
	}
	o.explain()
	return err
}

// grepFile searches one file. A file that cannot be read, or is no text, has no
// lines.
func (o *operation) grepFile(re *regexp.Regexp, p *place) error {
	f, info, err := o.open(p)
	if errors.Is(err, errUnsure) {
		return err
	}
	if err != nil {
		return nil // one unreadable file does not end a search
	}
	defer func() { _ = f.Close() }()
	if info.Size() > maxGrepFile {
		return nil
	}
	in := bufio.NewScanner(f)
	in.Buffer(nil, maxGrepFile+1)
	for n := 1; in.Scan(); n++ {
		line := in.Bytes()
		if bytes.IndexByte(line, 0) >= 0 {
			return nil
		}
		if !re.Match(line) {
			continue
		}
		if !o.emitName(o.show(p.path), fmt.Sprintf(":%d:%s", n, line[:min(len(line), maxGrepLine)])) {
			return fs.SkipAll
		}
	}
	return nil
}

// walk visits what lies at and below a path, in order, without following links
// and without entering what is hidden, .git, procfs or sysfs. visit gets the file
// as a place and its path relative to where the walk began.
func (o *operation) walk(start string, visit func(p *place, rel string, d fs.DirEntry) error) error {
	from, err := o.find(start)
	if err != nil {
		return err
	}
	return fs.WalkDir(from.root.FS(), from.rel, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if name == from.rel {
				return err
			}
			return nil // an unreadable directory does not end a search
		}
		if err := o.goOn(); err != nil {
			return err
		}
		at := filepath.Join(from.root.Name(), name)
		hidden := !o.bounds.Unconfined && o.hides(at)
		if d.IsDir() {
			if hidden || name != from.rel && d.Name() == ".git" || at == "/proc" || at == "/sys" {
				return fs.SkipDir
			}
			return nil
		}
		if hidden {
			return nil
		}
		rel, err := filepath.Rel(from.rel, name)
		if err != nil {
			return err
		}
		return visit(&place{root: from.root, rel: name, path: at}, rel, d)
	})
}
