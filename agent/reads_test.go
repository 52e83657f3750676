package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// counter counts the records that a connection is given because it read them: it
// listens to the bytes that come in. What the queue delivers is no read.
type counter struct {
	mu    sync.Mutex
	line  []byte         // begun
	log   bool           // the answer in hand is of the log's stream
	reads map[uint64]int // how often each stream sequence was read
	tails int            // answers of the leader, which is asked for tails
}

// Dial implements [nats.CustomDialer].
func (c *counter) Dial(network, address string) (net.Conn, error) {
	nc, err := net.DialTimeout(network, address, patience)
	return counted{Conn: nc, counter: c}, err
}

type counted struct {
	net.Conn
	*counter
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.see(b[:n])
	return n, err
}

func (c *counter) see(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		head, tail, whole := bytes.Cut(b, []byte("\n"))
		c.line = append(c.line, head...)
		if !whole {
			return
		}
		c.count(strings.TrimSuffix(string(c.line), "\r"))
		c.line, b = c.line[:0], tail
	}
}

// count knows a direct get's answer by the headers that the server adds, and a
// leader's by its type.
func (c *counter) count(line string) {
	if name, ok := strings.CutPrefix(line, "Nats-Stream: "); ok {
		c.log = name == stream.StreamName(0)
	}
	if text, ok := strings.CutPrefix(line, "Nats-Sequence: "); ok && c.log {
		if seq, err := strconv.ParseUint(text, 10, 64); err == nil {
			c.reads[seq]++
		}
	}
	if strings.Contains(line, `"type":"io.nats.jetstream.api.v1.stream_msg_get_response"`) && strings.Contains(line, `"subject":"entail.log.`) {
		c.tails++
	}
}

// of sums up the reads of some records: the most of one, and of how many there
// were any.
func (c *counter) of(records []session.Raw) (most, read int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range records {
		most = max(most, c.reads[r.StreamSeq])
		if c.reads[r.StreamSeq] > 0 {
			read++
		}
	}
	return most, read
}

func (c *counter) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tails
}

// counting has a worker's log read over a connection that counts.
func (w *world) counting(name string) (*counter, func(*agent.Config)) {
	w.t.Helper()
	c := &counter{reads: map[uint64]int{}}
	nc := w.broker.Conn(w.t, broker.Worker, name, nats.SetCustomDialer(c))
	return c, func(cfg *agent.Config) {
		log, err := stream.New(nc, stream.Config{
			Witness: agent.Witness{Client: cfg.Client}, Timeout: time.Second, Budget: 3 * time.Second,
			Writer: session.Writer{Component: "worker", Instance: name, Incarnation: cfg.Incarnation},
		})
		w.must(err)
		cfg.Log = log
	}
}

// space lists the records of a session's own space, but for the geneses of its
// children, which are theirs too.
func (w *world) space(id session.ID) []session.Raw {
	w.t.Helper()
	var out []session.Raw
	_, err := w.log.Read(w.t.Context(), id, 0, func(r session.Raw) error {
		if r.Address.Session == id {
			out = append(out, r)
		}
		return nil
	})
	w.must(err)
	return out
}

// steps writes a script's items: n steps of one call that only reads.
func steps(n int) string {
	return strings.Repeat("    - calls: [{id: l, tool: list, args: {}}]\n", n)
}

// A long turn is looked at for many hints: of messages that come in while it is
// driven, and of children that wake it. The worker reads each record once.
func TestARecordIsReadOnce(t *testing.T) {
	t.Parallel()
	const children, messages = 4, 4
	w := newWorld(t)
	var script strings.Builder
	script.WriteString("sessions:\n  root:\n")
	for i := range children {
		fmt.Fprintf(&script, "    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: c%d, prompt: p}}]\n%s", i, steps(12))
	}
	script.WriteString("    - text: done\n")
	for i := range children {
		fmt.Fprintf(&script, "  c%d:\n    - text: the answer\n", i)
	}
	count, change := w.counting("w1")
	w.work("w1", 2, change)
	id := w.root(script.String())
	for i := range messages {
		w.until(id, "further on", func(s session.State) bool { return s.Steps > 12*i })
		w.send(id, "go on")
	}
	s := w.idle(id)
	w.drained()
	records := w.space(id)
	if len(records) < 200 || s.Turn != 1 {
		t.Fatalf("the log has %d records in %d turns, want at least 200 in one", len(records), s.Turn)
	}
	// The genesis was the session's last record when the tail was asked for.
	if most, read := count.of(records[1:]); most != 1 || read != len(records)-1 {
		t.Errorf("%d of %d records were read, one of them %d times; want each once", read, len(records), most)
	}
	if asked := count.asked(); asked < children+messages || asked > 100 {
		t.Errorf("the tail was asked for %d times, want once a hint or so", asked)
	}
}

// A worker that takes over a long session has its log from a coordinator, and
// from the stream what links to it.
func TestTakeoverReadsFromAMirror(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.work("w1", 1)
	id := w.root(fmt.Sprintf("sessions:\n  root:\n%s    - calls: [{id: h, tool: bash, args: {command: %q}}]\n    - text: done\n", steps(25), hold))
	eventually(t, "the call runs", func() bool { return w.ran() == 1 })
	first.die(t)
	old := w.space(id)
	count, change := w.counting("w2")
	w.work("w2", 1, change)
	s := w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if s.LastEnd.Reason.Kind != session.EndCompleted || s.Claim.Worker != "w2" {
		t.Errorf("the turn ended %q, driven by %s; want completed, by w2", s.LastEnd.Reason.Kind, s.Claim.Worker)
	}
	// Each look at the session, while its claim still counts as live, asks for the
	// last record; the others come from the mirror.
	body, last := old[:len(old)-1], old[len(old)-1:]
	if most, read := count.of(body); len(old) < 100 || most > 1 || read > 4 {
		t.Errorf("%d of %d old records were read from the stream, one %d times; want a few, once", read, len(old), most)
	}
	if _, read := count.of(last); read == 0 {
		t.Error("the last record was not read from the stream: nothing proves the others")
	}
}

// Two that need the same session at once read it once.
func TestTwoReadersReadOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root("sessions:\n  root:\n" + steps(8) + "    - text: done\n")
	w.idle(id)
	count, change := w.counting("w2")
	cfg := agent.Config{Client: client.New(w.broker.Conn(t, broker.Worker, "w2"), client.Config{Worker: "w2"}), Lease: lease}
	change(&cfg)
	all := agent.NewReplicas(cfg, time.Minute, 10, 1<<20)
	want, _ := w.open(id).State()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r, done, err := all.Open(context.WithoutCancel(t.Context()), id)
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			if s, _ := r.State(); s.Next != want.Next || s.Link != want.Link {
				t.Errorf("read up to seq %d, want %d", s.Next, want.Next)
			}
		})
	}
	wg.Wait()
	if most, _ := count.of(w.space(id)); most > 1 {
		t.Errorf("a record was read %d times, want once", most)
	}
}
