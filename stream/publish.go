package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/session"
)

// The headers of the compare-and-set. The server ignores any other spelling.
const (
	headerExpectTail   = jetstream.ExpectedLastSubjSeqHeader
	headerExpectFilter = jetstream.ExpectedLastSubjSeqSubjHeader
)

// publisher sends one record once. It is an interface so that tests can lose
// what goes to the server and what comes back.
type publisher interface {
	publish(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error)
}

type server struct {
	nc      *nats.Conn
	timeout time.Duration
}

// publish leaves every retry to its caller, who knows what it is worth. What was
// sent is waited for, also when ctx has ended: the answer is there within moments
// or not at all, and an append is worth more with its outcome than without.
func (s server) publish(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	reply, err := s.nc.RequestMsg(m, s.timeout)
	if err != nil {
		return nil, err
	}
	return readAck(reply.Data)
}

// readAck reads a server's acknowledgement. The usual one is read without a JSON
// decoder.
func readAck(data []byte) (*jetstream.PubAck, error) {
	if rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`)); ok {
		name, number, _ := bytes.Cut(rest, []byte(`","seq":`))
		if digits, ok := bytes.CutSuffix(number, []byte("}")); ok && plain(name) && !bytes.HasPrefix(digits, []byte("0")) {
			if seq, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
				return &jetstream.PubAck{Stream: string(name), Sequence: seq}, nil
			}
		}
	}
	var ack struct {
		jetstream.PubAck
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return nil, fmt.Errorf("%w: %w", jetstream.ErrInvalidJSAck, err)
	}
	switch {
	case ack.Error != nil:
		return nil, ack.Error
	case ack.Stream == "":
		return nil, jetstream.ErrInvalidJSAck
	}
	return &ack.PubAck, nil
}

// plain reports whether name is there and stands in JSON as it is.
func plain(name []byte) bool {
	for _, c := range name {
		if c < ' ' || c == '"' || c == '\\' || c > '~' {
			return false
		}
	}
	return len(name) > 0
}

// outcome is what one try of a publish came to.
type outcome int

const (
	stored    outcome = iota + 1 // at the sequence in answer
	moved                        // the tail is the sequence in answer
	busy                         // another publish with this filter is in flight
	refused                      // not written, now or later, as it is
	unsettled                    // written or not
)

// answer is the outcome of a try, with its sequence or its error.
type answer struct {
	outcome outcome
	seq     uint64
	err     error
}

// try publishes m once.
func (l *Log) try(ctx context.Context, m *nats.Msg) answer {
	before := l.nc.LastError()
	ack, err := l.pub.publish(ctx, m)
	switch {
	case err == nil && ack.Duplicate:
		return answer{outcome: refused, err: ErrDuplicate}
	case err == nil:
		return answer{outcome: stored, seq: ack.Sequence}
	}
	if api, ok := apiError(err); ok {
		return classify(api)
	}
	if last := l.nc.LastError(); forbidden(before, last, m.Subject) {
		return answer{outcome: refused, err: last}
	}
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrHeadersNotSupported) {
		return answer{outcome: refused, err: err}
	}
	return answer{outcome: unsettled, err: err}
}

// classify sorts the server's answers. Everything it does not know is taken for
// a refusal only if it cannot come after the record was stored.
func classify(api *jetstream.APIError) answer {
	switch {
	case api.ErrorCode == codeWrongLast:
		// The tail stands in the text alone.
		text := api.Description[strings.LastIndexByte(api.Description, ' ')+1:]
		tail, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return answer{outcome: unsettled, err: fmt.Errorf("conflict without a tail: %w", api)}
		}
		return answer{outcome: moved, seq: tail}
	case api.ErrorCode == codeWrongLastConstant:
		return answer{outcome: inFlight, err: api}
	case api.Description == "maximum bytes exceeded":
		return answer{outcome: refused, err: fmt.Errorf("%w: %w", ErrFull, api)}
	case api.ErrorCode == codeBatchIncomplete || api.Code >= 500:
		return answer{outcome: unsettled, err: api}
	}
	return answer{outcome: refused, err: api}
}

// publication is a record on its way: the message, the session whose tail it moves
// and the tail that it expects there. It never changes, however often it is sent.
type publication struct {
	msg    *nats.Msg
	space  session.ID
	tail   uint64
	record session.Record
}

