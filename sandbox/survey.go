//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/paths"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// Report says what this host confines calls by, as New tried it, and tries what
// danger-full-access calls reach.
func (r *Runner) Report() Report {
	f := r.facts()
	rep := Report{
		System: runtime.GOOS + "/" + runtime.GOARCH, Kernel: kernel(), Landlock: f.abi, Launcher: r.source(), User: os.Geteuid(),
		Switches: r.host.switches, UIDs: r.cfg.UIDs, Loopback: r.host.loopback,
	}
	for _, t := range session.Tiers() {
		rep.Tiers = append(rep.Tiers, r.tierReport(t, f))
	}
	if r.unfit != nil {
		rep.Unfit = r.unfit.Error()
	} else {
		rep.Own, rep.Other = r.Own(), r.fenceOf(false)
	}
	if r.unfit == nil && f.abi < scopedABI {
		rep.More = append(rep.More, adviceScopes)
	}
	if r.host.spaces != noNamespaces && !r.host.loopback {
		rep.More = append(rep.More, adviceLoopback)
	}
	if r.uncounted != nil {
		rep.Uncounted = r.uncounted.Error()
	}
	if r.launcher.path != "" {
		rep.FullAccess = r.fullAccess()
	}
	return rep
}

func (r *Runner) tierReport(t session.Tier, f facts) TierReport {
	rep := TierReport{Tier: t}
	switch t {
	case session.TierNamespaces:
		rep.Had = r.host.spaces != noNamespaces
	case session.TierUID:
		rep.Had = r.host.switches
	case session.TierLandlock:
		rep.Had = r.unfit == nil
	case session.TierNone:
	}
	if rep.Had {
		alone := r.host.switches && t != session.TierLandlock
		rep.Modes = r.fenced(t, alone).modes()
		return rep
	}
	switch why := r.host.failed[t]; {
	case why != nil:
		rep.Why = why.Error()
	case r.unfit != nil:
		rep.Why = r.unfit.Error()
	default:
		rep.Why = fmt.Sprintf("it was not tried: %s is the strongest that may be", r.cfg.Best)
		return rep
	}
	rep.Advice = advise(t, f)
	return rep
}

func (r *Runner) fenced(t session.Tier, alone bool) fence {
	return fence{tier: t, abi: r.host.abi, alone: alone, root: !alone && os.Geteuid() == 0}
}

// Own is what calls get in a workspace that belongs to their tree, nothing if this
// host cannot confine. It tries nothing.
func (r *Runner) Own() Fence {
	if r.unfit != nil {
		return Fence{}
	}
	return r.fenceOf(r.host.switches)
}

// fenceOf is what calls get in a workspace that belongs to their tree, or in one
// that does not.
func (r *Runner) fenceOf(owned bool) Fence {
	w := &Workspace{runner: r, owned: owned}
	return Fence{w.tier(), r.fenced(w.tier(), owned).modes()}
}

// source looks at what the launcher's path leads to.
func (r *Runner) source() Source {
	target, err := os.Readlink(r.launcher.path)
	switch {
	case err != nil:
		return ""
	case strings.HasPrefix(target, "/memfd:"):
		return SealedMemory
	}
	return NamelessFile
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return string(u.Release[:max(bytes.IndexByte(u.Release[:], 0), 0)])
}

func (r *Runner) facts() facts {
	setting := func(name, value string) bool {
		text, err := os.ReadFile(filepath.Join("/proc/sys", name))
		return err == nil && strings.TrimSpace(string(text)) == value
	}
	return facts{
		root: os.Geteuid() == 0, abi: landlockABI(r.cfg.maxABI),
		noUserNamespaces: setting("user/max_user_namespaces", "0"),
		onlyRootMakes:    setting("kernel/unprivileged_userns_clone", "0"),
		appArmor:         setting("kernel/apparmor_restrict_unprivileged_userns", "1"),
	}
}

// fullAccess runs a danger-full-access call as each user that it can be.
func (r *Runner) fullAccess() []FullAccess {
	users := []policy.FullAccessUser{policy.AsWorker}
	if r.host.switches {
		users = []policy.FullAccessUser{policy.AsTree, policy.AsWorker}
	}
	var out []FullAccess
	for _, as := range users {
		reached := FullAccess{As: as, User: os.Geteuid()}
		if as == policy.AsTree {
			reached.User = int(r.cfg.UIDs.Of(probeTree))
		}
		if err := r.reach(&reached); err != nil {
			reached.Failed = err.Error()
		}
		out = append(out, reached)
	}
	return out
}

