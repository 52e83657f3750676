package natstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
)

// Nodes is the number of servers of a cluster.
const Nodes = 3

// patience is how long a cluster may take for what it must do by itself: losing a
// leader alone takes up to 9 s, and machines are busy.
const patience = 60 * time.Second

// ClusterConfig says how a cluster for tests differs from a fleet's.
type ClusterConfig struct {
	// Partitions is the deployment's partition count. Default 1.
	Partitions int
	// Cuttable puts a [Proxy] into every route, so that Isolate works. It makes
	// each append slower by a hop: leave it out where time is measured.
	Cuttable bool
}

// Cluster is three nats-servers on 127.0.0.1 that end with their test. They run on
// deploy/nats.conf, so with a fleet's limits, accounts and sync level; beside the
// identities of [Identities] they know one more, which may do everything and which
// the cluster itself uses.
type Cluster struct {
	ids      []broker.Identity
	operator *nats.Conn
	nodes    [Nodes]*node
	routes   [Nodes][Nodes]*Proxy // from, to; nil unless cuttable
}

// node is one server: its files, its ports and, while it runs, its running.
type node struct {
	dir, name    string
	port, routed int
	start        func(n *node) (running, error)
	running      running // nil while down
}

// running is a server that was started, in this process or in one of its own.
type running interface {
	// stop ends the server in order and returns when it has ended.
	stop() error
	// kill ends it without a word.
	kill() error
}

// StartCluster runs three servers in this process. It returns when they have a
// leader and take streams of three replicas, which is after about two seconds.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	return StartClusterConfig(t, ClusterConfig{})
}

// StartClusterConfig is StartCluster with a configuration.
func StartClusterConfig(t testing.TB, cfg ClusterConfig) *Cluster {
	t.Helper()
	return startNodes(t, cfg, embed)
}

func startNodes(t testing.TB, cfg ClusterConfig, start func(*node) (running, error)) *Cluster {
	t.Helper()
	if cfg.Partitions == 0 {
		cfg.Partitions = 1
	}
	c := &Cluster{ids: Identities(t)}
	operator, err := broker.NewIdentity(broker.Coordinator, "operator")
	if err != nil {
		t.Fatalf("make an identity: %v", err)
	}
	ports := freePorts(t, 2*Nodes)
	for i := range c.nodes {
		c.nodes[i] = &node{
			dir: t.TempDir(), name: fmt.Sprintf("nats%d", i+1),
			port: ports[2*i], routed: ports[2*i+1], start: start,
		}
	}
	c.write(t, cfg, operator)
	t.Cleanup(func() { c.end(t) })
	for i := range c.nodes {
		c.Start(t, i)
	}
	creds := credentials(c.urls(), operator)
	if c.operator, err = nats.Connect(creds.URL, creds.Options()...); err != nil {
		t.Fatalf("connect to the cluster: %v", err)
	}
	c.awaitStreams(t)
	return c
}

