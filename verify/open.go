package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/entail-fleet/entail/session"
)

// OpenExport reads what [Export] wrote. Of an export whose records files are all
// gone, only the events can be checked: [Run] says which invariants that leaves
// out.
func OpenExport(dir string) (Source, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open export: %w", err)
	}
	events, records := map[session.ID]bool{}, map[session.ID]bool{}
	for _, e := range entries {
		name, isRecords := strings.CutSuffix(e.Name(), recordsSuffix)
		name, isEvents := strings.CutSuffix(name, eventsSuffix)
		id, err := session.ParseID(name)
		switch {
		case err != nil || !isRecords && !isEvents:
			continue // somebody else's file
		case isRecords:
			records[id] = true
		default:
			events[id] = true
		}
	}
	f := files{dir: dir, events: events, records: records}
	switch {
	case len(events) == 0:
		return nil, fmt.Errorf("open export: no %s files of sessions in %s", eventsSuffix, dir)
	case len(records) == 0:
		return lineFiles{f}, nil
	}
	for id := range events {
		if !records[id] {
			return nil, fmt.Errorf("open export: %s%s is missing: export again, or remove all %s files to check what the events alone show",
				id, recordsSuffix, recordsSuffix)
		}
	}
	return f, nil
}

// files is an export as a Source.
type files struct {
	dir             string
	events, records map[session.ID]bool
}

