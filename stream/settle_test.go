package stream_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// record keeps what is sent.
func record(sent *[]*nats.Msg, next stream.Publish) stream.Publish {
	return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
		c := *m
		c.Header = maps.Clone(m.Header)
		*sent = append(*sent, &c)
		return next(ctx, m)
	}
}

// The server says so on replicated streams while another publish with the same
// filter is in flight. Here it says it in front of a server that would store.
var errBusy = &jetstream.APIError{Code: 400, ErrorCode: 10164, Description: "wrong last sequence"}

func TestBusyIsTriedAgainWithTheSameExpectation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	var sent []*nats.Msg
	l.Intercept(func(next stream.Publish) stream.Publish {
		return record(&sent, func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			if len(sent) <= 3 {
				return nil, fmt.Errorf("nats: %w", errBusy)
			}
			return next(ctx, m)
		})
	})
	c := nudge("a")
	c.Once = true
	if _, err := l.Append(t.Context(), v, id, c); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 4 {
		t.Fatalf("sent %d times, want 4", len(sent))
	}
	for _, m := range sent[1:] {
		if diff := cmp.Diff(sent[0].Header, m.Header); diff != "" {
			t.Errorf("headers changed (-first +later):\n%s", diff)
		}
	}
}

func TestBusyForEverIsAConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	tries := 0
	l.Intercept(func(stream.Publish) stream.Publish {
		return func(context.Context, *nats.Msg) (*jetstream.PubAck, error) { tries++; return nil, errBusy }
	})
	c := nudge("a")
	c.Once = true
	_, err := l.Append(t.Context(), v, id, c)
	if !errors.Is(err, session.ErrConflict) || errors.Is(err, stream.ErrUnknown) {
		t.Errorf("got %v, want a conflict", err)
	}
	if tries != 51 {
		t.Errorf("tried %d times, want once and 50 times again", tries)
	}
}

func TestConflict(t *testing.T) {
	t.Parallel()
	for name, once := range map[string]bool{"is the caller's with once": true, "else is evaluated again": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l, v := w.log(t)
			id := begin(t, l, v, 1)
			rival, rv := w.log(t)
			c := nudge("a")
			c.Once = once
			views := 0
			draft := c.Drafts
			c.Drafts = func(view session.View) ([]session.Draft, error) {
				if views++; views == 1 {
					if _, err := rival.Append(t.Context(), rv, id, nudge("b")); err != nil {
						t.Fatal(err)
					}
				}
				return draft(view)
			}
			done, err := l.Append(t.Context(), v, id, c)
			if once {
				var conflict *session.ConflictError
				if !errors.As(err, &conflict) || conflict.Want != 1 || conflict.Tail != 2 || views != 1 {
					t.Errorf("got %v after %d views, want the conflict of 1 with 2 after one", err, views)
				}
				return
			}
			if err != nil || done.StreamSeq != 3 || views != 2 {
				t.Errorf("got %d, %v after %d views, want it at 3 after two", done.StreamSeq, err, views)
			}
		})
	}
}

// A precondition that no longer holds on the new tail ends the append.
func TestConflictEvaluatesThePreconditionAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	rival, rv := w.log(t)
	l.Intercept(func(next stream.Publish) stream.Publish {
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			if _, err := rival.Append(ctx, rv, id, nudge("a")); err != nil {
				t.Errorf("rival: %v", err)
			}
			return next(ctx, m)
		}
	})
	if _, err := l.Append(t.Context(), v, id, nudge("a")); !errors.Is(err, errExists) {
		t.Errorf("got %v, want the precondition's error", err)
	}
	if ids, _ := nudges(t, l, id); len(ids) != 1 {
		t.Errorf("stored %v, want one", ids)
	}
}

// fault loses what goes to the server or what comes back, the first n times.
func fault(n int, lost error, deliver bool) func(stream.Publish) stream.Publish {
	return func(next stream.Publish) stream.Publish {
		var tries atomic.Int64
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			if tries.Add(1) > int64(n) {
				return next(ctx, m)
			}
			if deliver {
				if _, err := next(ctx, m); err != nil {
					return nil, err
				}
			}
			return nil, lost
		}
	}
}

