package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/session"
)

// serverOptions say how a deployment of this command runs. Its flags are those of
// up and run.
type serverOptions struct {
	wishes       node.Wishes
	workers      int
	port         int
	syncInterval string
	otlp, http   string
	logLevel     slog.Level
	models       []string // offered; none offers all
	endpoints    map[string]broker.Secret
	started      func(name string, pid int)
}

// server is a deployment on this machine: a broker in this process, a coordinator
// and workers in processes of their own.
type server struct {
	dir       string
	broker    *node.Embedded
	kept      []*kept // workers last
	tokenFile string
	fresh     bool // the directory was made by this start
}

// serverDir resolves the data directory without making it.
func (a *app) serverDir() (string, error) {
	if a.dir == "" {
		return "", usagef("--dir is empty: name the data directory of the deployment")
	}
	dir, err := filepath.Abs(a.dir)
	if err != nil {
		return "", usagef("data directory %q: %w", a.dir, err)
	}
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return "", usagef("data directory %s is a file: name a directory with --dir", dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", unavailable(fmt.Errorf("data directory: %w", err))
	}
	return dir, nil
}

// startServer starts a deployment in --dir. What it made is gone again when it
// fails.
func (a *app) startServer(ctx context.Context, o serverOptions) (_ *server, err error) {
	dir, err := a.serverDir()
	if err != nil {
		return nil, err
	}
	if err := freeForBroker(ctx, o.port); err != nil {
		return nil, unavailable(err)
	}
	_, statErr := os.Lstat(dir)
	fresh := errors.Is(statErr, fs.ErrNotExist)
	defer func() {
		if err != nil && fresh {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := ownDir(dir); err != nil {
		return nil, unavailable(err)
	}
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: o.logLevel}))
	names := make([]string, o.workers)
	for i := range names {
		names[i] = fmt.Sprintf("w%d", i+1)
	}
	s := &server{dir: dir, tokenFile: a.tokenPath(dir), fresh: fresh}
	if s.broker, err = node.StartEmbedded(ctx, node.EmbeddedConfig{
		Dir: dir, Port: o.port, SyncInterval: o.syncInterval, Workers: names, Wishes: o.wishes, Logger: log,
	}); err != nil {
		return nil, unavailable(err)
	}
	sup := &supervisor{
		log: log, stderr: a.err, environ: childEnviron(a.environ), level: o.logLevel.String(), force: a.force, started: o.started,
	}
	if err := s.start(ctx, a, sup, names, o); err != nil {
		return nil, errors.Join(unavailable(err), s.close())
	}
	return s, nil
}

// freeForBroker reports why a broker could not listen on a port, before anything
// is made for it. Port 0 is a free one.
func freeForBroker(ctx context.Context, port int) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("port of the broker: %w; choose another with --port, or 0 for a free one", err)
	}
	return l.Close()
}

// ownDir makes the data directory for this user alone.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make data directory: %w; name another with --dir", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory needs its x bit
		return fmt.Errorf("keep data directory %s to its owner: %w; name another with --dir", dir, err)
	}
	for _, part := range []string{"", "nats", "store"} {
		if err := writable(filepath.Join(dir, part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write to data directory: %w; give it to this user, or name another with --dir", err)
		}
	}
	return nil
}

// writable reports why this user can make nothing in a directory.
func writable(dir string) error {
	const wx = 0x2 | 0x1
	if err := syscall.Access(dir, wx); err != nil {
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}

// start brings up the coordinator, writes the token file and brings up the
// workers.
func (s *server) start(ctx context.Context, a *app, sup *supervisor, names []string, o serverOptions) error {
	token := rand.Text()
	cfg := node.CoordinatorConfig{
		Name: "c1", Store: filepath.Join(s.dir, "store"), Version: versionOf().Version, Durability: s.broker.Durability,
		Models: o.models, OTLP: o.otlp, HTTP: o.http,
		Tokens: []coordinator.Token{{
			Digest: coordinator.DigestToken(token), Role: coordinator.Admin, Party: session.Party{Kind: session.Person, ID: a.user()},
		}},
	}
	order, err := orderOf(s.broker.Credentials(broker.Coordinator, string(broker.Coordinator)), nil, cfg)
	if err != nil {
		return err
	}
	if err := s.keep(ctx, sup, process{kind: "coordinator", name: "coordinator", order: order}); err != nil {
		return err
	}
	if err := broker.WriteTokenFile(s.tokenFile, broker.TokenFile{
		Client: s.broker.Credentials(broker.Client, string(broker.Client)), Token: broker.NewSecret(token),
	}); err != nil {
		return err
	}
	for _, name := range names {
		cfg := node.WorkerConfig{Name: name, Version: versionOf().Version, Hidden: s.hidden(), Env: shellEnviron(a.lookup)}
		order, err := orderOf(s.broker.Credentials(broker.Worker, name), o.endpoints, cfg)
		if err != nil {
			return err
		}
		if err := s.keep(ctx, sup, process{kind: "worker", name: name, order: order}); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) keep(ctx context.Context, sup *supervisor, p process) error {
	k, err := sup.keep(ctx, p)
	if err != nil {
		return err
	}
	s.kept = append(s.kept, k)
	return nil
}

// hidden are the paths that no confined call may reach.
func (s *server) hidden() []string {
	paths := []string{s.dir}
	if filepath.Dir(s.tokenFile) != s.dir {
		paths = append(paths, s.tokenFile)
	}
	return paths
}

// close stops the workers, then the coordinator, then the broker. The token of
// this start is worth nothing from then on, so its file goes too.
func (s *server) close() error {
	for _, k := range slices.Backward(s.kept) {
		k.close()
	}
	s.kept = nil
	err := os.Remove(s.tokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, s.broker.Close())
}

// orderOf makes the order of one process.
func orderOf(creds broker.Credentials, endpoints map[string]broker.Secret, config any) (node.Order, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return node.Order{}, fmt.Errorf("encode an order: %w", err)
	}
	return node.Order{Credentials: creds, Endpoints: endpoints, Config: text}, nil
}

// shellEnviron lets shell calls find the programs that this user finds.
func shellEnviron(lookup func(string) (string, bool)) []string {
	if path, ok := lookup("PATH"); ok && path != "" {
		return []string{"PATH=" + path}
	}
	return nil
}

// user names the person whose events this command causes.
func (a *app) user() string {
	for _, name := range []string{"USER", "LOGNAME"} {
		if v, _ := a.lookup(name); v != "" {
			return v
		}
	}
	return fmt.Sprintf("uid-%d", os.Getuid())
}
