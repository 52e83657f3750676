//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/attack"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// A raid is one configuration that everything is tried in. A process of its own is
// the worker: in mounts of its own, as its user, with a secret in its environment
// and with descriptors that it leaks.
type raid struct {
	Program string
	Target  attack.Target
	User    int
	Mounts  bool // this process has mounts of its own, for attempts to aim at
	Plain   bool // without a sandbox: what shows that the attempts are real
	Tier    session.Tier
	Tree    bool // the workspace is given to its tree, whose user calls run as
	Mode    session.SandboxMode
	Network session.Network
}

// haul is what a raid came to.
type haul struct {
	Sandbox  session.Confinement
	Outcomes []attack.Outcome
	Harmed   map[string]string // what changed outside of the workspace, by attempt
}

// stage is the first life of a raid's process: it mounts what is to be mounted and
// becomes the worker.
func stage(arg string) int {
	var r raid
	if err := json.Unmarshal([]byte(arg), &r); err != nil {
		return complain(err)
	}
	if !r.Tree {
		// A workspace that is not empty is given to no tree.
		if err := errors.Join(r.furnish(r.User), r.mount()); err != nil {
			return complain(err)
		}
	}
	if r.User != os.Getuid() {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(r.User), syscall.Setuid(r.User)); err != nil {
			return complain(err)
		}
	}
	return complain(syscall.Exec("/proc/self/exe", []string{os.Args[0], workerArg, arg}, os.Environ()))
}

// furnish makes what attempts find in the workspace.
func (r *raid) furnish(owner int) error {
	for _, a := range attack.Attempts() {
		if _, work, _, _ := attack.Places(a.Name); work && r.Target.Aims(a.Name) {
			if err := r.furnishOne(a.Name); err != nil {
				return err
			}
		}
	}
	if err := giveAll(r.Target.Work, owner); err != nil {
		return err
	}
	// These stay whose they are.
	hard, setuid := filepath.Join(attack.HardWrite, attack.Hard), filepath.Join(attack.RunAsRoot, attack.SetUID)
	if r.Target.Aims(attack.HardWrite) {
		if err := os.Link(filepath.Join(r.Target.Outside, hard), filepath.Join(r.Target.Work, hard)); err != nil {
			return err
		}
	}
	if os.Getuid() == 0 && r.Target.Aims(attack.RunAsRoot) {
		return plantSetUID(filepath.Join(r.Target.Work, setuid))
	}
	return nil
}

func (r *raid) furnishOne(name string) error {
	in, out := filepath.Join(r.Target.Work, name), filepath.Join(r.Target.Outside, name)
	err := errors.Join(
		os.MkdirAll(in, 0o755),
		os.WriteFile(filepath.Join(in, attack.File), []byte(attack.Content), 0o644),
	)
	if err != nil {
		return err
	}
	switch name {
	case attack.LinkWrite:
		return os.Symlink(filepath.Join(out, attack.File), filepath.Join(in, attack.ToFile))
	case attack.LinkedDirWrite:
		return os.Symlink(out, filepath.Join(in, attack.ToDir))
	case attack.BoundWrite:
		return os.Mkdir(filepath.Join(in, attack.Bound), 0o755)
	}
	return nil
}

func giveAll(dir string, uid int) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
}

// plantSetUID makes a program that runs as root, and does no more than to say so.
func plantSetUID(path string) error {
	id, err := exec.LookPath("id")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(id)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path, data, 0o755), os.Chmod(path, 0o755|os.ModeSetuid))
}

// mount mounts an outside directory in the workspace, and something outside, in this
// process's own namespace.
func (r *raid) mount() error {
	if !r.Mounts || !r.Target.Aims(attack.BoundWrite) {
		return nil
	}
	bound := filepath.Join(attack.BoundWrite, attack.Bound)
	return errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(filepath.Join(r.Target.Outside, bound), filepath.Join(r.Target.Work, bound), "", unix.MS_BIND, ""),
		unix.Mount("none", filepath.Join(r.Target.Outside, attack.Unmount, attack.Bound), "tmpfs", 0, ""),
	)
}

