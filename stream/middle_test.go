//nolint:thelper // what takes a t here is a test, which is run on a log of its own
package stream_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// middle stands between a log and the server that holds it: a server without
// JetStream that hands on every request and every answer. A test may answer in the
// leader's place, which is how a leader says what it says for a moment only.
type middle struct {
	nc *nats.Conn // the log's

	mu     sync.Mutex
	answer func(*nats.Msg) *nats.Msg // guarded by mu: nil for what is handed on
}

// between is in front of a server.
func between(t *testing.T, back *nats.Conn) *middle {
	t.Helper()
	s := serve(t, server.Options{})
	m := &middle{nc: dial(t, s)}
	front := dial(t, s)
	on := func(nc *nats.Conn, subject string, fn nats.MsgHandler) {
		t.Helper()
		_, err := nc.Subscribe(subject, fn)
		if err == nil {
			err = nc.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	hand := func(nc *nats.Conn, r *nats.Msg) {
		err := nc.PublishMsg(&nats.Msg{Subject: r.Subject, Reply: r.Reply, Header: r.Header, Data: r.Data})
		if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("hand on %s: %v", r.Subject, err)
		}
	}
	on(back, "_INBOX.>", func(r *nats.Msg) { hand(front, r) })
	for _, subject := range []string{"$JS.>", "entail.>"} {
		on(front, subject, func(r *nats.Msg) {
			if a := m.say(r); a != nil {
				a.Subject = r.Reply
				hand(front, a)
				return
			}
			hand(back, r)
		})
	}
	return m
}

func (m *middle) say(r *nats.Msg) *nats.Msg {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answer == nil {
		return nil
	}
	return m.answer(r)
}

// instead answers the first n requests that ask for what is wanted.
func (m *middle) instead(n int, asks func(*nats.Msg) bool, with nats.Msg) (asked func() int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := 0
	m.answer = func(r *nats.Msg) *nats.Msg {
		if !asks(r) {
			return nil
		}
		if count++; count > n {
			return nil
		}
		return &nats.Msg{Header: with.Header, Data: with.Data}
	}
	return func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return count
	}
}

