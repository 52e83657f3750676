package natstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Nodes is the number of servers of a cluster.
const Nodes = 3

// patience is how long a cluster may take for what it must do by itself: losing a
// leader alone takes up to 9 s, and machines are busy.
const patience = 60 * time.Second

// ClusterConfig says how a cluster for tests differs from a fleet's.
type ClusterConfig struct {
	// Partitions is the partition count of each deployment. Default 1.
	Partitions int
	// Deployments is how many may share the servers, see [Cluster.Next]. Default 1.
	Deployments int
	// Workers is how many workers each deployment knows, w1 and on. Default 2.
	Workers int
	// Cuttable puts a [Proxy] into every route, so that Isolate works. It makes
	// each append slower by a hop: leave it out where time is measured.
	Cuttable bool
}

// Cluster is three nats-servers on 127.0.0.1 that end with their test. They run on
// deploy/nats.conf, so with a fleet's limits, accounts and sync level. The
// deployment that it embeds is the first of those that share the servers.
type Cluster struct {
	*Deployment
	nodes  [Nodes]*node
	routes [Nodes][Nodes]*Proxy // from, to; nil unless cuttable
	all    []*Deployment
	next   atomic.Int64 // the last of all that was handed out
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
	c := &Cluster{}
	for i := range max(cfg.Deployments, 1) {
		c.all = append(c.all, newDeployment(t, c, i, cfg.Workers))
	}
	c.Deployment = c.all[0]
	ports := freePorts(t, 2*Nodes)
	for i := range c.nodes {
		c.nodes[i] = &node{
			dir: t.TempDir(), name: fmt.Sprintf("nats%d", i+1),
			port: ports[2*i], routed: ports[2*i+1], start: start,
		}
	}
	c.write(t, cfg)
	t.Cleanup(func() { c.end(t) })
	for i := range c.nodes {
		c.Start(t, i)
	}
	c.awaitStreams(t)
	return c
}

// Next hands out a deployment that nobody has yet. What a test does to its streams
// and their leaders, the others do not see; what it does to servers they do.
func (c *Cluster) Next(t testing.TB) *Deployment {
	t.Helper()
	i := int(c.next.Add(1))
	if i >= len(c.all) {
		t.Fatalf("the cluster has %d deployments, and all are taken", len(c.all))
	}
	return c.all[i]
}

// write makes the files of every server, as a fleet's are laid out.
func (c *Cluster) write(t testing.TB, cfg ClusterConfig) {
	t.Helper()
	shipped, err := os.ReadFile(filepath.Join(moduleRoot(t), "deploy", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	access := c.accounts(t, max(cfg.Partitions, 1))
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

// accounts renders those of every deployment.
func (c *Cluster) accounts(t testing.TB, partitions int) []byte {
	t.Helper()
	all := map[string]json.RawMessage{}
	for _, d := range c.all {
		own, err := d.accounts(partitions)
		if err != nil {
			t.Fatalf("render the accounts: %v", err)
		}
		maps.Copy(all, own)
	}
	text, err := json.Marshal(map[string]any{"accounts": all})
	if err != nil {
		t.Fatal(err)
	}
	// nats-server's parser knows no \u escapes.
	return bytes.ReplaceAll(text, []byte(`\u003e`), []byte(">"))
}

// Dir is where the i-th server stores its streams. What is there may be changed
// while the server is down.
func (c *Cluster) Dir(i int) string { return filepath.Join(c.nodes[i].dir, "data") }

// URL is the address of the i-th server.
func (c *Cluster) URL(i int) string { return "nats://" + address(c.nodes[i].port) }

func (c *Cluster) urls() string {
	var all []string
	for i := range c.nodes {
		all = append(all, c.URL(i))
	}
	return strings.Join(all, ",")
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

// Isolate ends the routes of the i-th server and lets nothing through new ones; its
// clients still reach it. The cluster must be Cuttable.
func (c *Cluster) Isolate(t testing.TB, i int) {
	t.Helper()
	for j := range c.nodes {
		if j == i {
			continue
		}
		if c.routes[i][j] == nil {
			t.Fatal("the cluster is not cuttable")
		}
		for _, route := range []*Proxy{c.routes[i][j], c.routes[j][i]} {
			route.Drop()
			route.Cut()
		}
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
	for _, d := range c.all {
		d.close()
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
