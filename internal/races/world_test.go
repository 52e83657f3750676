package races_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/races"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// spec is the deployment that is raced. Half of the delegations of a session meet
// the cap.
var spec = races.Spec{Sandbox: session.ReadOnly, Approval: session.Ask, Live: 6}

const (
	coordinators = 2
	workers      = 4 // each with a connection, a log and replicas of its own
	people       = 2 // who switch, in each session
	persons      = 32
)

// answer is how long a publish waits for the broker's answer before it is sent
// again. What a leader had when it stepped down is never answered.
const answer = 300 * time.Millisecond

// What a lost server had in hand is never answered either: a worker then asks a
// coordinator again, and a person stops waiting and never knows.
const (
	resend = time.Second
	giveUp = 5 * time.Second
)

var head = client.Head{Version: client.APIVersion}

// dialer is a broker, of one server or of three.
type dialer interface {
	Conn(t testing.TB, role broker.Role, name string, opts ...nats.Option) *nats.Conn
}

// world is a deployment: a broker, coordinators with a mirror each, and workers
// that the test drives.
type world struct {
	t       *testing.T
	broker  dialer
	people  *nats.Conn
	workers []*worker
	policy  policy.Deployment
}

// worker has what a worker process has.
type worker struct {
	api *client.Client
	log *stream.Log
}

// deploy starts a deployment on a broker whose streams have so many copies.
func deploy(t *testing.T, b dialer, replicas int) *world {
	t.Helper()
	w := &world{t: t, broker: b, people: b.Conn(t, broker.Client, "client")}
	w.provision(replicas)
	for i := range coordinators {
		w.coordinate(i, replicas)
	}
	for i := range workers {
		name := fmt.Sprintf("w%d", 1+i%2)
		nc := b.Conn(t, broker.Worker, name)
		api := client.New(nc, client.Config{Worker: name, Try: resend})
		log, err := stream.New(nc, stream.Config{
			Replicas: replicas, Timeout: answer, Witness: agent.Witness{Client: api},
			Writer: session.Writer{Component: "worker", Instance: name, Incarnation: fmt.Sprintf("i%d", i)},
		})
		w.must(err)
		w.workers = append(w.workers, &worker{api: api, log: log})
	}
	stored, revision, err := w.log().Settings().Load(t.Context())
	w.must(err)
	w.policy, err = policy.NewDeployment(stored, revision)
	w.must(err)
	return w
}

// log is a worker's.
func (w *world) log() *stream.Log { return w.workers[0].log }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// provision makes the streams and the settings. The lease is longer than any run:
// nobody renews the claims here, and a sweep would nudge.
func (w *world) provision(replicas int) {
	w.t.Helper()
	log, err := stream.New(w.broker.Conn(w.t, broker.Provisioner, "provisioner"), stream.Config{Replicas: replicas})
	w.must(err)
	w.must(log.Provision(w.t.Context(), stream.ProvisionConfig{}))
	s := policy.DefaultSettings()
	s.Defaults = session.Defaults{Sandbox: spec.Sandbox, Approval: spec.Approval}
	s.Caps.Live, s.Lease = spec.Live, policy.Duration(10*time.Minute)
	stored, err := s.Encode()
	w.must(err)
	set, err := stream.New(w.broker.Conn(w.t, broker.Coordinator, "coordinator"), stream.Config{Replicas: replicas})
	w.must(err)
	_, err = set.Settings().Update(w.t.Context(), stored, 0)
	w.must(err)
}

// person is somebody who switches once in each session, so that a policy event
// tells which switch wrote it.
func person(i int) session.Party {
	return session.Party{Kind: session.Person, ID: fmt.Sprintf("person-%d", i)}
}

func token(i int) string { return fmt.Sprintf("token-%d", i) }