// worker is the second life: it leaks, has the attempts made in one call, and says
// how they ended.
func worker(arg string) int {
	var r raid
	if err := json.Unmarshal([]byte(arg), &r); err != nil {
		return complain(err)
	}
	got, err := r.run()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(got)
	}
	if err != nil {
		return complain(err)
	}
	return 0
}

func (r *raid) run() (got haul, err error) {
	runner, err := sandbox.New(sandbox.Config{Hidden: []string{r.Target.Data}}.WithBest(r.Tier))
	if err != nil {
		return haul{}, err
	}
	ws, err := runner.Workspace(r.Target.Work, "own")
	if err != nil {
		return haul{}, err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	if r.Tree {
		owner, err := ownerOf(r.Target.Work)
		if err := errors.Join(err, r.furnish(owner), r.mount()); err != nil {
			return haul{}, err
		}
	}
	other, err := runner.Workspace(r.Target.OtherWork, "other")
	if err != nil {
		return haul{}, err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	r.Target.Worker = os.Getpid()
	r.Target.Temp, r.Target.OtherTemp = ws.Temp(), other.Temp()
	before := map[string]map[string]string{}
	if err := errors.Join(furnishOther(r.Target.OtherWork), furnishOther(r.Target.OtherTemp)); err != nil {
		return haul{}, err
	}
	for _, dir := range []string{r.Target.Outside, r.Target.Data, r.Target.OtherWork, r.Target.OtherTemp} {
		if before[dir], err = survey(dir); err != nil {
			return haul{}, err
		}
	}
	if err := leak(&r.Target); err != nil {
		return haul{}, err
	}
	if err := r.strike(ws, &got); err != nil {
		return haul{}, err
	}
	got.Harmed = map[string]string{}
	for dir, was := range before {
		is, err := survey(dir)
		if err != nil {
			return haul{}, err
		}
		for name, how := range damage(was, is) {
			got.Harmed[name] += how
		}
	}
	return got, nil
}

func ownerOf(path string) (int, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return int(st.Uid), err
}

// furnishOther makes what belongs to the other tree.
func furnishOther(dir string) error {
	owner, err := ownerOf(dir)
	if err != nil {
		return err
	}
	for _, a := range attack.Attempts() {
		in := filepath.Join(dir, a.Name)
		if _, _, _, other := attack.Places(a.Name); !other {
			continue
		}
		if err := errors.Join(os.MkdirAll(in, 0o755), os.WriteFile(filepath.Join(in, attack.Token), []byte(attack.Content), 0o644)); err != nil {
			return err
		}
	}
	return giveAll(dir, owner)
}

// leak opens what a call is not to inherit, where the attempts look for it.
func leak(t *attack.Target) error {
	for name, l := range attack.Leaks() {
		path := filepath.Join(t.Outside, name)
		if !t.Aims(name) {
			continue
		}
		if !l.Dir {
			path = filepath.Join(path, attack.File)
		}
		fd, err := unix.Open(path, l.Flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(unix.Dup3(fd, l.FD, 0), unix.Close(fd)); err != nil {
			return err
		}
	}
	return nil
}

// strike makes the attempts.
func (r *raid) strike(ws *sandbox.Workspace, got *haul) error {
	arg, err := json.Marshal(r.Target)
	if err != nil {
		return err
	}
	var out string
	if r.Plain {
		var complaint bytes.Buffer
		cmd := exec.Command(r.Program, attack.RunArg, string(arg))
		cmd.Stderr = &complaint
		said, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%w: %s", err, &complaint)
		}
		out = string(said)
	} else {
		terms := policy.DefaultConfinement()
		terms.Network = policy.Networks{ReadOnly: r.Network, WorkspaceWrite: r.Network}
		res, err := ws.PerformOn(context.Background(), r.Mode, terms,
			shell("exec "+r.Program+" "+attack.RunArg+" '"+string(arg)+"'"))
		if err != nil {
			return err
		}
		if res.Failed || res.Truncated {
			return fmt.Errorf("the attempts were not made: %+v", res)
		}
		got.Sandbox, out = res.Sandbox, res.Output
	}
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var o attack.Outcome
		if err := dec.Decode(&o); err != nil {
			return err
		}
		got.Outcomes = append(got.Outcomes, o)
	}
	return nil
}
