//go:build linux && (amd64 || arm64)

package main

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

// glob shows the files whose path matches. The part of the pattern before the
// first wildcard is a path like any other, so it may not lead outside; links met
// on the walk are shown and not followed.
func (w *worksite) glob(o *wire.Glob) error {
	base, pattern := splitPattern(o.Pattern)
	if pattern == "" {
		return faultf(wire.CodeInvalid, "the pattern is empty")
	}
	parts := strings.Split(pattern, "/")
	for _, part := range parts {
		if _, err := path.Match(part, ""); err != nil {
			return faultf(wire.CodeInvalid, "the pattern %q is malformed", o.Pattern)
		}
	}
	return w.walk(orRoot(base), func(_ *place, rel, shown string, d fs.DirEntry) error {
		if d.IsDir() || !matches(parts, strings.Split(rel, "/")) {
			return nil
		}
		return w.emitLine(shown)
	})
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
func (w *worksite) grep(o *wire.Grep) error {
	re, err := regexp.Compile(o.Pattern)
	if err != nil {
		return faultf(wire.CodeInvalid, "the pattern does not parse: %v", err)
	}
	err = w.walk(orRoot(o.Path), func(p *place, _, shown string, d fs.DirEntry) error {
		if !d.Type().IsRegular() {
			return nil
		}
		return w.grepFile(re, p, shown)
	})
	if err == nil && w.output.Len() == 0 {
		w.output.WriteString("no line matches")
	}
	return err
}

// grepFile searches one file. A file that cannot be read, or is no text, has no
// lines.
func (w *worksite) grepFile(re *regexp.Regexp, p *place, shown string) error {
	f, info, err := p.open()
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
		if err := w.emitLine(fmt.Sprintf("%s:%d:%s", shown, n, line[:min(len(line), maxGrepLine)])); err != nil {
			return err
		}
	}
	return nil
}

// emitLine is emit for walks, which end when there is no more room.
func (w *worksite) emitLine(s string) error {
	if !w.emit(s + "\n") {
		return fs.SkipAll
	}
	return nil
}

// walk visits what lies at and below a path, in order, without following links
// and without entering .git, procfs or sysfs. visit gets the file as a place, its
// path relative to where the walk began, and as the model should name it.
func (w *worksite) walk(start string, visit func(p *place, rel, shown string, d fs.DirEntry) error) error {
	from, err := w.find(start)
	if err != nil {
		return err
	}
	defer from.close()
	return fs.WalkDir(from.root.FS(), from.rel, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			if name == from.rel {
				return err
			}
			return nil // an unreadable directory does not end a search
		}
		at := filepath.Join(from.root.Name(), name)
		if d.IsDir() {
			if name != from.rel && d.Name() == ".git" || at == "/proc" || at == "/sys" {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(from.rel, name)
		if err != nil {
			return err
		}
		err = visit(&place{root: from.root, rel: name, path: at}, rel, w.show(at), d)
		if errors.Is(err, fs.SkipAll) {
			return fs.SkipAll
		}
		return err
	})
}
