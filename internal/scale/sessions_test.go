package scale_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

// shape is what must not grow with the number of sessions, in counts of work: a
// request to a coordinator in objects that it allocates, the rest in what is there.
type shape struct {
	counts map[string]float64
	all    float64 // allocations of a listing of everything, which has to grow
}

// inBroker ends the names of what the broker does for a request. To read a block, of
// 4 MiB and some thousand records, takes it about so many allocations.
const (
	inBroker   = ", in the broker"
	blockReads = 10_000
)

// TestManySessions writes n sessions and four times as many, measures each
// deployment, and holds the second to the shape of the first. Alone in the process,
// because allocations are counted.
func TestManySessions(t *testing.T) {
	n := setting(t, "SCALE_SESSIONS", 600)
	events := setting(t, "SCALE_EVENTS", 20)
	small := measureSessions(t, n/4, events)
	large := measureSessions(t, n, events)
	if len(small.counts) < 10 {
		t.Fatalf("%d counts were taken, want at least 10", len(small.counts))
	}
	for what, was := range small.counts {
		// A mirror of four times as many has a level more here and there. A broker
		// reads the block in which a record stands, unless it is the one it writes:
		// the default size fits into one, so only longer runs hold a broker to this.
		spare := 64.0
		if strings.HasSuffix(what, inBroker) {
			spare = 2 * blockReads
		}
		if is := large.counts[what]; is > 1.5*was+spare {
			t.Errorf("%s: %.0f with %d sessions, %.0f with %d: it grows with them", what, was, n/4, is, n)
		}
	}
	if large.all < 3*small.all {
		t.Errorf("a listing of everything allocates %.0f with %d sessions and %.0f with %d: the measure sees nothing", small.all, n/4, large.all, n)
	}
}

// measureSessions is one deployment's life with n sessions.
func measureSessions(t *testing.T, n, events int) shape {
	t.Helper()
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("--- %d sessions of %d events; load %s", n, events, strings.TrimSpace(string(load)))
	w := newWorld(t, 1)
	empty := w.broker.figures()
	var ids []session.ID
	took := timed(t, "write all", func() {
		for i := range n {
			if l := w.fixture.settledRoot(0, events); i == n/2 || i == n/3 {
				ids = append(ids, l.id())
			}
		}
		w.fixture.done()
	})
	if w.fixture.events != n*events {
		t.Fatalf("%d sessions have %d events, want %d each", n, w.fixture.events, events)
	}
	t.Logf("%46s %d records, %.0f records/s", "", w.fixture.records, float64(w.fixture.records)/took.Seconds())
	full := w.broker.figures()
	t.Logf("broker: RSS %s, heap %s, grown by %s a session", mib(full.RSS), mib(full.Heap), per(full.Heap-min(full.Heap, empty.Heap), n))

	c := w.coordinate()
	t.Logf("%-46s %v, %.0f records/s", "coordinator: start with an empty mirror", c.ready.Took, float64(w.fixture.records)/c.ready.Took.Seconds())
	t.Logf("coordinator: RSS %s, heap %s, CPU %v, %v a record", mib(c.ready.RSS), mib(c.ready.Heap), c.ready.CPU, c.ready.CPU/time.Duration(w.fixture.records))
	c.stop()
	out := shape{counts: map[string]float64{}}
	w.measureMirror(&out, ids)

	c = w.coordinate()
	t.Logf("%-46s %v", "coordinator: restart with a full mirror", c.ready.Took)
	t.Logf("coordinator: RSS %s, heap %s, %s a session", mib(c.ready.RSS), mib(c.ready.Heap), per(c.ready.Heap, n))
	out.counts["messages to restart"] = float64(c.ready.Received)
	out.counts["goroutines of a coordinator"] = float64(c.ready.Goroutines)
	w.measureRequests(c, &out, ids)

	k := w.work(4)
	out.counts["goroutines of a worker"] = float64(k.ready.Goroutines)
	out.counts["consumers"] = float64(w.consumers())
	t.Logf("worker: RSS %s, heap %s, %d goroutines; %d consumers", mib(k.ready.RSS), mib(k.ready.Heap), k.ready.Goroutines, w.consumers())
	full = w.broker.figures()
	t.Logf("broker, after all this: RSS %s, heap %s, %s a session", mib(full.RSS), mib(full.Heap), per(full.Heap, n))
	if got := w.consumers(); got != 2 {
		t.Errorf("%d consumers, want the work queue and the coordinator's", got)
	}
	return out
}