func newPublication(space session.ID, tail uint64, r session.Record) (publication, error) {
	// The most that a record has, with the two of its expectation. Eight fit into
	// the smallest map.
	headers := 8
	if r.Creator != "" || r.Birth != nil {
		headers = 12
	}
	m := &nats.Msg{Subject: Subject(r.Address), Header: make(nats.Header, headers)}
	values := make([]string, 0, headers)
	set := func(name, value string) {
		values = append(values, value)
		m.Header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	var err error
	if m.Data, err = r.Encode(set); err != nil {
		return publication{}, err
	}
	expect(set, space, tail)
	return publication{msg: m, space: space, tail: tail, record: r}, nil
}

// publish sends p, which was composed on view, until its outcome is known. Between tries nothing of it
// changes, so that however many arrive, one at most is stored.
func (l *Log) publish(ctx context.Context, v Viewer, view *session.View, p publication) (uint64, error) {
	seen := l.tails.seen(p.space)
	var (
		doubt  error // of the first try that was not settled
		more   again
		rivals crowd
		behind lag
	)
	for {
		a := l.send(ctx, view, p, doubt != nil, more.until)
		switch {
		case a.outcome == stored:
			l.tails.note(p.space, a.seq)
			return a.seq, nil
		case a.outcome == moved && shortened(seen, a.seq):
			if behind.wait(ctx, l.cfg.Timeout) {
				continue
			}
			if ctx.Err() != nil {
				return 0, fmt.Errorf("append %s after %d: %w", p.space, p.tail, unknown(l.nc, context.Cause(ctx)))
			}
			return 0, l.doubted(doubt, lossOf(p.space, moves(p.record).Seq, seen, a.seq))
		case a.outcome == moved:
			l.tails.note(p.space, a.seq)
			return l.moved(ctx, v, p, a.seq, doubt)
		case errors.Is(a.err, session.ErrLoss):
			return 0, fmt.Errorf("append %s after %d: %w", p.space, p.tail, l.doubted(doubt, a.err))
		case a.outcome == refused && doubt == nil:
			return 0, fmt.Errorf("append %s after %d: %w", p.space, p.tail, a.err)
		case a.outcome == busy && doubt == nil:
			if rivals.wait(ctx) {
				continue
			}
			return 0, &session.ConflictError{Session: p.space, Want: p.tail}
		}
		// Not settled. After that no refusal says anything of the first try.
		if doubt == nil {
			doubt, more = a.err, l.again()
		}
		if !more.wait(ctx) {
			return 0, fmt.Errorf("append %s after %d: %w", p.space, p.tail, unknown(l.nc, doubt))
		}
	}
}

// doubted is the error of a publish that ends with err, when an earlier try may have
// stored the record all the same.
func (l *Log) doubted(doubt, err error) error {
	if doubt == nil {
		return err
	}
	return unknown(l.nc, errors.Join(doubt, err))
}

// send is try. A record that may be stored already goes to whoever leads by now, who
// may have lost what it held: the view is believed anew first, until a moment. At
// tail 0 the record itself may be what stands there.
func (l *Log) send(ctx context.Context, view *session.View, p publication, resent bool, until time.Time) answer {
	if !resent || p.tail == 0 || !believesAgain {
		return l.try(ctx, p.msg)
	}
	believing, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := l.believe(believing, p.space, *view, l.nc.ConnectedServerId())
	if conflict, ok := errors.AsType[*session.ConflictError](err); ok {
		return answer{outcome: moved, seq: max(conflict.Tail, l.tails.seen(p.space))}
	}
	if err != nil {
		return answer{outcome: unsettled, err: err}
	}
	return l.try(ctx, p.msg)
}

// moved settles a publish whose tail has moved. With no doubt about an earlier
// try it is a conflict. With one, it may be the record itself that moved the
// tail: then it is the first valid record after the expected tail, and the view
// says so.
func (l *Log) moved(ctx context.Context, v Viewer, p publication, tail uint64, doubt error) (uint64, error) {
	conflict := &session.ConflictError{Session: p.space, Want: p.tail, Tail: tail}
	if doubt == nil {
		return 0, conflict
	}
	view, err := v.View(ctx, p.space, tail)
	if errors.Is(err, session.ErrNotFound) {
		return 0, conflict
	}
	if err != nil {
		return 0, fmt.Errorf("append %s after %d: %w", p.space, p.tail, unknown(l.nc, errors.Join(doubt, err)))
	}
	own := moves(p.record)
	if link, ok := view.Link(own.Next() - 1); !ok || link != own.After {
		return 0, conflict
	}
	seq, err := l.stands(ctx, p)
	if err != nil {
		return 0, fmt.Errorf("append %s after %d: written, but not found: %w", p.space, p.tail, unknown(l.nc, err))
	}
	return seq, nil
}

// stands finds where a record that is in the log stands: right after the tail it
// expected. A read that does not find it proves nothing, so it is repeated.
func (l *Log) stands(ctx context.Context, p publication) (uint64, error) {
	for more := l.again(); ; {
		raw, err := l.leader(ctx, p.space.Partition(), getRequest{Seq: p.tail + 1, NextFor: TailFilter(p.space)})
		if err == nil && raw.Headers[session.HeaderLinkName] == p.msg.Header[session.HeaderLinkName][0] {
			return raw.StreamSeq, nil
		}
		if !more.wait(ctx) {
			return 0, errors.Join(errors.New("no read shows it"), err)
		}
	}
}

// moves returns the section that a record adds to the session whose tail it
// moves: for a root's genesis, its first events.
func moves(r session.Record) session.Section {
	if r.Own != nil {
		return *r.Own
	}
	return r.Birth.First
}

// lossOf is the error of a session whose tail has moved back. Next is the seq that
// its next event would have had.
func lossOf(id session.ID, next session.Seq, seen, now uint64) error {
	return &session.CorruptError{
		Session: id, Seq: next, StreamSeq: seen, Loss: true,
		Reason: fmt.Errorf("its tail was %d and is now %d: %w", seen, now, session.ErrLoss),
	}
}
