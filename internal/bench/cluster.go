package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/delay"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/stream"
)

// nodes is how many servers a cluster has, and replicas each of its streams.
const nodes = 3

// openCluster is open on three servers with streams of three replicas, synced
// before each acknowledgement, as the fleet that we ship is. They share this
// process, its processors and its disk: what is measured is a ratio.
func openCluster(ctx context.Context) (*ground, error) {
	dir, err := os.MkdirTemp("", "entail-bench-")
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	g := &ground{dir: dir, servers: c, replicas: nodes}
	if err := c.start(ctx, dir); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if g.conn, err = g.connect(broker.Coordinator, "coordinator"); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// cluster is three servers that know the same identities.
type cluster struct{ servers []*broker.Server }

func (c *cluster) start(ctx context.Context, dir string) error {
	ids, err := broker.NewIdentities("w1")
	if err != nil {
		return err
	}
	ports, err := freePorts(ctx, nodes)
	if err != nil {
		return err
	}
	secret := broker.NewSecret(rand.Text())
	c.servers = make([]*broker.Server, nodes)
	g, starting := errgroup.WithContext(ctx)
	for i := range nodes {
		g.Go(func() (err error) {
			name := fmt.Sprintf("bench%d", i)
			c.servers[i], err = broker.Start(starting, broker.Config{
				Dir: filepath.Join(dir, name), ServerName: name, SyncInterval: "always",
				Cluster: &broker.Cluster{Name: "bench", Port: ports[i], Peers: ports, Secret: secret},
			}, ids)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return c.provision(ctx)
}

// provision makes the streams. A cluster that was just started has no leader for a
// moment, in which it refuses or says nothing.
func (c *cluster) provision(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	creds := c.Credentials(broker.Provisioner, string(broker.Provisioner))
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return node.Provision(ctx, creds, stream.Config{Replicas: nodes}, 30*time.Second, nil)
	}
	for {
		err := try()
		if err == nil || !delay.For(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// Credentials are good for every server of the cluster.
func (c *cluster) Credentials(role broker.Role, name string) broker.Credentials {
	var urls []string
	var creds broker.Credentials
	for _, s := range c.servers {
		creds, _ = s.Credentials(role, name)
		urls = append(urls, s.URL())
	}
	creds.URL = strings.Join(urls, ",")
	return creds
}

func (c *cluster) Close() error {
	var errs []error
	for _, s := range c.servers {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// freePorts finds ports of 127.0.0.1 that nobody listens on.
func freePorts(ctx context.Context, n int) (ports []int, err error) {
	for range n {
		l, lerr := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if lerr != nil {
			return nil, errors.Join(err, lerr)
		}
		// All end at once, so that none is given out twice.
		defer func() { err = errors.Join(err, l.Close()) }()
		at, perr := netip.ParseAddrPort(l.Addr().String())
		if perr != nil {
			return nil, errors.Join(err, perr)
		}
		ports = append(ports, int(at.Port()))
	}
	return ports, nil
}
