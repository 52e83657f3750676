package golden_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/stream"
)

// restored is an old log in a stream of today, with a coordinator of today.
type restored struct {
	*teller
	api *client.Client
}

func restore(t *testing.T, records []session.Raw) *restored {
	t.Helper()
	server := natstest.Start(t)
	owner, err := stream.New(server.Conn(t, broker.Provisioner, string(broker.Provisioner)), stream.Config{})
	must(t, err)
	must(t, owner.Provision(t.Context(), stream.ProvisionConfig{}))
	store := open(t, filepath.Join(t.TempDir(), "mirror"))
	r := &restored{teller: &teller{t: t, nc: server.Conn(t, broker.Coordinator, string(broker.Coordinator)), store: store}}
	r.log, err = stream.New(r.nc, stream.Config{Witness: store, Writer: session.Writer{Component: "golden", Instance: "two", Incarnation: "1"}})
	must(t, err)
	settings, err := policy.DefaultSettings().Encode()
	must(t, err)
	_, err = r.log.Settings().Update(t.Context(), settings, 0)
	must(t, err)
	for _, raw := range records {
		m := nats.NewMsg(stream.Subject(raw.Address))
		for name, value := range raw.Headers {
			m.Header[name] = []string{value}
		}
		m.Data = raw.Body
		_, err := r.nc.RequestMsg(m, 5*time.Second)
		must(t, err)
	}
	info, err := r.log.Info(t.Context(), 0)
	must(t, err)
	if info.LastSeq != uint64(len(records)) {
		t.Fatalf("%d records came to sequence %d", len(records), info.LastSeq)
	}
	const token = "a-token"
	c, err := coordinator.New(coordinator.Config{
		Name: "c1", Conn: r.nc, Log: r.log, Store: store, Tools: tools,
		Tokens: []coordinator.Token{{Digest: coordinator.DigestToken(token), Role: coordinator.Admin, Party: person}},
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var failed error
	ended := make(chan struct{})
	go func() { failed = c.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended; must(t, failed) })
	select {
	case <-c.Ready():
	case <-ended:
		t.Fatal("the coordinator did not start")
	}
	r.api = client.New(server.Conn(t, broker.Client, string(broker.Client)), client.Config{Token: token})
	return r
}

func (r *restored) call(method string, in, out any) {
	r.t.Helper()
	must(r.t, r.api.Call(r.t.Context(), method, in, out))
}

// Sessions of an old log go on: they are shown, switched, written to and forked, and
// what is added follows what is there. The one that is stopped stays it.
func TestOldSessionsGoOn(t *testing.T) {
	t.Parallel()
	head := client.Head{Version: client.APIVersion}
	r := restore(t, readRecords(t, "first"))
	var shown client.Summary
	r.call(client.MethodShow, client.SessionRequest{Head: head, ID: keeper}, &shown)
	if want := wants("first")[keeper]; shown.Next != want.next || shown.Sandbox != want.sandbox || shown.Voids != want.voids || shown.Turn != want.turn {
		t.Errorf("the keeper is shown as %+v, want %+v", shown, want)
	}
	again := forkID(keeper, 7)
	r.call(client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: keeper, Sandbox: session.WorkspaceWrite}, nil)
	r.call(client.MethodSend, client.SendRequest{Head: head, ID: released, MessageID: "m9", Content: "go on"}, nil)
	r.call(client.MethodFork, client.ForkRequest{Head: head, ID: again, Source: persons, Label: "again"}, nil)
	err := r.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: broken, MessageID: "m9", Content: "go on"}, nil)
	if client.CodeOf(err) != client.CodeStopped {
		t.Errorf("a message to the stopped session: %v, want %s", err, client.CodeStopped)
	}
	replay := sessiontest.Replay(r.all())
	for id, next := range map[session.ID]session.Seq{keeper: wants("first")[keeper].next + 1, released: wants("first")[released].next + 1, again: wants("first")[persons].next + 2} {
		c := replay.Chains[id]
		if c == nil || c.Halted() != nil || c.State().Next < next {
			t.Errorf("session %s does not go on to %d: %v", id, next, replay.Failed[id])
		}
	}
	if m := replay.Chains[keeper].State().Knobs.Sandbox.Value; m != session.WorkspaceWrite {
		t.Errorf("the keeper was switched and is %s", m)
	}
}
