package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/session"
)

// The keys of the settings bucket.
const (
	deploymentKey = "deployment"
	ordersPrefix  = "worker."
)

// Settings is a small document with a history of revisions: the deployment's
// settings, or the orders of one worker. What it holds is the caller's business.
// Reads ask the stream's leader.
type Settings struct {
	log       *Log
	key, name string
}

// Settings returns the deployment's settings. It asks the server nothing.
func (l *Log) Settings() Settings { return Settings{log: l, key: deploymentKey, name: "the settings"} }

// Orders returns what was ordered of a worker. It asks the server nothing.
func (l *Log) Orders(worker string) Settings {
	return Settings{log: l, key: ordersPrefix + worker, name: "the orders of worker " + worker}
}

// AllOrders returns the last orders of every worker that ever had any, by name.
func (l *Log) AllOrders(ctx context.Context) (map[string]Setting, error) {
	out := map[string]Setting{}
	prefix := bucketKey(settingsBucket, ordersPrefix)
	err := l.pages(ctx, bucketStream(settingsBucket), prefix+">", func(m message) error {
		out[strings.TrimPrefix(m.subject, prefix)] = Setting{Value: m.data, Revision: m.seq, Time: m.time}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the orders of workers: %w", err)
	}
	return out, nil
}

// Setting is one revision of a document.
type Setting struct {
	Value    []byte
	Revision uint64
	Time     time.Time
}

// Load returns the document and its revision, which is zero when it was never
// set.
func (s Settings) Load(ctx context.Context) (value []byte, revision uint64, err error) {
	m, err := s.log.get(ctx, bucketStream(settingsBucket), getRequest{LastFor: bucketKey(settingsBucket, s.key)})
	if errors.Is(err, session.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("load %s: %w", s.name, err)
	}
	return m.data, m.seq, nil
}

// Update replaces the document if its revision is still last, zero for never set,
// and returns the new one. If it is not, that is [ErrRevision]. It
// sends the same conditional write until its outcome is known, as an append does.
func (s Settings) Update(ctx context.Context, value []byte, last uint64) (uint64, error) {
	m := nats.NewMsg(bucketKey(settingsBucket, s.key))
	m.Data = value
	m.Header[headerExpectTail] = []string{strconv.FormatUint(last, 10)}
	m.Header[headerExpectFilter] = []string{m.Subject}
	var (
		doubt  error
		rivals crowd
	)
	for more := s.log.again(); ; {
		a := s.log.try(ctx, m)
		switch {
		case a.outcome == busy && doubt == nil && rivals.wait(ctx):
			continue
		case a.outcome == busy && doubt == nil && ctx.Err() != nil:
			return 0, fmt.Errorf("update %s after revision %d: %w", s.name, last, context.Cause(ctx))
		case a.outcome == busy && doubt == nil:
			return 0, fmt.Errorf("update %s after revision %d: %w: %w", s.name, last, ErrRevision, a.err)
		case a.outcome == stored:
			return a.seq, nil
		case a.outcome == moved && doubt != nil:
			// The write before this may be what moved it.
			if now, revision, err := s.Load(ctx); err == nil && revision == a.seq && bytes.Equal(now, value) {
				return revision, nil
			}
			fallthrough
		case a.outcome == moved:
			return 0, fmt.Errorf("update %s after revision %d (now %d): %w", s.name, last, a.seq, ErrRevision)
		case a.outcome == refused && doubt == nil:
			return 0, fmt.Errorf("update %s: %w", s.name, a.err)
		case doubt == nil && a.outcome == unsettled:
			doubt = a.err
		}
		if !more.wait(ctx) {
			return 0, fmt.Errorf("update %s: %w", s.name, unknown(s.log.nc, errors.Join(doubt, a.err)))
		}
	}
}

// History returns the last revisions of the document, oldest first.
func (s Settings) History(ctx context.Context) ([]Setting, error) {
	var out []Setting
	err := s.log.pages(ctx, bucketStream(settingsBucket), bucketKey(settingsBucket, s.key), func(m message) error {
		out = append(out, Setting{Value: m.data, Revision: m.seq, Time: m.time})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", s.name, err)
	}
	return out, nil
}

// Watch calls fn with the document and with every later revision it finds, looking each [Config.Poll], until ctx ends or fn fails. A look that
// fails is repeated at the next one: who needs a fresh read loads.
func (s Settings) Watch(ctx context.Context, fn func(Setting) error) error {
	var last uint64
	return s.log.poll(ctx, func(ctx context.Context) error {
		value, revision, err := s.Load(ctx)
		if err != nil || revision == last {
			return nil //nolint:nilerr // looked at again
		}
		last = revision
		return fn(Setting{Value: value, Revision: revision})
	})
}

// poll calls look at once and then each Config.Poll.
func (l *Log) poll(ctx context.Context, look func(context.Context) error) error {
	t := time.NewTicker(l.cfg.Poll)
	defer t.Stop()
	for {
		if err := look(ctx); err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
