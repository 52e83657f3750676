package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

func TestMain(m *testing.M) {
	runtime.MemProfileRate = 16 << 10 // fine enough for what a test measures by the heap profile
	goleak.VerifyTestMain(m)
}

const (
	lease = 2 * time.Second
	token = "ada-token"
)

// patience bounds every wait of a test.
const patience = 30 * time.Second

// world is a deployment in one process: a real broker, a real coordinator with
// its mirror, the real fence. Workers are the test's to start.
type world struct {
	t      testing.TB
	broker natstest.Server
	log    *stream.Log // the first coordinator's, to look with
	store  *sessionstore.Store
	stores []*sessionstore.Store // of every coordinator
	api    *client.Client
	dir    string // the workspace
	parts  int    // partitions, 0 for one
}

func newWorld(t testing.TB, change ...func(*policy.Settings)) *world {
	t.Helper()
	w := &world{t: t, broker: natstest.Start(t), dir: t.TempDir()}
	w.provision(change...)
	w.coordinate()
	w.api = client.New(w.broker.Conn(t, broker.Client, "client"), client.Config{Token: token})
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// provision makes streams and settings: workspace-write by default, so that what
// a test sees refused was refused for its own reason.
func (w *world) provision(change ...func(*policy.Settings)) {
	w.t.Helper()
	log, err := stream.New(w.broker.Conn(w.t, broker.Provisioner, "provisioner"), stream.Config{})
	w.must(err)
	w.must(log.Provision(w.t.Context(), stream.ProvisionConfig{AckWait: lease}))
	s := policy.DefaultSettings()
	s.Lease = policy.Duration(lease)
	s.Defaults.Sandbox = session.WorkspaceWrite
	for _, fn := range change {
		fn(&s)
	}
	stored, err := s.Encode()
	w.must(err)
	set, err := stream.New(w.broker.Conn(w.t, broker.Coordinator, "coordinator"), stream.Config{})
	w.must(err)
	_, err = set.Settings().Update(w.t.Context(), stored, 0)
	w.must(err)
}

// coordinate runs a coordinator until the test ends. The first one's log and mirror
// are the test's to look with.
func (w *world) coordinate() {
	t := w.t
	name := fmt.Sprintf("c%d", len(w.stores))
	store, err := sessionstore.Open(sessionstore.Config{Dir: filepath.Join(t.TempDir(), "mirror")})
	w.must(err)
	nc := w.broker.Conn(t, broker.Coordinator, "coordinator")
	log, err := stream.New(nc, stream.Config{
		Partitions: w.parts, Witness: store, Poll: 20 * time.Millisecond,
		Writer: session.Writer{Component: "coordinator", Instance: name, Incarnation: "i1"},
	})
	w.must(err)
	c, err := coordinator.New(coordinator.Config{
		Name: name, Conn: nc, Log: log, Store: store, Tools: agent.Tools(), Partitions: w.parts,
		Tokens: []coordinator.Token{{Digest: coordinator.DigestToken(token), Role: coordinator.Admin, Party: session.Party{Kind: session.Person, ID: "ada"}}},
	})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("coordinator %s: %v", name, err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("close the mirror of %s: %v", name, err)
		}
	})
	select {
	case <-c.Ready():
	case err := <-ended:
		t.Fatalf("coordinator %s did not start: %v", name, err)
	case <-time.After(patience):
		t.Fatalf("coordinator %s is not ready", name)
	}
	if w.stores = append(w.stores, store); len(w.stores) == 1 {
		w.log, w.store = log, store
	}
}

// worker is a running worker. Die ends it as a crash does, as far as the log and
// the queue can see: its connection is cut, and it says nothing more.
type worker struct {
	*agent.Worker
	nc   *nats.Conn
	stop context.CancelFunc
	done chan error
}

// work starts a worker of the broker's identity name. It stops with the test.
func (w *world) work(name string, concurrency int, change ...func(*agent.Config)) *worker {
	t := w.t
	t.Helper()
	nc := w.broker.Conn(t, broker.Worker, name)
	c := client.New(nc, client.Config{Worker: name, Timeout: 5 * time.Second})
	incarnation := ulid.Make().String()
	log, err := stream.New(nc, stream.Config{
		Partitions: w.parts, Witness: agent.Witness{Client: c}, Timeout: time.Second, Budget: 3 * time.Second,
		Writer: session.Writer{Component: "worker", Instance: name, Incarnation: incarnation},
	})
	w.must(err)
	runner, err := sandbox.New(sandbox.Config{})
	w.must(err)
	cfg := agent.Config{
		Name: name, Incarnation: incarnation, Concurrency: concurrency, Partitions: w.parts, Lease: lease, Grace: 50 * time.Millisecond,
		Log: log, Client: c, Runner: runner, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, fn := range change {
		fn(&cfg)
	}
	a, err := agent.NewWorker(cfg)
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	out := &worker{Worker: a, nc: nc, stop: cancel, done: make(chan error, 1)}
	go func() {
		defer close(out.done)
		if err := a.Run(ctx); err != nil {
			out.done <- err
		}
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-out.done; err != nil && !nc.IsClosed() {
			t.Errorf("worker %s: %v", name, err)
		}
	})
	return out
}

// die cuts the worker off and waits until nothing of it is left.
func (k *worker) die(t testing.TB) {
	t.Helper()
	k.nc.Close()
	k.stop()
	<-k.done
}

