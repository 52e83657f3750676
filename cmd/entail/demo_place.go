package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/node"
)

// place is where the story is told: a deployment that can be stopped as a whole,
// started again and looked behind.
type place interface {
	// start starts what does not run, waits until the deployment answers, and says
	// how to reach it. That may be another way each time.
	start(context.Context) (site, error)
	// stop ends every process.
	stop(context.Context) error
	// running lists the processes that run.
	running(context.Context) ([]living, error)
	// leave takes away what was there for the story alone, but for the logs.
	leave() error
}

// site is how a running deployment is reached.
type site struct {
	tokenFile string
	server    string // empty for the token file's
	// reader reads the stream, coordinator hears what a coordinator may.
	reader, coordinator broker.Credentials
	// here is the directory of the workspaces, there the same as workers see it.
	here, there string
	processes   int
	// startup bounds starting every process.
	startup time.Duration
}

// reach points this command's connections at a site.
func (a *app) reach(s site) { a.tokenFile, a.server = s.tokenFile, s.server }

// living is one process while it runs. No two have the same values, also where a
// process took the place of another.
type living struct {
	name  string // a worker's is that of its credentials
	pid   int    // on this machine
	since string // where the place knows it
}

func (p living) String() string { return fmt.Sprintf("%s/%d", p.name, p.pid) }

// replaced reports whether the same processes run as before, each of them anew.
func replaced(before, after []living) bool {
	return slices.EqualFunc(before, after, func(b, a living) bool {
		return b.name == a.name && b.pid != a.pid && (b.since != a.since || b.since == "")
	})
}

// localPlace is a deployment of the demo's own, with its broker in this process.
type localPlace struct {
	a    *app
	base string
	srv  *server // nil while it is stopped
}

// demoLease is short, so that the work of a killed worker is taken over soon.
const demoLease = time.Second

// localWorkers is the least with which one can take over another's work.
const localWorkers = 2

func (l *localPlace) start(ctx context.Context) (s site, err error) {
	l.a.dir, l.a.tokenFile, l.a.server = filepath.Join(l.base, "data"), "", ""
	o := serverOptions{wishes: node.Wishes{Lease: demoLease}, workers: localWorkers, syncInterval: "1s", logLevel: slog.LevelError + 1}
	if l.srv, err = l.a.startServer(ctx, o); err != nil {
		return site{}, err
	}
	work := filepath.Join(l.base, "work")
	return site{
		tokenFile: l.srv.tokenFile, here: work, there: work,
		processes:   1 + localWorkers,
		reader:      l.srv.broker.Credentials(broker.Reader, string(broker.Reader)),
		coordinator: l.srv.broker.Credentials(broker.Coordinator, string(broker.Coordinator)),
	}, nil
}

func (l *localPlace) stop(context.Context) error { return l.leave() }

func (l *localPlace) running(context.Context) ([]living, error) {
	var all []living
	if l.srv == nil {
		return all, nil
	}
	for _, k := range l.srv.kept {
		if pid := k.PID(); pid != 0 {
			all = append(all, living{name: k.name, pid: pid})
		}
	}
	return all, nil
}

// leave takes away the processes alone: the story's files are in the demo's own
// directory.
func (l *localPlace) leave() error {
	if l.srv == nil {
		return nil
	}
	err := l.srv.close()
	l.srv = nil
	return err
}
