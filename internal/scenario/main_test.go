package scenario_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// argProcess is the first argument of this binary when it is started as a process
// of a deployment; its kind is the second.
const argProcess = "deployment-process"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == argProcess {
		os.Exit(process(os.Args[2]))
	}
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		os.Exit(m.Run()) // names need no deployment
	}
	goleak.VerifyTestMain(&suite{m})
}

// common is the deployment that tests share. It is set before the first test.
var common *deployment

// wishes let a delegation pass under the preset auto and give what never switched
// workspace-write, so that what a test sees refused was refused for its own
// reason. The lease is as short as a busy machine allows: the dead are replaced
// when it is over, and the living must not be.
var wishes = node.Wishes{DefaultSandbox: session.WorkspaceWrite, Reviewer: policy.DelegateOnly, Lease: 3 * time.Second}

// suite runs the tests with the common deployment around them.
type suite struct{ m *testing.M }

func (s *suite) Run() int {
	code, err := s.run()
	if err != nil {
		slog.Error("the common deployment", slog.Any("error", err))
		return 1
	}
	return code
}

func (s *suite) run() (code int, err error) {
	dir, err := os.MkdirTemp("", "entail-scenario-*")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := deploy(context.Background(), config{dir: dir, wishes: wishes, logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.coordinate(); err != nil {
		return 1, err
	}
	if err := d.work("w1", 8, nil); err != nil {
		return 1, err
	}
	common = d
	return s.m.Run(), nil
}

// process is the life of this binary as a coordinator or a worker.
func process(kind string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With(slog.Int("pid", os.Getpid()))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, bound, err := node.Bind(ctx)
	if err != nil {
		log.Error("start", slog.Any("error", err))
		return 1
	}
	switch kind {
	case "coordinator":
		var cfg node.CoordinatorConfig
		if err = json.Unmarshal(bound.Order.Config, &cfg); err == nil {
			err = node.Coordinator(ctx, bound.Order.Credentials, cfg, log, bound.Ready)
		}
	case "worker":
		var cfg node.WorkerConfig
		if err = json.Unmarshal(bound.Order.Config, &cfg); err == nil {
			err = node.Worker(ctx, bound.Order, cfg, log, bound.Ready)
		}
	default:
		err = fmt.Errorf("there is no process of kind %q", kind)
	}
	if err != nil {
		bound.Fail(err)
		log.Error("end", slog.Any("error", err))
		return 1
	}
	return 0
}
