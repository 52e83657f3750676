//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

func writing(path, content string) sandbox.Op {
	return sandbox.Op{Write: &sandbox.Write{Path: path, Content: content}}
}

func reading(path string) sandbox.Op { return sandbox.Op{Read: &sandbox.Read{Path: path}} }

// endless is a search that takes longer than any test waits.
func endless(t *testing.T, root string) sandbox.Op {
	t.Helper()
	mkdir(t, root+"/much")
	write(t, root+"/much/0", strings.Repeat("a line that does not match\n", 15<<20/27))
	for i := 1; i < 3000; i++ {
		if err := os.Link(root+"/much/0", root+"/much/"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	return sandbox.Op{Grep: &sandbox.Grep{Path: "much", Pattern: "[a-z ]*[A-Z]"}}
}

// pidfd opens a process, so that its number cannot come to mean another one.
func pidfd(t *testing.T, pid int) *os.File {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("open process %d: %v", pid, err)
	}
	f := os.NewFile(uintptr(fd), "process")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// gone reports whether the process has ended.
func gone(t *testing.T, process *os.File) bool {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}, 0)
	if err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatal(err)
	}
	return n == 1
}

// busy reports whether a process has used a good part of a second of a processor,
// and so is in the middle of what it does.
func busy(t *testing.T, pid int) bool {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(data)[strings.LastIndex(string(data), ")")+1:])
	ticks, err := strconv.Atoi(fields[11])
	return err == nil && ticks > 20
}

// TestTightening switches between two writes: the first is done, the second is
// refused, and the process that could write is gone before anything else starts.
func TestTightening(t *testing.T) {
	t.Parallel()
	const rounds = 1000
	p := newPlace(t)
	file := filepath.Join(p.root, "f")
	for i := range rounds {
		wide := strconv.Itoa(i)
		wantDone(t, perform(t, p.ws, session.WorkspaceWrite, writing("f", wide)))
		old := pidfd(t, p.ws.HelperPID())
		if gone(t, old) {
			t.Fatal("the helper of a workspace that is in use is gone: the test is void")
		}
		wantDenied(t, perform(t, p.ws, session.ReadOnly, writing("f", "no")), session.ReadOnly)
		if !gone(t, old) {
			t.Fatalf("round %d: the helper that may write lives on", i)
		}
		if got := read(t, file); got != wide {
			t.Fatalf("round %d: the file holds %q, want %q", i, got, wide)
		}
		_ = old.Close()
		if t.Failed() {
			return
		}
	}
}

// TestOldHelperIsGoneBeforeTheNextCall has the next call itself look for the helper
// of the one before.
func TestOldHelperIsGoneBeforeTheNextCall(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, writing("f", "x")))
	look := func() string {
		line := fmt.Sprintf("if [ -e /proc/%d ]; then echo there; else echo gone; fi", p.ws.HelperPID())
		return strings.TrimSpace(perform(t, p.ws, session.DangerFullAccess, shell(line)).Output)
	}
	if got := look(); got != "gone" {
		t.Errorf("a helper of another mode is %s", got)
	}
	if p.ws.HelperPID() != 0 {
		t.Error("there is a helper that no file operation has asked for")
	}
	wantDone(t, perform(t, p.ws, session.DangerFullAccess, writing("f", "x")))
	if got := look(); got != "there" {
		t.Errorf("a helper of the same mode is %s", got)
	}
}

// TestHelperIsFenced takes the bounds from a helper: what is left is the kernel's
// fence, which allows no more than they do.
func TestHelperIsFenced(t *testing.T) {
	t.Parallel()
	for _, mode := range session.SandboxModes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			full := mode == session.DangerFullAccess
			for _, tt := range []struct {
				name string
				op   sandbox.Op
				want bool // it is done
			}{
				{"read inside", reading("in.txt"), true},
				{"write inside", writing("new", "x"), mode != session.ReadOnly},
				{"write to the temp directory", writing(p.ws.Temp()+"/t", "x"), mode != session.ReadOnly},
				{"read outside", reading(p.outside + "/old.txt"), full},
				{"write outside", writing(p.outside+"/old.txt", "x"), full},
				{"create outside", writing(p.outside+"/new", "x"), full},
				{"list outside", sandbox.Op{List: &sandbox.List{Path: p.outside}}, full},
				{"read hidden", reading(p.hidden + "/token"), full},
				{"read the system", reading("/etc/passwd"), full},
			} {
				before := snapshot(t, p.outside)
				res, err := p.ws.Unbound(mode, tt.op)
				if err != nil || res.Failed == tt.want {
					t.Errorf("%s: got %+v, %v, want done: %v", tt.name, res, err, tt.want)
				}
				if after := snapshot(t, p.outside); !tt.want && before != after {
					t.Errorf("%s: outside has changed to %s", tt.name, after)
				}
			}
		})
	}
}

