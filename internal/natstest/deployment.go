package natstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
)

// Deployment is the accounts of one deployment on a cluster: its identities are
// those of [Identities], and it shares nothing with another deployment but the
// servers. Beside a fleet's identities its account of logs knows one more, which
// may do everything there and which the methods below use.
type Deployment struct {
	cluster  *Cluster
	prefix   string // of its accounts' names
	ids      []broker.Identity
	operator broker.Identity

	mu sync.Mutex
	nc *nats.Conn // guarded by mu: the operator's, nil before it is needed
}

func newDeployment(t testing.TB, c *Cluster, i, workers int) *Deployment {
	t.Helper()
	operator, err := broker.NewIdentity(broker.Coordinator, "operator")
	if err != nil {
		t.Fatalf("make an identity: %v", err)
	}
	d := &Deployment{cluster: c, ids: identities(t, workers), operator: operator}
	if i > 0 {
		d.prefix = fmt.Sprintf("d%d_", i)
	}
	return d
}

// logAccount is the account of JetStream.
const logAccount = "ENTAIL"

// accounts renders a fleet's accounts with the operator.
func (d *Deployment) accounts(partitions int) (map[string]json.RawMessage, error) {
	text, err := broker.ServerConfig(d.ids, partitions)
	if err != nil {
		return nil, err
	}
	var conf struct {
		Accounts map[string]map[string]any `json:"accounts"`
	}
	if err := json.Unmarshal(text, &conf); err != nil {
		return nil, err
	}
	logs := conf.Accounts[logAccount]
	users, ok := logs["users"].([]any)
	key, err := d.operator.PublicKey()
	if !ok || err != nil {
		return nil, errors.Join(errors.New("the account of the logs has no users"), err)
	}
	logs["users"] = append(users, map[string]string{"nkey": key})
	if text, err = json.Marshal(conf.Accounts); err != nil {
		return nil, err
	}
	// Accounts name each other, always as a whole string.
	renamed := string(text)
	for name := range conf.Accounts {
		renamed = strings.ReplaceAll(renamed, `"`+name+`"`, `"`+d.prefix+name+`"`)
	}
	var out map[string]json.RawMessage
	return out, json.Unmarshal([]byte(renamed), &out)
}

// Conn connects to all three servers as an identity until the test ends. Options
// come after the identity's own.
func (d *Deployment) Conn(t testing.TB, role broker.Role, name string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return d.ConnURL(t, d.cluster.urls(), role, name, opts...)
}

// ConnTo is Conn to the i-th server and no other.
func (d *Deployment) ConnTo(t testing.TB, i int, role broker.Role, name string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return d.ConnURL(t, d.cluster.URL(i), role, name, append([]nats.Option{nats.IgnoreDiscoveredServers()}, opts...)...)
}

// ConnURL is Conn to addresses of its own, such as a proxy's.
func (d *Deployment) ConnURL(t testing.TB, url string, role broker.Role, name string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	creds, ok := d.Credentials(role, name)
	if !ok {
		t.Fatalf("the cluster knows no %s %q", role, name)
	}
	return connect(t, url, creds, opts)
}

// Credentials returns what the identity of that role and name connects to the
// cluster with, and whether the servers know it.
func (d *Deployment) Credentials(role broker.Role, name string) (broker.Credentials, bool) {
	for _, id := range d.ids {
		if id.Role == role && id.Name == name {
			return credentials(d.cluster.urls(), id), true
		}
	}
	return broker.Credentials{}, false
}

// Leader waits until a stream has a leader and returns which server it is.
func (d *Deployment) Leader(t testing.TB, stream string) int {
	t.Helper()
	return d.leader(t, "STREAM.INFO."+stream)
}

// ConsumerLeader waits until a consumer has a leader and returns which server it
// is. A consumer of one replica has its only server for a leader.
func (d *Deployment) ConsumerLeader(t testing.TB, stream, consumer string) int {
	t.Helper()
	return d.leader(t, "CONSUMER.INFO."+stream+"."+consumer)
}

func (d *Deployment) leader(t testing.TB, ask string) int {
	t.Helper()
	found := -1
	await(t, "a leader for "+ask, func() (err error) {
		found, _, err = d.placed(t, ask)
		return err
	})
	return found
}

