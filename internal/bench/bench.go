package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// Figure is one measured claim. Raw and Ours are operations in a second, or what
// the name says. A target of zero is none: the figure is a report.
type Figure struct {
	Name   string  `json:"name"`
	Ratio  float64 `json:"ratio"`
	Raw    float64 `json:"raw"`
	Ours   float64 `json:"ours"`
	N      int     `json:"n"`
	Target float64 `json:"target"`
	// AtMost says that the ratio may be no higher than the target, instead of no lower.
	AtMost bool `json:"at_most,omitempty"`
	OK     bool `json:"ok"`
	// Missing says why there is no measurement on this machine.
	Missing string `json:"missing,omitempty"`
}

// pairs is how many pairs a ratio is the median of.
const pairs = 5

// measure makes the figures of one group.
type measure struct {
	group string
	about string
	run   func(context.Context, scale, func(Figure)) error
}

var measures = []measure{
	{"decide", "a decision on logs of growing length", decisions},
	{"append", "an append against a publish of the same bytes", on(open, appends("", load{1, 3000}, load{64, 20_000}))},
	{"delegation", "a delegation against the same", on(open, delegations("", load{1, 800}, load{16, 800}))},
	{"service", "a delegation through the coordinator, against a service that only publishes", on(open, services)},
	{"fork", "a fork of a long log against one of a short log", on(open, forks)},
	{"mirror", "a mirror that reads a partition, against a consumer that keeps nothing", on(open, ingest)},
	{"cold", "reading a session that nobody holds, as a time", on(open, coldReads)},
	{"memory", "the memory of an idle session", on(open, idle)},
	{"turn", "a whole small job against its records", on(open, turns)},
	{"batch", "a delegation as one record, against an atomic batch", on(open, batches("", load{1, 200}, load{16, 800}))},
	{"sandbox", "a confined shell call, against bubblewrap", sandboxes},
	{"r3", "append, delegation and batch on three servers", on(openCluster, inTurn(
		appends(", R3", load{1, 300}, load{16, 1600}, load{64, 4000}),
		delegations(", R3", load{1, 160}, load{16, 800}),
		batches(", R3", load{1, 160}, load{16, 800}),
	))},
}

// load is so many writers that do n operations together.
type load struct{ writers, n int }

// onGround makes figures on a ground that it does not own.
type onGround func(context.Context, *ground, scale, func(Figure)) error

// inTurn makes one after the other.
func inTurn(all ...onGround) onGround {
	return func(ctx context.Context, g *ground, s scale, tell func(Figure)) error {
		for _, run := range all {
			if err := run(ctx, g, s, tell); err != nil {
				return err
			}
		}
		return nil
	}
}

// on makes a measure of what is measured on a ground of its own.
func on(open func(context.Context) (*ground, error), run onGround) func(context.Context, scale, func(Figure)) error {
	return func(ctx context.Context, s scale, tell func(Figure)) (err error) {
		g, err := open(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.close()) }()
		return run(ctx, g, s, tell)
	}
}

// Groups are the names of what Run can measure.
func Groups() []string {
	names := make([]string, len(measures))
	for i, m := range measures {
		names[i] = m.group
	}
	return names
}

// About says of each group what it measures, a line each.
func About() string {
	var b strings.Builder
	for _, m := range measures {
		fmt.Fprintf(&b, "  %-11s %s\n", m.group, m.about)
	}
	return b.String()
}

// Run measures the named groups, or all, and calls tell with each figure as it is
// there.
func Run(ctx context.Context, groups []string, tell func(Figure)) error {
	return RunScaled(ctx, 1, groups, tell)
}

// RunScaled is Run with so many times fewer operations. Its figures tell nothing;
// it is for tests of the measuring itself.
func RunScaled(ctx context.Context, less int, groups []string, tell func(Figure)) error {
	for _, g := range groups {
		if !slices.Contains(Groups(), g) {
			return fmt.Errorf("there is no group %q: give %s", g, strings.Join(Groups(), ", "))
		}
	}
	for _, m := range measures {
		if len(groups) > 0 && !slices.Contains(groups, m.group) {
			continue
		}
		if err := m.run(ctx, scale(less), tell); err != nil {
			return err
		}
	}
	return nil
}