// TestHelperIsKilled kills it between two operations, on the way to one, and in the
// middle of one.
func TestHelperIsKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	search := endless(t, p.root)
	kill := func(pid int) {
		fd := pidfd(t, pid)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the helper is gone", func() bool { return gone(t, fd) })
	}
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, writing("f", "one")))
	kill(p.ws.HelperPID())
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, writing("f", "two")))

	pid := p.ws.HelperPID()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := p.ws.Perform(t.Context(), session.WorkspaceWrite, writing("f", "three"), nil)
		done <- err
	}()
	eventually(t, "the job waits in the socket", func() bool { return p.ws.JobWaits() })
	kill(pid)
	if err := <-done; err != nil {
		t.Errorf("a job that was not begun: %v", err)
	}
	if got := read(t, filepath.Join(p.root, "f")); got != "three" {
		t.Errorf("the file holds %q", got)
	}

	pid = p.ws.HelperPID()
	go func() {
		_, err := p.ws.Perform(t.Context(), session.WorkspaceWrite, search, nil)
		done <- err
	}()
	eventually(t, "the helper is at work", func() bool { return busy(t, pid) })
	kill(pid)
	if err := <-done; !errors.Is(err, sandbox.ErrLost) || errors.Is(err, sandbox.ErrNotStarted) {
		t.Errorf("a job in its middle: got %v, want %v", err, sandbox.ErrLost)
	}
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, writing("f", "four")))
}

// TestHelperIsBusy ends an operation, and one that waits for it.
func TestHelperIsBusy(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	search := endless(t, p.root)
	wantDone(t, perform(t, p.ws, session.ReadOnly, reading("in.txt")))
	pid := p.ws.HelperPID()
	fd := pidfd(t, pid)
	ctx, cancel := context.WithCancel(t.Context())
	type outcome struct {
		res sandbox.Result
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		res, err := p.ws.Perform(ctx, session.ReadOnly, search, nil)
		done <- outcome{res, err}
	}()
	eventually(t, "the helper is at work", func() bool { return busy(t, pid) })

	hurried, give := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		_, err := p.ws.Perform(hurried, session.ReadOnly, reading("in.txt"), nil)
		waiting <- err
	}()
	give()
	if err := <-waiting; !errors.Is(err, sandbox.ErrNotStarted) {
		t.Errorf("a call that gave up waiting: got %v, want %v", err, sandbox.ErrNotStarted)
	}
	if gone(t, fd) {
		t.Error("a call that waited has ended another")
	}
	patient := make(chan error, 1)
	go func() {
		_, err := p.ws.Perform(t.Context(), session.ReadOnly, reading("in.txt"), nil)
		patient <- err
	}()
	// A command of the same mode need not wait.
	wantDone(t, perform(t, p.ws, session.ReadOnly, shell("true")))
	cancel()
	if o := <-done; o.err != nil || !o.res.Failed || o.res.TimedOut {
		t.Errorf("got %+v, want a failure that is no timeout", o)
	}
	if !gone(t, fd) {
		t.Error("the helper lives on")
	}
	if err := <-patient; err != nil {
		t.Errorf("a call that waited its turn: %v", err)
	}
}