func TestUnknownOutcomeIsSettled(t *testing.T) {
	t.Parallel()
	unknown := map[string]error{
		"timeout":       context.DeadlineExceeded,
		"no responders": jetstream.ErrNoStreamResponse,
		"503":           &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "system temporarily unavailable"},
		"10176":         &jetstream.APIError{Code: 400, ErrorCode: 10176, Description: "batch is incomplete"},
		"disconnected":  nats.ErrConnectionReconnecting,
		"bad answer":    jetstream.ErrInvalidJSAck,
	}
	for name, lost := range unknown {
		for what, deliver := range map[string]bool{"request": false, "answer": true} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				l, v := w.log(t)
				id := begin(t, l, v, 1)
				l.Intercept(fault(2, lost, deliver))
				done, err := l.Append(t.Context(), v, id, nudge("a"))
				if err != nil || done.StreamSeq != 2 {
					t.Errorf("got %d, %v, want it at 2", done.StreamSeq, err)
				}
				if ids, _ := nudges(t, l, id); len(ids) != 1 {
					t.Errorf("stored %v, want one", ids)
				}
			})
		}
	}
}

// The record of the lost answer stands, others came after it: it is found.
func TestLostAnswerIsFoundBelowLaterRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	rival, rv := w.log(t)
	l.Intercept(func(next stream.Publish) stream.Publish {
		lossy := fault(1, context.DeadlineExceeded, true)(next)
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			ack, err := lossy(ctx, m)
			if errors.Is(err, context.DeadlineExceeded) {
				if _, err := rival.Append(ctx, rv, id, nudge("b")); err != nil {
					t.Errorf("rival: %v", err)
				}
			}
			return ack, err
		}
	})
	done, err := l.Append(t.Context(), v, id, nudge("a"))
	if err != nil || done.StreamSeq != 2 {
		t.Errorf("got %d, %v, want it at 2", done.StreamSeq, err)
	}
}

// The request was lost and a rival took its place: a conflict, not a success.
func TestLostRequestWithARivalIsAConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	rival, rv := w.log(t)
	l.Intercept(func(next stream.Publish) stream.Publish {
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			if _, err := rival.Append(ctx, rv, id, nudge("b")); err == nil {
				return nil, context.DeadlineExceeded
			}
			return next(ctx, m)
		}
	})
	c := nudge("a")
	c.Once = true
	if _, err := l.Append(t.Context(), v, id, c); !errors.Is(err, session.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}

func TestLostGenesisAnswerIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := rootID(t, 1)
	l.Intercept(fault(1, context.DeadlineExceeded, true))
	if done, err := l.Append(t.Context(), v, id, genesisChange(id)); err != nil || done.StreamSeq != 1 {
		t.Errorf("got %d, %v, want it at 1", done.StreamSeq, err)
	}
}

func TestSpentBudgetIsUnknownNeverFailed(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"silence":                 context.DeadlineExceeded,
		"a refusal after silence": &jetstream.APIError{Code: 400, ErrorCode: 10060, Description: "expected stream does not match"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l, v := w.log(t, func(c *stream.Config) { c.Budget = 200 * time.Millisecond })
			id := begin(t, l, v, 1)
			first := true
			l.Intercept(func(next stream.Publish) stream.Publish {
				return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
					if first {
						first = false
						_, _ = next(ctx, m)
						return nil, context.DeadlineExceeded
					}
					return nil, refusal
				}
			})
			if _, err := l.Append(t.Context(), v, id, nudge("a")); !errors.Is(err, stream.ErrUnknown) {
				t.Errorf("got %v, want an unknown outcome", err)
			}
		})
	}
}

