//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/session"
)

// Runner runs permitted calls. It is safe for concurrent use.
type Runner struct {
	cfg      Config
	launcher program
	host     host
	unfit    error // why this host confines nothing, or nil
	user     string
	places   places
	pool     pool
	ends     sync.WaitGroup // launchers that are on their way out

	groups    *cgroups // where processes of calls are counted, or nil
	uncounted error    // why they are not
}

// New returns a Runner, having tried on this host what it will rely on: a
// confined call that writes outside and reads what is hidden, and must fail at
// both. When nothing can be confined the error wraps ErrUnavailable and the
// Runner is returned all the same: it refuses confined calls and still runs
// danger-full-access ones.
func New(cfg Config) (*Runner, error) {
	cfg = cfg.withDefaults()
	if !slices.Contains(session.Tiers(), cfg.Best) {
		return nil, fmt.Errorf("tier %q confines nothing: the strongest to try is one of %v", cfg.Best, session.Tiers())
	}
	for _, path := range cfg.Hidden {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("hidden path %q is not absolute", path)
		}
	}
	for _, kv := range cfg.Env {
		if !strings.Contains(kv, "=") {
			return nil, fmt.Errorf("environment entry %q is not KEY=VALUE", kv)
		}
		if strings.Contains(kv, "\x00") {
			return nil, fmt.Errorf("environment entry %q holds a NUL byte, which no environment can", kv)
		}
	}
	r := &Runner{cfg: cfg, user: strconv.Itoa(os.Getuid())}
	if u, err := user.LookupId(r.user); err == nil {
		r.user = u.Username
	}
	if r.launcher = cfg.launcher; r.launcher.path == "" {
		var err error
		if r.launcher, err = embedded(); err != nil {
			r.unfit = err
			return r, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	r.pool.warm = cfg.Warm
	r.pool.bear = func(k kind) (*launcher, error) { return r.bear(k, nil) }
	r.groups, r.uncounted = r.probeCgroups()
	if err := r.probe(); err != nil {
		r.unfit = err
		return r, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return r, nil
}

// Close ends the launchers that wait, and waits for those whose calls have ended. A
// call that comes later gets one of its own.
func (r *Runner) Close() error {
	r.pool.close()
	r.ends.Wait()
	return nil
}

// Workspace is a directory that calls work in, with a private temp directory
// beside it. It is safe for concurrent use.
type Workspace struct {
	runner *Runner
	tree   session.ID
	root   *os.File // both stay open, so that a directory put in their place is noticed
	temp   *os.File
	hidden []string   // resolved, none below another
	shelf  *shelf     // in temp
	user   *wire.User // the tree's, where users can be switched
	owned  bool       // the directory belongs to the tree: all its calls run as user

	helpers *helpers // the home of file operations
}

// Workspace opens a workspace at root for a session of a tree, which the id of the
// tree's root names, and makes its temp directory. Links in root are followed once,
// now. A directory that is empty and belongs to this process's user is given to the
// tree, where users can be switched. An empty tree is nobody's: its calls run as
// this process's user.
func (r *Runner) Workspace(root string, tree session.ID) (*Workspace, error) {
	if !filepath.IsAbs(root) {
		return nil, fmt.Errorf("workspace %q is not an absolute path", root)
	}
	path, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if path == "/" {
		return nil, errors.New("the workspace may not be /: choose a directory")
	}
	hidden, err := resolveAll(r.cfg.Hidden)
	if err != nil {
		return nil, err
	}
	for _, h := range hidden {
		if paths.Within(path, h) {
			return nil, fmt.Errorf("workspace %s lies inside the data directory %s: choose another", path, h)
		}
	}
	dir, err := openDir(path)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	temp, err := makeTemp(hidden)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	w := &Workspace{runner: r, tree: tree, root: dir, temp: temp, hidden: hidden}
	w.helpers = newHelpers(w)
	w.shelf = &shelf{dir: temp, each: r.cfg.maxOutput, room: r.cfg.maxOutputs}
	if r.host.switches && tree != "" {
		if err := w.settle(); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	r.places.add(w)
	return w, nil
}

// Root returns the resolved path of the workspace.
func (w *Workspace) Root() string { return w.root.Name() }

func openDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// resolveAll resolves paths, and drops those that lie below another.
func resolveAll(hidden []string) ([]string, error) {
	var all []string
	for _, p := range hidden {
		resolved, err := paths.Resolve(p)
		if err != nil {
			return nil, fmt.Errorf("resolve hidden path: %w", err)
		}
		all = append(all, resolved)
	}
	slices.Sort(all)
	var tops []string
	for _, p := range all {
		if !slices.ContainsFunc(tops, func(top string) bool { return paths.Within(p, top) }) {
			tops = append(tops, p)
		}
	}
	return tops, nil
}

// Close ends the helper and removes the temp directory. Calls must have ended. What
// cannot be removed is an error, which makes the session's outcome a failure (SPEC 7.7).
func (w *Workspace) Close() error {
	if errors.Is(w.root.Close(), os.ErrClosed) {
		return nil // closed before
	}
	err := errors.Join(w.helpers.close(), removeTemp(w.temp), w.temp.Close())
	if err != nil {
		return fmt.Errorf("close workspace: %w", err)
	}
	return nil
}

// fit says why a call cannot be confined here as it must be, or nothing.
func (w *Workspace) fit(g grant) string {
	if w.runner.unfit != nil {
		return w.runner.unfit.Error()
	}
	if t := w.tier(); t.Weaker(g.terms.Require) {
		return fmt.Sprintf("tier %q is required, by confinement.require or by what the session needs, and here a call gets %q: `entail doctor` says what would give more", g.terms.Require, t)
	}
	if g.network == session.NetworkLoopback && !w.runner.host.loopback {
		return "network \"loopback\" needs a network namespace, which this host does not give: set confinement.network to deny or allow"
	}
	for _, h := range w.hidden {
		if !paths.Within(h, w.Root()) {
			continue
		}
		if w.runner.host.spaces == noNamespaces {
			return fmt.Sprintf("the data directory %s lies inside the workspace, and this host lets nobody hide it there: "+
				"choose another with --dir", h)
		}
		if _, err := os.Lstat(h); err != nil {
			return fmt.Sprintf("the data directory %s inside the workspace must exist to be hidden: %v", h, err)
		}
	}
	return ""
}

// environ is the environment of a shell call as a user, nil for this process's:
// this list and the configured one, whatever this process was started with.
func (w *Workspace) environ(as *wire.User) []string {
	env := map[string]string{
		"PATH":   "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME":   w.Root(),
		"TMPDIR": w.temp.Name(),
		"LANG":   "C.UTF-8",
		"TERM":   "dumb",
		"USER":   w.runner.user,
	}
	if as != nil {
		env["USER"] = strconv.Itoa(as.UID)
	}
	for _, kv := range w.runner.cfg.Env {
		key, value, _ := strings.Cut(kv, "=")
		env[key] = value
	}
	var list []string
	for key, value := range env {
		list = append(list, key+"="+value)
	}
	slices.Sort(list)
	return list
}
