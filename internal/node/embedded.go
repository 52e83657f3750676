package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// embeddedLease is the lease of a new deployment on one machine.
const embeddedLease = 5 * time.Second

// EmbeddedConfig says how a deployment on one machine runs.
type EmbeddedConfig struct {
	// Dir is the data directory, created with mode 0700 when missing.
	Dir string
	// Port is the broker's TCP port on 127.0.0.1. Default a free one.
	Port int
	// SyncInterval is how often records are synced to the disk. Default 1s.
	SyncInterval string
	// Workers are the names that workers will have.
	Workers []string
	// Wishes are settings to set before anything starts.
	Wishes Wishes
	Logger *slog.Logger
}

// Embedded is a broker in this process, with what a deployment needs in it.
type Embedded struct {
	server *broker.Server
	// Settings are the deployment's when it was started.
	Settings policy.Settings
	// Durability says how much a loss of power can take.
	Durability string
}

// StartEmbedded starts the broker with keys of its own and provisions it. The
// caller closes it.
func StartEmbedded(ctx context.Context, cfg EmbeddedConfig) (*Embedded, error) {
	if cfg.SyncInterval == "" {
		cfg.SyncInterval = "1s"
	}
	ids, err := broker.NewIdentities(cfg.Workers...)
	if err != nil {
		return nil, err
	}
	server, err := broker.Start(ctx, broker.Config{
		Dir: cfg.Dir, Port: cfg.Port, SyncInterval: cfg.SyncInterval, Logger: cfg.Logger,
	}, ids)
	if err != nil {
		return nil, err
	}
	e := &Embedded{server: server, Durability: durability(cfg.SyncInterval)}
	if err := e.provision(ctx, cfg); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return e, nil
}

// provision makes streams, consumers and buckets, then settles the settings. The
// lease stands in both, so a lease that the settings know is brought to the rest.
func (e *Embedded) provision(ctx context.Context, cfg EmbeddedConfig) error {
	first := policy.DefaultSettings()
	first.Lease = policy.Duration(embeddedLease)
	lease := embeddedLease
	if cfg.Wishes.Lease != 0 {
		lease = cfg.Wishes.Lease
	}
	if err := e.provisionStreams(ctx, lease, cfg.Logger); err != nil {
		return err
	}
	nc, err := Connect(e.Credentials(broker.Coordinator, string(broker.Coordinator)), cfg.Logger)
	if err != nil {
		return err
	}
	defer nc.Close()
	log, err := stream.New(nc, stream.Config{})
	if err != nil {
		return err
	}
	by := session.Party{Kind: session.Program, ID: "entail up"}
	if e.Settings, err = Settle(ctx, log, first, cfg.Wishes, by); err != nil {
		return err
	}
	if have := time.Duration(e.Settings.Lease); have != lease {
		return e.provisionStreams(ctx, have, cfg.Logger)
	}
	return nil
}

func (e *Embedded) provisionStreams(ctx context.Context, lease time.Duration, logger *slog.Logger) error {
	return Provision(ctx, e.Credentials(broker.Provisioner, string(broker.Provisioner)), stream.Config{}, lease, logger)
}

// Credentials returns what an identity of this start connects with. It must be
// one that the configuration names.
func (e *Embedded) Credentials(role broker.Role, name string) broker.Credentials {
	c, ok := e.server.Credentials(role, name)
	if !ok {
		panic(fmt.Sprintf("unreachable: the broker was started without %s %q", role, name))
	}
	return c
}

// URL returns the broker's address.
func (e *Embedded) URL() string { return e.server.URL() }

// Close stops the broker and frees the data directory.
func (e *Embedded) Close() error { return e.server.Close() }

// durability says what a sync interval can lose.
func durability(interval string) string {
	if interval == "always" {
		return "sync always: an acknowledged record is on the disk"
	}
	return fmt.Sprintf("sync_interval %s: a loss of power can take the last %s of records; a crash of the process takes none", interval, interval)
}
