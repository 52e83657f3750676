//go:build linux && (amd64 || arm64)

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// namespaces says how namespaces can be had on this host.
type namespaces int

const (
	noNamespaces   namespaces = iota
	rootNamespaces            // by CAP_SYS_ADMIN
	userNamespaces            // by a user namespace of its own
)

// host is what this host can do, as far as it was tried. Its zero value is one
// that can do nothing.
type host struct {
	abi      int        // of Landlock; 0 if calls cannot be confined at all
	spaces   namespaces // how namespaces can be had
	loopback bool       // a network with nothing but its loopback interface, too
	switches bool       // calls can run as another user
	failed   map[session.Tier]error
}

// landlockABI asks the kernel, and believes no more than it is told to.
func landlockABI(most int) int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	if most != 0 {
		return max(min(int(v), most), 0)
	}
	return int(v)
}

// probe tries each tier by a call that attacks, from the one that all others rest
// on, and finds out what this host is.
func (r *Runner) probe() error {
	if err := r.try(host{}, session.NetworkDeny); err != nil {
		r.host.failed = map[session.Tier]error{}
		for _, t := range session.Tiers() {
			r.host.failed[t] = err
		}
		return err
	}
	r.host = host{abi: landlockABI(r.cfg.maxABI), failed: map[session.Tier]error{}}
	if !r.cfg.Best.Weaker(session.TierUID) {
		err := r.probeUser()
		r.host.switches, r.host.failed[session.TierUID] = err == nil, err
	}
	if r.cfg.Best == session.TierNamespaces {
		var err error
		r.host.spaces, r.host.loopback, err = r.probeNamespaces()
		r.host.failed[session.TierNamespaces] = err
	}
	return nil
}

// errNotRoot says why users cannot be switched.
var errNotRoot = errors.New("only root can switch users")

func (r *Runner) probeUser() error {
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	return r.try(host{switches: true}, session.NetworkDeny)
}

// probeNamespaces tries for a network as well first: most hosts that have the others
// have it.
func (r *Runner) probeNamespaces() (how namespaces, loopback bool, err error) {
	how = userNamespaces
	if os.Geteuid() == 0 {
		how = rootNamespaces
	}
	if err := r.try(host{spaces: how, loopback: true}, session.NetworkLoopback); err == nil {
		return how, true, nil
	}
	if err := r.try(host{spaces: how}, session.NetworkDeny); err != nil {
		return noNamespaces, false, err
	}
	return how, false, nil
}

// probeTime is for a call that takes some milliseconds, on a machine that is busy.
const probeTime = 20 * time.Second

// probeTree is the tree whose user the probe runs as.
const probeTree session.ID = "probe"

// try runs one call, on a host that can do no more than h, that must not get out.
func (r *Runner) try(h host, network session.Network) (err error) {
	dir, err := os.MkdirTemp("", "entail-probe-")
	if err != nil {
		return fmt.Errorf("make probe directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, outside, made := filepath.Join(dir, "ws"), filepath.Join(dir, "outside"), filepath.Join(dir, "made")
	secret := filepath.Join(dir, "hidden")
	if h.spaces != noNamespaces {
		secret = filepath.Join(root, "hidden")
	}
	// A tree's own user has to come through.
	if err := errors.Join(os.Chmod(dir, 0o711), os.Mkdir(root, 0o700), os.WriteFile(outside, nil, 0o600)); err != nil { //nolint:gosec // see above
		return fmt.Errorf("prepare probe: %w", err)
	}
	cfg := r.cfg
	cfg.Hidden = []string{secret}
	ws, err := (&Runner{cfg: cfg, launcher: r.launcher, host: h, user: r.user}).Workspace(root, probeTree)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	// Not before now: a workspace that is not empty is given to no tree. By mode alone
	// everybody could read it.
	if err := errors.Join(os.Mkdir(secret, 0o755), os.WriteFile(filepath.Join(secret, "secret"), []byte("readable"), 0o644)); err != nil { //nolint:gosec // see above
		return fmt.Errorf("prepare probe: %w", err)
	}
	line := "exec 2>/dev/null; cat hidden/secret ../hidden/secret; : >../made; chmod 777 ../outside; : >inside"
	res, err := ws.run(nil, nil, grant{session.WorkspaceWrite, network, policy.DefaultConfinement()}, Op{Shell: &Shell{Command: line, Timeout: probeTime}})
	if err != nil {
		return err
	}
	if res.Code != "" || res.ExitCode != 0 || res.Output != "" {
		return fmt.Errorf("the fence does not hold on this host: code %q, exit %d, output %q", res.Code, res.ExitCode, res.Output)
	}
	if _, err := os.Lstat(made); !errors.Is(err, fs.ErrNotExist) {
		return errors.New("the fence does not hold on this host: a file was made outside")
	}
	info, err := os.Lstat(outside)
	if err != nil {
		return fmt.Errorf("look at what the probe left: %w", err)
	}
	if info.Mode().Perm() != 0o600 && res.Sandbox.Tier != session.TierLandlock {
		return errors.New("the fence does not hold on this host: an outside file's mode was changed")
	}
	return nil
}
