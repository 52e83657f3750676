package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/entail-fleet/entail/session"
)

// Export writes the tree of root as files into dir, which must not exist: for
// each session the header and the log's events in ID.jsonl, a fork's with its
// prefix, and one line for each own record in ID.records.jsonl. Events are the
// stored bytes. The directory appears when it is complete.
func Export(ctx context.Context, src Source, dir string, root session.ID) error {
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		if err != nil {
			return fmt.Errorf("export %s: %w", root, err)
		}
		return fmt.Errorf("export %s: %s exists: name a directory that does not", root, dir)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".export-*")
	if err != nil {
		return fmt.Errorf("export %s: %w", root, err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // after the rename there is nothing left to remove
	x := exporter{src: src, dir: tmp, tree: newTree(&run{src: src, table: newTable(Options{}), on: map[string]bool{}})}
	if err := x.export(ctx, root); err != nil {
		return fmt.Errorf("export %s: %w", root, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("export %s: %w", root, err)
	}
	return nil
}

// exporter writes one tree. The walk that verifies says which records are the
// log.
type exporter struct {
	src  Source
	dir  string
	tree *tree
}

func (x exporter) export(ctx context.Context, root session.ID) error {
	ids, err := x.src.Sessions(ctx)
	if err != nil {
		return fmt.Errorf("list sessions: %w", err)
	}
	ids = slices.DeleteFunc(slices.Sorted(slices.Values(ids)), func(id session.ID) bool { return id.Root() != root })
	for _, id := range ids {
		if _, err := session.ParseID(string(id)); err != nil {
			return err // it names a file
		}
		if _, err := x.tree.visit(ctx, id); err != nil {
			return fmt.Errorf("read session %s: %w", id, err)
		}
	}
	if len(x.tree.ids) == 0 {
		return session.ErrNotFound
	}
	// What has no log goes last; its records are kept all the same.
	ids = slices.DeleteFunc(ids, func(id session.ID) bool { return x.tree.logs[id] != nil })
	for _, id := range slices.Concat(x.tree.ids, ids) {
		if err := x.session(ctx, id); err != nil {
			return fmt.Errorf("write session %s: %w", id, err)
		}
	}
	return nil
}

// session writes the files of one session. Those of its parent are written.
func (x exporter) session(ctx context.Context, id session.ID) (err error) {
	records, err := createLines(filepath.Join(x.dir, string(id)+recordsSuffix))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.close()) }()
	h := x.tree.logs[id]
	var events *lineWriter
	if h != nil {
		if events, err = createLines(filepath.Join(x.dir, string(id)+eventsSuffix)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, events.close()) }()
	}
	return x.src.Records(ctx, id, func(raw session.Raw) error {
		if h != nil && raw.StreamSeq > h.seen {
			return nil // appended after the log was walked
		}
		return errors.Join(x.record(h, raw, id, records, events), ctx.Err())
	})
}

// record writes one record: its line, if it stands in the space of id, and its
// events, if they are of the log of id.
func (x exporter) record(h *history, raw session.Raw, id session.ID, records, events *lineWriter) error {
	accepted := false
	if h != nil {
		_, accepted = slices.BinarySearch(h.accepted, raw.StreamSeq)
	}
	if raw.Address.Class == session.ClassGenesis {
		child := x.tree.logs[raw.Address.Session]
		accepted = accepted && child != nil && child.born.StreamSeq == raw.StreamSeq
	}
	if raw.Address.Space() == id {
		line, err := json.Marshal(newRecordLine(raw, accepted))
		if err != nil {
			return err
		}
		records.line(line)
	}
	if !accepted {
		return nil
	}
	lines := bytes.Split(bytes.TrimSuffix(raw.Body, []byte("\n")), []byte("\n"))
	own := 0
	if raw.Address.Class == session.ClassGenesis && raw.Address.Creator != raw.Address.Session {
		own = section(raw.Headers, session.HeaderSeq, session.HeaderCount, session.HeaderLinkName).Count
	}
	switch {
	case isGenesis(raw, id):
		events.line(exportHeader(lines[own], h.header))
		if err := x.prefix(h, events); err != nil {
			return err
		}
		lines = lines[own+1:]
	case own > 0:
		lines = lines[:own]
	}
	for _, line := range lines {
		events.line(line)
	}
	return nil
}

// prefix copies what a fork inherits out of its parent's file.
func (x exporter) prefix(h *history, events *lineWriter) error {
	if h.header.InheritedEventCount == 0 {
		return nil
	}
	r, err := openLines(filepath.Join(x.dir, string(h.header.ParentSession)+eventsSuffix))
	if err != nil {
		return err
	}
	defer r.close()
	for i := range h.header.InheritedEventCount + 1 {
		line, err := r.next()
		if err != nil {
			return fmt.Errorf("copy the prefix out of %s: %w", h.header.ParentSession, err)
		}
		if i > 0 {
			events.line(line)
		}
	}
	return nil
}

// lineWriter writes lines; an error shows when it is closed.
type lineWriter struct {
	f *os.File
	w *bufio.Writer
}

func createLines(name string) (*lineWriter, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &lineWriter{f, bufio.NewWriter(f)}, nil
}

func (w *lineWriter) line(b []byte) {
	_, _ = w.w.Write(b)
	_ = w.w.WriteByte('\n')
}

func (w *lineWriter) close() error {
	return errors.Join(w.w.Flush(), w.f.Close())
}

// lineReader reads lines without their ends.
type lineReader struct {
	f *os.File
	r *bufio.Reader
	n uint64 // lines read
}

func openLines(name string) (*lineReader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &lineReader{f: f, r: bufio.NewReader(f)}, nil
}

var errCut = errors.New("the last line has no end")

// next returns io.EOF after the last line.
func (r *lineReader) next() ([]byte, error) {
	b, err := r.r.ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF) && len(b) > 0:
		return nil, fmt.Errorf("%s: %w", r.f.Name(), errCut)
	case err != nil:
		return nil, err
	}
	r.n++
	return b[:len(b)-1], nil
}

func (r *lineReader) close() { _ = r.f.Close() }