// scale says how many times fewer operations a measure makes.
type scale int

func (s scale) of(n int) int { return max(n/int(s), 8) }

// side does n operations and says how long they took.
type side func(n int) (time.Duration, error)

// compare measures two sides in turn, n operations each, and makes the figure of
// ours over raw.
func compare(name string, target float64, n int, raw, ours side) (Figure, error) {
	ratios := make([]float64, 0, pairs)
	rates := map[float64][2]float64{}
	for i := range pairs {
		first, second := raw, ours
		if i%2 == 1 {
			first, second = ours, raw
		}
		a, err := first(n)
		if err != nil {
			return Figure{}, fmt.Errorf("%s: %w", name, err)
		}
		b, err := second(n)
		if err != nil {
			return Figure{}, fmt.Errorf("%s: %w", name, err)
		}
		if i%2 == 1 {
			a, b = b, a
		}
		ratio := a.Seconds() / b.Seconds()
		ratios = append(ratios, ratio)
		rates[ratio] = [2]float64{float64(n) / a.Seconds(), float64(n) / b.Seconds()}
	}
	slices.Sort(ratios)
	median := ratios[len(ratios)/2]
	r := rates[median]
	return Figure{Name: name, Ratio: median, Raw: r[0], Ours: r[1], N: n, Target: target, OK: median >= target}, nil
}

// spread does n operations on several writers and says how long that took.
func spread(writers, n int, do func(writer int) error) (time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(n))
	errs := make([]error, writers)
	var all sync.WaitGroup
	start := time.Now()
	for w := range writers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if errs[w] = do(w); errs[w] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}

// timed measures how long one operation takes: the median of so many rounds as a
// ratio has pairs. A limit of zero is a report.
func timed(name string, limit time.Duration, n int, do func() error) (Figure, error) {
	rounds := make([]float64, 0, pairs)
	for range pairs {
		took, err := spread(1, n, func(int) error { return do() })
		if err != nil {
			return Figure{}, fmt.Errorf("%s: %w", name, err)
		}
		rounds = append(rounds, float64(took.Microseconds())/float64(n))
	}
	slices.Sort(rounds)
	us := rounds[len(rounds)/2]
	f := Figure{Name: name + ", us", Raw: float64(limit.Microseconds()), Ours: us, N: n, OK: true}
	if limit > 0 {
		f.Name, f.Ratio, f.Target = fmt.Sprintf("%s against %d", f.Name, limit.Microseconds()), f.Raw/us, 1
		f.OK = us <= f.Raw
	}
	return f, nil
}

// ground is a deployment to measure on, without coordinator or worker.
type ground struct {
	dir      string
	servers  servers
	replicas int // of each stream
	conn     *nats.Conn
}

// servers are the brokers of a ground.
type servers interface {
	Credentials(role broker.Role, name string) broker.Credentials
	Close() error
}

// open makes a ground on one server.
func open(ctx context.Context) (*ground, error) {
	dir, err := os.MkdirTemp("", "entail-bench-")
	if err != nil {
		return nil, err
	}
	e, err := node.StartEmbedded(ctx, node.EmbeddedConfig{
		Dir: filepath.Join(dir, "data"), Workers: []string{"w1"}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	g := &ground{dir: dir, servers: e, replicas: 1}
	if g.conn, err = g.connect(broker.Coordinator, "coordinator"); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *ground) connect(role broker.Role, name string) (*nats.Conn, error) {
	creds := g.servers.Credentials(role, name)
	return nats.Connect(creds.URL, creds.Options()...)
}

func (g *ground) close() error {
	if g.conn != nil {
		g.conn.Close()
	}
	return errors.Join(g.servers.Close(), os.RemoveAll(g.dir))
}

// log is the one append over the ground's connection.
func (g *ground) log() (*stream.Log, error) {
	return stream.New(g.conn, stream.Config{
		Replicas: g.replicas, Witness: trusting{}, Writer: session.Writer{Component: "bench", Instance: "b", Incarnation: "1"},
	})
}

// trusting is a witness for sessions that only this process writes.
type trusting struct{}

// Empty implements stream.Witness.
func (trusting) Empty(context.Context, session.ID, uint64) error { return nil }
