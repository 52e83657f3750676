package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// settling is how long a measure waits between two calls: what one leaves behind, a
// namespace that the kernel takes down or a launcher that is started for the next
// call, is no part of the other.
const settling = 10 * time.Millisecond

// warm is how many launchers a pool keeps here. Calls come one after the other.
const warm = 1

// sandboxes measures what a confined shell call costs, beside bubblewrap and beside
// no fence at all. All run the same `bash -c LINE` and read both of its streams.
func sandboxes(ctx context.Context, s scale, tell func(Figure)) (err error) {
	dir, err := os.MkdirTemp("", "entail-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // a tree's own user has to come through
		return err
	}
	for _, line := range []string{"exec /bin/true", "true"} {
		if err := calls(ctx, dir, line, s.of(60), tell); err != nil {
			return err
		}
	}
	return reads(ctx, dir, s.of(1000), tell)
}

// reads measures a read of 4 KB by the confined helper, on the best tier of this host.
func reads(ctx context.Context, dir string, n int, tell func(Figure)) (err error) {
	const name, limit = "file read of 4 KB through the helper", 50 * time.Microsecond
	permit, err := permitted()
	if err != nil {
		return err
	}
	runner, err := sandbox.New(sandbox.Config{})
	if errors.Is(err, sandbox.ErrUnavailable) {
		tell(Figure{Name: name, Target: 1, N: n, Missing: err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runner.Close()) }()
	root := filepath.Join(dir, "read")
	if err := os.Mkdir(root, 0o700); err != nil {
		return err
	}
	ws, err := runner.Workspace(root, permit.Session())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	run := func(op sandbox.Op) error {
		res, err := ws.Run(ctx, permit, op, nil)
		if err == nil && res.Failed {
			err = fmt.Errorf("the call failed: %s", res.Output)
		}
		return err
	}
	text := strings.Repeat("sixty-three bytes and the end of a line make sixty-four in all.\n", 64)
	if err := run(sandbox.Op{Write: &sandbox.Write{Path: "f", Content: text}}); err != nil {
		return err
	}
	f, err := timed(name, limit, n, func() error { return run(sandbox.Op{Read: &sandbox.Read{Path: "f"}}) })
	if err == nil {
		tell(f)
	}
	return err
}

// contender is one way to run a line.
type contender struct {
	name    string
	target  float64 // at most so much of bubblewrap's time; zero is a report
	missing string  // why it cannot be measured here
	run     func(context.Context) error
	times   []time.Duration
}

func (c *contender) median() time.Duration {
	slices.Sort(c.times)
	return c.times[len(c.times)/2]
}

// calls makes the figures of one line: so many rounds, in each of which everybody
// runs once.
func calls(ctx context.Context, dir, line string, rounds int, tell func(Figure)) (err error) {
	rival := bubblewrap(ctx, dir, line)
	all := []*contender{rival, plain("no fence", "bash", "-c", line), bareBubblewrap(ctx, line)}
	if line == "exec /bin/true" {
		all = append(all, plain("no fence and no shell", "/bin/true"))
	}
	// The roadmap's targets are of one line: the other starts one program less.
	targets := map[session.Tier]float64{session.TierLandlock: 0.85, session.TierNamespaces: 1.05}
	for _, tier := range session.Tiers() {
		for _, warm := range []int{0, warm} {
			c, done, err := fenced(ctx, filepath.Join(dir, fmt.Sprintf("%s-%d", tier, warm)), tier, warm, line)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done()) }()
			if c.target = targets[tier]; warm > 0 {
				c.target = 0.5
			}
			if line == "true" {
				c.target = 0
			}
			all = append(all, c)
		}
	}
	for round := range rounds {
		for i := range all {
			if err := all[(i+round)%len(all)].once(ctx); err != nil {
				return fmt.Errorf("%q, %s: %w", line, all[(i+round)%len(all)].name, err)
			}
		}
	}
	for _, c := range all[1:] {
		tell(c.against(rival, line, rounds))
	}
	return nil
}

