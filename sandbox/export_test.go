//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"os"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Perform is Run behind the permit.
func (w *Workspace) Perform(ctx context.Context, mode session.SandboxMode, op Op, lease Lease) (Result, error) {
	terms := policy.DefaultConfinement()
	return w.run(ctx.Done(), lease, grant{mode, terms.Network.Of(mode), terms}, op)
}

// PerformOn is Perform on other terms of the deployment.
func (w *Workspace) PerformOn(ctx context.Context, mode session.SandboxMode, terms policy.Confinement, op Op) (Result, error) {
	return w.run(ctx.Done(), nil, grant{mode, terms.Network.Of(mode), terms}, op)
}

// Temp is the path of the private temp directory.
func (w *Workspace) Temp() string { return w.temp.Name() }

// WithMaxABI makes the launcher believe in no Landlock ABI above abi.
func (c Config) WithMaxABI(abi int) Config {
	c.maxABI = abi
	return c
}

// WithLauncher starts another program in place of the launcher.
func (c Config) WithLauncher(path string) Config {
	c.launcher = path
	return c
}

// Launcher is where children of this process find the launcher.
func Launcher() (string, error) { return launcherPath() }

// WithNamelessLauncher starts the launcher from a file without a name, as where files
// in memory may not be executed. The caller closes it.
func (c Config) WithNamelessLauncher() (Config, *os.File, error) {
	f, err := nameless(launcherBinary)
	if err == nil {
		c.launcher, err = keep(f)
	}
	return c, f, err
}

// WithBest makes the Runner try no stronger tier.
func (c Config) WithBest(t session.Tier) Config {
	c.Best = t
	return c
}

// WithMaxOutputs bounds what is kept of one output and of all.
func (c Config) WithMaxOutputs(each, all int64) Config {
	c.maxOutput, c.maxOutputs = each, all
	return c
}

// MarkPlainly is Mark, or CheckMark, on a file system that keeps no attributes.
func MarkPlainly(dir, id string, first bool) error {
	m, err := openMark(dir)
	if err != nil {
		return err
	}
	defer func() { _ = m.dir.Close() }()
	m.plain = true
	return m.check(id, first)
}