// What a server says that is behind: a tail before the last one, and that there is no
// message, as a leader and as a copy.
var (
	lowerTail = nats.Msg{Data: []byte(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 1"},"stream":"ENTAIL_LOG_0","seq":0}`)}
	noMessage = nats.Msg{
		Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}},
		Data:   []byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`),
	}
)

func publishes(r *nats.Msg) bool { return strings.HasPrefix(r.Subject, "entail.log.") }

// reads are the requests for messages of an API, the leader's or the copies', that
// name something.
func reads(api, what string) func(*nats.Msg) bool {
	return func(r *nats.Msg) bool {
		return strings.Contains(r.Subject, api+".GET.") && strings.Contains(string(r.Data), what)
	}
}

// behind is a log in front of which a leader may lag, and another that it does not
// lag for.
func behind(t *testing.T) (w world, m *middle, l *stream.Log, v *folder) {
	t.Helper()
	nc := open(t)
	w = world{coordinator: nc}
	straight, _ := w.log(t)
	if err := straight.Provision(t.Context(), stream.ProvisionConfig{}); err != nil {
		t.Fatal(err)
	}
	m = between(t, nc)
	l, v = logOf(t, m.nc)
	return w, m, l, v
}

// A leader that has just been made may know less than a copy has shown. What it says
// then is asked again: the append goes through, once, and nothing is called lost.
func TestALeaderThatIsBehindForAMomentLosesNothing(t *testing.T) {
	t.Parallel()
	const moments = 3
	for name, test := range map[string]func(*testing.T, world, *middle, *stream.Log, *folder){
		"an append": func(t *testing.T, w world, m *middle, l *stream.Log, v *folder) {
			id := begin(t, l, v, 1)
			appendNudges(t, l, v, id, "a", "b")
			asked := m.instead(moments, publishes, lowerTail)
			done, err := l.Append(t.Context(), v, id, nudge("c"))
			if err != nil || done.StreamSeq != 4 || asked() != moments+1 {
				t.Errorf("got %d, %v after %d tries, want it at 4 after %d", done.StreamSeq, err, asked(), moments+1)
			}
			settled(t, w, id, map[string]uint64{"a": 2, "b": 3, "c": 4})
		},
		"a view that is behind, too": func(t *testing.T, w world, m *middle, l *stream.Log, v *folder) {
			id := begin(t, l, v, 1)
			appendNudges(t, l, v, id, "a")
			old, err := v.View(t.Context(), id, 0)
			if err != nil {
				t.Fatal(err)
			}
			appendNudges(t, l, v, id, "b")
			asked := m.instead(moments, reads("STREAM.MSG", "last_by_subj"), noMessage)
			done, err := l.Append(t.Context(), &stale{Viewer: v, old: old, times: 1}, id, nudge("c"))
			if err != nil || done.StreamSeq != 4 || asked() != moments+1 {
				t.Errorf("got %d, %v after %d questions, want it at 4 after %d", done.StreamSeq, err, asked(), moments+1)
			}
			settled(t, w, id, map[string]uint64{"a": 2, "b": 3, "c": 4})
		},
		"a session without a genesis": func(t *testing.T, w world, m *middle, l *stream.Log, v *folder) {
			id := rootID(t, 1)
			plant(t, w, stream.Subject(session.Address{Session: id, Class: session.ClassTurn}), nil, "")
			if tail, err := l.Tail(t.Context(), id); err != nil || tail != 1 {
				t.Fatalf("tail %d, %v, want 1", tail, err)
			}
			asked := m.instead(moments, reads("DIRECT", strings.TrimSuffix(stream.TailFilter(id), ">")), noMessage)
			done, err := l.Append(t.Context(), v, id, genesisChange(id))
			if err != nil || done.StreamSeq != 2 || asked() <= moments {
				t.Errorf("got %d, %v after %d reads, want it at 2 after more than %d", done.StreamSeq, err, asked(), moments)
			}
		},
		"a child's genesis": func(t *testing.T, w world, m *middle, l *stream.Log, v *folder) {
			parent := begin(t, l, v, 1)
			child := session.ChildID(parent, "1.1.0")
			genesis := stream.Subject(session.Address{Session: child, Class: session.ClassGenesis, Creator: parent})
			plant(t, w, genesis, nats.Header{session.HeaderChildSeq: {"0"}, session.HeaderChildCount: {"1"}}, "")
			asked := m.instead(2*moments, reads("", "genesis."+string(child)), noMessage)
			view := session.View{State: session.State{Next: 1, Header: session.Header{ID: child, ParentSession: parent, Origin: session.OriginSubagent}}}
			if err := l.Compare(t.Context(), child, view); err != nil || asked() <= moments {
				t.Errorf("%v after %d reads, want it found after more than %d", err, asked(), moments)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, m, l, v := behind(t)
			test(t, w, m, l, v)
		})
	}
}

// stale is a view that is read from a copy which is behind, so many times.
type stale struct {
	stream.Viewer
	old   session.View
	times int
}

func (s *stale) View(ctx context.Context, id session.ID, least uint64) (session.View, error) {
	if s.times--; s.times >= 0 {
		return s.old, nil
	}
	return s.Viewer.View(ctx, id, least)
}

// A view that stays behind what the leader has is no loss, and nothing is written on it.
func TestAViewThatStaysBehindIsNoLoss(t *testing.T) {
	t.Parallel()
	w, _, l, v := behind(t)
	id := begin(t, l, v, 1)
	old, err := v.View(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	appendNudges(t, l, v, id, "a")
	if _, err := l.Append(t.Context(), &stale{Viewer: v, old: old, times: 1 << 20}, id, nudge("b")); err == nil || errors.Is(err, session.ErrCorrupt) {
		t.Errorf("got %v, want an error that is no loss", err)
	}
	settled(t, w, id, map[string]uint64{"a": 2})
}
