//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/attack"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

const secret = "SECRET=hunter2"

// A column is one configuration.
type column struct {
	name    string
	user    bool // the worker is an ordinary user, and else root
	plain   bool
	tier    session.Tier
	tree    bool
	mode    session.SandboxMode
	network session.Network
	cells   []int // of expected; what each refuses is refused
}

// The ordinary user. It has nothing on any host.
const nobody = 65534

func (c column) uid() int {
	if c.user && os.Getuid() == 0 {
		return nobody
	}
	return os.Getuid()
}

// columns lists the configurations.
func columns() []column {
	const perMode = 5
	all := []column{
		{name: "plain root", plain: true, cells: []int{0}},
		{name: "plain user", plain: true, user: true, cells: []int{1}},
	}
	for m, mode := range []session.SandboxMode{session.WorkspaceWrite, session.ReadOnly} {
		first := 2 + m*perMode
		for _, network := range session.Networks() {
			tiers := []column{
				{name: "landlock root", tier: session.TierLandlock, cells: []int{first}},
				{name: "landlock user", tier: session.TierLandlock, user: true, cells: []int{first + 1}},
				{name: "uid", tier: session.TierUID, tree: true, cells: []int{first + 2}},
				{name: "namespaces root", tier: session.TierNamespaces, cells: []int{first + 3}},
				{name: "namespaces user", tier: session.TierNamespaces, user: true, cells: []int{first + 4}},
				{name: "namespaces uid", tier: session.TierNamespaces, tree: true, cells: []int{first + 2, first + 3}},
			}
			for _, c := range tiers {
				if network == session.NetworkLoopback && c.tier != session.TierNamespaces {
					continue // it is refused there: see package sandbox's other tests
				}
				c.mode, c.network = mode, network
				c.name = strings.Join([]string{c.name, string(mode), string(network)}, " ")
				all = append(all, c)
			}
		}
	}
	return all
}

// here says whether a configuration can be had on a host.
func (c column) here(h host) bool {
	if os.Getuid() != 0 && !c.user || c.user && c.tier == session.TierNamespaces && !h.users {
		return false
	}
	return c.plain || slices.Contains(h.tiers(), c.tier)
}

// A cell is what is expected of one attempt.
type cell struct {
	refusals []string // any of these; empty for getting through
	harms    bool
}

func parseCell(text string) cell {
	text, harms := strings.CutSuffix(text, "*")
	c := cell{harms: harms}
	for r := range strings.SplitSeq(text, "/") {
		if r == "A" {
			r = ""
		}
		c.refusals = append(c.refusals, r)
	}
	return c
}

func (c cell) String() string {
	names := slices.Clone(c.refusals)
	for i, r := range names {
		if names[i] = r; r == "" {
			names[i] = "through"
		}
	}
	if c.harms {
		return strings.Join(names, " or ") + " with harm"
	}
	return strings.Join(names, " or ")
}

// parseTable reads a table's rows by name.
func parseTable(t *testing.T, table string, width int) map[string][]cell {
	t.Helper()
	rows := map[string][]cell{}
	for line := range strings.Lines(table) {
		var cells []cell
		words := slices.DeleteFunc(strings.Fields(line), func(w string) bool { return w == "|" })
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		for _, w := range words[1:] {
			cells = append(cells, parseCell(w))
		}
		if len(cells) != width || rows[words[0]] != nil {
			t.Fatalf("row %q: %d cells, want %d, and once", words[0], len(cells), width)
		}
		rows[words[0]] = cells
	}
	return rows
}

// want is what a column expects of an attempt. Where it has two cells, what either
// refuses is refused, in whatever words; but what a call may do in its workspace is what
// namespaces give it.
func (c column) want(name string, main, networks map[string][]cell) (want cell, anyWords bool) {
	if over := networks[name]; over != nil {
		switch c.network {
		case session.NetworkAllow:
			return over[0], false
		case session.NetworkLoopback:
			return over[1], false
		case session.NetworkDeny:
		}
	}
	cells := main[name]
	last := cells[c.cells[len(c.cells)-1]]
	if len(c.cells) == 1 {
		return last, false
	}
	if first := cells[c.cells[0]]; first.refusals[0] != "" && !strings.HasPrefix(name, "inside/") {
		return first, true
	}
	return last, true
}

// groups are those of the attempts that are made: with a network, what is about it.
func (c column) groups() []string {
	if c.plain || c.network == session.NetworkDeny {
		return nil
	}
	return []string{"net", "broker", "kern", "arch"}
}

// These are fewer than there are.
const (
	floorAttempts  = 160
	floorNetworked = 30
)

func TestNoAttackGetsThrough(t *testing.T) {
	t.Parallel()
	main, networks := parseTable(t, expected, 12), parseTable(t, networked, 2)
	program := buildAttacker(t)
	server := natstest.Start(t)
	key, err := os.ReadFile(filepath.Join(server.Keys(t), "w1.json"))
	if err != nil {
		t.Fatal(err)
	}
	creds, ok := server.Credentials(broker.Worker, "w1")
	if !ok {
		t.Fatal("the broker knows no worker w1")
	}
	address, err := url.Parse(creds.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name := range main {
		known := func(a attack.Attempt) bool { return a.Name == name }
		if !slices.ContainsFunc(attack.Attempts(), known) && !strings.HasPrefix(name, "arch/") {
			t.Errorf("there is no attempt %s", name)
		}
	}
	tried := 0
	for _, c := range columns() {
		if !c.here(here(t)) {
			t.Log("NOT TRIED HERE:", c.name)
			continue
		}
		tried++
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, program, c.uid(), key, c.groups())
			y.target.Broker = address.Host
			y.release(t, c.uid())
			c.judge(t, y.raid(t, c), main, networks)
		})
	}
	// A user in a container has the one tier, and two networks in two modes.
	if tried < 5 {
		t.Errorf("%d configurations were tried, want at least 5", tried)
	}
}