// TestHelperAndLeases holds operations to the lease of their own call, and a helper
// to that of the last.
func TestHelperAndLeases(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	search := endless(t, p.root)
	_, err := p.ws.Perform(t.Context(), session.WorkspaceWrite, writing("f", "x"), fixed(sandbox.BootTime()-1))
	if !errors.Is(err, sandbox.ErrNotStarted) || !errors.Is(err, sandbox.ErrLeaseOver) {
		t.Errorf("got %v, want not started, lease over", err)
	}
	if _, err := os.Lstat(p.root + "/f"); err == nil {
		t.Error("it was written")
	}
	began := sandbox.BootTime()
	res, err := p.ws.Perform(t.Context(), session.WorkspaceWrite, search, fixed(began+2*time.Second))
	if errors.Is(err, sandbox.ErrNotStarted) || !errors.Is(err, sandbox.ErrLeaseOver) || res.Limit != session.LimitLease {
		t.Errorf("got %+v, %v, want lease over", res, err)
	}
	if p.ws.HelperPID() != 0 {
		t.Error("the helper has outlived the lease")
	}

	// Idle it ends as well, and the next call does not notice.
	if _, err := p.ws.Perform(t.Context(), session.WorkspaceWrite, writing("f", "y"), fixed(sandbox.BootTime()+2*time.Second)); err != nil {
		t.Fatal(err)
	}
	fd := pidfd(t, p.ws.HelperPID())
	eventually(t, "the idle helper is gone", func() bool { return gone(t, fd) })
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, writing("f", "z")))

	// A call without a lease is not held to the one before.
	fd = pidfd(t, p.ws.HelperPID())
	if _, err := p.ws.Perform(t.Context(), session.WorkspaceWrite, writing("f", "a"), fixed(sandbox.BootTime()+2*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantDone(t, perform(t, p.ws, session.WorkspaceWrite, writing("f", "b")))
	later := sandbox.BootTime() + 3*time.Second
	eventually(t, "the lease before has passed", func() bool { return sandbox.BootTime() > later })
	if gone(t, fd) {
		t.Error("a helper without a lease is gone")
	}
}

// TestHelperEndsWithItsDriver kills the driver in the middle of an operation, or
// stops it so that its lease runs out.
func TestHelperEndsWithItsDriver(t *testing.T) {
	t.Parallel()
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGSTOP} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			cmd := startDriver(t, errand{Root: root, Mode: session.ReadOnly, Op: endless(t, root), Lease: time.Second})
			var pid int
			eventually(t, "a helper is at work", func() bool {
				pid = child(t, cmd.Process.Pid)
				return pid != 0 && busy(t, pid)
			})
			fd := pidfd(t, pid)
			later := sandbox.BootTime() + 2*time.Second
			eventually(t, "two leases pass", func() bool { return sandbox.BootTime() > later })
			if gone(t, fd) {
				t.Fatal("the helper is gone while the lease is renewed")
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			began := sandbox.BootTime()
			eventually(t, "the helper is gone", func() bool { return gone(t, fd) })
			if took := sandbox.BootTime() - began; took > 5*time.Second {
				t.Errorf("it took %v: the operation has ended by itself, or the lease is not what ended it", took)
			}
			_ = cmd.Process.Kill()
			if err := cmd.Wait(); err == nil {
				t.Error("the driver ended well")
			}
		})
	}
}