var head = client.Head{Version: client.APIVersion}

// root starts a root session on a script.
func (w *world) root(script string, change ...func(*client.CreateRequest)) session.ID {
	w.t.Helper()
	id, err := session.RootID(ulid.Make().String(), 1)
	w.must(err)
	in := client.CreateRequest{
		Head: head, ID: id, Cwd: w.dir, Label: "root", Prompt: "go",
		Model: client.Model{Provider: "scripted", Model: "test", Script: script},
	}
	for _, fn := range change {
		fn(&in)
	}
	w.must(w.api.Call(w.t.Context(), client.MethodCreate, in, nil))
	return id
}

func (w *world) send(id session.ID, content string) {
	w.t.Helper()
	w.must(w.api.Call(w.t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: id, MessageID: ulid.Make().String(), Content: content}, nil))
}

// open reads a session's log from the stream.
func (w *world) open(id session.ID) *agent.Replica {
	w.t.Helper()
	r, err := agent.OpenReplica(w.t.Context(), w.log, id, "", nil)
	w.must(err)
	return r
}

// until waits until a session's log folds to what ok says, and returns it.
func (w *world) until(id session.ID, what string, ok func(session.State) bool) session.State {
	w.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	r := w.open(id)
	for {
		w.must(r.Refresh(w.t.Context(), 0))
		s, _ := r.State()
		if ok(s) {
			return s
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			w.t.Fatalf("session %s never came to: %s; its log:\n%s", id, what, list(r.Events()))
		}
	}
}

// idle waits until a session has ended a turn and has nothing to do.
func (w *world) idle(id session.ID) session.State {
	w.t.Helper()
	return w.until(id, "idle", func(s session.State) bool { return s.Open == nil && s.LastEnd != nil && !s.Runnable() })
}

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never: %s", what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// list prints a log for a person.
func list(events []session.Event) string {
	var b strings.Builder
	for _, e := range events {
		line := string(e.Line)
		fmt.Fprintf(&b, "%4d %-7s %.300s\n", e.Seq, e.Class, line)
	}
	return b.String()
}

// payloads returns the events of one type, in order.
func payloads[P session.Payload](events []session.Event) []P {
	var out []P
	for _, e := range events {
		if p, ok := e.Payload.(P); ok {
			out = append(out, p)
		}
	}
	return out
}

// children lists the children that a log's decisions name, in order.
func children(events []session.Event) []session.ID {
	var ids []session.ID
	for _, d := range payloads[*session.ToolDecision](events) {
		if d.Child != "" {
			ids = append(ids, d.Child)
		}
	}
	return ids
}

// onceEach wants every call to have exactly one decision that allows or denies it
// at most, and exactly one result.
func onceEach(t *testing.T, events []session.Event) {
	t.Helper()
	for _, c := range payloads[*session.ToolCall](events) {
		allowed, results := 0, 0
		for _, d := range payloads[*session.ToolDecision](events) {
			if d.CallID == c.CallID && d.Verdict == session.Allow {
				allowed++
			}
		}
		for _, r := range payloads[*session.ToolResult](events) {
			if r.CallID == c.CallID {
				results++
			}
		}
		if allowed > 1 || results != 1 {
			t.Errorf("call %s was allowed %d times and has %d results, want at most 1 and 1", c.CallID, allowed, results)
		}
	}
}

func resultOf(t *testing.T, events []session.Event, call session.CallID) *session.ToolResult {
	t.Helper()
	all := payloads[*session.ToolResult](events)
	i := slices.IndexFunc(all, func(r *session.ToolResult) bool { return r.CallID == call })
	if i < 0 {
		t.Fatalf("call %s has no result:\n%s", call, list(events))
	}
	return all[i]
}

// plant publishes a switch in class turn, with all a worker's key can get right.
func (w *world) plant(id session.ID) {
	w.t.Helper()
	s, _ := w.open(id).State()
	sec, err := session.Compose(id, session.ClassPolicy, s.Next, s.Link, session.Draft{
		Payload: &session.SandboxSwitch{Mode: session.DangerFullAccess, By: &session.Party{Kind: session.Person, ID: "ada"}},
	})
	w.must(err)
	a := session.Address{Session: id, Class: session.ClassTurn}
	headers, body, err := session.EncodeRecord(session.Record{Address: a, Format: s.Format, Epoch: 1, Own: &sec})
	w.must(err)
	w.publish(w.broker.Conn(w.t, broker.Worker, "w2"), a, headers, body)
}

// publish puts a message into a session's space past the one append.
func (w *world) publish(nc *nats.Conn, a session.Address, headers map[string]string, body []byte) {
	w.t.Helper()
	m := nats.NewMsg(stream.Subject(a))
	m.Data = body
	for k, v := range headers {
		m.Header[k] = []string{v}
	}
	_, err := nc.RequestMsg(m, patience)
	w.must(err)
}

// drained waits until every hint was acknowledged.
func (w *world) drained() {
	w.t.Helper()
	js, err := jetstream.New(w.broker.Conn(w.t, broker.Provisioner, "provisioner"))
	w.must(err)
	eventually(w.t, "the queue is empty", func() bool {
		c, err := js.Consumer(w.t.Context(), stream.StreamName(0), "work")
		w.must(err)
		return c.CachedInfo().NumAckPending == 0 && c.CachedInfo().NumPending == 0
	})
}