// Sessions implements Source.
func (f files) Sessions(context.Context) ([]session.ID, error) {
	var ids []session.ID
	for id := range f.events {
		ids = append(ids, id)
	}
	for id := range f.records {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Records implements Source.
func (f files) Records(ctx context.Context, id session.ID, fn func(session.Raw) error) error {
	if !f.records[id] {
		return nil
	}
	log, err := f.log(id)
	if err != nil {
		return err
	}
	defer log.close()
	genesis, err := f.genesis(ctx, id, log.header)
	if err != nil {
		return err
	}
	end := log.at
	if genesis != nil {
		c := section(genesis.Headers, session.HeaderChildSeq, session.HeaderChildCount, session.HeaderChildLink)
		end = c.Seq + uint64(max(c.Count, 0))
	}
	err = f.space(ctx, id, log, func(raw session.Raw) error {
		if genesis != nil && genesis.StreamSeq < raw.StreamSeq {
			g := *genesis
			genesis = nil
			if err := fn(g); err != nil {
				return err
			}
		}
		return fn(raw)
	})
	if err == nil && genesis != nil {
		err = fn(*genesis)
	}
	return errors.Join(err, log.over(max(end, log.at)), f.samePrefix(log.header))
}

// genesis finds a child's genesis in its parent's space; in any, if no header
// tells its parent. It returns nil for one that stands in the session's own.
func (f files) genesis(ctx context.Context, id session.ID, h session.Header) (*session.Raw, error) {
	var spaces []session.ID
	switch {
	case h.IsChild() && f.records[h.ParentSession]:
		spaces = []session.ID{h.ParentSession}
	case h.ID == "":
		spaces = slices.Sorted(maps.Keys(f.records))
	}
	var found *session.Raw
	for _, space := range spaces {
		log, err := f.log(space)
		if err != nil {
			return nil, err
		}
		err = f.space(ctx, space, log, func(raw session.Raw) error {
			if found == nil && space != id && isGenesis(raw, id) {
				found = &raw
			}
			return nil
		})
		log.close()
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// space gives the records of a session's own space.
func (f files) space(ctx context.Context, id session.ID, log *eventFile, fn func(session.Raw) error) error {
	r, err := openLines(filepath.Join(f.dir, string(id)+recordsSuffix))
	if err != nil {
		return err
	}
	defer r.close()
	for {
		b, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var line recordLine
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&line); err != nil {
			return fmt.Errorf("%s%s line %d: %w", id, recordsSuffix, r.n, err)
		}
		raw := line.raw(id)
		if raw.Body, err = f.body(line, id, log); err != nil {
			return fmt.Errorf("%s%s line %d: %w", id, recordsSuffix, r.n, err)
		}
		if err := errors.Join(fn(raw), ctx.Err()); err != nil {
			return err
		}
	}
}

// body puts a record's body together from the events files.
func (f files) body(line recordLine, id session.ID, log *eventFile) ([]byte, error) {
	if line.Body != nil {
		return *line.Body, nil
	}
	var b bytes.Buffer
	if line.Class == session.ClassGenesis && line.Session == id {
		writeLine(&b, log.line)
	}
	if err := log.take(&b, line.Seq, line.Count); err != nil || line.Child == nil {
		return b.Bytes(), err
	}
	child, err := f.log(line.Session)
	if err != nil {
		return nil, err
	}
	defer child.close()
	writeLine(&b, child.line)
	err = child.take(&b, line.Child.Seq, line.Child.Count)
	return b.Bytes(), err
}

// samePrefix compares a fork's copy of its prefix with its parent's file.
func (f files) samePrefix(h session.Header) error {
	n := int(h.InheritedEventCount) //nolint:gosec // a count of lines of a file
	if n == 0 {
		return nil
	}
	var copies [2]bytes.Buffer
	for i, id := range []session.ID{h.ID, h.ParentSession} {
		log, err := f.log(id)
		if err != nil {
			return err
		}
		err = log.take(&copies[i], 0, n)
		log.close()
		if err != nil {
			return err
		}
	}
	if !bytes.Equal(copies[0].Bytes(), copies[1].Bytes()) {
		return fmt.Errorf("the prefix in %s%s is not the first %d events of %s", h.ID, eventsSuffix, n, h.ParentSession)
	}
	return nil
}

// eventFile is an open events file, read forwards.
type eventFile struct {
	*lineReader
	line   []byte // the header as it was linked
	header session.Header
	at     uint64 // the seq of the next line
}

// log opens a session's events file; one without is empty.
func (f files) log(id session.ID) (*eventFile, error) {
	if !f.events[id] {
		return &eventFile{}, nil
	}
	r, err := openLines(filepath.Join(f.dir, string(id)+eventsSuffix))
	if err != nil {
		return nil, err
	}
	e := &eventFile{lineReader: r}
	first, err := r.next()
	if err == nil {
		e.line, e.header, err = importHeader(first)
	}
	if err == nil && e.header.ID != id {
		err = fmt.Errorf("it holds session %s", e.header.ID)
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("%s%s: %w", id, eventsSuffix, err)
	}
	if e.header.InheritedEventCount == 0 {
		e.at = uint64(e.header.FirstLiveSeq)
	}
	return e, nil
}

func (e *eventFile) close() {
	if e.lineReader != nil {
		e.lineReader.close()
	}
}

// over reports an error unless the file ends at seq.
func (e *eventFile) over(seq uint64) error {
	if e.lineReader == nil {
		return nil
	}
	for {
		switch _, err := e.next(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case e.at >= seq:
			return fmt.Errorf("%s%s has events from seq %d on that no record holds", e.header.ID, eventsSuffix, seq)
		}
		e.at++
	}
}

var errMissingEvents = errors.New("its events are not in the events file")

// take copies n lines from seq on.
func (e *eventFile) take(b *bytes.Buffer, seq uint64, n int) error {
	if e.lineReader == nil || seq < e.at {
		return errMissingEvents
	}
	for n > 0 {
		line, err := e.next()
		if errors.Is(err, io.EOF) {
			return errMissingEvents
		}
		if err != nil {
			return err
		}
		if e.at >= seq {
			writeLine(b, line)
			n--
		}
		e.at++
	}
	return nil
}

func writeLine(b *bytes.Buffer, line []byte) {
	b.Write(line)
	b.WriteByte('\n')
}

// lineFiles is an export without its records files.
type lineFiles struct{ files }

var _ lineSource = lineFiles{}

// Lines implements lineSource: the header as it was linked and the session's own
// events.
func (f lineFiles) Lines(ctx context.Context, id session.ID) ([]byte, [][]byte, error) {
	log, err := f.log(id)
	if err != nil || log.lineReader == nil {
		return nil, nil, err
	}
	defer log.close()
	var own [][]byte
	for {
		line, err := log.next()
		if errors.Is(err, io.EOF) {
			return log.line, own, ctx.Err()
		}
		if err != nil {
			return nil, nil, err
		}
		if log.at >= uint64(log.header.FirstLiveSeq) {
			own = append(own, line)
		}
		log.at++
	}
}