// child returns a process that another one has started, zero for none.
func child(t *testing.T, parent int) int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for pid := range strings.FieldsSeq(string(data)) {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// TestWorkspaceAndItsHelper starts a helper for the first file operation and not
// before, and none is left when the workspace is closed.
func TestWorkspaceAndItsHelper(t *testing.T) {
	t.Parallel()
	r, err := sandbox.New(sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ws, err := r.Workspace(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	wantDone(t, perform(t, ws, session.ReadOnly, shell("true")))
	if ws.HelperPID() != 0 {
		t.Error("a command has started a helper")
	}
	wantDone(t, perform(t, ws, session.ReadOnly, sandbox.Op{List: &sandbox.List{}}))
	fd, pid := pidfd(t, ws.HelperPID()), ws.HelperPID()
	wantDone(t, perform(t, ws, session.ReadOnly, sandbox.Op{List: &sandbox.List{}}))
	if got := ws.HelperPID(); got != pid {
		t.Errorf("the second operation was done by process %d, the first by %d", got, pid)
	}
	if err := errors.Join(ws.Close(), ws.Close()); err != nil {
		t.Error(err)
	}
	if !gone(t, fd) {
		t.Error("the helper has outlived its workspace")
	}
}

// TestRootReplaced refuses to work in a directory that has taken the place of the
// workspace, or on in the one that was moved away.
func TestRootReplaced(t *testing.T) {
	t.Parallel()
	for home, cfg := range homes() {
		t.Run(home, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "ws")
			mkdir(t, root)
			ws := openWorkspace(t, cfg, root)
			wantDone(t, perform(t, ws, session.WorkspaceWrite, writing("f", "x")))
			if err := os.Rename(root, root+".old"); err != nil {
				t.Fatal(err)
			}
			mkdir(t, root)
			for _, op := range []sandbox.Op{writing("f", "y"), reading("f"), shell("echo y >f")} {
				if res := perform(t, ws, session.WorkspaceWrite, op); res.Code != sandbox.CodeUnavailable {
					t.Errorf("got %+v, want code %s", res, sandbox.CodeUnavailable)
				}
			}
			if got := snapshotNames(t, root); len(got) > 0 || read(t, root+".old/f") != "x" {
				t.Errorf("%v was made, or the old file changed", got)
			}
		})
	}
}

// maxIdle is how much memory a helper may hold between two operations.
const maxIdle = 10 << 20

func TestHelperIsSmall(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	big := strings.Repeat("0123456789abcde\n", 1<<20)
	write(t, p.root+"/big", big+"needle\n")
	res := perform(t, p.ws, session.WorkspaceWrite, sandbox.Op{Edit: &sandbox.Edit{Path: "big", Old: "needle", New: "thread"}})
	if wantDone(t, res); read(t, p.root+"/big") != big+"thread\n" {
		t.Error("the edit is wrong")
	}
	pid := p.ws.HelperPID()
	var rss int
	eventually(t, "the helper is small again", func() bool {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(data), "VmRSS:")
		if _, err := fmt.Sscan(after, &rss); err != nil {
			t.Fatal(err)
		}
		return rss<<10 <= maxIdle
	})
	t.Logf("idle: %d KiB", rss)
}

// TestContentIsWhole carries every byte to a file and back, and refuses what is no
// text before it is changed on the way.
func TestContentIsWhole(t *testing.T) {
	t.Parallel()
	text := "\u0001 <&>\u2028\u2029 \U0001F600 \\u0041 \"\n"
	for home, cfg := range homes() {
		ws := openWorkspace(t, cfg, t.TempDir())
		wantDone(t, perform(t, ws, session.WorkspaceWrite, writing("f", text)))
		if got := read(t, ws.Root()+"/f"); got != text {
			t.Errorf("%s: the file holds %q", home, got)
		}
		if res := perform(t, ws, session.WorkspaceWrite, reading("f")); res.Output != text {
			t.Errorf("%s: read %q", home, res.Output)
		}
		for _, op := range []sandbox.Op{writing("f", "a\xffb"), writing("a\xffb", "x"), reading("a\xffb")} {
			if _, err := ws.Perform(t.Context(), session.WorkspaceWrite, op, nil); !errors.Is(err, sandbox.ErrNotStarted) {
				data, _ := json.Marshal(op)
				t.Errorf("%s: %s: got %v, want %v", home, data, err, sandbox.ErrNotStarted)
			}
		}
	}
}

// TestHelperIsTheTreesUser writes as the user of a tree, in each tier that has one,
// and with a launcher that is a file of the worker's.
func TestHelperIsTheTreesUser(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	g := newGrove(t)
	nameless, f, err := sandbox.Config{}.WithNamelessLauncher()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for name, cfg := range map[string]sandbox.Config{
		"best": {}, "uid": sandbox.Config{}.WithBest(session.TierUID), "nameless": nameless,
		"in process": {FilesInProcess: true},
	} {
		r, err := sandbox.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ws := g.open(r, g.dir(name), oak)
		for _, mode := range []session.SandboxMode{session.WorkspaceWrite, session.DangerFullAccess} {
			path := string(mode) + "/f"
			wantDone(t, perform(t, ws, mode, writing(path, "x")))
			for _, made := range []string{path, string(mode)} {
				if got := owner(t, filepath.Join(ws.Root(), made)); got != userOf(oak) {
					t.Errorf("%s, %s: %s belongs to %d, want %d", name, mode, made, got, userOf(oak))
				}
			}
			wantDone(t, perform(t, ws, mode, shell("echo y >>"+path)))
		}
	}
}