// tryReach is what a danger-full-access call tries: the process with the first
// argument as its number, and to read the paths that follow.
const tryReach = `cat "/proc/$1/environ" >/dev/null 2>&1 && echo environ
kill -0 "$1" 2>/dev/null && echo signal
shift
n=0
for path; do
	if [ -d "$path" ]; then ls -- "$path" >/dev/null 2>&1 && echo "$n"
	else [ -f "$path" ] && head -c 1 -- "$path" >/dev/null 2>&1 && echo "$n"
	fi
	n=$((n + 1))
done
exit 0`

const reachTimeout = 10 * time.Second

func (r *Runner) reach(f *FullAccess) (err error) {
	dir, err := os.MkdirTemp("", "entail-probe-")
	if err != nil {
		return fmt.Errorf("make probe directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root := filepath.Join(dir, "ws")
	// A tree's own user has to come through.
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(root, 0o700)); err != nil { //nolint:gosec // see above
		return fmt.Errorf("prepare probe: %w", err)
	}
	cfg := r.cfg
	cfg.Hidden = nil
	ws, err := (&Runner{cfg: cfg, launcher: r.launcher, host: r.host, user: r.user}).Workspace(root, probeTree)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	hidden := slices.DeleteFunc(slices.Clone(r.cfg.Hidden), func(path string) bool {
		_, err := os.Stat(path)
		return err != nil
	})
	terms := policy.DefaultConfinement()
	terms.FullAccessAs = f.As
	argv := append([]string{"/bin/sh", "-c", tryReach, "sh", strconv.Itoa(os.Getpid())}, hidden...)
	res, err := ws.run(nil, nil, grant{session.DangerFullAccess, session.NetworkAllow, terms}, Op{Shell: &Shell{Argv: argv, Timeout: reachTimeout}})
	if err == nil && res.Failed {
		err = fmt.Errorf("the probe ended with %d: %s", res.ExitCode, res.Output)
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(res.Output) {
		switch word := strings.TrimSpace(line); word {
		case "environ":
			f.Environ = true
		case "signal":
			f.Signal = true
		default:
			if n, err := strconv.Atoi(word); err == nil && n < len(hidden) {
				f.Hidden = append(f.Hidden, hidden[n])
			}
		}
	}
	return nil
}

// Survey says what a session of a tree would get in a directory, on a deployment's
// terms. It changes nothing.
func (r *Runner) Survey(dir string, tree session.ID, terms policy.Confinement) (Site, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Site{}, fmt.Errorf("survey workspace: %w", err)
	}
	f, err := openDir(path)
	if err != nil {
		return Site{}, fmt.Errorf("survey workspace: %w", err)
	}
	defer func() { _ = f.Close() }()
	s := Site{Path: path}
	if s.Owner, err = ownerOf(f); err != nil {
		return s, err
	}
	if s.Empty, err = isEmpty(path); err != nil {
		return s, err
	}
	if r.host.switches && tree != "" {
		s.TreeUser = int(r.cfg.UIDs.Of(tree))
		s.Reachable = Reachable(path, s.TreeUser)
		s.Given = s.Reachable && s.Empty && s.Owner == os.Geteuid()
		s.Belongs = s.Given || s.Reachable && s.Owner == s.TreeUser
	}
	w := &Workspace{runner: r, root: f, owned: s.Belongs}
	if w.hidden, err = resolveAll(r.cfg.Hidden); err != nil {
		return s, err
	}
	for _, h := range w.hidden {
		if paths.Within(path, h) {
			s.Refused = fmt.Sprintf("it lies inside %s, which is hidden", h)
			return s, nil
		}
	}
	for _, m := range confinedModes() {
		if why := w.fit(grant{m, terms.Network.Of(m), terms}); why != "" && s.Refused == "" {
			s.Refused = why
		}
	}
	if r.unfit == nil {
		s.Fence = r.fenceOf(s.Belongs)
	}
	return s, nil
}
