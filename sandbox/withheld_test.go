//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// withheld is a system call that a filter around the launcher keeps from it, as an
// older kernel, a container's profile or a fault would.
type withheld struct {
	Call  uintptr
	First *uint32       // only with this first argument
	Errno syscall.Errno // zero means that who makes the call is killed by it
}

// install puts what the calling thread will start under the filter, and the thread
// itself, for good.
func (w withheld) install() error {
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	if w.Errno != 0 {
		action = unix.SECCOMP_RET_ERRNO | uint32(w.Errno)
	}
	load := func(off uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
	}
	// unless goes on with the next instruction if k is what was loaded, and skips
	// so many if not.
	unless := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	const number, first = 0, 16 // in struct seccomp_data
	program := []unix.SockFilter{load(number), unless(uint32(w.Call), 1), ret(action), ret(unix.SECCOMP_RET_ALLOW)}
	if w.First != nil {
		program = slices.Insert(program, 2, load(first), unless(*w.First, 1))
		program[1].Jf += 2
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return w.holds()
}

// holds makes the call. Nothing happens but that the filter answers.
func (w withheld) holds() error {
	if w.Errno == 0 {
		return nil // it would be this process that is killed
	}
	var first uintptr
	if w.First != nil {
		first = uintptr(*w.First)
	}
	const nowhere = ^uintptr(0)
	if _, _, errno := unix.RawSyscall6(w.Call, first, nowhere, nowhere, nowhere, nowhere, nowhere); errno != w.Errno {
		return fmt.Errorf("the filter is void: call %d gives %w, want %w", w.Call, errno, w.Errno)
	}
	return nil
}

// deprivation is what a deprived driver is told: a place, what it lacks, and whether
// it lacks that only after it has tried the host.
type deprivation struct {
	withheld

	Root string
	Tree session.ID // whose the workspace is, if it is a tree's
	Late bool
}

// outcome is what one call of a deprived driver came to.
type outcome struct {
	Code       string
	NotStarted bool
	Lost       bool
	Error      string
}

// deprive runs a call of each kind on a thread whose children lack something, and
// prints what came of them.
func deprive(arg string) int {
	var d deprivation
	if err := json.Unmarshal([]byte(arg), &d); err != nil {
		return complain(err)
	}
	runtime.LockOSThread() // launchers are started from here
	if !d.Late {
		if err := d.install(); err != nil {
			return complain(err)
		}
	}
	r, err := sandbox.New(sandbox.Config{Hidden: []string{filepath.Join(d.Root, "../data/entail")}})
	if err != nil && !errors.Is(err, sandbox.ErrUnavailable) {
		return complain(err)
	}
	ws, err := r.Workspace(d.Root, d.Tree)
	if err != nil {
		return complain(err)
	}
	if d.Late {
		if err := d.install(); err != nil {
			return complain(err)
		}
	}
	var outcomes []outcome
	for _, c := range deprivedCalls() {
		res, err := ws.Perform(context.Background(), c.mode, c.op, fixed(sandbox.BootTime()+time.Minute))
		o := outcome{Code: res.Code, NotStarted: errors.Is(err, sandbox.ErrNotStarted), Lost: errors.Is(err, sandbox.ErrLost)}
		if err != nil {
			o.Error = err.Error()
		}
		outcomes = append(outcomes, o)
	}
	if err := errors.Join(json.NewEncoder(os.Stdout).Encode(outcomes), ws.Close()); err != nil {
		return complain(err)
	}
	return 0
}

type deprivedCall struct {
	mode session.SandboxMode
	op   sandbox.Op
}

// deprivedCalls are the calls of a deprived driver. The last has no fence, and shows
// that the driver can do its work.
func deprivedCalls() []deprivedCall {
	both := shell("echo x >shell; echo x >>../outside/old.txt; exit 0")
	return []deprivedCall{
		{session.ReadOnly, both},
		{session.ReadOnly, sandbox.Op{List: &sandbox.List{}}},
		{session.WorkspaceWrite, both},
		{session.WorkspaceWrite, sandbox.Op{Write: &sandbox.Write{Path: "tool", Content: "x"}}},
		{session.DangerFullAccess, shell("echo x >free")},
	}
}

// fate is what becomes of the confined calls of a deprived driver.
type fate int

const (
	refused fate = iota + 1 // none has run
	held                    // all have run, behind a fence that needs less
	partly                  // those that may write are refused, the others held
	lost                    // whether they have run is unknown; the fence held
)

// idleness says when a call without a fence is not started either.
type idleness int

const (
	never idleness = iota
	later          // as a user of its tree's own it is not; from the start it is the worker's
	ever
)

// deprivations are what a launcher may lack. Early is what becomes of calls when the
// host lacks it from the start, late when it is lacking since the host was tried.
func deprivations() map[string]struct {
	withheld

	early, late fate
	idle        idleness
} {
	type row = struct {
		withheld

		early, late fate
		idle        idleness
	}
	prctl := func(option uint32, errno syscall.Errno) withheld {
		return withheld{Call: unix.SYS_PRCTL, First: &option, Errno: errno}
	}
	mounts, islands, users, bounding, asTree := held, held, held, held, never
	if hosts()[*hostName].namespaces {
		mounts, islands = refused, partly
	}
	if os.Getuid() == 0 {
		bounding = refused // others draw on it by no program, under no_new_privs
		users, asTree = refused, later
	}
	return map[string]row{
		"no landlock":                          {withheld{Call: unix.SYS_LANDLOCK_CREATE_RULESET, Errno: unix.ENOSYS}, refused, refused, never},
		"landlock switched off":                {withheld{Call: unix.SYS_LANDLOCK_CREATE_RULESET, Errno: unix.EOPNOTSUPP}, refused, refused, never},
		"no landlock rule":                     {withheld{Call: unix.SYS_LANDLOCK_ADD_RULE, Errno: unix.EINVAL}, refused, refused, never},
		"landlock not enforced":                {withheld{Call: unix.SYS_LANDLOCK_RESTRICT_SELF, Errno: unix.EPERM}, refused, refused, never},
		"too many landlock domains":            {withheld{Call: unix.SYS_LANDLOCK_RESTRICT_SELF, Errno: unix.E2BIG}, refused, refused, never},
		"no seccomp":                           {withheld{Call: unix.SYS_SECCOMP, Errno: unix.ENOSYS}, refused, refused, never},
		"no no_new_privs":                      {prctl(unix.PR_SET_NO_NEW_PRIVS, unix.EINVAL), refused, refused, never},
		"bounding set unreadable":              {prctl(unix.PR_CAPBSET_READ, unix.EPERM), refused, refused, never},
		"bounding set kept":                    {prctl(unix.PR_CAPBSET_DROP, unix.EPERM), bounding, bounding, never},
		"ambient capabilities kept":            {prctl(unix.PR_CAP_AMBIENT, unix.EINVAL), refused, refused, never},
		"capabilities unreadable":              {withheld{Call: unix.SYS_CAPGET, Errno: unix.EPERM}, refused, refused, asTree},
		"capabilities kept":                    {withheld{Call: unix.SYS_CAPSET, Errno: unix.EPERM}, refused, refused, never},
		"no mount":                             {withheld{Call: unix.SYS_MOUNT, Errno: unix.EPERM}, held, mounts, never},
		"no mount made read-only":              {withheld{Call: unix.SYS_MOUNT_SETATTR, Errno: unix.EPERM}, held, mounts, never},
		"no mount copied":                      {withheld{Call: unix.SYS_OPEN_TREE, Errno: unix.EPERM}, held, islands, never},
		"no mount moved":                       {withheld{Call: unix.SYS_MOVE_MOUNT, Errno: unix.EPERM}, held, islands, never},
		"no file in memory":                    {withheld{Call: unix.SYS_MEMFD_CREATE, Errno: unix.EPERM}, held, held, never},
		"the groups of the worker":             {withheld{Call: unix.SYS_SETGROUPS, Errno: unix.EPERM}, held, users, asTree},
		"the group of the worker":              {withheld{Call: unix.SYS_SETRESGID, Errno: unix.EPERM}, held, users, asTree},
		"the user of the worker":               {withheld{Call: unix.SYS_SETRESUID, Errno: unix.EPERM}, held, users, asTree},
		"traceable":                            {prctl(unix.PR_SET_DUMPABLE, unix.EINVAL), refused, refused, ever},
		"no workspace entered":                 {withheld{Call: unix.SYS_FCHDIR, Errno: unix.EACCES}, refused, refused, ever},
		"inherited descriptors open":           {withheld{Call: unix.SYS_CLOSE_RANGE, Errno: unix.ENOSYS}, refused, refused, ever},
		"no reaper":                            {prctl(unix.PR_SET_CHILD_SUBREAPER, unix.EINVAL), refused, refused, ever},
		"no limits":                            {withheld{Call: unix.SYS_PRLIMIT64, Errno: unix.EPERM}, refused, refused, ever},
		"no process descriptor":                {withheld{Call: unix.SYS_PIDFD_OPEN, Errno: unix.ENOSYS}, refused, refused, ever},
		"no signal by descriptor":              {withheld{Call: unix.SYS_PIDFD_SEND_SIGNAL, Errno: unix.EPERM}, refused, refused, ever},
		"no timer":                             {withheld{Call: unix.SYS_TIMERFD_CREATE, Errno: unix.ENOSYS}, refused, refused, ever},
		"timer not set":                        {withheld{Call: unix.SYS_TIMERFD_SETTIME, Errno: unix.EINVAL}, refused, refused, ever},
		"no session of its own":                {withheld{Call: unix.SYS_SETSID, Errno: unix.EPERM}, refused, refused, ever},
		"killed with descriptors open":         {withheld{Call: unix.SYS_CLOSE_RANGE}, refused, refused, ever},
		"killed before the order is known":     {withheld{Call: unix.SYS_TIMERFD_CREATE}, refused, refused, ever},
		"killed before the rules":              {withheld{Call: unix.SYS_LANDLOCK_CREATE_RULESET}, refused, refused, never},
		"killed between the rules":             {withheld{Call: unix.SYS_LANDLOCK_ADD_RULE}, refused, refused, never},
		"killed with capabilities":             {withheld{Call: unix.SYS_CAPSET}, refused, refused, never},
		"killed before the rules are in force": {withheld{Call: unix.SYS_LANDLOCK_RESTRICT_SELF}, refused, refused, never},
		"killed before the filter":             {withheld{Call: unix.SYS_SECCOMP}, refused, refused, never},
		"killed beside the command":            {withheld{Call: unix.SYS_WAIT4}, refused, lost, ever},
	}
}

// TestFailClosedWithout takes from the launcher, by a filter that it cannot see, what
// it confines by. A call must not run, or run behind a fence that does not need it.
func TestFailClosedWithout(t *testing.T) {
	t.Parallel()
	for name, tt := range deprivations() {
		for late, want := range map[bool]fate{false: tt.early, true: tt.late} {
			when := "from the start"
			if late {
				when = "after the host was tried"
			}
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				g := newGrove(t)
				root, outside := g.dir("ws"), g.dir("outside")
				write(t, filepath.Join(outside, "old.txt"), "outside content\n")
				write(t, filepath.Join(g.dir("data/entail"), "token"), "the token\n")
				before := snapshot(t, outside)
				outcomes := g.driveDeprived(deprivation{tt.withheld, root, oak, late})
				if diff := cmp.Diff(before, snapshot(t, outside)); diff != "" {
					t.Errorf("outside has changed (-before +after):\n%s", diff)
				}
				idle := tt.idle == ever || tt.idle == later && late
				wantFate(t, want, idle, outcomes, snapshotNames(t, root))
			})
		}
	}
}

