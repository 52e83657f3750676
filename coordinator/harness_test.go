package coordinator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	adminToken  = "admin-token"
	viewerToken = "viewer-token"
)

var tools = []string{"read", "write", "edit", "list", "glob", "grep", "bash", "delegate"}

// deployment is a real broker with coordinators in this process and a worker
// that the test drives by hand.
type deployment struct {
	t      *testing.T
	broker natstest.Server
	store  *sessionstore.Store // of the first coordinator
	stores []*sessionstore.Store
	api    *client.Client
	worker *client.Client
	log    *stream.Log   // the worker's
	ahead  time.Duration // of the worker's clock
}

// deploy starts a deployment with n coordinators.
func deploy(t *testing.T, n int, change ...func(*policy.Settings)) *deployment {
	t.Helper()
	d := &deployment{t: t, broker: natstest.Start(t)}
	provision(t, d.broker, change...)
	for i := range n {
		d.stores = append(d.stores, d.coordinate(i))
	}
	d.store = d.stores[0]
	d.api = client.New(d.broker.Conn(t, broker.Client, "client"), client.Config{Token: adminToken})
	wc := d.broker.Conn(t, broker.Worker, "w1")
	d.worker = client.New(wc, client.Config{Worker: "w1"})
	var err error
	if d.log, err = stream.New(wc, stream.Config{Witness: d.store, Writer: session.Writer{Component: "worker", Instance: "w1", Incarnation: "i1"}}); err != nil {
		t.Fatal(err)
	}
	return d
}

