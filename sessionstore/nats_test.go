package sessionstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

// natsFeed reads a real stream. It knows no more than the mirror needs.
type natsFeed struct {
	js    jetstream.JetStream
	owner jetstream.JetStream // may change the stream
	name  string
}

func newNATSFeed(t *testing.T, s natstest.Server) natsFeed {
	t.Helper()
	owner, err := jetstream.New(s.Conn(t, broker.Provisioner, string(broker.Provisioner)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.CreateStream(within(t), streamConfig()); err != nil {
		t.Fatalf("create stream: %v", err)
	}
	js, err := jetstream.New(s.Conn(t, broker.Coordinator, string(broker.Coordinator)))
	if err != nil {
		t.Fatal(err)
	}
	return natsFeed{js: js, owner: owner, name: streamConfig().Name}
}

func streamConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: "ENTAIL_LOG_0", Subjects: []string{"entail.log.0.>"}, Storage: jetstream.FileStorage}
}

// publish puts a tape's records into the stream.
func (f natsFeed) publish(t *testing.T, raws []session.Raw) {
	t.Helper()
	for _, raw := range raws {
		at := raw.Address
		m := nats.NewMsg(fmt.Sprintf("entail.log.0.%s.%s.%s", at.Session.Root(), at.Space(), at.Class))
		if at.Class == session.ClassGenesis {
			m.Subject += "." + string(at.Session)
		}
		for k, v := range raw.Headers {
			m.Header[k] = []string{v}
		}
		m.Data = raw.Body
		ack, err := f.js.PublishMsg(within(t), m)
		if err != nil || ack.Sequence != raw.StreamSeq {
			t.Fatalf("publish %d: %+v, %v", raw.StreamSeq, ack, err)
		}
	}
}

func rawOf(subject string, seq uint64, header nats.Header, data []byte) session.Raw {
	tokens := strings.Split(subject, ".")
	at := session.Address{Session: session.ID(tokens[4]), Class: session.Class(tokens[5])}
	if len(tokens) > 6 {
		at.Session, at.Creator = session.ID(tokens[6]), at.Session
	}
	headers := make(map[string]string, len(header))
	for k := range maps.Keys(header) {
		headers[k] = header[k][0]
	}
	return session.Raw{StreamSeq: seq, Address: at, Headers: headers, Body: data}
}

func (f natsFeed) Info(ctx context.Context, _ int) (string, uint64, uint64, error) {
	st, err := f.js.Stream(ctx, f.name)
	if err != nil {
		return "", 0, 0, err
	}
	i := st.CachedInfo()
	return i.Created.Format(time.RFC3339Nano), i.State.FirstSeq, i.State.LastSeq, nil
}

func (f natsFeed) At(ctx context.Context, _ int, seq uint64) (session.Raw, error) {
	st, err := f.js.Stream(ctx, f.name)
	if err != nil {
		return session.Raw{}, err
	}
	m, err := st.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return session.Raw{}, session.ErrNotFound
	}
	if err != nil {
		return session.Raw{}, err
	}
	return rawOf(m.Subject, m.Sequence, m.Header, m.Data), nil
}

func (f natsFeed) Follow(ctx context.Context, _ int, after uint64, fn func([]session.Raw) error) error {
	c, err := f.js.OrderedConsumer(ctx, f.name, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
	})
	if err != nil {
		return err
	}
	messages, err := c.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if err := fn([]session.Raw{rawOf(m.Subject(), meta.Sequence.Stream, m.Headers(), m.Data())}); err != nil {
			return err
		}
	}
}

func TestMirrorOfARealStream(t *testing.T) {
	t.Parallel()
	tp := family(t)
	half := len(tp.raws) / 2
	f := newNATSFeed(t, natstest.Start(t))
	f.publish(t, tp.raws[:half])

	dir := t.TempDir()
	s, err := sessionstore.Open(sessionstore.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	stop, result := run(t, s, f, 0)
	wait(t, s, uint64(half))
	stop()
	if err := ended(t, result); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	f.publish(t, tp.raws[half:])
	s = open(t, sessionstore.Config{Dir: dir, Interval: interval})
	stop, result = run(t, s, f, 0)
	wait(t, s, uint64(len(tp.raws)))
	agree(t, s, tp)
	if !slices.Equal(tp.ids, ids(mustList(t, s))) {
		t.Errorf("Sessions = %v, want %v", ids(mustList(t, s)), tp.ids)
	}
	stop()
	if err := ended(t, result); err != nil {
		t.Fatalf("Run: %v", err)
	}

	// A stream of the same name with the same records is another stream.
	anew := newNATSFeed(t, natstest.Start(t))
	anew.publish(t, tp.raws)
	_, result = run(t, s, anew, 0)
	stopped(t, s, tp, ended(t, result))
}

// A worker's key may publish under any token, so a stream can hold messages that
// no session of ours wrote.
func TestMirrorOfARealStreamPassesStrayMessages(t *testing.T) {
	t.Parallel()
	tp := newTape(t)
	id := tp.root()
	stray := tp.put(session.Address{Session: "junk", Class: session.ClassTurn}, nil, []byte("x"))
	tp.turn(id)
	server := natstest.Start(t)
	f := newNATSFeed(t, server)
	f.publish(t, tp.raws[:1])
	w, err := jetstream.New(server.Conn(t, broker.Worker, "w1"))
	if err != nil {
		t.Fatal(err)
	}
	ack, err := w.Publish(within(t), "entail.log.0.junk.junk.turn", stray.Body)
	if err != nil || ack.Sequence != stray.StreamSeq {
		t.Fatalf("publish as a worker: %+v, %v", ack, err)
	}
	told := &alarms{}
	s := open(t, sessionstore.Config{OnAlarm: told.add})
	run(t, s, f, 0)
	wait(t, s, stray.StreamSeq)
	f.publish(t, tp.raws[stray.StreamSeq:])
	wait(t, s, uint64(len(tp.raws)))
	agree(t, s, tp)
	if got := told.seqs(); !slices.Equal(got, []uint64{stray.StreamSeq}) {
		t.Errorf("alarms = %v, want %d", got, stray.StreamSeq)
	}
}

func mustList(t *testing.T, s *sessionstore.Store) []sessionstore.Entry {
	t.Helper()
	all, err := s.Sessions(sessionstore.ListOptions{})
	if err != nil {
		t.Fatalf("Sessions: %v", err)
	}
	return all
}
