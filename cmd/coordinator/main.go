// Command coordinator is one coordinator of a fleet: the service that validates,
// delegates, mirrors the logs and sweeps.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

func main() {
	os.Exit(exit())
}

// exit runs the coordinator until it is asked to stop and returns the exit code.
func exit() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr, os.LookupEnv)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(os.Stderr, "coordinator:", err)
	return 1
}

// options are the flags.
type options struct {
	credentials, provisioner, tokens, models string
	defaultSandbox, reviewer                 string
	level                                    slog.Level
	room                                     int64
	cfg                                      node.CoordinatorConfig
}

func (o *options) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("coordinator", flag.ContinueOnError)
	fs.StringVar(&o.cfg.Name, "name", "c1", "unique `name` among the fleet's coordinators")
	fs.StringVar(&o.credentials, "credentials", "", "`file` with this coordinator's broker credentials, mode 0600, or /dev/fd/N")
	fs.StringVar(&o.provisioner, "provisioner-credentials", "", "`file` with the provisioner's; with it streams and buckets are made at the start")
	fs.StringVar(&o.tokens, "tokens", "", "`file` with the digests of the tokens that may ask")
	fs.StringVar(&o.cfg.Store, "store", "store", "`directory` of the mirror")
	fs.IntVar(&o.cfg.Partitions, "partitions", 1, "the fleet's partition count; the same for ever")
	fs.IntVar(&o.cfg.Replicas, "replicas", 1, "copies of each stream: 1, or 3 and more")
	fs.Int64Var(&o.room, "max-bytes", 1<<30, "room of each partition's stream in `bytes`, with -provisioner-credentials; at 85 % new sessions are refused")
	fs.StringVar(&o.models, "models", "", "models that the workers offer, as `provider:name,...`; default any")
	fs.StringVar(&o.cfg.Durability, "durability", "as the broker is configured", "what info says of the broker's sync level")
	fs.StringVar(&o.defaultSandbox, "default-sandbox", "", "the fleet's default sandbox `mode`; kept when not given")
	fs.StringVar(&o.reviewer, "reviewer", "", "`who` reviews calls under the preset auto: none or delegate-only; kept when not given")
	fs.DurationVar(&o.cfg.Wishes.Lease, "lease", 0, "how long a claim outlives its worker's last sign of life; kept when not given, 30s at first")
	fs.StringVar(&o.cfg.OTLP, "otlp-endpoint", "", "`URL` of an OTLP trace endpoint over HTTP, as http://127.0.0.1:4318/v1/traces; default none")
	fs.StringVar(&o.cfg.HTTP, "http", "", "`address` to serve /readyz and /livez on, as 127.0.0.1:8080; without a host the loopback interface; default none")
	fs.TextVar(&o.level, "log-level", slog.LevelInfo, "what to log: DEBUG, INFO, WARN or ERROR")
	return fs
}

// run runs the coordinator until ctx ends.
func run(ctx context.Context, args []string, out io.Writer, lookup func(string) (string, bool)) error {
	var o options
	if err := node.ParseFlags(o.flags(), args, out, lookup); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	creds, err := node.CredentialsOf("coordinator", o.credentials)
	if err != nil {
		return err
	}
	if o.cfg.Tokens, err = node.ReadTokens(o.tokens); err != nil {
		return fmt.Errorf("%w; `entail keys init` writes it", err)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		o.cfg.Version = info.Main.Version
	}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: o.level}))
	if err := o.provision(ctx, log); err != nil {
		return err
	}
	return node.Coordinator(ctx, creds, o.cfg, log, func() { log.Info("ready", slog.String("coordinator", o.cfg.Name)) })
}

// validate checks the flags and puts them together.
func (o *options) validate() error {
	if o.credentials == "" || o.tokens == "" {
		return errors.New("-credentials and -tokens are needed; -help lists the flags")
	}
	if o.cfg.Name == "" || strings.ContainsFunc(o.cfg.Name, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return fmt.Errorf("-name %q: give one word that no other coordinator of the fleet has", o.cfg.Name)
	}
	if err := errors.Join(node.CheckHTTP(o.cfg.HTTP), node.CheckPartitions(o.cfg.Partitions)); err != nil {
		return err
	}
	if n := o.cfg.Replicas; n != 1 && n < 3 {
		return fmt.Errorf("-replicas %d: give 1, or 3 and more", n)
	}
	if o.room < 1 {
		return fmt.Errorf("-max-bytes %d: give how many bytes a partition's stream may have", o.room)
	}
	if o.models != "" {
		o.cfg.Models = strings.Split(o.models, ",")
	}
	for _, m := range o.cfg.Models {
		if provider, name, ok := strings.Cut(m, ":"); !ok || provider == "" || name == "" {
			return fmt.Errorf("-models: %q is not provider:name", m)
		}
	}
	if u, err := url.Parse(o.cfg.OTLP); o.cfg.OTLP != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
		return errors.New("-otlp-endpoint: use a URL such as http://127.0.0.1:4318/v1/traces")
	}
	o.cfg.Wishes.DefaultSandbox, o.cfg.Wishes.Reviewer = session.SandboxMode(o.defaultSandbox), policy.Reviewer(o.reviewer)
	return o.cfg.Wishes.Validate()
}

// provision makes what the fleet needs, if this coordinator was given the right.
func (o *options) provision(ctx context.Context, log *slog.Logger) error {
	if o.provisioner == "" {
		return nil
	}
	creds, err := node.CredentialsOf("provisioner", o.provisioner)
	if err != nil {
		return err
	}
	lease := o.cfg.Wishes.Lease
	if lease == 0 {
		lease = time.Duration(policy.DefaultSettings().Lease)
	}
	return node.Provision(ctx, creds, stream.Config{Partitions: o.cfg.Partitions, Replicas: o.cfg.Replicas, MaxBytes: o.room}, lease, log)
}