func provision(t *testing.T, b natstest.Server, change ...func(*policy.Settings)) {
	t.Helper()
	log, err := stream.New(b.Conn(t, broker.Provisioner, "provisioner"), stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Provision(t.Context(), stream.ProvisionConfig{AckWait: time.Second}); err != nil {
		t.Fatal(err)
	}
	s := policy.DefaultSettings()
	s.Lease = policy.Duration(time.Second)
	for _, fn := range change {
		fn(&s)
	}
	stored, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	set, err := stream.New(b.Conn(t, broker.Coordinator, "coordinator"), stream.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Settings().Update(t.Context(), stored, 0); err != nil {
		t.Fatal(err)
	}
}

// coordinate runs one coordinator until the test ends.
func (d *deployment) coordinate(i int) *sessionstore.Store {
	t := d.t
	store, err := sessionstore.Open(sessionstore.Config{Dir: filepath.Join(t.TempDir(), "mirror")})
	if err != nil {
		t.Fatal(err)
	}
	nc := d.broker.Conn(t, broker.Coordinator, "coordinator")
	log, err := stream.New(nc, stream.Config{Witness: store, Poll: 20 * time.Millisecond, Writer: session.Writer{Component: "coordinator", Instance: strconv.Itoa(i), Incarnation: "i1"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := coordinator.New(coordinator.Config{
		Name: fmt.Sprintf("c%d", i), Conn: nc, Log: log, Store: store, Tools: tools,
		Tokens: []coordinator.Token{
			{Digest: coordinator.DigestToken(adminToken), Role: coordinator.Admin, Party: session.Party{Kind: session.Person, ID: "ada"}},
			{Digest: coordinator.DigestToken(viewerToken), Role: coordinator.Viewer, Party: session.Party{Kind: session.Person, ID: "eve"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("coordinator %d: %v", i, err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("close the mirror: %v", err)
		}
	})
	select {
	case <-c.Ready():
	case err := <-ended:
		t.Fatalf("coordinator %d did not start: %v", i, err)
	case <-time.After(20 * time.Second):
		t.Fatalf("coordinator %d is not ready", i)
	}
	return store
}

var head = client.Head{Version: client.APIVersion}

func newRoot(t *testing.T) session.ID {
	t.Helper()
	id, err := session.RootID(ulid.Make().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// root creates a root session.
func (d *deployment) root(change ...func(*client.CreateRequest)) session.ID {
	d.t.Helper()
	in := client.CreateRequest{
		Head: head, ID: newRoot(d.t), Cwd: "/tmp/work", Label: "root",
		Model: client.Model{Provider: "scripted", Model: "test", Script: "sessions: {}"}, Prompt: "go",
	}
	for _, fn := range change {
		fn(&in)
	}
	var out client.CreatedReply
	d.must(d.api.Call(d.t.Context(), client.MethodCreate, in, &out))
	return in.ID
}

// catchUp waits until every coordinator's mirror has all there is.
func (d *deployment) catchUp() {
	d.t.Helper()
	info, err := d.log.Info(d.t.Context(), 0)
	d.must(err)
	for _, store := range d.stores {
		d.must(store.WaitFor(d.t.Context(), 0, info.LastSeq))
	}
}

func (d *deployment) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// turn appends one turn record as the worker.
func (d *deployment) turn(id session.ID, events func(session.State) []session.Payload) session.State {
	d.t.Helper()
	d.catchUp()
	done, err := d.log.Append(d.t.Context(), d.store, id, stream.Change{
		Name: "test turn", Class: session.ClassTurn,
		Epoch: func(v session.View) uint64 {
			if p := events(v.State); len(p) > 0 {
				if claim, ok := p[0].(*session.Claim); ok {
					return claim.Epoch
				}
			}
			return v.State.Epoch
		},
		Drafts: func(v session.View) ([]session.Draft, error) {
			var out []session.Draft
			for _, p := range events(v.State) {
				out = append(out, session.Draft{Time: time.Now().Add(d.ahead).UnixMilli(), Payload: p})
			}
			return out, nil
		},
	})
	if err != nil {
		d.t.Fatalf("append a turn record: %v", err)
	}
	v, err := d.store.View(d.t.Context(), id, done.StreamSeq)
	d.must(err)
	return v.State
}

// claim makes the worker the driver of a session and opens a turn that consumes
// what is pending.
func (d *deployment) claim(id session.ID) session.State {
	d.t.Helper()
	return d.turn(id, func(s session.State) []session.Payload {
		var seqs []session.Seq
		for _, m := range s.Pending {
			seqs = append(seqs, m.Seq)
		}
		out := []session.Payload{
			&session.Claim{Epoch: s.Epoch + 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart},
			&session.TurnStart{Turn: s.Turn + 1},
		}
		if len(seqs) > 0 {
			out = append(out, &session.Consumed{Turn: s.Turn + 1, Seqs: seqs})
		}
		return out
	})
}

// step opens a step whose answer holds n delegating calls.
func (d *deployment) step(id session.ID, n int) session.State {
	d.t.Helper()
	return d.turn(id, func(s session.State) []session.Payload {
		step := s.Open.Step + 1
		out := []session.Payload{&session.StepStart{Turn: s.Turn, Step: step}}
		msg := &session.AssistantMessage{Turn: s.Turn, Step: step, Content: "delegating"}
		for i := range n {
			msg.Calls = append(msg.Calls, i)
		}
		out = append(out, msg)
		for i := range n {
			out = append(out, &session.ToolCall{Turn: s.Turn, Step: step, Index: i, CallID: session.MakeCallID(s.Turn, step, i), Name: "delegate", Arguments: "{}"})
		}
		return out
	})
}

// delegations decides n delegating calls of the open step as a worker does.
func (d *deployment) delegations(id session.ID, specs ...client.DelegateSpec) client.DelegateRequest {
	d.t.Helper()
	d.catchUp()
	v, err := d.store.View(d.t.Context(), id, 0)
	d.must(err)
	stored, revision, err := d.log.Settings().Load(d.t.Context())
	d.must(err)
	dep, err := policy.NewDeployment(stored, revision)
	d.must(err)
	in := client.DelegateRequest{Head: head, Session: id, Tail: v.Tail, Epoch: v.State.Epoch}
	for i, spec := range specs {
		wish := policy.Wish{Sandbox: spec.Sandbox, Filter: spec.Tools}
		call := session.MakeCallID(v.State.Turn, v.State.Open.Step, i)
		dec, err := policy.Decide(v.State, dep, policy.Call{ID: call, Tool: "delegate", Effect: true, Wish: &wish}, tools)
		d.must(err)
		in.Calls = append(in.Calls, client.Delegation{CallID: call, Spec: spec, Decision: dec.Record()})
	}
	return in
}

// spawn starts one child of a session that is being driven.
func (d *deployment) spawn(id session.ID, change ...func(*client.DelegateSpec)) session.ID {
	d.t.Helper()
	spec := client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"}
	for _, fn := range change {
		fn(&spec)
	}
	d.step(id, 1)
	var out client.DelegateReply
	d.must(d.worker.Call(d.t.Context(), client.MethodDelegate, d.delegations(id, spec), &out))
	child := d.child(out)
	d.turn(id, func(s session.State) []session.Payload {
		step := s.Open.Step
		return []session.Payload{
			&session.ToolResult{Turn: s.Turn, Step: step, CallID: session.MakeCallID(s.Turn, step, 0), Content: "started"},
			&session.StepEnd{Turn: s.Turn, Step: step},
		}
	})
	return child
}

// child returns the first child of a reply, once the mirrors have it.
func (d *deployment) child(out client.DelegateReply) session.ID {
	d.t.Helper()
	if e := out.Outcomes[0].Error; e != nil {
		d.t.Fatalf("delegate: %v", e)
	}
	child := out.Outcomes[0].Child
	d.must(d.store.WaitFor(d.t.Context(), child.Partition(), out.Tail))
	return child
}

// endTurn ends the open turn.
func (d *deployment) endTurn(id session.ID, more ...session.Payload) session.State {
	d.t.Helper()
	return d.turn(id, func(s session.State) []session.Payload {
		return append([]session.Payload{&session.TurnEnd{Turn: s.Turn, Reason: session.EndReason{Kind: session.EndCompleted}}}, more...)
	})
}

// lines reads a log over the API: type, and data as text.
func (d *deployment) lines(id session.ID) []line {
	d.t.Helper()
	var out []line
	for from := session.Seq(0); ; {
		var reply client.EventsReply
		d.must(d.api.Call(d.t.Context(), client.MethodEvents, client.EventsRequest{Head: head, ID: id, From: from}, &reply))
		for _, raw := range reply.Lines {
			var l line
			d.must(json.Unmarshal(raw, &l))
			out = append(out, l)
		}
		if reply.Next == from || len(reply.Lines) == 0 {
			return out
		}
		from = reply.Next
	}
}

type line struct {
	Type session.Type    `json:"type"`
	Seq  session.Seq     `json:"seq"`
	Data json.RawMessage `json:"data"`
}

// types lists the types of a log from a seq on.
func types(lines []line) []session.Type {
	var out []session.Type
	for _, l := range lines {
		out = append(out, l.Type)
	}
	return out
}

// policySet switches a knob of a session as a person.
func (d *deployment) policySet(id session.ID, fn func(*client.PolicySetRequest)) client.PolicyReply {
	d.t.Helper()
	in := client.PolicySetRequest{Head: head, ID: id}
	fn(&in)
	var out client.PolicyReply
	d.must(d.api.Call(d.t.Context(), client.MethodPolicySet, in, &out))
	return out
}

func readOnly(in *client.PolicySetRequest)   { in.Sandbox = session.ReadOnly }
func fullAccess(in *client.PolicySetRequest) { in.Preset = session.PresetFullAccess }
