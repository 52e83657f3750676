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

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/session"
)

// namespaces says how a mount namespace can be had on this host.
type namespaces int

const (
	noNamespaces   namespaces = iota + 1
	rootNamespaces            // by CAP_SYS_ADMIN
	userNamespaces            // by a user namespace of its own
)

// Runner runs permitted calls. It is safe for concurrent use.
type Runner struct {
	cfg      Config
	launcher string // path of the launcher's binary, as this process's children see it
	ns       namespaces
	unfit    error // why this host confines nothing, or nil
	user     string
}

// New returns a Runner, having tried on this host what it will rely on: a
// confined call that writes outside and reads what is hidden, and must fail at
// both. When nothing can be confined the error wraps ErrUnavailable and the
// Runner is returned all the same: it refuses confined calls and still runs
// danger-full-access ones.
func New(cfg Config) (*Runner, error) {
	cfg = cfg.withDefaults()
	for _, path := range cfg.Hidden {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("hidden path %q is not absolute", path)
		}
	}
	for _, kv := range cfg.Env {
		if !strings.Contains(kv, "=") {
			return nil, fmt.Errorf("environment entry %q is not KEY=VALUE", kv)
		}
	}
	r := &Runner{cfg: cfg, ns: noNamespaces, user: strconv.Itoa(os.Getuid())}
	if u, err := user.LookupId(r.user); err == nil {
		r.user = u.Username
	}
	if r.launcher = cfg.launcher; r.launcher == "" {
		var err error
		if r.launcher, err = launcherPath(); err != nil {
			r.unfit = err
			return r, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if err := r.probe(); err != nil {
		r.unfit = err
		return r, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return r, nil
}

// probe tries the kinds of namespaces from best to none and keeps the first that
// holds.
func (r *Runner) probe() error {
	kinds := []namespaces{userNamespaces, noNamespaces}
	if os.Getuid() == 0 {
		kinds = []namespaces{rootNamespaces, noNamespaces}
	}
	var failed []error
	for _, ns := range kinds {
		if r.cfg.noMounts && ns != noNamespaces {
			continue
		}
		err := r.try(ns)
		if err == nil {
			r.ns = ns
			return nil
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// try runs one call that must not get out.
func (r *Runner) try(ns namespaces) (err error) {
	dir, err := os.MkdirTemp("", "entail-probe-")
	if err != nil {
		return fmt.Errorf("make probe directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, secret, outside := filepath.Join(dir, "ws"), filepath.Join(dir, "ws/hidden"), filepath.Join(dir, "outside")
	if ns == noNamespaces {
		secret = filepath.Join(dir, "hidden")
	}
	if err := errors.Join(os.Mkdir(root, 0o700), os.Mkdir(secret, 0o700),
		os.WriteFile(filepath.Join(secret, "secret"), []byte("readable"), 0o600)); err != nil {
		return fmt.Errorf("prepare probe: %w", err)
	}
	cfg := r.cfg
	cfg.Hidden = []string{secret}
	ws, err := (&Runner{cfg: cfg, launcher: r.launcher, ns: ns, user: r.user}).Workspace(root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	line := "exec 2>/dev/null; cat hidden/secret ../hidden/secret; : >../outside; : >inside"
	res, err := ws.run(nil, nil, session.WorkspaceWrite, Op{Shell: &Shell{Command: line}})
	if err != nil {
		return err
	}
	_, statErr := os.Stat(outside)
	if res.Code != "" || res.ExitCode != 0 || res.Output != "" || !errors.Is(statErr, os.ErrNotExist) {
		return fmt.Errorf("the fence does not hold on this host: code %q, exit %d, output %q, outside file: %w",
			res.Code, res.ExitCode, res.Output, statErr)
	}
	return nil
}

// Workspace is a directory that calls work in, with a private temp directory
// beside it. It is safe for concurrent use.
type Workspace struct {
	runner *Runner
	root   *os.File // both stay open, so that a directory put in their place is noticed
	temp   *os.File
	hidden []string // resolved, none below another
	shelf  *shelf   // in temp
}

// Workspace opens a workspace at root and makes its temp directory. Links in root
// are followed once, now.
func (r *Runner) Workspace(root string) (*Workspace, error) {
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
	kept := &shelf{dir: temp, each: r.cfg.maxOutput, room: r.cfg.maxOutputs}
	return &Workspace{runner: r, root: dir, temp: temp, hidden: hidden, shelf: kept}, nil
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

// makeTemp makes a private temp directory, which os.MkdirTemp gives mode 0700.
func makeTemp(hidden []string) (*os.File, error) {
	made, err := os.MkdirTemp("", wire.TempPrefix)
	if err != nil {
		return nil, fmt.Errorf("make private temp directory: %w", err)
	}
	path, err := filepath.EvalSymlinks(made)
	if err == nil && slices.ContainsFunc(hidden, func(h string) bool { return paths.Within(path, h) }) {
		err = errors.New("it lies inside the data directory: choose another TMPDIR")
	}
	var temp *os.File
	if err == nil {
		temp, err = openDir(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make private temp directory: %w", err), os.RemoveAll(made))
	}
	return temp, nil
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

// Close removes the temp directory. Calls must have ended. What cannot be removed
// is an error, which makes the session's outcome a failure (SPEC 7.7).
func (w *Workspace) Close() error {
	err := errors.Join(w.root.Close(), w.temp.Close(), os.RemoveAll(w.temp.Name()))
	if errors.Is(err, os.ErrClosed) {
		return nil // closed before
	}
	if err != nil {
		return fmt.Errorf("close workspace: %w", err)
	}
	return nil
}

// fit says why a call cannot be confined here, or nothing.
func (w *Workspace) fit() string {
	if w.runner.unfit != nil {
		return w.runner.unfit.Error()
	}
	for _, h := range w.hidden {
		if !paths.Within(h, w.Root()) {
			continue
		}
		if w.runner.ns == noNamespaces {
			return fmt.Sprintf("the data directory %s lies inside the workspace, and this host lets nobody hide it there: "+
				"choose another with --dir", h)
		}
		if _, err := os.Lstat(h); err != nil {
			return fmt.Sprintf("the data directory %s inside the workspace must exist to be hidden: %v", h, err)
		}
	}
	return ""
}

// environ is the environment of a shell call: this list and the configured one,
// whatever this process was started with.
func (w *Workspace) environ() []string {
	env := map[string]string{
		"PATH":   "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME":   w.Root(),
		"TMPDIR": w.temp.Name(),
		"LANG":   "C.UTF-8",
		"TERM":   "dumb",
		"USER":   w.runner.user,
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