// once takes one time.
func (c *contender) once(ctx context.Context) error {
	if c.missing != "" {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settling):
	}
	start := time.Now()
	err := c.run(ctx)
	c.times = append(c.times, time.Since(start))
	return err
}

// against is the figure of a contender's time over the rival's.
func (c *contender) against(rival *contender, line string, rounds int) Figure {
	f := Figure{
		Name: fmt.Sprintf("bash -c %q, %s, us over bubblewrap's", line, c.name), AtMost: true, N: rounds, Target: c.target, Missing: c.missing,
	}
	if f.Missing == "" {
		f.Missing = rival.missing
	}
	if f.Missing != "" {
		return f
	}
	f.Raw, f.Ours = micros(rival.median()), micros(c.median())
	f.Ratio = f.Ours / f.Raw
	f.OK = f.Target == 0 || f.Ratio <= f.Target
	return f
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// plain starts a program as it is.
func plain(name string, argv ...string) *contender {
	return &contender{name: name, run: func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w: %s", err, &errs)
		}
		return nil
	}}
}

// bubblewrap holds a line as agents do that rely on it: all is read-only but the
// workspace, and processes are its own.
func bubblewrap(ctx context.Context, dir, line string) *contender {
	return tried(ctx, plain("bubblewrap", "bwrap", "--ro-bind", "/", "/", "--bind", dir, dir, "--dev", "/dev", "--proc", "/proc",
		"--unshare-pid", "--die-with-parent", "bash", "-c", line))
}

// bareBubblewrap is the least that it can do.
func bareBubblewrap(ctx context.Context, line string) *contender {
	return tried(ctx, plain("bubblewrap with read-only mounts alone", "bwrap", "--ro-bind", "/", "/", "bash", "-c", line))
}

// tried says why a contender cannot run here.
func tried(ctx context.Context, c *contender) *contender {
	if err := c.run(ctx); err != nil {
		c.missing = "bwrap does not run here (Debian has it as bubblewrap): " + strings.TrimSpace(err.Error())
	}
	return c
}

// fenced is a line under a tier of ours, by a Runner that keeps so many launchers.
func fenced(ctx context.Context, dir string, tier session.Tier, warm int, line string) (c *contender, done func() error, err error) {
	c = &contender{name: "tier " + string(tier)}
	if warm > 0 {
		c.name += " from a pre-started launcher"
	}
	permit, err := permitted()
	if err != nil {
		return nil, nil, err
	}
	if err := os.RemoveAll(dir); err != nil { // it may be the tree's of a line before
		return nil, nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	runner, err := sandbox.New(sandbox.Config{Best: tier, Warm: warm})
	if err != nil && !errors.Is(err, sandbox.ErrUnavailable) {
		return nil, nil, err
	}
	ws, err := runner.Workspace(dir, permit.Session())
	if err != nil {
		return nil, nil, errors.Join(err, runner.Close())
	}
	var last sandbox.Result
	c.run = func(ctx context.Context) error {
		var err error
		if last, err = ws.Run(ctx, permit, sandbox.Op{Shell: &sandbox.Shell{Command: line}}, nil); err != nil {
			return err
		}
		if last.Failed {
			return fmt.Errorf("the call failed: %s", last.Output)
		}
		return nil
	}
	if err := c.run(ctx); err != nil {
		c.missing = err.Error()
	} else if got := last.Sandbox.Tier; got != tier {
		c.missing = fmt.Sprintf("this host gives tier %q", got)
	}
	return c, func() error { return errors.Join(ws.Close(), runner.Close()) }, nil
}

// permitted is a permit of one shell call under workspace-write.
func permitted() (policy.Permit, error) {
	state, err := folded(10)
	if err != nil {
		return policy.Permit{}, err
	}
	d := deployed()
	d.Defaults.Sandbox = session.WorkspaceWrite
	dec, err := policy.Decide(state, d, policy.Call{ID: "1.1.0", Tool: "bash", Effect: true, Digest: "d"}, tools)
	if err != nil {
		return policy.Permit{}, err
	}
	permit, ok := dec.(policy.Permit)
	if !ok {
		return policy.Permit{}, fmt.Errorf("no permit: %+v", dec.Record())
	}
	return permit, nil
}
