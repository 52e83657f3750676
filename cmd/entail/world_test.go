package main

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/stream"
)

// world is a deployment of this process, the way `entail up` runs one, with a
// look behind it.
type world struct {
	t    *testing.T
	dir  string // of the deployment
	work string // the directory that commands are run in, and the workspace
	srv  *server
	nc   *nats.Conn // a coordinator's, which may publish what it likes
	raw  *stream.Log
}

// newWorld starts a deployment with one worker in a directory of its own.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "data"), work: t.TempDir()}
	a := &app{out: t.Output(), err: t.Output(), environ: os.Environ(), lookup: os.LookupEnv, dir: w.dir, force: make(chan struct{})}
	a.printer = newPrinter(a, false)
	var err error
	if w.srv, err = a.startServer(t.Context(), serverOptions{workers: 1, syncInterval: "1s", logLevel: slog.LevelError, wishes: node.Wishes{Lease: 5 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.srv.close(); err != nil {
			t.Error(err)
		}
	})
	log := slog.New(slog.DiscardHandler)
	if w.nc, err = node.Connect(w.srv.broker.Credentials(broker.Coordinator, string(broker.Coordinator)), log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nc.Close)
	if w.raw, err = stream.New(w.nc, stream.Config{}); err != nil {
		t.Fatal(err)
	}
	return w
}

// ran is how a command ended.
type ran struct {
	exit     int
	out, err string
}

// command is one command line, run in this process.
type command struct {
	args  []string
	stdin string
	env   map[string]string
}

func (c command) run() ran {
	var out, errs bytes.Buffer
	environ := []string{"USER=tester", "PATH=" + os.Getenv("PATH")}
	for k, v := range c.env {
		environ = append(environ, k+"="+v)
	}
	a := &app{in: strings.NewReader(c.stdin), out: &out, err: &errs, environ: environ, lookup: func(name string) (string, bool) {
		for _, kv := range environ {
			if k, v, _ := strings.Cut(kv, "="); k == name {
				return v, true
			}
		}
		return "", false
	}}
	exit := a.execute(c.args)
	return ran{exit, out.String(), errs.String()}
}

// entail runs a command against the deployment and wants it to succeed.
func (w *world) entail(args ...string) string {
	w.t.Helper()
	r := command{args: append(args, "--dir", w.dir)}.run()
	if r.exit != exitDone {
		w.t.Fatalf("entail %v exits with %d: %s%s", args, r.exit, r.out, r.err)
	}
	return r.out
}

// until runs a command against the deployment again and again until it says
// something.
func (w *world) until(says string, args ...string) {
	w.t.Helper()
	w.eventually(func() bool {
		return strings.Contains(command{args: append(args, "--dir", w.dir)}.run().out, says)
	})
}

// eventually waits until something holds.
func (w *world) eventually(holds func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), awaitLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Fatal("it never came about")
		}
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// traces are what a command could leave behind: records, settings, files.
type traces struct {
	Last, Revision uint64
	Files          []string
}

func (w *world) traces() traces {
	w.t.Helper()
	info, err := w.raw.Info(w.t.Context(), 0)
	if err != nil {
		w.t.Fatal(err)
	}
	_, revision, err := w.raw.Settings().Load(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	tr := traces{Last: info.LastSeq, Revision: revision}
	// What the broker and the mirror keep in their own directories changes by
	// itself; the two numbers speak for it.
	top, err := os.ReadDir(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range top {
		tr.Files = append(tr.Files, filepath.Join(w.dir, e.Name()))
	}
	for _, root := range []string{w.work, os.Getenv("TMPDIR")} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			tr.Files = append(tr.Files, path)
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	slices.Sort(tr.Files)
	return tr
}