// write makes the files of every server, as a fleet's are laid out.
func (c *Cluster) write(t testing.TB, cfg ClusterConfig, operator broker.Identity) {
	t.Helper()
	shipped, err := os.ReadFile(filepath.Join(moduleRoot(t), "deploy", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	access, err := accounts(c.ids, operator, cfg.Partitions)
	if err != nil {
		t.Fatalf("render the accounts: %v", err)
	}
	for i, n := range c.nodes {
		text := string(shipped)
		for old, own := range map[string]string{
			"$NATS_NAME": n.name, "0.0.0.0:4222": address(n.port), "/data": strconv.Quote(filepath.Join(n.dir, "data")),
		} {
			if strings.Count(text, old) != 1 {
				t.Fatalf("deploy/nats.conf has %q %d times, want once", old, strings.Count(text, old))
			}
			text = strings.Replace(text, old, own, 1)
		}
		cluster, err := json.Marshal(map[string]any{"cluster": c.cluster(t, i, cfg.Cuttable)})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(n.dir, "broker"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{
			"nats.conf": []byte(text), "broker/accounts.conf": access, "broker/cluster.conf": cluster,
		} {
			if err := os.WriteFile(filepath.Join(n.dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// cluster is the part of a server's configuration about its routes.
func (c *Cluster) cluster(t testing.TB, from int, cuttable bool) map[string]any {
	t.Helper()
	var routes []string
	for to, n := range c.nodes {
		url := "nats://" + address(n.routed)
		if to != from && cuttable {
			c.routes[from][to] = StartProxy(t, url)
			url = c.routes[from][to].URL()
		}
		if to != from {
			routes = append(routes, url)
		}
	}
	out := map[string]any{"name": "entail", "listen": address(c.nodes[from].routed), "routes": routes}
	if cuttable {
		// What the others hear of this server leads nowhere, so that they know it
		// by their own routes alone.
		out["advertise"] = address(1)
	}
	return out
}

// accounts renders a fleet's accounts with one user more, who may do everything
// that the account of the logs may.
func accounts(ids []broker.Identity, operator broker.Identity, partitions int) ([]byte, error) {
	text, err := broker.ServerConfig(ids, partitions)
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
	key, err := operator.PublicKey()
	if !ok || err != nil {
		return nil, errors.Join(errors.New("the account of the logs has no users"), err)
	}
	logs["users"] = append(users, map[string]string{"nkey": key})
	text, err = json.Marshal(conf)
	// nats-server's parser knows no \u escapes.
	return []byte(strings.ReplaceAll(string(text), `\u003e`, ">")), err
}

// logAccount is the account of JetStream.
const logAccount = "ENTAIL"

// Conn connects to all three servers as an identity until the test ends. Options
// come after the identity's own.
func (c *Cluster) Conn(t testing.TB, role broker.Role, name string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return c.ConnURL(t, c.urls(), role, name, opts...)
}

// ConnTo is Conn to the i-th server and no other.
func (c *Cluster) ConnTo(t testing.TB, i int, role broker.Role, name string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	return c.ConnURL(t, c.URL(i), role, name, append([]nats.Option{nats.IgnoreDiscoveredServers()}, opts...)...)
}

// ConnURL is Conn to addresses of its own, such as a proxy's.
func (c *Cluster) ConnURL(t testing.TB, url string, role broker.Role, name string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	creds, ok := c.Credentials(role, name)
	if !ok {
		t.Fatalf("the cluster knows no %s %q", role, name)
	}
	return connect(t, url, creds, opts)
}

// Credentials returns what the identity of that role and name connects to the
// cluster with, and whether the servers know it.
func (c *Cluster) Credentials(role broker.Role, name string) (broker.Credentials, bool) {
	for _, id := range c.ids {
		if id.Role == role && id.Name == name {
			return credentials(c.urls(), id), true
		}
	}
	return broker.Credentials{}, false
}

// Keys is [Server.Keys] for the cluster.
func (c *Cluster) Keys(t testing.TB) string {
	t.Helper()
	return writeKeys(t, c.Credentials)
}

// URL is the address of the i-th server.
func (c *Cluster) URL(i int) string { return "nats://" + address(c.nodes[i].port) }

func (c *Cluster) urls() string {
	var all []string
	for i := range c.nodes {
		all = append(all, c.URL(i))
	}
	return strings.Join(all, ",")
}

// Leader waits until a stream has a leader and returns which server it is.
func (c *Cluster) Leader(t testing.TB, stream string) int {
	t.Helper()
	return c.leader(t, "STREAM.INFO."+stream)
}

// ConsumerLeader waits until a consumer has a leader and returns which server it
// is. A consumer of one replica has its only server for a leader.
func (c *Cluster) ConsumerLeader(t testing.TB, stream, consumer string) int {
	t.Helper()
	return c.leader(t, "CONSUMER.INFO."+stream+"."+consumer)
}

func (c *Cluster) leader(t testing.TB, ask string) int {
	t.Helper()
	found := -1
	await(t, "a leader for "+ask, func() error {
		var info struct {
			Cluster struct {
				Leader string `json:"leader"`
			} `json:"cluster"`
		}
		if err := c.ask(t, ask, nil, &info); err != nil {
			return err
		}
		for i, n := range c.nodes {
			if n.name == info.Cluster.Leader {
				found = i
				return nil
			}
		}
		return fmt.Errorf("it is %q", info.Cluster.Leader)
	})
	return found
}

// StepDown makes a stream's leader hand over, and returns when another one leads.
func (c *Cluster) StepDown(t testing.TB, stream string) {
	t.Helper()
	before := c.Leader(t, stream)
	await(t, "another leader for "+stream, func() error {
		if err := c.ask(t, "STREAM.LEADER.STEPDOWN."+stream, nil, nil); err != nil {
			return err
		}
		if c.Leader(t, stream) == before {
			return errors.New("it is the same again")
		}
		return nil
	})
}

// ask makes a request of JetStream's API with every right.
func (c *Cluster) ask(t testing.TB, what string, request, answer any) error {
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
	reply, err := c.operator.RequestWithContext(ctx, "$JS.API."+what, body)
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

// awaitStreams makes a stream of three replicas and takes it away again.
func (c *Cluster) awaitStreams(t testing.TB) {
	t.Helper()
	const probe = "NATSTEST"
	await(t, "a stream of three replicas", func() error {
		return c.ask(t, "STREAM.CREATE."+probe, map[string]any{"name": probe, "storage": "memory", "num_replicas": Nodes}, nil)
	})
	await(t, "its end", func() error { return c.ask(t, "STREAM.DELETE."+probe, nil, nil) })
}

// Stop ends the i-th server in order; it hands over what it leads.
func (c *Cluster) Stop(t testing.TB, i int) {
	t.Helper()
	c.down(t, i, running.stop)
}

// Start starts the i-th server on what it has stored. It may lag for a while.
func (c *Cluster) Start(t testing.TB, i int) {
	t.Helper()
	n := c.nodes[i]
	if n.running != nil {
		t.Fatalf("server %s runs already", n.name)
	}
	var err error
	if n.running, err = n.start(n); err != nil {
		t.Fatalf("start server %s: %v", n.name, err)
	}
}

// Restart is Stop and then Start.
func (c *Cluster) Restart(t testing.TB, i int) {
	t.Helper()
	c.Stop(t, i)
	c.Start(t, i)
}

func (c *Cluster) down(t testing.TB, i int, how func(running) error) {
	t.Helper()
	n := c.nodes[i]
	if n.running == nil {
		t.Fatalf("server %s is down already", n.name)
	}
	r := n.running
	n.running = nil
	if err := how(r); err != nil {
		t.Fatalf("end server %s: %v", n.name, err)
	}
}

// Isolate cuts the i-th server off from the other two; its clients still reach
// it. The cluster must be Cuttable.
func (c *Cluster) Isolate(t testing.TB, i int) {
	t.Helper()
	for j := range c.nodes {
		if j == i {
			continue
		}
		if c.routes[i][j] == nil {
			t.Fatal("the cluster is not cuttable")
		}
		c.routes[i][j].Drop()
		c.routes[j][i].Drop()
	}
}

// Heal undoes Isolate.
func (c *Cluster) Heal(i int) {
	for j := range c.nodes {
		if j != i {
			c.routes[i][j].Open()
			c.routes[j][i].Open()
		}
	}
}

func (c *Cluster) end(t testing.TB) {
	t.Helper()
	if c.operator != nil {
		c.operator.Close()
	}
	for _, n := range c.nodes {
		if n.running == nil {
			continue
		}
		// Nothing is left to lose, and handing over takes time.
		if err := n.running.kill(); err != nil {
			t.Errorf("end server %s: %v", n.name, err)
		}
	}
}

// await tries until it succeeds, and fails the test with the last error.
func await(t testing.TB, what string, try func() error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never came: %s: %v", what, err)
		}
	}
}

func address(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// The ports of clusters lie below those that the kernel gives to connections, and
// no two clusters of a process try the same: a server comes back on its port.
const (
	firstPort = 12000
	lastPort  = 31999
)

var nextPort = func() *atomic.Uint32 {
	var n atomic.Uint32
	n.Store(rand.Uint32N(lastPort - firstPort)) //nolint:gosec // spreads processes, guards nothing
	return &n
}()

// freePorts finds ports that nobody listens on.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var out []int
	for range lastPort - firstPort {
		port := firstPort + int(nextPort.Add(1)%(lastPort-firstPort+1))
		l, err := net.Listen("tcp", address(port)) //nolint:noctx // at once
		if err != nil {
			continue // taken
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if out = append(out, port); len(out) == n {
			return out
		}
	}
	t.Fatalf("no %d ports are free", n)
	return nil
}

// moduleRoot is where the repository's files are. A test runs in the directory of
// its package.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("the test runs outside the module")
		}
		dir = up
	}
}
