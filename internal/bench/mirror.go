package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// ingest measures a mirror that reads a partition from its beginning, with hash
// check and fold, against an ordered consumer that throws away what it gets.
func ingest(ctx context.Context, g *ground, s scale, tell func(Figure)) error {
	log, err := g.log()
	if err != nil {
		return err
	}
	n := s.of(20_000)
	if err := fill(ctx, log, n); err != nil {
		return err
	}
	info, err := log.Info(ctx, 0)
	if err != nil {
		return err
	}
	js, err := jetstream.New(g.conn)
	if err != nil {
		return err
	}
	rounds := 0
	f, err := compare("mirror ingest, against an ordered consumer", 0.35, int(info.LastSeq), //nolint:gosec // some thousands
		func(n int) (time.Duration, error) { return consume(ctx, js, n) },
		func(int) (time.Duration, error) {
			rounds++
			return mirror(ctx, log, filepath.Join(g.dir, fmt.Sprint("mirror", rounds)), info.LastSeq)
		})
	if err == nil {
		tell(f)
	}
	return err
}

// fill writes sessions of about a hundred records, until there are so many records:
// a parent's delegations, and then rounds as a driver writes them.
func fill(ctx context.Context, log *stream.Log, records int) error {
	const writers, rounds = 64, 30
	type writer struct {
		*book
		rounds int
	}
	all := make([]writer, writers)
	_, err := spread(writers, records/3, func(w int) (err error) {
		b := &all[w]
		switch {
		case b.book == nil || b.rounds == rounds:
			b.book, err = newBook(ctx, log, callsPerBook)
			b.rounds = 0
			return err
		case b.open < callsPerBook:
			return b.delegate(ctx, session.Spawn)
		case b.rounds == 0:
			err = b.rest(ctx)
		}
		b.rounds++
		return errors.Join(err, b.round(ctx))
	})
	return err
}

// rest ends the open step with its calls.
func (b *book) rest(ctx context.Context) error {
	s := b.view.State
	var events []session.Payload
	for _, c := range s.Open.Calls {
		events = append(events, &session.ToolResult{Turn: s.Turn, Step: s.Open.Step, CallID: c.ID, Content: "the child's report", Child: c.Child})
	}
	return b.turn(ctx, s.Epoch, append(events, &session.StepEnd{Turn: s.Turn, Step: s.Open.Step})...)
}

// round writes a step with one call, in the three records that a driver makes of
// it: what the model said, the decision, the result.
func (b *book) round(ctx context.Context) error {
	s := b.view.State
	turn, step := s.Turn, s.Open.Step+1
	id := session.MakeCallID(turn, step, 0)
	err := b.turn(ctx, s.Epoch, &session.StepStart{Turn: turn, Step: step},
		&session.AssistantMessage{Turn: turn, Step: step, Content: strings.Repeat("as a model says it, ", 10), Calls: []int{0}, Finish: "tool_calls"},
		&session.ToolCall{Turn: turn, Step: step, CallID: id, Name: "read", Arguments: `{"path":"some/file/of/the/workspace.go"}`})
	if err != nil {
		return err
	}
	d, err := policy.Decide(b.view.State, deployed(), policy.Call{ID: id, Tool: "read"}, tools)
	if err != nil {
		return err
	}
	decision := d.Record()
	if err := b.turn(ctx, s.Epoch, &decision); err != nil {
		return err
	}
	return b.turn(ctx, s.Epoch,
		&session.ToolResult{Turn: turn, Step: step, CallID: id, Content: strings.Repeat("what stands in the file\n", 20)},
		&session.StepEnd{Turn: turn, Step: step})
}

