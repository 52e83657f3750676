package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// maxPayload holds the largest record (768 KiB) and its headers, also in base64,
// as a coordinator's answer has it.
const maxPayload = 2 << 20

// readyPoll is how often Start looks whether its context has ended.
const readyPoll = 50 * time.Millisecond

// Config says how the embedded server runs.
type Config struct {
	// Dir is the data directory, created with mode 0700 when missing. Required.
	Dir string
	// Host is a loopback address. Default 127.0.0.1.
	Host string
	// Port is the TCP port. Default a free one.
	Port int
	// SyncInterval is how often stored records are synced to the disk: a
	// duration, or "always" for before each acknowledgement. Default 1s: a power
	// loss can take the last second.
	SyncInterval string
	// Partitions is the deployment's partition count. Default 1.
	Partitions int
	// MaxStore is the most bytes JetStream may store. Default the server's: three
	// quarters of the free disk.
	MaxStore int64
	// ServerName is the server's name. Default entail.
	ServerName string
	// Cluster joins the server to others on this machine. Nil is a server alone.
	Cluster *Cluster
	// Logger receives what the server says. Default nowhere.
	Logger *slog.Logger
}

// Cluster says how a server finds the others of its cluster. All of them are
// given the same ids.
type Cluster struct {
	// Name is the cluster's. Required.
	Name string
	// Port is where this server listens for the others, on Config.Host. Required.
	Port int
	// Peers are the ports of all servers of the cluster.
	Peers []int
	// Secret is what the servers show each other. Required.
	Secret Secret
}

func (c Config) withDefaults() Config {
	if c.Host == "" {
		c.Host = "127.0.0.1"
	}
	if c.SyncInterval == "" {
		c.SyncInterval = "1s"
	}
	if c.Partitions == 0 {
		c.Partitions = 1
	}
	if c.ServerName == "" {
		c.ServerName = "entail"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate reports the first setting the embedded server cannot run with.
func (c Config) Validate() error {
	c = c.withDefaults()
	if c.Dir == "" {
		return errors.New("broker: no data directory given")
	}
	if ip := net.ParseIP(c.Host); c.Host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("broker host %q: the embedded server listens on loopback only; "+
			"run nats-server yourself to serve other machines", c.Host)
	}
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("broker port %d: use 1 to 65535, or 0 for a free one", c.Port)
	}
	if c.Partitions < 0 || c.MaxStore < 0 {
		return fmt.Errorf("broker: %d partitions, %d bytes of store: neither can be negative", c.Partitions, c.MaxStore)
	}
	if j := c.Cluster; j != nil && (j.Name == "" || j.Port <= 0 || j.Port > 65535 || j.Secret.Reveal() == "") {
		return errors.New("broker: a cluster needs a name, a port and a secret")
	}
	_, err := c.syncEvery()
	return err
}

// syncEvery returns the sync interval, zero for always.
func (c Config) syncEvery() (time.Duration, error) {
	if c.SyncInterval == "always" {
		return 0, nil
	}
	d, err := time.ParseDuration(c.SyncInterval)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("sync interval %q: use a duration such as 1s, or always", c.SyncInterval)
	}
	return d, nil
}

// Server is a running embedded nats-server.
type Server struct {
	ids   []Identity
	nats  *server.Server
	lock  *os.File
	close sync.Once
}

// Start runs an embedded server that knows exactly ids and returns when it is
// ready. The caller closes it; ctx bounds the start alone.
func Start(ctx context.Context, cfg Config, ids []Identity) (*Server, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("start the broker in %s: %w", cfg.Dir, err)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	access, err := ServerConfig(ids, cfg.Partitions)
	if err != nil {
		return nil, err
	}
	store := filepath.Join(cfg.Dir, "nats")
	if err := os.MkdirAll(store, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	log := &serverLog{to: cfg.Logger}
	ns, err := newServer(cfg, store, access, log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("configure the broker in %s: %w", cfg.Dir, err), lock.Close())
	}
	s := &Server{ids: slices.Clone(ids), nats: ns, lock: lock}
	ns.Start()
	if err := s.awaitReady(ctx, log); err != nil {
		return nil, errors.Join(fmt.Errorf("start the broker in %s: %w", cfg.Dir, err), s.Close())
	}
	return s, nil
}

func newServer(cfg Config, store string, access []byte, log *serverLog) (*server.Server, error) {
	every, err := cfg.syncEvery()
	if err != nil {
		return nil, err
	}
	opts := &server.Options{}
	if err := opts.ProcessConfigString(string(access)); err != nil {
		return nil, err
	}
	opts.ServerName = cfg.ServerName
	opts.Host = cfg.Host
	opts.Port = cfg.Port
	if cfg.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	opts.MaxPayload = maxPayload
	opts.JetStream = true
	opts.StoreDir = store
	opts.JetStreamMaxStore = cfg.MaxStore
	opts.SyncInterval, opts.SyncAlways = every, every == 0
	opts.NoSigs = true
	opts.DisableJetStreamBanner = true
	if c := cfg.Cluster; c != nil {
		join(opts, cfg.Host, *c)
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	ns.SetLoggerV2(log, false, false, false)
	return ns, nil
}

// join sets what a server needs to be one of a cluster.
func join(opts *server.Options, host string, c Cluster) {
	opts.Cluster = server.ClusterOpts{Name: c.Name, Host: host, Port: c.Port, Username: c.Name, Password: c.Secret.Reveal()}
	for _, port := range c.Peers {
		opts.Routes = append(opts.Routes, &url.URL{
			Scheme: "nats-route", User: url.UserPassword(c.Name, c.Secret.Reveal()), Host: net.JoinHostPort(host, strconv.Itoa(port)),
		})
	}
}

func (s *Server) awaitReady(ctx context.Context, log *serverLog) error {
	for !s.nats.ReadyForConnections(readyPoll) {
		if err := log.fatal(); err != nil {
			return err
		}
		if !s.nats.Running() {
			return errors.New("the server stopped while it started")
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	if err := log.fatal(); err != nil {
		return err
	}
	if !s.nats.JetStreamEnabled() {
		return errors.New("JetStream did not start")
	}
	return nil
}

// URL returns the address that clients connect to.
func (s *Server) URL() string { return s.nats.ClientURL() }

// Credentials returns what the identity of that role and name connects with,
// and whether the server knows it.
func (s *Server) Credentials(role Role, name string) (Credentials, bool) {
	for _, id := range s.ids {
		if id.Role == role && id.Name == name {
			return Credentials{URL: s.URL(), Role: id.Role, Name: id.Name, Seed: id.Seed}, true
		}
	}
	return Credentials{}, false
}

// Close stops the server, waits until its store is on disk and frees the data
// directory. Calls after the first do nothing.
func (s *Server) Close() error {
	var err error
	s.close.Do(func() {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
		if err = s.lock.Close(); err != nil {
			err = fmt.Errorf("free the data directory: %w", err)
		}
	})
	return err
}
