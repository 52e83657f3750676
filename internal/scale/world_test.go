package scale_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// setting is a number that the environment may make larger.
func setting(t testing.TB, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s %q: give a number", name, text)
	}
	return n
}

// world is a deployment whose broker is a process. Its other parts are the test's to
// start.
type world struct {
	t          testing.TB
	keys       string
	mirror     string
	dir        string // the workspace
	partitions int
	settings   policy.Settings
	broker     *part
	fixture    *fixture
	js         jetstream.JetStream
	api        *client.Client
	worker     *client.Client
	log        *stream.Log // a coordinator's, to look with
}

// room is what all streams may take up.
const room = 32 << 30

// newWorld starts a broker and provisions it. Nothing is swept unless the settings
// are given a shorter lease.
func newWorld(t testing.TB, partitions int, change ...func(*policy.Settings)) *world {
	t.Helper()
	w := &world{t: t, keys: t.TempDir(), mirror: t.TempDir(), dir: t.TempDir(), partitions: partitions, settings: policy.DefaultSettings()}
	w.settings.Lease = policy.Duration(10 * time.Minute)
	w.settings.Caps = policy.Caps{Depth: 100, Live: 1 << 20, Tree: 1 << 20, Inbox: 1 << 20}
	for _, fn := range change {
		fn(&w.settings)
	}
	w.broker = start(t, "broker", order{Dir: t.TempDir(), Keys: w.keys, Partitions: partitions})
	owner, err := stream.New(w.conn("provisioner"), stream.Config{Partitions: partitions, MaxBytes: room / int64(partitions)})
	w.must(err)
	w.must(owner.Provision(t.Context(), stream.ProvisionConfig{AckWait: max(time.Duration(w.settings.Lease), time.Second)}))
	nc := w.conn("coordinator")
	w.log, err = stream.New(nc, stream.Config{Partitions: partitions, MaxBytes: room / int64(partitions)})
	w.must(err)
	stored, err := w.settings.Encode()
	w.must(err)
	_, err = w.log.Settings().Update(t.Context(), stored, 0)
	w.must(err)
	w.js, err = jetstream.New(nc)
	w.must(err)
	w.api = client.New(w.conn("client"), client.Config{Token: token, Timeout: patience(t), Try: time.Minute})
	w.worker = client.New(w.conn("w1"), client.Config{Worker: "w1", Timeout: patience(t), Try: time.Minute})
	w.must(sandbox.Mark(w.dir, workspaceID))
	w.fixture = newFixture(t, w.conn("coordinator"), partitions, w.settings, w.dir)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// conn connects until the test ends.
func (w *world) conn(name string) *nats.Conn {
	w.t.Helper()
	nc, err := connect(w.keys, name)
	w.must(err)
	w.t.Cleanup(nc.Close)
	return nc
}

// coordinate starts a coordinator on the world's mirror.
func (w *world) coordinate() *part {
	w.t.Helper()
	return start(w.t, "coordinator", order{Dir: w.mirror, Keys: w.keys, Partitions: w.partitions})
}

// work starts the worker w1.
func (w *world) work(concurrency int) *part {
	w.t.Helper()
	return start(w.t, "worker", order{
		Keys: w.keys, Partitions: w.partitions, Lease: time.Duration(w.settings.Lease), Slots: concurrency,
	})
}

// consumers counts the consumers of all partitions.
func (w *world) consumers() (n int) {
	w.t.Helper()
	for p := range w.partitions {
		s, err := w.js.Stream(w.t.Context(), stream.StreamName(p))
		w.must(err)
		n += s.CachedInfo().State.Consumers
	}
	return n
}

// stored are the records of all partitions.
func (w *world) stored() (n uint64) {
	w.t.Helper()
	for p := range w.partitions {
		info, err := w.log.Info(w.t.Context(), p)
		w.must(err)
		n += info.LastSeq
	}
	return n
}

var head = client.Head{Version: client.APIVersion}

func (w *world) call(method string, in, out any) {
	w.t.Helper()
	if err := w.api.Call(w.t.Context(), method, in, out); err != nil {
		w.t.Fatalf("%s: %v", method, err)
	}
}

func (w *world) show(id session.ID) client.Summary {
	w.t.Helper()
	var out client.Summary
	w.call(client.MethodShow, client.SessionRequest{Head: head, ID: id}, &out)
	return out
}

// name is a name that nothing has yet.
func (w *world) name() string { return ulid.Make().String() }

// create starts a session over the service.
func (w *world) create() session.ID {
	w.t.Helper()
	id, err := session.RootID(w.name(), w.partitions)
	w.must(err)
	w.call(client.MethodCreate, client.CreateRequest{
		Head: head, ID: id, Cwd: w.dir, Label: "root", Model: client.Model{Provider: "scripted", Model: "test", Script: "sessions: {}"},
	}, nil)
	return id
}

// list returns a page of sessions.
func (w *world) list(in client.ListRequest) client.ListReply {
	w.t.Helper()
	in.Head = head
	var out client.ListReply
	w.call(client.MethodList, in, &out)
	return out
}

// listAll lists a tree or everything, page by page.
func (w *world) listAll(root session.ID, fn func(client.Summary)) (n int) {
	w.t.Helper()
	in := client.ListRequest{Root: root}
	for {
		out := w.list(in)
		for _, s := range out.Sessions {
			n++
			fn(s)
			in.AfterID = s.Header.ID
		}
		if !out.More {
			return n
		}
	}
}

// eventually waits until ok holds.
func eventually(ctx context.Context, t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience(t))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

// timed logs how long something took.
func timed(t testing.TB, what string, do func()) time.Duration {
	t.Helper()
	begin := time.Now()
	do()
	took := time.Since(begin)
	t.Logf("%-46s %v", what, took.Round(10*time.Microsecond))
	return took
}

// per divides bytes among sessions.
func per(bytes uint64, n int) string { return fmt.Sprintf("%.2f KiB", float64(bytes)/1024/float64(n)) }

func mib(bytes uint64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
