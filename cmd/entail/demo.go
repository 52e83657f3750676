package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// A step that does not end in stepLeases leases, beside what starting takes, never
// does. A rule that is broken can leave a step waiting.
const stepLeases = 10

// demo is one telling of the story: where it is told, and what is needed to look
// behind it.
type demo struct {
	a     *app
	base  string // a directory of its own
	place place

	// The rest but the story so far is that of one start.
	site site
	d    *deployment // nil while the place is stopped
	info client.InfoReply
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

// demoOptions are the flags of demo.
type demoOptions struct {
	only  []int
	keep  bool
	fleet string
}

func newDemo(a *app) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on this machine what delegation means here",
		Long: `Start a deployment of its own, a broker, a coordinator and two workers as separate
processes, and tell the story of delegation on it, without a key or a network. The
deployment's default is workspace-write; only parents are switched, so a refusal can
come from nothing but what was inherited. What is shown as seen is read back from
the broker's stream and from the disk. The command fails if a step is not as it
must be.

With --fleet the story is told on the fleet of docker-compose.yml, which must run on
this machine, and this command as root. Its containers are those that were given the
keys of that directory. All of them are stopped and started again and workers are
killed on the way, and settings are changed and put back, so nobody else should be
using it.`,
		Example: `  entail demo
  entail demo -o json
  entail demo --step 2 --step 4
  entail demo --fleet ./dist/keys`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, n := range o.only {
				if n < 1 || n > len(demoSteps()) {
					return usagef("no step %d: there are 1 to %d", n, len(demoSteps()))
				}
			}
			return a.demo(cmd.Context(), o)
		},
	}
	cmd.Flags().IntSliceVar(&o.only, "step", nil, "tell only this step; can be repeated")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "keep the directory of the demo")
	cmd.Flags().StringVar(&o.fleet, "fleet", "", "directory that keys init wrote: tell the story on the fleet of docker-compose.yml that uses it")
	return cmd
}

// letThrough lets other users come to what is in a directory: where workers can
// switch users, each tree has one of its own, who has to come to its workspace.
func letThrough(dir string) error {
	return os.Chmod(dir, 0o711) //nolint:gosec // what is private in it stays so
}

// openToTrees is letThrough, and makes sure that they come as far as dir.
func openToTrees(dir string) error {
	if err := letThrough(dir); err != nil {
		return err
	}
	const nobody = 65534
	if os.Geteuid() == 0 && !sandbox.Reachable(filepath.Join(dir, "work"), nobody) {
		return fmt.Errorf("no other user can come to %s, and as root each tree has a user of its own: set TMPDIR to a directory that others can enter, such as /tmp", dir)
	}
	return nil
}

// demo tells the steps and fails if one is not as it must be.
func (a *app) demo(ctx context.Context, o demoOptions) (err error) {
	base, err := os.MkdirTemp("", "entail-demo-")
	if err != nil {
		return unavailable(fmt.Errorf("make a directory for the demo: %w", err))
	}
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return unavailable(err)
	}
	if err := openToTrees(base); err != nil {
		return unavailable(errors.Join(err, os.Remove(base)))
	}
	if o.keep {
		a.printer.line("directory %s", base)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(base)) }()
	}
	m := &demo{a: a, base: base, place: &localPlace{a: a, base: base}, named: map[string]session.ID{}}
	if o.fleet != "" {
		if m.place, err = openFleet(ctx, a, o.fleet, o.keep); err != nil {
			return err
		}
	}
	if err := m.start(ctx); err != nil {
		return errors.Join(err, m.place.leave())
	}
	found := m.info.Settings
	defer func() { err = errors.Join(err, m.end(ctx, found)) }()
	if err := m.settings(ctx, session.WorkspaceWrite, session.Ask, policy.NoReviewer); err != nil {
		return err
	}
	return m.story(ctx, o.only)
}

// story tells the steps, all or some, and counts those that are not as they must
// be.
func (m *demo) story(ctx context.Context, only []int) error {
	failed := 0
	for i, s := range demoSteps() {
		if len(only) > 0 && !slices.Contains(only, i+1) {
			continue
		}
		ok, err := m.tell(ctx, i+1, s)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
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
	limited, cancel := context.WithTimeout(ctx, m.limit())
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

// limit bounds one step.
func (m *demo) limit() time.Duration {
	return stepLeases*time.Duration(m.info.Settings.Lease) + m.site.startup
}

// start brings the deployment up and opens the ways to look at it.
func (m *demo) start(ctx context.Context) (err error) {
	if m.site, err = m.place.start(ctx); err != nil {
		return err
	}
	m.a.reach(m.site)
	if m.d, err = m.a.connect(); err != nil {
		return err
	}
	if m.info, err = m.d.info(ctx); err == nil {
		m.nc, err = node.Connect(m.site.reader, slog.New(slog.DiscardHandler))
	}
	if err == nil {
		m.raw, err = stream.New(m.nc, stream.Config{Partitions: m.info.Partitions})
	}
	if err != nil {
		m.disconnect()
	}
	return err
}

// disconnect closes what start opened.
func (m *demo) disconnect() {
	m.nc.Close()
	if m.d != nil {
		m.d.close()
	}
	m.nc, m.d = nil, nil
}

// stop ends every process of the deployment.
func (m *demo) stop(ctx context.Context) error {
	m.disconnect()
	return m.place.stop(ctx)
}

// end puts back the settings that were found, also when the story broke off, even
// while everything was stopped. A second interrupt ends that too.
func (m *demo) end(ctx context.Context, found policy.Settings) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.limit())
	defer cancel()
	go func() {
		select {
		case <-m.a.force:
			cancel()
		case <-ctx.Done():
		}
	}()
	if m.d == nil {
		err = m.start(ctx)
	}
	if err == nil {
		err = m.settings(ctx, found.Defaults.Sandbox, found.Defaults.Approval, found.Reviewer)
	}
	if err != nil {
		err = unavailable(fmt.Errorf("put back the settings: %w; `entail config history` shows them", err))
	}
	m.disconnect()
	return errors.Join(err, m.place.leave())
}
