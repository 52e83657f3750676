package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// CoordinatorConfig is a coordinator's configuration. It travels as JSON in an
// order and holds no secret.
type CoordinatorConfig struct {
	// Name is unique among the deployment's coordinators.
	Name string `json:"name"`
	// Store is the directory of the mirror.
	Store string `json:"store"`
	// Partitions is the deployment's partition count. Default 1.
	Partitions int `json:"partitions,omitempty"`
	// Replicas is the number of copies of each stream. Default 1.
	Replicas int `json:"replicas,omitempty"`
	// Tokens are who may ask.
	Tokens []coordinator.Token `json:"tokens"`
	// Models are what the deployment's workers offer. Empty offers all.
	Models []string `json:"models,omitempty"`
	// Version and Durability are shown by info.
	Version    string `json:"version"`
	Durability string `json:"durability"`
	// OTLP is the URL of a trace endpoint. Empty sends no spans.
	OTLP string `json:"otlp,omitempty"`
	// HTTP is the address of /readyz and /livez. Empty serves neither.
	HTTP string `json:"http,omitempty"`
	// Wishes are settings to set before anything is answered.
	Wishes Wishes `json:"wishes,omitzero"`
}

// Coordinator runs a coordinator until ctx ends. Ready is called when it answers.
func Coordinator(ctx context.Context, creds broker.Credentials, cfg CoordinatorConfig, logger *slog.Logger, ready func()) (err error) {
	nc, err := ConnectChecked(creds, logger)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := broker.CheckServer(nc); err != nil {
		return err
	}
	if err := checkStreams(ctx, nc, cfg); err != nil {
		return err
	}
	store, err := sessionstore.Open(sessionstore.Config{
		Dir: cfg.Store, Logger: logger, Patience: sessionstore.PatienceFor(cfg.Replicas),
		OnAlarm: func(a session.Alarm) { logger.Warn("void record", slog.String("alarm", a.String())) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	id := incarnation()
	log, err := stream.New(nc, stream.Config{
		Partitions: cfg.Partitions, Replicas: cfg.Replicas, Witness: store, Poll: watchInterval, Logger: logger,
		Writer: session.Writer{Component: "coordinator", Instance: cfg.Name, Incarnation: id},
	})
	if err != nil {
		return err
	}
	by := session.Party{Kind: session.Program, ID: "coordinator " + cfg.Name}
	if _, err := Settle(ctx, log, policy.DefaultSettings(), cfg.Wishes, by); err != nil {
		return err
	}
	c, err := coordinator.New(coordinator.Config{
		Name: cfg.Name, Conn: nc, Log: log, Store: store, Partitions: cfg.Partitions, Tokens: cfg.Tokens,
		Tools: agent.Tools(), Models: cfg.Models, Version: cfg.Version, Durability: cfg.Durability, Logger: logger,
	})
	if err != nil {
		return err
	}
	stop, err := serveHealth(ctx, cfg.HTTP, logger, func() Health { return coordinatorHealth(ctx, cfg, id, nc, store, c) })
	if err != nil {
		return err
	}
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.Run(ctx) })
	if cfg.OTLP != "" {
		g.Go(func() error { return exportSpans(ctx, cfg, log, store, logger) })
	}
	g.Go(func() error {
		select {
		case <-c.Ready():
			ready()
		case <-ctx.Done():
		}
		return nil
	})
	return g.Wait()
}

// coordinatorHealth says how a coordinator is. It is ready once it answers; a
// partition that is lost stops that partition alone.
func coordinatorHealth(ctx context.Context, cfg CoordinatorConfig, id string, nc *nats.Conn, store *sessionstore.Store, c *coordinator.Coordinator) Health {
	h := Health{
		Kind: "coordinator", Name: cfg.Name, Incarnation: id, Broker: nc.IsConnected(), Revision: c.Revision(), Durability: cfg.Durability,
	}
	for p := range max(cfg.Partitions, 1) {
		state := PartitionHealth{Partition: p}
		if mark, ok := store.Watermark(p); ok {
			state.Mirrored = mark.Seq
		}
		if err := store.WaitFor(ctx, p, 0); err != nil { // does not wait
			state.Stopped = err.Error()
		}
		h.Partitions = append(h.Partitions, state)
	}
	started := false
	select {
	case <-c.Ready():
		started = true
	default:
	}
	h.judge(ctx, started, true)
	return h
}

// checkStreams refuses streams that are missing or unsafe, before there is a
// mirror of them.
func checkStreams(ctx context.Context, nc *nats.Conn, cfg CoordinatorConfig) error {
	log, err := stream.New(nc, stream.Config{Partitions: cfg.Partitions, Replicas: cfg.Replicas})
	if err != nil {
		return err
	}
	return log.Check(ctx)
}

// watchInterval is how often settings and liveness are looked at: several times
// in the shortest lease.
const watchInterval = 100 * time.Millisecond

// incarnation names one life of a process.
func incarnation() string { return strings.ToLower(ulid.Make().String()) }
