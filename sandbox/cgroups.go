//go:build linux && (amd64 || arm64)

package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/wire"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// cgroups is where commands get a cgroup of their own, in which the kernel counts
// their processes: below this process's own. It is safe for concurrent use.
type cgroups struct {
	dir    string
	second bool   // of version 2 of cgroups
	prefix string // of the names of this process's

	mu   sync.Mutex // guards what follows
	left []string   // whose calls are over, and which could not be removed then
}

// groupPrefix begins the name of every such cgroup. The number of the process that
// made it follows, and when that was started.
const groupPrefix = "entail-call-"

// openCgroups finds this process's own cgroup, prepares it, and removes what
// processes that are gone have left in it.
func openCgroups() (*cgroups, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find own cgroup: %w", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find own cgroup: %w", err)
	}
	c := &cgroups{prefix: fmt.Sprintf("%s%d-%s-", groupPrefix, os.Getpid(), startOf(strconv.Itoa(os.Getpid())))}
	if c.dir, c.second, err = locate(string(own), string(mounts)); err != nil {
		return nil, err
	}
	if c.second {
		if err := countBelow(c.dir); err != nil {
			return nil, err
		}
	}
	return c, c.tidy()
}

// locate finds the directory of the cgroup that counts a process, from what /proc says
// of it.
func locate(own, mounts string) (dir string, second bool, err error) {
	var path string
	for line := range strings.Lines(own) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(part) != 3:
		case slices.Contains(strings.Split(part[1], ","), "pids"):
			dir, err := mounted(mounts, "cgroup", "pids", part[2])
			return dir, false, err
		case part[0] == "0" && part[1] == "":
			path = part[2]
		}
	}
	if path == "" {
		return "", false, errors.New("this process is in no cgroup that counts processes")
	}
	dir, err = mounted(mounts, "cgroup2", "", path)
	return dir, true, err
}

// mounted finds a cgroup in the file system of its hierarchy. A mount shows a part of
// it, from its root on.
func mounted(mounts, kind, option, path string) (string, error) {
	for line := range strings.Lines(mounts) {
		left, right, _ := strings.Cut(line, " - ")
		at, what := strings.Fields(left), strings.Fields(right)
		if len(at) < 5 || len(what) < 3 || what[0] != kind {
			continue
		}
		if option != "" && !slices.Contains(strings.Split(what[2], ","), option) {
			continue
		}
		root, point := at[3], at[4]
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")); ok && (rest == "" || rest[0] == '/') {
			return filepath.Join(point, rest), nil
		}
	}
	return "", fmt.Errorf("the cgroup %s is mounted nowhere", path)
}

// countBelow has the kernel count processes in the cgroups of version 2 that are made
// below dir. That counting goes by threads, so dir may have processes of its own.
func countBelow(dir string) error {
	const control = "cgroup.subtree_control"
	on, err := os.ReadFile(filepath.Join(dir, control)) //nolint:gosec // the kernel names it
	if err != nil {
		return fmt.Errorf("look what is counted below %s: %w", dir, err)
	}
	if slices.Contains(strings.Fields(string(on)), "pids") {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, control), []byte("+pids"), 0); err != nil { //nolint:gosec // the kernel names it
		return fmt.Errorf("have processes counted below %s: %w", dir, err)
	}
	return nil
}

// tidy removes the cgroups of processes that are gone. What is still in use stays, for
// the next one to remove.
func (c *cgroups) tidy() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("look for cgroups of earlier workers: %w", err)
	}
	for _, e := range entries {
		part := strings.Split(strings.TrimPrefix(e.Name(), groupPrefix), "-")
		if !strings.HasPrefix(e.Name(), groupPrefix) || len(part) != 3 || startOf(part[0]) == part[1] {
			continue
		}
		_ = unix.Rmdir(filepath.Join(c.dir, e.Name()))
	}
	return nil
}

// startOf is when a process was started, as the kernel counts, or nothing if there is
// none of that number. Its name, which it chooses itself, stands in parentheses.
func startOf(pid string) string {
	data, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return ""
	}
	s := string(data)
	fields := strings.Fields(s[strings.LastIndex(s, ")")+1:])
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// cgroup is the cgroup of one command. The launcher, which nothing may keep from
// starting a thread, is not in it: its thread that forks the command goes in, and ends.
type cgroup struct {
	of     *cgroups
	path   string
	enter  *os.File // a thread goes in by writing 0 to it
	events *os.File // tells how often there would have been one too many
}

// open makes a cgroup for a command that may have that many processes.
func (c *cgroups) open(most int64) (_ *cgroup, err error) {
	c.removeLeft()
	g := &cgroup{of: c, path: filepath.Join(c.dir, c.prefix+rand.Text()[:10])}
	if err := os.Mkdir(g.path, 0o755); err != nil { //nolint:gosec // as the kernel's own
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	enter := "tasks"
	if c.second {
		enter = "cgroup.threads"
		if err := os.WriteFile(filepath.Join(g.path, "cgroup.type"), []byte("threaded"), 0); err != nil {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(g.path, "pids.max"), strconv.AppendInt(nil, most, 10), 0); err != nil {
		return nil, fmt.Errorf("limit processes of cgroup: %w", err)
	}
	if g.enter, err = os.OpenFile(filepath.Join(g.path, enter), os.O_WRONLY, 0); err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	if g.events, err = os.Open(filepath.Join(g.path, "pids.events")); err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	return g, nil
}

// group is the cgroup that a call needs, or nil.
func (w *Workspace) group(g grant, o *wire.Order) (*cgroup, error) {
	most := g.terms.Limits.Processes
	if most == 0 || o.Op.Shell == nil || w.runner.groups == nil {
		return nil, nil
	}
	return w.runner.groups.open(most)
}

// files are what a launcher needs of it.
func (g *cgroup) files() []*os.File {
	if g == nil {
		return nil
	}
	return []*os.File{g.enter, g.events}
}

// close removes the cgroup. One that has a process yet, which takes the kernel a
// moment to see the end of, is removed with a later one or by a later process.
func (g *cgroup) close() {
	if g == nil {
		return
	}
	_ = g.enter.Close() // nil is closed already
	_ = g.events.Close()
	if err := unix.Rmdir(g.path); err != nil && !errors.Is(err, unix.ENOENT) {
		g.of.mu.Lock()
		defer g.of.mu.Unlock()
		g.of.left = append(g.of.left, g.path)
	}
}

func (c *cgroups) removeLeft() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = slices.DeleteFunc(c.left, func(path string) bool {
		err := unix.Rmdir(path)
		return err == nil || errors.Is(err, unix.ENOENT)
	})
}

// Uncounted says, as an error, why confinement.limits.processes is not kept on this
// host, or is nil. Calls run all the same.
func (r *Runner) Uncounted() error { return r.uncounted }

// probeCgroups runs a call in a cgroup and has it say where it is.
func (r *Runner) probeCgroups() (_ *cgroups, err error) {
	c, err := openCgroups()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "entail-probe-")
	if err != nil {
		return nil, fmt.Errorf("make probe directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ws, err := (&Runner{cfg: r.cfg, launcher: r.launcher, user: r.user, groups: c}).Workspace(dir, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	free := grant{session.DangerFullAccess, session.NetworkAllow, policy.DefaultConfinement()}
	res, err := ws.run(nil, nil, free, Op{Shell: &Shell{Command: "cat /proc/self/cgroup"}})
	if err != nil {
		return nil, err
	}
	if !strings.Contains(res.Output, "/"+c.prefix) {
		return nil, fmt.Errorf("a call was not in the cgroup that was made for it: %s", res.Output)
	}
	return c, nil
}
