package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

const (
	adminToken  = "ada-token"
	viewerToken = "eve-token"
)

// patience bounds every wait.
const patience = 60 * time.Second

// config says what a deployment is made of.
type config struct {
	dir    string
	wishes node.Wishes
	logger *slog.Logger
}

// deployment is a broker in this process and what tests look at it with.
// Coordinators and workers are added, in this process or as ones of their own.
type deployment struct {
	config
	broker *node.Embedded
	conns  []*nats.Conn
	ends   []func() error

	api *client.Client // a person's who may do anything
	eve *client.Client // a person's who may only look
	log *stream.Log    // a coordinator's
	nc  *nats.Conn     // a coordinator's
}

func deploy(ctx context.Context, cfg config) (_ *deployment, err error) {
	d := &deployment{config: cfg}
	d.broker, err = node.StartEmbedded(ctx, node.EmbeddedConfig{
		Dir: filepath.Join(cfg.dir, "data"), Workers: []string{"w1", "w2"}, Wishes: cfg.wishes, Logger: cfg.logger,
	})
	if err != nil {
		return nil, err
	}
	if err := d.look(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *deployment) look() (err error) {
	if d.nc, err = d.connect(broker.Coordinator, "coordinator"); err != nil {
		return err
	}
	if d.log, err = stream.New(d.nc, stream.Config{
		Writer: session.Writer{Component: "coordinator", Instance: "test", Incarnation: "i1"},
	}); err != nil {
		return err
	}
	nc, err := d.connect(broker.Client, "client")
	if err != nil {
		return err
	}
	d.api = client.New(nc, client.Config{Token: adminToken, Timeout: patience})
	d.eve = client.New(nc, client.Config{Token: viewerToken, Timeout: patience})
	return nil
}

// connect connects as an identity until the deployment is closed.
func (d *deployment) connect(role broker.Role, name string) (*nats.Conn, error) {
	nc, err := node.Connect(d.broker.Credentials(role, name), d.logger)
	if err == nil {
		d.conns = append(d.conns, nc)
	}
	return nc, err
}

func (d *deployment) coordinatorConfig() node.CoordinatorConfig {
	return node.CoordinatorConfig{
		Name: "c1", Store: filepath.Join(d.dir, "mirror"), Version: "test", Durability: d.broker.Durability,
		Tokens: []coordinator.Token{
			{Digest: coordinator.DigestToken(adminToken), Role: coordinator.Admin, Party: session.Party{Kind: session.Person, ID: "ada"}},
			{Digest: coordinator.DigestToken(viewerToken), Role: coordinator.Viewer, Party: session.Party{Kind: session.Person, ID: "eve"}},
		},
	}
}

func (d *deployment) workerConfig(name string, concurrency int) node.WorkerConfig {
	return node.WorkerConfig{Name: name, Concurrency: concurrency, Hidden: []string{filepath.Join(d.dir, "data")}}
}

// coordinate runs a coordinator in this process.
func (d *deployment) coordinate() error {
	return d.run("coordinator", func(ctx context.Context, ready func()) error {
		return node.Coordinator(ctx, d.broker.Credentials(broker.Coordinator, "coordinator"), d.coordinatorConfig(), d.logger, ready)
	})
}

// work runs a worker in this process.
func (d *deployment) work(name string, concurrency int, endpoints map[string]broker.Secret) error {
	order := node.Order{Credentials: d.broker.Credentials(broker.Worker, name), Endpoints: endpoints}
	return d.run("worker "+name, func(ctx context.Context, ready func()) error {
		return node.Worker(ctx, order, d.workerConfig(name, concurrency), d.logger, ready)
	})
}

// run starts a part of the deployment, waits until it is ready, and ends it when
// the deployment is closed.
func (d *deployment) run(what string, part func(context.Context, func()) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- part(ctx, func() { close(ready) }) }()
	d.ends = append(d.ends, func() error {
		cancel()
		if err := <-ended; err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
	select {
	case <-ready:
		return nil
	case err := <-ended:
		ended <- err
		return fmt.Errorf("%s did not start: %w", what, err)
	case <-time.After(patience):
		return fmt.Errorf("%s is not ready", what)
	}
}

// close ends the parts, the last one first, and the broker.
func (d *deployment) close() error {
	var errs []error
	for _, end := range slices.Backward(d.ends) {
		errs = append(errs, end())
	}
	for _, nc := range d.conns {
		nc.Close()
	}
	return errors.Join(append(errs, d.broker.Close())...)
}

// own starts a deployment for one test, without coordinator and workers.
func own(t *testing.T) *world {
	t.Helper()
	return ownWith(t, wishes)
}

// ownWith is own with settings of the test's.
func ownWith(t *testing.T, wishes node.Wishes) *world {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	d, err := deploy(t.Context(), config{dir: t.TempDir(), wishes: wishes, logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Errorf("close the deployment: %v", err)
		}
	})
	return &world{t: t, deployment: d, ws: t.TempDir()}
}

// shared is the common deployment with a workspace for one test.
func shared(t *testing.T) *world {
	t.Helper()
	return &world{t: t, deployment: common, ws: t.TempDir()}
}
