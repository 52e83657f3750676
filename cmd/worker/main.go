// Command worker is one worker of a fleet: it drives turns and runs what is
// allowed behind the fence.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/node"
)

func main() { os.Exit(exit()) }

// exit runs the worker until it is asked to stop and returns the exit code. The
// first SIGINT or SIGTERM asks it to stop, a second one aborts what still runs.
func exit() int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	abort := make(chan struct{})
	got := make(chan os.Signal, 2)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-got
		stop()
		<-got
		close(abort)
	}()
	err := run(ctx, abort, os.Args[1:], os.Stderr, os.LookupEnv)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(os.Stderr, "worker:", err)
	return 1
}

// options are the flags.
type options struct {
	credentials, hidden, labels, workspaces string
	level                                   slog.Level
	cfg                                     node.WorkerConfig
}

// drain leaves a worker that is asked to stop, with its grace, five of the thirty
// seconds that orchestrators wait before they kill.
const drain = 20 * time.Second

func (o *options) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("worker", flag.ContinueOnError)
	fs.StringVar(&o.credentials, "credentials", "", "`file` with this worker's broker credentials, mode 0600, or /dev/fd/N; the worker's name is in it")
	fs.IntVar(&o.cfg.Partitions, "partitions", 1, "the fleet's partition count")
	fs.IntVar(&o.cfg.Concurrency, "concurrency", 4, "how many sessions to drive at once")
	fs.DurationVar(&o.cfg.Drain, "drain", drain, "how `long` turns go on once it is asked to stop (SIGTERM); then each is handed over to another worker, when nothing of it runs")
	fs.DurationVar(&o.cfg.Grace, "grace", node.Grace, "how `long` after that a call may still run before it is ended; a second SIGTERM ends all at once")
	fs.StringVar(&o.labels, "labels", "", "`words` that sessions may ask for, joined by commas, as gpu,zone=b")
	fs.StringVar(&o.workspaces, "workspaces", "", "`offers` LABEL=DIR or host:LABEL=DIR, joined by commas: of which workspaces sessions are taken whose directory is DIR or below it; default any directory of the workspace default")
	fs.StringVar(&o.hidden, "hidden", "", "`paths` that no confined call may reach, joined by commas; the credentials file is one")
	fs.StringVar(&o.cfg.HTTP, "http", "", "`address` to serve /readyz and /livez on, as 127.0.0.1:8080; without a host the loopback interface; default none")
	fs.TextVar(&o.level, "log-level", slog.LevelInfo, "what to log: DEBUG, INFO, WARN or ERROR")
	return fs
}

// run runs the worker until ctx ends, and has it hurry once abort is closed. Keys of model endpoints come from
// OPENAI_API_KEY and DEEPSEEK_API_KEY or from the files that these names with
// _FILE give.
func run(ctx context.Context, abort <-chan struct{}, args []string, out io.Writer, lookup func(string) (string, bool)) error {
	var o options
	if err := node.ParseFlags(o.flags(), args, out, lookup); err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	creds, err := node.CredentialsOf("worker", o.credentials)
	if err != nil {
		return err
	}
	endpoints, err := endpointsOf(lookup)
	if err != nil {
		return err
	}
	o.cfg.Name, o.cfg.Abort = creds.Name, abort
	if info, ok := debug.ReadBuildInfo(); ok {
		o.cfg.Version = info.Main.Version
	}
	if o.cfg.Hidden, err = hiddenPaths(o.credentials, o.hidden); err != nil {
		return err
	}
	if path, ok := lookup("PATH"); ok {
		o.cfg.Env = []string{"PATH=" + path}
	}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: o.level})).With(slog.String("worker", creds.Name))
	order := node.Order{Credentials: creds, Endpoints: endpoints}
	return node.Worker(ctx, order, o.cfg, log, func() { log.Info("ready") })
}

// validate checks the flags.
func (o *options) validate() error {
	if o.credentials == "" {
		return errors.New("-credentials is needed; -help lists the flags")
	}
	if o.cfg.Concurrency < 1 {
		return fmt.Errorf("-concurrency %d: give at least 1", o.cfg.Concurrency)
	}
	if o.cfg.Drain < 0 || o.cfg.Drain > client.MaxDrain {
		return fmt.Errorf("-drain %v: give 0s to %v", o.cfg.Drain, client.MaxDrain)
	}
	if o.cfg.Grace <= 0 || o.cfg.Grace > client.MaxDrain {
		return fmt.Errorf("-grace %v: give more than 0s, at most %v", o.cfg.Grace, client.MaxDrain)
	}
	o.cfg.Labels, o.cfg.Workspaces = listOf(o.labels), listOf(o.workspaces)
	if _, err := o.cfg.Offers(); err != nil {
		return fmt.Errorf("-labels or -workspaces: %w", err)
	}
	return errors.Join(node.CheckHTTP(o.cfg.HTTP), node.CheckPartitions(o.cfg.Partitions))
}

// listOf takes a list apart that is joined by commas.
func listOf(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}

// hiddenPaths adds the credentials file to the paths that were named.
func hiddenPaths(credentials, list string) ([]string, error) {
	var out []string
	if !strings.HasPrefix(credentials, "/dev/fd/") {
		path, err := filepath.Abs(credentials)
		if err != nil {
			return nil, fmt.Errorf("hide %s: %w", credentials, err)
		}
		out = append(out, path)
	}
	for path := range strings.SplitSeq(list, ",") {
		if path == "" {
			continue
		}
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("-hidden: %q is not absolute: give whole paths, joined by commas", path)
		}
		out = append(out, path)
	}
	return out, nil
}

// endpointsOf reads keys and addresses of model endpoints.
func endpointsOf(lookup func(string) (string, bool)) (map[string]broker.Secret, error) {
	out := map[string]broker.Secret{}
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL"} {
		if v, ok := lookup(name); ok && v != "" {
			out[name] = broker.NewSecret(v)
		}
		file, ok := lookup(name + "_FILE")
		if !ok || file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s_FILE: %w; name a file with the value alone", name, err)
		}
		out[name] = broker.NewSecret(strings.TrimSpace(string(text)))
	}
	return out, nil
}