// coordinate runs one coordinator until the test ends.
func (w *world) coordinate(i, replicas int) {
	w.t.Helper()
	store, err := sessionstore.Open(sessionstore.Config{Dir: filepath.Join(w.t.TempDir(), "mirror"), Patience: sessionstore.PatienceFor(replicas)})
	w.must(err)
	nc := w.broker.Conn(w.t, broker.Coordinator, "coordinator")
	log, err := stream.New(nc, stream.Config{
		Replicas: replicas, Timeout: answer, Witness: store,
		Writer: session.Writer{Component: "coordinator", Instance: strconv.Itoa(i), Incarnation: "i1"},
	})
	w.must(err)
	var tokens []coordinator.Token
	for p := range persons {
		tokens = append(tokens, coordinator.Token{Digest: coordinator.DigestToken(token(p)), Role: coordinator.Admin, Party: person(p)})
	}
	c, err := coordinator.New(coordinator.Config{
		Name: fmt.Sprintf("c%d", i), Conn: nc, Log: log, Store: store, Tools: agent.Tools(), Tokens: tokens,
	})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("coordinator %d: %v", i, err)
		}
		if err := store.Close(); err != nil {
			w.t.Errorf("close mirror %d: %v", i, err)
		}
	})
	select {
	case <-c.Ready():
	case err := <-ended:
		ended <- err
		w.t.Fatalf("coordinator %d did not start: %v", i, err)
	case <-time.After(time.Minute):
		w.t.Fatalf("coordinator %d is not ready", i)
	}
}

// as is a client of somebody who knows nothing of what was answered before.
func (w *world) as(person int) *client.Client {
	return client.New(w.people, client.Config{Token: token(person), Timeout: giveUp})
}

// root creates a root and opens a step of so many calls in it, of the two tools in
// turn. It returns the tail that the root has then.
func (w *world) root(calls int) (session.ID, uint64) {
	w.t.Helper()
	id, err := session.RootID(ulid.Make().String(), 1)
	w.must(err)
	w.must(w.as(0).Call(w.t.Context(), client.MethodCreate, client.CreateRequest{
		Head: head, ID: id, Cwd: "/tmp/work", Label: "root",
		Model: client.Model{Provider: "scripted", Model: "test", Script: "sessions: {}"},
	}, nil))
	step := []session.Payload{
		&session.Claim{Epoch: 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart},
		&session.TurnStart{Turn: 1},
		&session.StepStart{Turn: 1, Step: 1},
	}
	answer := &session.AssistantMessage{Turn: 1, Step: 1, Content: "racing"}
	step = append(step, answer)
	for i := range calls {
		answer.Calls = append(answer.Calls, i)
		step = append(step, &session.ToolCall{
			Turn: 1, Step: 1, Index: i, CallID: session.MakeCallID(1, 1, i), Name: toolOf(i), Arguments: "{}",
		})
	}
	rep, err := agent.OpenReplica(w.t.Context(), w.log(), id, "", nil)
	w.must(err)
	// Who sweeps may nudge a session that has stood for long: that comes between.
	open := turnRecord("open a step", step)
	open.Once = false
	done, err := w.log().Append(w.t.Context(), rep, id, open)
	w.must(err)
	return id, done.StreamSeq
}

// toolOf is the tool of a step's call: each second one delegates.
func toolOf(call int) string {
	if call%2 == 1 {
		return session.ToolDelegate
	}
	return "bash"
}

// turnRecord is the change that writes a record of class turn in the only epoch
// that a raced session has, exactly where it was decided on.
func turnRecord(name string, record []session.Payload) stream.Change {
	return stream.Change{
		Name: name, Class: session.ClassTurn, Once: true,
		Epoch: func(session.View) uint64 { return 1 },
		Drafts: func(session.View) ([]session.Draft, error) {
			var out []session.Draft
			for _, p := range record {
				out = append(out, session.Draft{Time: time.Now().UnixMilli(), Payload: p})
			}
			return out, nil
		},
	}
}