// measureMirror counts what a sweep and reads cost in a mirror that nobody else has
// open.
func (w *world) measureMirror(out *shape, ids []session.ID) {
	t := w.t
	s, err := sessionstore.Open(sessionstore.Config{Dir: w.mirror})
	w.must(err)
	defer func() { w.must(s.Close()) }()
	count := func(what string, do func() error) {
		out.counts["allocations: "+what] = testing.AllocsPerRun(5, func() { w.must(do()) })
	}
	count("sweep, runnable", func() error { _, err := s.Runnable(0); return err })
	count("sweep, owing", func() error { _, err := s.Owing(0); return err })
	count("view", func() error { _, err := s.View(t.Context(), ids[0], 0); return err })
	count("a page of 20", func() error { _, err := s.Sessions(sessionstore.ListOptions{Limit: 20}); return err })
	count("a page of 20 from the middle", func() error {
		_, err := s.Sessions(sessionstore.ListOptions{After: ids[0], Limit: 20})
		return err
	})
	count("a tree", func() error { _, err := s.Tree(ids[1]); return err })
	out.all = testing.AllocsPerRun(1, func() {
		_, err := s.Sessions(sessionstore.ListOptions{})
		w.must(err)
	})
}

// measureRequests counts what requests cost the coordinator, and how long they take.
func (w *world) measureRequests(c *part, out *shape, ids []session.ID) {
	t := w.t
	count := func(of *part, what string, do func()) {
		const times = 10
		before := of.figures()
		took := time.Now()
		for range times {
			do()
		}
		each := time.Since(took) / times
		after := of.figures()
		out.counts["allocations: "+what] = float64(after.Mallocs-before.Mallocs) / times
		out.counts["messages: "+what] = float64(after.Received-before.Received) / times
		t.Logf("%-46s %v, %.0f allocations", what, each.Round(10*time.Microsecond), out.counts["allocations: "+what])
	}
	request := func(what string, do func()) { count(c, what, do) }
	request("show one", func() { w.show(ids[0]) })
	request("list a page of 20", func() { w.list(client.ListRequest{Limit: 20}) })
	request("tree of one", func() { w.call(client.MethodTree, client.SessionRequest{Head: head, ID: ids[1]}, nil) })
	request("explain its policy", func() { w.call(client.MethodPolicyExplain, client.SessionRequest{Head: head, ID: ids[1]}, nil) })
	request("cold records for a worker", func() {
		w.must(w.worker.Call(t.Context(), client.MethodCold, client.ColdRequest{Head: head, ID: ids[1]}, nil))
	})
	request("create a session", func() { w.create() })
	count(w.broker, "create a session"+inBroker, func() { w.create() })
	request("send to a session", func() {
		w.call(client.MethodSend, client.SendRequest{Head: head, ID: ids[0], MessageID: w.name(), Content: "go on"}, nil)
	})
	count(w.broker, "resume one from the stream"+inBroker, func() {
		r, err := agent.OpenReplica(t.Context(), w.log, ids[1], "", nil)
		w.must(err)
		if s, _ := r.State(); s.Next == 0 {
			t.Error("a session that was resumed is empty")
		}
	})
	timed(t, "list everything", func() {
		n := w.listAll("", func(client.Summary) {})
		t.Logf("%46s %d sessions", "", n)
		if n < w.fixture.roots {
			t.Errorf("%d sessions are listed, want at least %d", n, w.fixture.roots)
		}
	})
}
