package races_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/stream"
)

// gated is three servers in processes of their own, which can be killed, and in
// front of each a gate that everybody goes through, which can be shut.
type gated struct {
	natstest.Processes
	gates [natstest.Nodes]*natstest.Proxy
	conns []*nats.Conn
}

var _ dialer = (*gated)(nil)

func startGated(t *testing.T) *gated {
	t.Helper()
	c := &gated{Processes: natstest.StartProcessesConfig(t, natstest.ClusterConfig{Cuttable: true})}
	for i := range c.gates {
		c.gates[i] = natstest.StartProxy(t, c.URL(i))
	}
	return c
}

// Conn connects through the gates. A connection that nothing comes through is
// noticed sooner than a fleet's.
func (c *gated) Conn(t testing.TB, role broker.Role, name string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	var urls []string
	for _, gate := range c.gates {
		urls = append(urls, gate.URL())
	}
	opts = append([]nats.Option{nats.IgnoreDiscoveredServers(), nats.PingInterval(100 * time.Millisecond), nats.Timeout(time.Second)}, opts...)
	nc := c.ConnURL(t, strings.Join(urls, ","), role, name, opts...)
	c.conns = append(c.conns, nc)
	return nc
}

// fault is something that happens to the server that leads the sessions' stream.
type fault struct {
	name  string
	loses bool // whether another server must come to lead
	hit   func(t *testing.T, c *gated, leader int)
	heal  func(t *testing.T, c *gated, leader int)
}

// losses leave the servers without their leader: before another one leads, nothing
// is acknowledged.
var losses = []fault{
	{
		"killed", true,
		func(t *testing.T, c *gated, leader int) { t.Helper(); c.Kill(t, leader) },
		func(t *testing.T, c *gated, leader int) { t.Helper(); c.Start(t, leader) },
	},
	{
		"cut off from the other servers", true,
		func(t *testing.T, c *gated, leader int) { t.Helper(); c.Isolate(t, leader) },
		func(t *testing.T, c *gated, leader int) { t.Helper(); c.Heal(leader) },
	},
}

// cuts leave the leader where it is, and clients without it.
var cuts = []fault{
	cut("unheard", natstest.ToClient),
	cut("deaf", natstest.ToServer),
	cut("cut off from its clients", natstest.ToServer, natstest.ToClient),
}

// cut shuts the leader's gate until somebody has met it there.
func cut(name string, ways ...natstest.Way) fault {
	return fault{
		name, false,
		func(t *testing.T, c *gated, leader int) {
			t.Helper()
			await(t, "a client of the leader", func() bool { return c.attended(leader) })
			c.gates[leader].Drop(ways...)
			await(t, "something lost at the leader's gate", func() bool { return c.caught(leader) > 0 })
		},
		func(_ *testing.T, c *gated, leader int) { c.gates[leader].Open() },
	}
}

// attended reports whether anybody is connected to a server. If not, everybody is
// sent to look for a server anew.
func (c *gated) attended(i int) bool {
	for _, nc := range c.conns {
		if nc.ConnectedUrl() == c.gates[i].URL() {
			return true
		}
	}
	for _, gate := range c.gates {
		gate.Cut()
	}
	return false
}

// caught counts the bytes that were lost at a server's gate since it was shut.
func (c *gated) caught(i int) int {
	return c.gates[i].Caught(natstest.ToServer) + c.gates[i].Caught(natstest.ToClient)
}

// whole reports whether every server has all that the leader has.
func (c *gated) whole(t *testing.T) bool {
	t.Helper()
	info, err := c.JetStream(t).StreamInfo(stream.StreamName(0))
	if err != nil || info.Cluster == nil || len(info.Cluster.Replicas) != natstest.Nodes-1 {
		return false
	}
	for _, r := range info.Cluster.Replicas {
		if !r.Current || r.Offline {
			return false
		}
	}
	return true
}

// strike has a fault hit the leader, and heals when operations that began after it
// were acknowledged. It reports whether another server leads then.
func (f fault) strike(t *testing.T, c *gated, rec *recorder, over <-chan struct{}) (changed bool) {
	t.Helper()
	leader := c.Leader(t, stream.StreamName(0))
	start := time.Now()
	f.hit(t, c, leader)
	// Of those that were under way, each caller had one.
	went := rec.more(onThree*(workers+people)+1, over)
	t.Logf("server %d was %s for %v", leader, f.name, time.Since(start).Round(time.Millisecond))
	f.heal(t, c, leader)
	if !went {
		t.Errorf("the leader was %s, and too few operations were acknowledged after it", f.name)
	}
	if f.loses {
		// One that was cut off says so of itself until it hears of the other.
		await(t, "another leader", func() bool { return c.Leader(t, stream.StreamName(0)) != leader })
	}
	return f.loses
}

// On three brokers, while the leader of the sessions' stream is cut off from its
// clients, one way or both, and then killed or cut off from the other servers.
func TestSPEC4_4_SwitchDelegateAndDecideAreLinearizableThroughLostLeaders(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	cluster := startGated(t)
	w := deploy(t, cluster, natstest.Nodes)
	least := floors(onThree)
	// Those that wait for a lost server are of unknown outcome.
	least.switches, least.denials = persons/4*onThree, 0
	for round := range rounds(t) {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		// The first round of a run kills, and each fault comes up soon.
		plan := []fault{cuts[r.IntN(len(cuts))], losses[round%len(losses)]}
		await(t, "every server back", func() bool { return cluster.whole(t) })
		struck, changes := 0, 0
		w.round(seed, uint64(round), onThree, func(rec *recorder, over <-chan struct{}) {
			// A leader that was cut off answers for a moment from what it had. What
			// came of the round is read when all servers agree.
			defer func() {
				<-over
				await(t, "every server back", func() bool { return cluster.whole(t) })
			}()
			for _, f := range plan {
				if !rec.more(onThree*(workers+people), over) {
					return
				}
				if f.strike(t, cluster, rec, over) {
					changes++
				}
				struck++
			}
		}).atLeast(t, least)
		if struck < len(plan) || changes < 1 {
			t.Errorf("%d faults hit and another server came to lead %d times, want %d and once", struck, changes, len(plan))
		}
		if t.Failed() {
			return
		}
	}
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never came: %s", what)
		}
	}
}
