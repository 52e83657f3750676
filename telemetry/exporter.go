package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/entail-fleet/entail/session"
)

// Log is what an exporter reads: a partition's records in stream order, and the
// log that its valid records make, which is the mirror's word.
type Log interface {
	Follow(ctx context.Context, partition int, after uint64, fn func([]session.Raw) error) error
	// WaitFor returns when the mirror is past a stream sequence.
	WaitFor(ctx context.Context, partition int, seq uint64) error
	Header(id session.ID) (session.Header, error)
	Events(id session.ID, from, to session.Seq, fn func(session.Event) error) error
}

// Config says where spans go and where the cursor is kept.
type Config struct {
	// Endpoint is the URL of an OTLP trace endpoint, as
	// http://127.0.0.1:4318/v1/traces.
	Endpoint string
	// Dir holds one cursor file for each partition.
	Dir    string
	HTTP   *http.Client // default http.DefaultClient
	Logger *slog.Logger // default discards
}

// Exporter exports the spans of one deployment.
type Exporter struct {
	cfg Config
	log Log
	to  endpoint
}

// mostSeen bounds what a partition's run remembers. Forgetting is safe: a record
// that stands in the stream twice makes the same bytes again.
const mostSeen = 100_000

// run is the export of one partition.
type run struct {
	*Exporter
	seen map[session.ID]session.Seq // what follows the last exported section
}

