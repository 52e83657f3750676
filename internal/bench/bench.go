package bench

import (
	"context"
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

// Figure is one measured claim. Raw and Ours are operations in a second, for
// decisions and forks nanoseconds for one.
type Figure struct {
	Name   string  `json:"name"`
	Ratio  float64 `json:"ratio"`
	Raw    float64 `json:"raw"`
	Ours   float64 `json:"ours"`
	N      int     `json:"n"`
	Target float64 `json:"target"`
	OK     bool    `json:"ok"`
}

// pairs is how many pairs a ratio is the median of.
const pairs = 5

// measure makes the figures of one group.
type measure struct {
	group string
	run   func(context.Context, scale, func(Figure)) error
}

var measures = []measure{
	{"decide", decisions}, {"append", appends}, {"delegation", delegations}, {"service", services}, {"fork", forks},
}

// Groups are the names of what Run can measure.
func Groups() []string {
	names := make([]string, len(measures))
	for i, m := range measures {
		names[i] = m.group
	}
	return names
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

// ground is an embedded deployment to measure on, without coordinator or worker.
type ground struct {
	dir  string
	e    *node.Embedded
	conn *nats.Conn
}

func open(ctx context.Context) (*ground, error) {
	dir, err := os.MkdirTemp("", "entail-bench-")
	if err != nil {
		return nil, err
	}
	e, err := node.StartEmbedded(ctx, node.EmbeddedConfig{
		Dir: filepath.Join(dir, "data"), Workers: []string{"w1"}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	g := &ground{dir: dir, e: e}
	g.conn, err = g.connect(broker.Coordinator, "coordinator")
	return g, err
}

func (g *ground) connect(role broker.Role, name string) (*nats.Conn, error) {
	creds := g.e.Credentials(role, name)
	return nats.Connect(creds.URL, creds.Options()...)
}

func (g *ground) close() error {
	if g.conn != nil {
		g.conn.Close()
	}
	err := g.e.Close()
	if rerr := os.RemoveAll(g.dir); err == nil {
		err = rerr
	}
	return err
}

// log is the one append over the ground's connection.
func (g *ground) log() (*stream.Log, error) {
	return stream.New(g.conn, stream.Config{
		Witness: trusting{}, Writer: session.Writer{Component: "bench", Instance: "b", Incarnation: "1"},
	})
}

// trusting is a witness for sessions that only this process writes.
type trusting struct{}

// Empty implements stream.Witness.
func (trusting) Empty(context.Context, session.ID, uint64) error { return nil }
