package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/session"
)

// message is one stored message.
type message struct {
	subject string
	seq     uint64
	time    time.Time
	header  nats.Header
	data    []byte
	behind  uint64 // messages after it that the server counted when it was read
}

// record reads a message as a record. Only the session's chain says whether it
// is one.
func (m message) record() (session.Raw, error) {
	raw := m.any()
	if raw.Address == (session.Address{}) {
		return session.Raw{}, fmt.Errorf("stream sequence %d: subject %q is in no session's space", m.seq, m.subject)
	}
	return raw, nil
}

// any reads a message as a record whose address is zero when it stands in no
// session's space.
func (m message) any() session.Raw {
	a, _ := place(m.subject)
	headers := make(map[string]string, len(m.header))
	for k, v := range m.header {
		if len(v) > 0 {
			headers[k] = v[0]
		}
	}
	return session.Raw{StreamSeq: m.seq, Address: a, Headers: headers, Body: m.data}
}

// getRequest asks for messages: one at a sequence, the first ones at or after it
// under a filter, or the last one under a filter.
type getRequest struct {
	Seq      uint64 `json:"seq,omitempty"`
	NextFor  string `json:"next_by_subj,omitempty"`
	LastFor  string `json:"last_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// leader reads one record from the leader of a partition's stream.
func (l *Log) leader(ctx context.Context, partition int, r getRequest) (session.Raw, error) {
	m, err := l.get(ctx, StreamName(partition), r)
	if err != nil {
		return session.Raw{}, err
	}
	return m.record()
}

// get asks a stream's leader for one message. The library would ask any replica,
// since the streams allow direct gets.
func (l *Log) get(ctx context.Context, stream string, r getRequest) (message, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return message{}, err
	}
	var m message
	err = l.persist(ctx, func(ctx context.Context) error {
		m, err = l.getOnce(ctx, stream, body)
		return err
	})
	return m, err
}

func (l *Log) getOnce(ctx context.Context, stream string, body []byte) (message, error) {
	reply, err := l.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return message{}, fmt.Errorf("read stream %s: %w", stream, unanswered(err))
	}
	m, err := readGet(reply.Data)
	if err != nil && !errors.Is(err, session.ErrNotFound) {
		return message{}, fmt.Errorf("read stream %s: %w", stream, unanswered(err))
	}
	return m, err
}

// readGet reads a leader's answer to a get.
func readGet(data []byte) (message, error) {
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return message{}, fmt.Errorf("decode the answer: %w", err)
	}
	if e := answer.Error; e != nil {
		if e.ErrorCode == codeNoMessage {
			return message{}, session.ErrNotFound
		}
		return message{}, e
	}
	a := answer.Message
	if a.Seq == 0 {
		return message{}, errors.New("the answer holds no message")
	}
	m := message{subject: a.Subject, seq: a.Seq, time: a.Time, data: a.Data}
	if len(a.Header) > 0 {
		var err error
		if m.header, err = nats.DecodeHeadersMsg(a.Header); err != nil {
			return message{}, fmt.Errorf("headers at %d: %w", a.Seq, err)
		}
	}
	return m, nil
}

// A page is small because the server holds up appends while it reads one.
const (
	pageMessages = 256
	pageBytes    = 1 << 20
)

// pages reads forward what stands under a filter, by direct
// gets, until there is nothing left.
func (l *Log) pages(ctx context.Context, stream, filter string, fn func(message) error) error {
	for after := uint64(0); ; {
		last, err := l.page(ctx, stream, filter, after, 0, fn)
		if err != nil || last.behind == 0 {
			return err
		}
		after = last.seq
	}
}

// whole is pages of a partition after a sequence, and returns the last sequence that
// fn was given. Nothing is ever deleted there. A server passes
// over a message that it cannot read any more, and counts it all the same: what is
// counted and never comes is a loss (internal/damage), found before fn is given
// what stands around it. Where copies of the stream answer by turns, one may count
// what another has not got yet, or has lost; both pages are then read again.
func (l *Log) whole(ctx context.Context, partition int, filter string, after uint64, fn func(message) error) (uint64, error) {
	type point struct{ after, owed uint64 }
	var (
		held    []message // what the last of them counts behind it is owed
		tries   int
		told    = after
		at, was = point{after: after}, point{after: after} // of the page that comes, and of held
	)
	for {
		var page []message
		last, err := l.page(ctx, StreamName(partition), filter, at.after, at.owed, func(m message) error { page = append(page, m); return nil })
		if errors.Is(err, errOwed) {
			if tries++; tries <= owedTries && delay.For(ctx, jitter(minOwedPause, maxOwedPause)) {
				held, at = nil, was
				continue
			}
			return told, l.short(ctx, partition, err)
		}
		if err == nil && last.behind == 0 {
			held = append(held, page...)
		}
		for _, m := range held {
			if err := fn(m); err != nil {
				return told, err
			}
			told, tries = m.seq, 0
		}
		if err != nil || last.behind == 0 {
			return told, err
		}
		held, was, at = page, at, point{last.seq, countedBehind(last)}
	}
}

// The patience with a count that does not come true: a quarter of a second.
const (
	owedTries    = 10
	minOwedPause = 10 * time.Millisecond
	maxOwedPause = 40 * time.Millisecond
)

var errOwed = fmt.Errorf("%w: the server counts more than it gives", session.ErrLoss)

// short says what a count that did not come true is: where there is one copy of the
// stream a loss, else a read to be tried again.
func (l *Log) short(ctx context.Context, partition int, owed error) error {
	i, err := l.info(ctx, partition)
	switch {
	case err != nil:
		return err
	case i.Config.Replicas > 1:
		return fmt.Errorf("the copies of stream %s do not agree on how much it holds: one is behind or damaged", StreamName(partition))
	}
	return owed
}

// page reads one page and returns its last message, or one with nothing behind it
// where there is none. Owed is how many messages there must be, else the page is not
// read and the error is errOwed.
func (l *Log) page(ctx context.Context, stream, filter string, after, owed uint64, fn func(message) error) (last message, err error) {
	err = l.persist(ctx, func(ctx context.Context) error {
		last, err = l.pageOnce(ctx, stream, filter, after, owed, fn)
		return err
	})
	return last, err
}

// pageOnce is page for as long as ctx lasts; what has come until then is a page.
func (l *Log) pageOnce(ctx context.Context, stream, filter string, after, owed uint64, fn func(message) error) (message, error) {
	body, err := json.Marshal(getRequest{Seq: after + 1, NextFor: filter, Batch: pageMessages, MaxBytes: pageBytes})
	if err != nil {
		return message{}, err
	}
	inbox, replies := l.nc.NewInbox(), make(chan *nats.Msg, pageMessages+1)
	sub, err := l.nc.ChanSubscribe(inbox, replies)
	if err != nil {
		return message{}, fmt.Errorf("read stream %s: %w", stream, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	if err := l.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, body); err != nil {
		return message{}, fmt.Errorf("read stream %s: %w", stream, unanswered(err))
	}
	last := message{seq: after}
	for {
		// The library's own way to wait takes a stored status for the server's.
		var reply *nats.Msg
		select {
		case reply = <-replies:
		case <-ctx.Done():
			if last.seq > after {
				return last, nil
			}
			return last, fmt.Errorf("read stream %s after %d: %w", stream, last.seq, unanswered(context.Cause(ctx)))
		}
		m, end, err := answered(reply)
		switch {
		case err != nil:
			return last, fmt.Errorf("read stream %s after %d: %w", stream, last.seq, err)
		case last.seq == after && (end && owed > 0 || !end && m.behind+1 < owed):
			return last, fmt.Errorf("read stream %s after %d: %w", stream, after, errOwed)
		case end:
			return last, nil
		case m.seq <= last.seq:
			return last, fmt.Errorf("read stream %s: sequence %d came after %d", stream, m.seq, last.seq)
		}
		if err := fn(m); err != nil {
			return last, err
		}
		last = m
	}
}

// The headers that the server adds to what a direct get answers. It adds them
// behind the stored ones, and whoever wrote the message may have stored the
// same names: only the last value is the server's.
var addedHeaders = []string{
	jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.SequenceHeader, jetstream.TimeStampHeaer,
	headerPending, "Nats-Last-Sequence",
}

const headerPending = "Nats-Num-Pending"

// answered reads one answer of a direct get: a stored message, or the end of the
// page. Only a stored message carries the name of its stream; its status is no
// sign, because a stored message may claim any.
func answered(reply *nats.Msg) (m message, end bool, err error) {
	if len(reply.Header[jetstream.StreamHeader]) == 0 {
		switch status := reply.Header.Get("Status"); status {
		case "204", "404":
			return message{}, true, nil
		case "503": // nobody serves the stream: its leader was lost
			return message{}, false, fmt.Errorf("%w: %w", errNoAnswer, nats.ErrNoResponders)
		default:
			return message{}, false, fmt.Errorf("status %q: %s", status, reply.Header.Get("Description"))
		}
	}
	added := make(map[string]string, len(addedHeaders))
	for _, name := range addedHeaders {
		v := reply.Header[name]
		if len(v) == 0 {
			return message{}, false, fmt.Errorf("the server's answer has no %s: run nats-server 2.12 or newer", name)
		}
		added[name] = v[len(v)-1]
		if reply.Header[name] = v[:len(v)-1]; len(v) == 1 {
			delete(reply.Header, name)
		}
	}
	m = message{
		subject: added[jetstream.SubjectHeader], header: reply.Header, data: reply.Data,
	}
	var errPending, errSeq, errTime error
	m.behind, errPending = strconv.ParseUint(added[headerPending], 10, 64)
	m.seq, errSeq = strconv.ParseUint(added[jetstream.SequenceHeader], 10, 64)
	m.time, errTime = time.Parse(time.RFC3339Nano, added[jetstream.TimeStampHeaer])
	return m, false, errors.Join(errPending, errSeq, errTime)
}