func TestRefusalIsFinal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	for name, tt := range map[string]struct {
		ack  *jetstream.PubAck
		err  error
		want error
	}{
		"full":      {err: &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}, want: stream.ErrFull},
		"duplicate": {ack: &jetstream.PubAck{Stream: "ENTAIL_LOG_0", Duplicate: true}, want: stream.ErrDuplicate},
	} {
		tries := 0
		l.Intercept(func(stream.Publish) stream.Publish {
			return func(context.Context, *nats.Msg) (*jetstream.PubAck, error) { tries++; return tt.ack, tt.err }
		})
		_, err := l.Append(t.Context(), v, id, nudge("a"))
		if !errors.Is(err, tt.want) || errors.Is(err, stream.ErrUnknown) || tries != 1 {
			t.Errorf("%s: got %v after %d tries, want %v after one", name, err, tries, tt.want)
		}
	}
}

// What a broker does not permit it drops without an answer. That must not look
// like an outage.
func TestForbiddenPublishIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	nc := w.Conn(t, broker.Worker, "w1", nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	worker, wv := logOf(t, nc)
	_, err := worker.Append(t.Context(), wv, id, nudge("a"))
	if err == nil || errors.Is(err, stream.ErrUnknown) || !strings.Contains(err.Error(), "Permissions Violation") {
		t.Errorf("got %v, want a permission violation, and no unknown outcome", err)
	}
	if n := len(records(t, l, id)); n != 1 {
		t.Errorf("%d records, want the genesis alone", n)
	}
}

// A tail that moves back is no conflict. Here the server is replaced by one whose
// log is shorter, as after a restore or a damaged block.
func TestTailBelowOneSeenIsLoss(t *testing.T) {
	t.Parallel()
	w, short := newWorld(t), newWorld(t)
	l, v := w.log(t)
	id := begin(t, l, v, 1)
	other, ov := short.log(t)
	begin(t, other, ov, 1)
	for _, n := range []string{"a", "b", "c"} {
		if _, err := l.Append(t.Context(), v, id, nudge(n)); err != nil {
			t.Fatal(err)
		}
	}
	l.Intercept(func(stream.Publish) stream.Publish {
		return func(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
			return short.js(t).PublishMsg(ctx, m)
		}
	})
	_, err := l.Append(t.Context(), v, id, nudge("d"))
	var corrupt *session.CorruptError
	if !errors.As(err, &corrupt) || !errors.Is(err, session.ErrLoss) || !corrupt.Loss || errors.Is(err, session.ErrConflict) {
		t.Errorf("got %v, want a loss", err)
	}
}

// The usual acknowledgement is read without a decoder, every other one with it.
func TestReadAck(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		seq        uint64
		duplicate  bool
		fails      bool
	}{
		{"the usual", `{"stream":"ENTAIL_LOG_0","seq":17}`, 17, false, false},
		{"spaced", `{"stream": "ENTAIL_LOG_0", "seq": 17}`, 17, false, false},
		{"of a domain", `{"stream":"ENTAIL_LOG_0","domain":"hub","seq":17}`, 17, false, false},
		{"a duplicate", `{"stream":"ENTAIL_LOG_0","seq":17,"duplicate":true}`, 17, true, false},
		{"an error", `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"ENTAIL_LOG_0","seq":0}`, 0, false, true},
		{"an error behind", `{"stream":"ENTAIL_LOG_0","seq":0,"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"}}`, 0, false, true},
		{"of no stream", `{"seq":17}`, 0, false, true},
		{"of a stream without a name", `{"stream":"","seq":17}`, 0, false, true},
		{"no JSON", "{\"stream\":\"ENTAIL_LOG_0\x00\",\"seq\":17}", 0, false, true},
		{"a quote that does not end", `{"stream":"ENTAIL_LOG_0\","seq":17}`, 0, false, true},
		{"a number of another form", `{"stream":"ENTAIL_LOG_0","seq":017}`, 0, false, true},
		{"no number", `{"stream":"ENTAIL_LOG_0","seq":-1}`, 0, false, true},
		{"cut off", `{"stream":"ENTAIL_LOG_0","seq":17`, 0, false, true},
		{"empty", ``, 0, false, true},
	} {
		ack, err := stream.ReadAck([]byte(tt.text))
		if (err != nil) != tt.fails {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if err == nil && (ack.Stream != "ENTAIL_LOG_0" || ack.Sequence != tt.seq || ack.Duplicate != tt.duplicate) {
			t.Errorf("%s: got %+v", tt.name, ack)
		}
	}
}