// New checks the configuration. It does no I/O.
func New(cfg Config, log Log) (*Exporter, error) {
	if cfg.Endpoint == "" || cfg.Dir == "" {
		return nil, errors.New("telemetry: it needs an endpoint and a directory for its cursor")
	}
	if cfg.HTTP == nil {
		cfg.HTTP = http.DefaultClient
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Exporter{cfg: cfg, log: log, to: endpoint{url: cfg.Endpoint, http: cfg.HTTP}}, nil
}

// Run exports one partition from its cursor on until ctx ends. An endpoint that
// does not answer shows as lag and stops nothing else.
func (x *Exporter) Run(ctx context.Context, partition int) error {
	after, err := x.cursor(partition)
	if err != nil {
		return err
	}
	r := run{Exporter: x, seen: map[session.ID]session.Seq{}}
	err = x.log.Follow(ctx, partition, after, func(raws []session.Raw) error {
		last := raws[len(raws)-1].StreamSeq
		if err := x.log.WaitFor(ctx, partition, last); err != nil {
			return err
		}
		var spans []Span
		for _, raw := range raws {
			made, err := r.project(raw)
			if err != nil {
				return err
			}
			spans = append(spans, made...)
		}
		if err := x.deliver(ctx, spans); err != nil {
			return err
		}
		return x.advance(partition, last)
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is how it is meant to end
	}
	return err
}

// project makes the spans of a record, if the mirror says that it is valid: that
// its events are the log's, link for link.
func (x run) project(raw session.Raw) ([]Span, error) {
	r, err := session.DecodeRecord(raw)
	if err != nil {
		return nil, nil //nolint:nilerr // void or corrupt: it makes no span, and the mirror has told
	}
	var out []Span
	if r.Own != nil {
		made, err := x.section(*r.Own)
		if err != nil {
			return nil, err
		}
		out = made
	}
	if r.Birth == nil {
		return out, nil
	}
	fresh, err := x.isNew(r.Birth.First)
	if err != nil {
		return nil, err
	}
	if fresh {
		out = append(out, ProjectBirth(r.Birth.Header, delegatingCall(r)))
	}
	return out, nil
}

func delegatingCall(r session.Record) session.CallID {
	if r.Own == nil {
		return ""
	}
	for _, e := range r.Own.Events {
		if d, ok := e.Payload.(*session.ToolDecision); ok {
			return d.CallID
		}
	}
	return ""
}

func (x run) section(s session.Section) ([]Span, error) {
	if fresh, err := x.isNew(s); err != nil || !fresh {
		return nil, err
	}
	h, err := x.log.Header(s.Session)
	if err != nil {
		return nil, fmt.Errorf("header of %s: %w", s.Session, err)
	}
	var out []Span
	for _, e := range s.Events {
		made, err := Project(h, e, func(seq session.Seq) (session.Event, error) { return x.event(s.Session, seq) })
		if err != nil {
			return nil, err
		}
		if made != nil {
			out = append(out, *made)
		}
	}
	return out, nil
}

// isNew reports whether a section is part of its session's log and was not seen
// before: the stream may hold a record twice, the log does not.
func (x run) isNew(s session.Section) (bool, error) {
	if s.Seq < x.seen[s.Session] {
		return false, nil
	}
	if ok, err := x.accepted(s); err != nil || !ok {
		return false, err
	}
	if len(x.seen) >= mostSeen {
		clear(x.seen)
	}
	x.seen[s.Session] = s.Next()
	return true, nil
}

// accepted reports whether the section is part of its session's log. What the log
// does not hold, and a session that is stopped, make no span; a log that cannot be
// read is an error, or its spans would be lost without a word.
func (x *Exporter) accepted(s session.Section) (bool, error) {
	e, err := x.event(s.Session, s.Next()-1)
	switch {
	case err == nil:
		return e.Link == s.After, nil
	case errors.Is(err, session.ErrNotFound), errors.Is(err, session.ErrCorrupt), errors.Is(err, session.ErrFormat):
		return false, nil
	}
	return false, fmt.Errorf("read the log of %s: %w", s.Session, err)
}

func (x *Exporter) event(id session.ID, seq session.Seq) (session.Event, error) {
	var found *session.Event
	err := x.log.Events(id, seq, seq+1, func(e session.Event) error {
		found = &e
		return nil
	})
	if err != nil {
		return session.Event{}, err
	}
	if found == nil {
		return session.Event{}, fmt.Errorf("event %d of %s: %w", seq, id, session.ErrNotFound)
	}
	return *found, nil
}

// deliver sends spans until the endpoint has taken or rejected them. A request
// that is rejected whole is halved, so that one bad span takes no other along.
func (x *Exporter) deliver(ctx context.Context, spans []Span) error {
	if len(spans) == 0 {
		return nil
	}
	const most = 10 * time.Second
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, most) {
		rejected, err := x.to.send(ctx, spans)
		switch {
		case err == nil && rejected > 0:
			x.cfg.Logger.Warn("the endpoint rejected spans", slog.Int64("rejected", rejected))
			return nil
		case err == nil:
			return nil
		case errors.Is(err, errRejected) && len(spans) == 1:
			x.cfg.Logger.Warn("the endpoint rejected a span", slog.String("span", spans[0].Span.GetName()), slog.Any("error", err))
			return nil
		case errors.Is(err, errRejected):
			half := len(spans) / 2
			return errors.Join(x.deliver(ctx, spans[:half]), x.deliver(ctx, spans[half:]))
		}
		x.cfg.Logger.Warn("spans are not taken; trying again", slog.Int("spans", len(spans)), slog.Any("error", err))
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

func (x *Exporter) path(partition int) string {
	return filepath.Join(x.cfg.Dir, fmt.Sprintf("cursor-%d.json", partition))
}

// cursor reads where to go on; a file that cannot be read is an error, never a
// start from zero.
func (x *Exporter) cursor(partition int) (uint64, error) {
	b, err := os.ReadFile(x.path(partition))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the cursor: %w", err)
	}
	var at uint64
	if err := json.Unmarshal(b, &at); err != nil {
		return 0, fmt.Errorf("read the cursor %s: %w; remove it to export everything again", x.path(partition), err)
	}
	return at, nil
}

// advance replaces the cursor file in one step.
func (x *Exporter) advance(partition int, seq uint64) error {
	if err := os.MkdirAll(x.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("keep the cursor: %w", err)
	}
	path := x.path(partition)
	b := fmt.Appendf(nil, "%d\n", seq)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("keep the cursor: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("keep the cursor: %w", err)
	}
	return nil
}
