package main

import (
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
	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// demoLease is short, so that the work of a killed worker is taken over soon.
const demoLease = time.Second

// stepLimit bounds one step. A rule that is broken can leave a step waiting.
const stepLimit = 10 * time.Second

// demo is one telling of the story: a deployment of its own in a directory of its
// own, and what is needed to look behind it.
type demo struct {
	a    *app
	base string
	srv  *server
	d    *deployment
	// nc and raw read the stream itself, past every other part.
	nc  *nats.Conn
	raw *stream.Log

	trees []session.ID          // the roots so far
	named map[string]session.ID // roots by the name of their workspace
}

// demoStep is one step: what must be, and how it comes about.
type demoStep struct {
	must string
	run  func(context.Context, *demo, *facts) error
}

func demoSteps() []demoStep {
	return []demoStep{
		{"an unswitched parent hands down the pin alone: its child writes, and obeys the default that changes later", stepUnswitched},
		{"the child of a read-only parent is read-only with its first event, and cannot write, edit or redirect", stepReadOnly},
		{"the same holds for a parent that was switched before every process was stopped and started again", stepRestarted},
		{"a fork whose history was workspace-write is read-only, because its parent is now", stepFork},
		{"a fork whose history holds the sibling identity has the captured one", stepIdentity},
		{"a switch after a delegation does not reach that child; delegating again takes the new value", stepAfter},
		{"an escalation in a child is rejected, both facts are in the log, and nobody is asked", stepEscalation},
		{"a grandchild is read-only too; a person's switch in the child wins, and is narrated", stepGrandchild},
		{"a worker killed in the middle of a delegation leaves one child and turns that finish", stepKilled},
		{"every child's first batch is one record; export and verify are clean; a denial explains itself", stepProof},
	}
}

func newDemo(a *app) *cobra.Command {
	var only []int
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on this machine what delegation means here",
		Long: `Start a deployment of its own, a broker, a coordinator and two workers as separate
processes, and tell the story of delegation on it, without a key or a network. The
deployment's default is workspace-write; only parents are switched, so a refusal can
come from nothing but what was inherited. What is shown as seen is read back from
the broker's stream and from the disk. The command fails if a step is not as it
must be.`,
		Example: `  entail demo
  entail demo -o json
  entail demo --step 2 --step 4`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, n := range only {
				if n < 1 || n > len(demoSteps()) {
					return usagef("no step %d: there are 1 to %d", n, len(demoSteps()))
				}
			}
			return a.demo(cmd.Context(), only, keep)
		},
	}
	cmd.Flags().IntSliceVar(&only, "step", nil, "tell only this step; can be repeated")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the directory of the demo")
	return cmd
}

// demo tells the steps and fails if one is not as it must be.
func (a *app) demo(ctx context.Context, only []int, keep bool) (err error) {
	base, err := os.MkdirTemp("", "entail-demo-")
	if err != nil {
		return unavailable(fmt.Errorf("make a directory for the demo: %w", err))
	}
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return unavailable(err)
	}
	if keep {
		a.printer.line("directory %s", base)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(base)) }()
	}
	a.dir, a.tokenFile, a.server = filepath.Join(base, "data"), "", ""
	m := &demo{a: a, base: base, named: map[string]session.ID{}}
	if err := m.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	if err := m.set(ctx, "defaults.sandbox", `"workspace-write"`); err != nil {
		return err
	}
	if err := m.set(ctx, "defaults.approval", `"ask"`); err != nil {
		return err
	}
	failed := 0
	for i, s := range demoSteps() {
		if len(only) > 0 && !slices.Contains(only, i+1) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ok, err := m.tell(ctx, i+1, s)
		if err != nil {
			return err
		}
		if !ok {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d steps are not as they must be", failed)
	}
	return nil
}

// tell runs one step and shows what must be and what was seen.
func (m *demo) tell(ctx context.Context, n int, s demoStep) (bool, error) {
	type line struct {
		Step int    `json:"step"`
		Must string `json:"must"`
		Saw  string `json:"saw"`
		OK   bool   `json:"ok"`
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	var f facts
	if err := s.run(limited, m, &f); err != nil {
		f.log(false, "the step did not end: %v", err)
	}
	l := line{n, s.must, f.text(), f.ok()}
	p := m.a.printer
	return l.OK, p.value(l, func() {
		mark := p.paint(green, "ok")
		if !l.OK {
			mark = p.paint(red, "NOT OK")
		}
		p.line("%2d  %s", n, s.must)
		for _, fact := range f {
			p.line("      %s", fact)
		}
		p.line("    %s %s", mark, p.paint(grey, fmt.Sprintf("(%.1f s)", time.Since(began).Seconds())))
	})
}

// start brings the deployment up and opens the ways to look at it.
func (m *demo) start(ctx context.Context) (err error) {
	o := serverOptions{wishes: node.Wishes{Lease: demoLease}, workers: 2, syncInterval: "1s", logLevel: slog.LevelError + 1}
	if m.srv, err = m.a.startServer(ctx, o); err != nil {
		return err
	}
	if m.d, err = m.a.connect(); err != nil {
		return errors.Join(err, m.srv.close())
	}
	m.nc, err = node.Connect(m.srv.broker.Credentials(broker.Reader, string(broker.Reader)), slog.New(slog.DiscardHandler))
	if err == nil {
		m.raw, err = stream.New(m.nc, stream.Config{})
	}
	if err != nil {
		m.d.close()
		return errors.Join(err, m.srv.close())
	}
	return nil
}

// stop ends every process of the deployment.
func (m *demo) stop() error {
	m.nc.Close()
	m.d.close()
	return m.srv.close()
}

// facts are what was seen, and whether each is as it must be.
type facts []fact

type fact struct {
	where string // log or disk
	what  string
	ok    bool
}

// String marks what is not as it must be.
func (f fact) String() string {
	if f.ok {
		return f.where + ": " + f.what
	}
	return "NOT OK " + f.where + ": " + f.what
}

func (f *facts) log(ok bool, format string, args ...any) {
	*f = append(*f, fact{"log", fmt.Sprintf(format, args...), ok})
}

func (f *facts) disk(ok bool, format string, args ...any) {
	*f = append(*f, fact{"disk", fmt.Sprintf(format, args...), ok})
}

// ok reports whether something was seen and all of it is as it must be.
func (f facts) ok() bool {
	return len(f) > 0 && !slices.ContainsFunc(f, func(x fact) bool { return !x.ok })
}

func (f facts) text() string {
	parts := make([]string, len(f))
	for i, x := range f {
		parts[i] = x.String()
	}
	return strings.Join(parts, "; ")
}