func consume(ctx context.Context, js jetstream.JetStream, n int) (time.Duration, error) {
	start := time.Now()
	c, err := js.OrderedConsumer(ctx, stream.StreamName(0), jetstream.OrderedConsumerConfig{})
	if err != nil {
		return 0, err
	}
	all := make(chan struct{})
	left := n
	consuming, err := c.Consume(func(jetstream.Msg) {
		if left--; left == 0 {
			close(all)
		}
	}, jetstream.PullMaxMessages(512))
	if err != nil {
		return 0, err
	}
	defer consuming.Stop()
	select {
	case <-all:
		return time.Since(start), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// mirror reads the partition into a new store.
func mirror(ctx context.Context, log *stream.Log, dir string, upTo uint64) (took time.Duration, err error) {
	store, err := sessionstore.Open(sessionstore.Config{Dir: dir})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- store.Run(running, feed{log}, 0) }()
	err = store.WaitFor(ctx, 0, upTo)
	took = time.Since(start)
	cancel()
	if rerr := <-ended; rerr != nil && !errors.Is(rerr, context.Canceled) {
		err = errors.Join(err, rerr)
	}
	return took, err
}

// feed is the log as a mirror reads it.
type feed struct{ *stream.Log }

// Info implements sessionstore.Feed.
func (f feed) Info(ctx context.Context, partition int) (incarnation string, first, last uint64, err error) {
	i, err := f.Log.Info(ctx, partition)
	return i.Incarnation, i.FirstSeq, i.LastSeq, err
}

// coldReads measures reading a session of a hundred records that nobody holds.
func coldReads(ctx context.Context, g *ground, s scale, tell func(Figure)) (err error) {
	c, err := g.coordinate(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	log, err := g.log()
	if err != nil {
		return err
	}
	b, err := newBook(ctx, log, 0)
	if err != nil {
		return err
	}
	const rounds, records = 32, 1 + 1 + 3*32 + 2 // genesis, claim, rounds, nudges
	claim := &session.Claim{Epoch: 1, Worker: "bench", Incarnation: "1", Cause: session.CauseStart}
	if err := b.turn(ctx, 1, claim, &session.TurnStart{Turn: 1}); err != nil {
		return err
	}
	for range rounds {
		if err := b.round(ctx); err != nil {
			return err
		}
	}
	if err := b.nudges(ctx, 1); err != nil {
		return err
	}
	if err := b.nudges(ctx, 1); err != nil {
		return err
	}
	if err := c.settle(ctx, log); err != nil {
		return err
	}
	worker, err := g.connect(broker.Worker, "w1")
	if err != nil {
		return err
	}
	defer worker.Close()
	api := client.New(worker, client.Config{Worker: "w1"})
	counted := func(read func(func(session.Raw) error) error) func() error {
		return func() error {
			n := 0
			err := read(func(session.Raw) error { n++; return nil })
			if err == nil && n != records {
				err = fmt.Errorf("%d records were read, want %d", n, records)
			}
			return err
		}
	}
	for _, place := range []struct {
		name  string
		limit time.Duration
		read  func(func(session.Raw) error) error
	}{
		{"in the coordinator's mirror", time.Millisecond, func(fn func(session.Raw) error) error { return c.store.RecordsAfter(b.id(), 0, fn) }},
		{"from the mirror over NATS", 3 * time.Millisecond, func(fn func(session.Raw) error) error {
			var out client.ColdReply
			if err := api.Call(ctx, client.MethodCold, client.ColdRequest{Head: client.Head{Version: client.APIVersion}, ID: b.id()}, &out); err != nil {
				return err
			}
			return client.Unpack(out.Records, fn)
		}},
		{"from the stream", 0, func(fn func(session.Raw) error) error {
			_, err := log.Read(ctx, b.id(), 0, fn)
			return err
		}},
	} {
		f, err := timed("cold session of 100 records "+place.name, place.limit, s.of(400), counted(place.read))
		if err != nil {
			return err
		}
		tell(f)
	}
	return nil
}

// idle measures what a session that nobody asks about costs a coordinator in
// memory.
func idle(ctx context.Context, g *ground, s scale, tell func(Figure)) (err error) {
	c, err := g.coordinate(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	log, err := g.log()
	if err != nil {
		return err
	}
	grow := func(sessions int) (heap uint64, err error) {
		if _, err := spread(64, sessions, func(int) error { _, err := newBook(ctx, log, 0); return err }); err != nil {
			return 0, err
		}
		if err := c.settle(ctx, log); err != nil {
			return 0, err
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, nil
	}
	n := s.of(20_000)
	// The caches are full before it is counted; they are bounded.
	before, err := grow(n)
	if err != nil {
		return err
	}
	after, err := grow(n)
	if err != nil {
		return err
	}
	const limit = 1024
	each := max(float64(after)-float64(before), 1) / float64(n)
	tell(Figure{
		Name: "memory of an idle session, server and coordinator, bytes against 1024", Ratio: limit / each, Raw: limit, Ours: each,
		N: n, Target: 1, OK: each <= limit,
	})
	return nil
}
