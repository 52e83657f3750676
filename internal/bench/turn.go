package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// turns measures a whole small job: a parent that starts a child, the child's one
// tool call behind the fence, its result and the parent's end. It is held against
// the records of such a job, published one after the other as they follow each
// other in the log, on a server where nobody reads them.
func turns(ctx context.Context, g *ground, s scale, tell func(Figure)) (err error) {
	f, err := g.fleet(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	bare, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	log, err := g.log()
	if err != nil {
		return err
	}
	for _, job := range []struct{ tool, call string }{
		{"file tools", `{id: w, tool: write, args: {path: out.txt, content: done}}`},
		{"bash", `{id: b, tool: bash, args: {command: "echo done > out.txt"}}`},
	} {
		script := "sessions:\n  root:\n    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: child, prompt: work}}]\n" +
			"    - text: finished\n  child:\n    - calls: [" + job.call + "]\n    - text: child done\n"
		first, err := f.run(ctx, script)
		if err != nil {
			return err
		}
		like, err := recorded(ctx, log, first)
		if err != nil {
			return err
		}
		for _, at := range []load{{1, 40}, {16, 160}} {
			fig, err := compare(fmt.Sprintf("parent, child, one call with %s, %d clients", job.tool, at.writers), 0.4, s.of(at.n),
				func(n int) (time.Duration, error) {
					return spread(at.writers, n, func(int) error { return like.replay(ctx, bare.conn) })
				},
				func(n int) (time.Duration, error) {
					return spread(at.writers, n, func(int) error { _, err := f.run(ctx, script); return err })
				})
			if err != nil {
				return err
			}
			tell(fig)
		}
	}
	return nil
}

// fleet is a coordinator and a worker that run, and somebody who asks.
type fleet struct {
	api  *client.Client
	work string // the workspace
	stop func() error
}

const benchToken = "bench-token" // of a server that lives for a minute

func (g *ground) fleet(ctx context.Context) (f fleet, err error) {
	f.work = filepath.Join(g.dir, "work")
	if err := os.Mkdir(f.work, 0o700); err != nil {
		return f, err
	}
	quiet := slog.New(slog.DiscardHandler)
	running, cancel := context.WithCancel(ctx)
	all, running := errgroup.WithContext(running)
	ready := make(chan struct{}, 2)
	all.Go(func() error {
		return node.Coordinator(running, g.servers.Credentials(broker.Coordinator, "coordinator"), node.CoordinatorConfig{
			Name: "c", Store: filepath.Join(g.dir, "fleet-mirror"),
			Tokens: []coordinator.Token{{Digest: coordinator.DigestToken(benchToken), Role: coordinator.Admin, Party: by}},
		}, quiet, func() { ready <- struct{}{} })
	})
	all.Go(func() error {
		return node.Worker(running, node.Order{Credentials: g.servers.Credentials(broker.Worker, "w1")},
			node.WorkerConfig{Name: "w1", Concurrency: 32}, quiet, func() { ready <- struct{}{} })
	})
	var nc *nats.Conn
	f.stop = func() error {
		cancel()
		err := all.Wait()
		if nc != nil {
			nc.Close()
		}
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	for range 2 {
		select {
		case <-ready:
		case <-running.Done():
			return f, errors.Join(errors.New("the fleet did not start"), f.stop())
		}
	}
	if nc, err = g.connect(broker.Client, "client"); err != nil {
		return f, errors.Join(err, f.stop())
	}
	f.api = client.New(nc, client.Config{Token: benchToken})
	return f, nil
}

// run starts a root and waits until its turn has ended.
func (f fleet) run(ctx context.Context, script string) (session.ID, error) {
	id, err := session.RootID(ulid.Make().String(), 1)
	if err != nil {
		return "", err
	}
	head := client.Head{Version: client.APIVersion}
	in := client.CreateRequest{
		Head: head, ID: id, Cwd: f.work, Surface: session.SurfaceNone, Sandbox: session.WorkspaceWrite, Prompt: "go",
		Model: client.Model{Provider: "scripted", Model: "scripted", Script: script},
	}
	if err := f.api.Call(ctx, client.MethodCreate, in, nil); err != nil {
		return "", err
	}
	var from session.Seq
	for {
		var out client.EventsReply
		if err := f.api.Call(ctx, client.MethodEvents, client.EventsRequest{Head: head, ID: id, From: from, Wait: 4000}, &out); err != nil {
			return "", err
		}
		from = out.Next
		switch s := out.Summary; {
		case s.LastEnd != nil && s.Denials > 0 || s.Stopped != "":
			return "", fmt.Errorf("session %s: %d denials, stopped %q", id, s.Denials, s.Stopped)
		case s.LastEnd != nil:
			return id, nil
		}
	}
}

// job is the records of a tree, in stream order, and under whose tail each stands.
type job struct {
	root    session.ID
	records []rawRecord
	spaces  []session.ID
}

func recorded(ctx context.Context, log *stream.Log, root session.ID) (*job, error) {
	j := &job{root: root}
	ids := []session.ID{root}
	var raws []session.Raw
	for i := 0; i < len(ids); i++ {
		_, err := log.Read(ctx, ids[i], 0, func(r session.Raw) error {
			raws = append(raws, r)
			if r.Address.Class == session.ClassGenesis && r.Address.Session != ids[i] {
				ids = append(ids, r.Address.Session)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(ids) != 2 {
		return nil, fmt.Errorf("the job has %d sessions, want a parent and a child", len(ids))
	}
	slices.SortFunc(raws, func(a, b session.Raw) int { return cmp.Compare(a.StreamSeq, b.StreamSeq) })
	for _, r := range raws {
		h := nats.Header{}
		for k, v := range r.Headers {
			h[k] = []string{v}
		}
		j.records = append(j.records, rawRecord{stream.Subject(r.Address), h, r.Body})
		j.spaces = append(j.spaces, r.Address.Space())
	}
	return j, nil
}

// replay publishes the records as another tree's.
func (j *job) replay(ctx context.Context, conn *nats.Conn) error {
	id, err := session.RootID(ulid.Make().String(), 1)
	if err != nil {
		return err
	}
	other := strings.NewReplacer(string(j.root), string(id))
	tails := map[session.ID]uint64{}
	for i, r := range j.records {
		space := j.spaces[i]
		b := rawBook{
			filter: other.Replace(stream.TailFilter(space)), tail: tails[space],
			records: []rawRecord{{other.Replace(r.subject), r.header, r.body}},
		}
		if err := b.publish(ctx, conn); err != nil {
			return err
		}
		tails[space] = b.tail
	}
	return nil
}
