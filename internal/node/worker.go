package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/agent/model"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// WorkerConfig is a worker's configuration. It travels as JSON in an order and
// holds no secret.
type WorkerConfig struct {
	// Name is the worker's among the deployment's. It is that of its credentials.
	Name string `json:"name"`
	// Concurrency is how many sessions it drives at once. Default 4.
	Concurrency int `json:"concurrency,omitempty"`
	// Partitions is the deployment's partition count. Default 1.
	Partitions int `json:"partitions,omitempty"`
	// Hidden are paths that no confined call may reach.
	Hidden []string `json:"hidden,omitempty"`
	// Env is what shell calls find in their environment, as KEY=VALUE.
	Env []string `json:"env,omitempty"`
	// HTTP is the address of /readyz and /livez. Empty serves neither.
	HTTP string `json:"http,omitempty"`
	// Version is the build's, for lists.
	Version string `json:"version,omitempty"`
	// Labels are those that a session may ask for.
	Labels []string `json:"labels,omitempty"`
	// Workspaces are what it offers, as agent.ParseOffer reads it. Default every
	// directory of the workspace "default".
	Workspaces []string `json:"workspaces,omitempty"`
	// Drain is how long turns go on at a worker that is asked to stop. Default none.
	Drain time.Duration `json:"drain,omitempty"`
	// Grace is how long after that a call that runs may take. Default 5 s.
	Grace time.Duration `json:"grace,omitempty"`
	// Abort, closed, ends what runs at once. Default never.
	Abort <-chan struct{} `json:"-"`
}

// Offers reads the workspaces that the worker offers, and checks its labels.
func (c WorkerConfig) Offers() ([]agent.Offer, error) {
	var errs []error
	for _, l := range c.Labels {
		errs = append(errs, session.CheckLabel(l))
	}
	if len(c.Labels) > session.MaxLabels {
		errs = append(errs, fmt.Errorf("%d labels: give at most %d", len(c.Labels), session.MaxLabels))
	}
	var offers []agent.Offer
	for _, text := range c.Workspaces {
		o, err := agent.ParseOffer(text)
		errs, offers = append(errs, err), append(offers, o)
	}
	return offers, errors.Join(errs...)
}

// Worker runs a worker until ctx ends. Ready is called right before it takes its
// first hint. A worker that was aborted returns [agent.ErrAborted].
func Worker(ctx context.Context, order Order, cfg WorkerConfig, logger *slog.Logger, ready func()) (err error) {
	offers, err := cfg.Offers()
	if err != nil {
		return err
	}
	nc, err := ConnectChecked(order.Credentials, logger)
	if err != nil {
		return err
	}
	defer nc.Close()
	api := client.New(nc, client.Config{Worker: cfg.Name})
	id := incarnation()
	log, err := stream.New(nc, stream.Config{
		Partitions: cfg.Partitions, Witness: agent.Witness{Client: api}, Poll: watchInterval, Logger: logger,
		Writer: session.Writer{Component: "worker", Instance: cfg.Name, Incarnation: id},
	})
	if err != nil {
		return err
	}
	deployed, err := deployment(ctx, log)
	if err != nil {
		return err
	}
	runner, err := sandbox.New(sandbox.Config{Hidden: cfg.Hidden, Env: cfg.Env, UIDs: deployed.Confinement.UIDs, Warm: warm})
	if errors.Is(err, sandbox.ErrUnavailable) {
		logger.Warn("this host cannot confine calls: each will be refused", slog.Any("error", err))
	} else if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runner.Close()) }()
	w, err := agent.NewWorker(agent.Config{
		Name: cfg.Name, Incarnation: id, Concurrency: cfg.Concurrency, Partitions: cfg.Partitions, Lease: time.Duration(deployed.Lease),
		Drain: cfg.Drain, Grace: cmp.Or(cfg.Grace, Grace), Abort: cfg.Abort, Version: cfg.Version,
		Labels: cfg.Labels, Offers: offers,
		Log: log, Client: api, Runner: runner, Models: models(order.Endpoints), Logger: logger,
	})
	if err != nil {
		return err
	}
	report := sync.OnceValue(runner.Report)
	stop, err := serveHealth(ctx, cfg.HTTP, logger, func() Health {
		rep := report()
		revision, confirmed := w.Confirmed()
		h := Health{Kind: "worker", Name: cfg.Name, Incarnation: id, Broker: nc.IsConnected(), Revision: revision, Sandbox: &rep}
		h.judge(ctx, true, confirmed)
		return h
	})
	if err != nil {
		return err
	}
	defer stop()
	ready()
	return w.Run(ctx)
}

// warm is how many launchers of each kind wait for calls. A session makes one call
// after the other, and the next launcher is up some milliseconds after one is taken,
// so few are enough; each that waits has a few megabytes.
const warm = 2

// Grace is how long a worker that hands its turns over lets a call that runs go on,
// if it is not told otherwise. It is shorter than the time that whoever started it
// waits.
const Grace = 5 * time.Second

// deployment reads the settings that a worker goes by for as long as it runs: the
// lease, and the users of trees.
func deployment(ctx context.Context, log *stream.Log) (policy.Deployment, error) {
	const wayOut = "a coordinator with the provisioner's credentials makes them when it starts"
	value, revision, err := log.Settings().Load(ctx)
	if err != nil {
		return policy.Deployment{}, fmt.Errorf("read the deployment's settings: %w; %s", err, wayOut)
	}
	if revision == 0 {
		return policy.Deployment{}, errors.New("the deployment has no settings yet: " + wayOut)
	}
	d, err := policy.NewDeployment(value, revision)
	if err != nil {
		return policy.Deployment{}, fmt.Errorf("settings at revision %d: %w", revision, err)
	}
	return d, nil
}

// models makes the clients of model endpoints. A session's log names the model;
// address and key are this worker's own.
func models(endpoints map[string]broker.Secret) func(session.ModelSelected) (model.Client, error) {
	lookup := func(name string) (string, bool) {
		s, ok := endpoints[name]
		return s.Reveal(), ok
	}
	return func(m session.ModelSelected) (model.Client, error) {
		cfg, _, err := model.Resolve(m.Provider+":"+m.Model, lookup)
		if err != nil {
			return nil, err
		}
		return model.NewOpenAI(cfg)
	}
}