// judge compares a column with what came of it.
func (c column) judge(t *testing.T, got haul, main, networks map[string][]cell) {
	t.Helper()
	for _, o := range got.Outcomes {
		if main[o.Name] == nil {
			t.Errorf("%s is not in the table", o.Name)
			continue
		}
		how, harm := got.Harmed[o.Name]
		delete(got.Harmed, o.Name)
		if !canMount(t) && byMounting(o.Name) || os.Getuid() != 0 && o.Name == attack.RunAsRoot {
			continue
		}
		want, anyWords := c.want(o.Name, main, networks)
		through := slices.Contains(want.refusals, "")
		if through && o.Refusal != "" && here(t).voids(o) {
			continue
		}
		anyWords = anyWords || *hostName != "machine" // there Docker speaks, too
		right := slices.Contains(want.refusals, o.Refusal) || anyWords && !through && o.Refusal != ""
		if !right || harm != (want.harms && o.Refusal == "") {
			t.Errorf("%s: %s %q, harm %t (%s), want %s%s", o.Name, o.Verdict(), o.Refusal, harm, o.Text, want, how)
		}
	}
	for name, how := range got.Harmed {
		t.Errorf("%s: nobody tried, and it is\n%s", name, how)
	}
	floor := floorAttempts
	if c.groups() != nil {
		floor = floorNetworked
	}
	if n := len(got.Outcomes); n < floor {
		t.Errorf("%d attempts were made, want at least %d", n, floor)
	}
	if !c.plain {
		c.judgeGaps(t, got)
	}
}

// voids says whether an attempt can fail here even without the fence.
func (h host) voids(o attack.Outcome) bool {
	// FUSE has no flags of files.
	return slices.Contains(h.refuses, o.Name) || o.Refusal == "ENOTTY" || o.Refusal == "ENOTSUP"
}

// canMount says whether the stage can mount something for attempts to aim at.
func canMount(t *testing.T) bool {
	t.Helper()
	return os.Getuid() == 0 && here(t).namespaces
}

// byMounting says whether an attempt aims at what is mounted for it.
func byMounting(name string) bool { return name == attack.BoundWrite || name == attack.Unmount }

// judgeGaps checks that a call is said to be held by what held it, and to have the
// gaps that it had.
func (c column) judgeGaps(t *testing.T, got haul) {
	t.Helper()
	if s := got.Sandbox; s.Tier != c.tier || s.Mode != c.mode || s.Network != c.network {
		t.Errorf("held by %+v, want tier %s, mode %s, network %s", s, c.tier, c.mode, c.network)
	}
	for gap, name := range map[session.Gap]string{
		sandbox.GapMetadata: "meta/chmod", sandbox.GapLinks: "fs/write-old-hard-link", sandbox.GapSignals: "proc/signal",
		sandbox.GapLocks: "meta/lock", sandbox.GapSharedMemory: "ipc/write-shared-segment",
		sandbox.GapProcesses: "proc/read-arguments", sandbox.GapPriority: "proc/set-priority", sandbox.GapNetwork: "net/tcp",
	} {
		i := slices.IndexFunc(got.Outcomes, func(o attack.Outcome) bool { return o.Name == name })
		if i < 0 {
			if c.groups() == nil {
				t.Errorf("%s was not tried", name)
			}
			continue
		}
		if through := got.Outcomes[i].Refusal == ""; through != slices.Contains(got.Sandbox.Gaps, gap) {
			t.Errorf("%s got through: %t; the gaps are said to be %v", name, through, got.Sandbox.Gaps)
		}
	}
	partly := slices.Contains(got.Sandbox.Gaps, sandbox.GapMetadata)
	if partly != (got.Sandbox.Enforcement == session.EnforcedPartly) {
		t.Errorf("enforcement is %s with gaps %v", got.Sandbox.Enforcement, got.Sandbox.Gaps)
	}
}

// attackerPath is for where there is nothing to build it with.
var attackerPath = flag.String("attacker", "", "the program of internal/attack/attacker; built if there is none")

// buildAttacker builds the program where every user can come. It is one of its own
// since a process is started for each attempt.
func buildAttacker(t *testing.T) string {
	t.Helper()
	if *attackerPath != "" {
		return *attackerPath
	}
	dir, err := os.MkdirTemp("", "attacker-") //nolint:usetesting // t.TempDir lies below a private directory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	chmod(t, dir, 0o755)
	program := filepath.Join(dir, "attacker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../internal/attack/attacker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the attacker: %v: %s", err, out)
	}
	return program
}

// raid has every attempt made in a column's configuration.
func (y *yard) raid(t *testing.T, c column) haul {
	t.Helper()
	arg, err := json.Marshal(raid{
		Program: y.program, Target: y.target, User: c.uid(), Mounts: canMount(t), Plain: c.plain, Tier: c.tier, Tree: c.tree,
		Mode: c.mode, Network: c.network,
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", stageArg, string(arg))
	cmd.Env = []string{secret, "TMPDIR=" + y.target.Temp, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = y.base
	if canMount(t) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	passCallPIDs()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &complaint)
	}
	var got haul
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	return got
}