// wantFate compares what became of a deprived driver's calls, and what they left in
// the workspace, with what was to become of them.
func wantFate(t *testing.T, want fate, idle bool, outcomes []outcome, names []string) {
	t.Helper()
	for i, c := range deprivedCalls() {
		want := want
		switch {
		case c.mode == session.DangerFullAccess:
			if got := outcomes[i].fate(); idle == (got == held) || !idle && !slices.Contains(names, "free") {
				t.Errorf("the call without a fence: %+v", outcomes[i])
			}
			continue
		case want == partly && c.mode == session.ReadOnly:
			want = held
		case want == partly:
			want = refused
		case want == lost && c.op.Shell == nil:
			want = held // a helper waits for no command
		}
		if got := outcomes[i].fate(); got != want {
			t.Errorf("call %d, %s: fate %d, want %d: %+v", i, c.mode, got, want, outcomes[i])
		}
	}
	if wrote := slices.Contains(names, "shell") || slices.Contains(names, "tool"); want != lost && wrote != (want == held) {
		t.Errorf("the workspace holds %v", names)
	}
}

func (o outcome) fate() fate {
	switch {
	case o.Lost:
		return lost
	case o.NotStarted || o.Code == "SANDBOX_UNAVAILABLE":
		return refused
	}
	return held
}

// driveDeprived runs a deprived driver, whose temp directory every user can reach.
func (g grove) driveDeprived(d deprivation) []outcome {
	t := g.t
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	arg, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, depriveArg, string(arg))
	cmd.Env = []string{"TMPDIR=" + g.dir("tmp")}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var outcomes []outcome
	if err := json.Unmarshal(out, &outcomes); err != nil || len(outcomes) != len(deprivedCalls()) {
		t.Fatalf("%v in %q", err, out)
	}
	return outcomes
}

// TestFailClosedIsNoticed runs without a fence what TestFailClosedWithout runs: were
// that to leave no trace outside, the other would show nothing.
func TestFailClosedIsNoticed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	before := snapshot(t, p.outside)
	for _, c := range deprivedCalls() {
		wantDone(t, perform(t, p.ws, session.DangerFullAccess, c.op))
	}
	if snapshot(t, p.outside) == before {
		t.Error("outside has not changed")
	}
}
