package main

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// serverFlags are the flags of a deployment that a command starts itself.
type serverFlags struct {
	defaultSandbox session.SandboxMode
	reviewer       policy.Reviewer
	lease          time.Duration
	workers, port  int
	syncInterval   string
	otlp, http     string
	logLevel       slog.Level
}

func (f *serverFlags) register(cmd *cobra.Command, level slog.Level) {
	flags := cmd.Flags()
	flags.Var(newChoice(&f.defaultSandbox, session.SandboxModes()...), "default-sandbox", "the deployment's default sandbox mode; kept when not given")
	flags.Var(newChoice(&f.reviewer, policy.NoReviewer, policy.DelegateOnly), "reviewer", "who reviews calls under the preset auto; kept when not given")
	flags.DurationVar(&f.lease, "lease", 0, "how long a claim outlives its worker's last sign of life; kept when not given, 5s at first")
	flags.IntVar(&f.workers, "workers", 2, "how many workers to run")
	flags.IntVar(&f.port, "port", 0, "TCP port of the broker on 127.0.0.1; default a free one")
	flags.StringVar(&f.syncInterval, "sync-interval", "1s", "how often records are synced to the disk, or always")
	flags.StringVar(&f.otlp, "otlp-endpoint", "", "URL of an OTLP trace endpoint over HTTP, as http://127.0.0.1:4318/v1/traces; default none")
	flags.TextVar(&f.logLevel, "log-level", level, "what to log to standard error: DEBUG, INFO, WARN or ERROR")
}

// options checks the flags.
func (f *serverFlags) options() (serverOptions, error) {
	o := serverOptions{
		wishes:  node.Wishes{DefaultSandbox: f.defaultSandbox, Reviewer: f.reviewer, Lease: f.lease},
		workers: f.workers, port: f.port, syncInterval: f.syncInterval, otlp: f.otlp, http: f.http, logLevel: f.logLevel,
	}
	if f.workers < 1 || f.workers > 64 {
		return o, usagef("%d workers: run 1 to 64", f.workers)
	}
	if f.port < 0 || f.port > 65535 {
		return o, usagef("port %d: use 1 to 65535, or 0 for a free one", f.port)
	}
	if d, err := time.ParseDuration(f.syncInterval); f.syncInterval != "always" && (err != nil || d <= 0) {
		return o, usagef("sync interval %q: use a duration such as 1s, or always", f.syncInterval)
	}
	if u, err := url.Parse(f.otlp); f.otlp != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		return o, usagef("--otlp-endpoint %s: use a URL such as http://127.0.0.1:4318/v1/traces", shown(f.otlp))
	}
	if err := node.CheckHTTP(f.http); err != nil {
		return o, usagef("-%w", err) // here flags have two dashes
	}
	if err := o.wishes.Validate(); err != nil {
		return o, usagef("%w", err)
	}
	return o, nil
}

func newUp(a *app) *cobra.Command {
	var server serverFlags
	var endpoint endpointFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a deployment on this machine",
		Long: `Run a deployment on this machine until it is interrupted: a broker in this
process, a coordinator and workers as processes of their own. A process that dies
is replaced. Everything is kept under --dir, which one server uses at a time, and
is reached on 127.0.0.1 with the token file that is written there, new at each
start.

The first interrupt stops everything in order; a second one kills what is left.`,
		Example: `  entail up
  entail up --dir /var/lib/entail --workers 4 --default-sandbox workspace-write
  OPENAI_API_KEY=... entail up --model openai:gpt-5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := server.options()
			if err != nil {
				return err
			}
			if o.endpoints, err = a.endpoints(endpoint); err != nil {
				return err
			}
			if endpoint.model != "" {
				if err := checkOffer(endpoint.model, o.endpoints); err != nil {
					return err
				}
				o.models = []string{endpoint.model}
			}
			return a.up(cmd.Context(), o)
		},
	}
	server.register(cmd, slog.LevelInfo)
	endpoint.register(cmd)
	cmd.Flags().StringVar(&server.http, "http", "", "address of the coordinator's /readyz and /livez, as 127.0.0.1:8080; without a host the loopback interface; default none")
	cmd.Flags().StringVar(&endpoint.model, "model", "", "the one model to offer besides scripted ones; default any whose key is there")
	return cmd
}

// up runs a deployment until ctx ends.
func (a *app) up(ctx context.Context, o serverOptions) error {
	type started struct {
		Name string `json:"process"`
		PID  int    `json:"pid"`
	}
	o.started = func(name string, pid int) {
		_ = a.printer.value(started{name, pid}, func() { a.printer.line("started      %s, process %d", name, pid) })
	}
	s, err := a.startServer(ctx, o)
	if err != nil {
		return err
	}
	err = a.printer.value(map[string]any{
		"url": s.broker.URL(), "tokenFile": s.tokenFile, "durability": s.broker.Durability, "dir": s.dir, "pid": os.Getpid(),
	}, func() {
		a.printer.line("server       %s", s.broker.URL())
		a.printer.line("data         %s", s.dir)
		a.printer.line("token file   %s", s.tokenFile)
		a.printer.line("durability   %s", s.broker.Durability)
		a.printer.line("ready; interrupt to stop")
	})
	<-ctx.Done()
	a.printer.line("stopping; interrupt again to kill")
	return errors.Join(err, s.close())
}