// placed returns which server leads a stream or consumer, and by server which of the
// others hold all that it does.
func (d *Deployment) placed(t testing.TB, ask string) (leader int, current map[int]bool, err error) {
	t.Helper()
	var info struct {
		Cluster struct {
			Leader   string `json:"leader"`
			Replicas []struct {
				Name    string `json:"name"`
				Current bool   `json:"current"`
			} `json:"replicas"`
		} `json:"cluster"`
	}
	if err := d.ask(t, ask, nil, &info); err != nil {
		return -1, nil, err
	}
	leader, current = -1, map[int]bool{}
	for i, n := range d.cluster.nodes {
		if n.name == info.Cluster.Leader {
			leader = i
		}
		for _, r := range info.Cluster.Replicas {
			if r.Name == n.name {
				current[i] = r.Current
			}
		}
	}
	if leader < 0 {
		return -1, nil, fmt.Errorf("it is %q", info.Cluster.Leader)
	}
	return leader, current, nil
}

// StepDown makes a stream's leader hand over, and returns when another one leads.
func (d *Deployment) StepDown(t testing.TB, stream string) {
	t.Helper()
	d.stepDown(t, "STREAM.LEADER.STEPDOWN."+stream, func() int { return d.Leader(t, stream) })
}

// StepDownConsumer is StepDown for a consumer of several replicas.
func (d *Deployment) StepDownConsumer(t testing.TB, stream, consumer string) {
	t.Helper()
	d.stepDown(t, "CONSUMER.LEADER.STEPDOWN."+stream+"."+consumer, func() int { return d.ConsumerLeader(t, stream, consumer) })
}

// Lead has the i-th server lead a stream, once it has caught up with who does.
func (d *Deployment) Lead(t testing.TB, stream string, i int) {
	t.Helper()
	d.lead(t, "STREAM.", stream, i)
}

// Reach waits until the copy that the i-th server itself keeps of a stream ends at a
// sequence or beyond it. Only a server in this process can be asked.
func (d *Deployment) Reach(t testing.TB, stream string, i int, seq uint64) {
	t.Helper()
	await(t, fmt.Sprintf("server %d holds %s up to %d", i, stream, seq), func() error {
		e, ok := d.cluster.nodes[i].running.(embedded)
		if !ok {
			return errors.New("it does not run in this process")
		}
		last, err := e.last(d.prefix+logAccount, stream)
		if err == nil && last < seq {
			err = fmt.Errorf("it ends at %d", last)
		}
		return err
	})
}

// Gather has the i-th server lead a stream and a consumer of it.
func (d *Deployment) Gather(t testing.TB, stream, consumer string, i int) {
	t.Helper()
	d.Lead(t, stream, i)
	d.lead(t, "CONSUMER.", stream+"."+consumer, i)
}

func (d *Deployment) lead(t testing.TB, kind, name string, i int) {
	t.Helper()
	to := map[string]any{"placement": map[string]string{"preferred": d.cluster.nodes[i].name}}
	await(t, fmt.Sprintf("server %d leads %s%s", i, kind, name), func() error {
		leader, current, err := d.placed(t, kind+"INFO."+name)
		switch {
		case err != nil || leader == i:
			return err
		case !current[i]:
			return fmt.Errorf("server %d leads, and that one has not caught up", leader)
		}
		if err := d.ask(t, kind+"LEADER.STEPDOWN."+name, to, nil); err != nil {
			return err
		}
		return errors.New("it was asked to hand over")
	})
}

func (d *Deployment) stepDown(t testing.TB, ask string, leader func() int) {
	t.Helper()
	before := leader()
	await(t, ask, func() error {
		if err := d.ask(t, ask, nil, nil); err != nil {
			return err
		}
		if leader() == before {
			return errors.New("the same server leads again")
		}
		return nil
	})
}

// connection is the operator's, made when it is first needed.
func (d *Deployment) connection() (*nats.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nc != nil {
		return d.nc, nil
	}
	creds := credentials(d.cluster.urls(), d.operator)
	var err error
	d.nc, err = nats.Connect(creds.URL, creds.Options()...)
	return d.nc, err
}

// close ends the operator's connection.
func (d *Deployment) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nc != nil {
		d.nc.Close()
	}
}

// ask makes a request of JetStream's API with every right.
func (d *Deployment) ask(t testing.TB, what string, request, answer any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	nc, err := d.connection()
	if err != nil {
		return err
	}
	reply, err := nc.RequestWithContext(ctx, "$JS.API."+what, body)
	if err != nil {
		return err
	}
	var failed struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &failed); err != nil {
		return err
	}
	if failed.Error != nil {
		return errors.New(failed.Error.Description)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(reply.Data, answer)
}

// JetStream is the operator's, for looking and for planting.
func (d *Deployment) JetStream(t testing.TB) nats.JetStreamContext {
	t.Helper()
	nc, err := d.connection()
	if err != nil {
		t.Fatal(err)
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	return js
}
