package sessionstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/entail-fleet/entail/sessionstore"
)

// inChild says that this process is the child of a test, and of which one. A store
// that stops the process leaves its goroutines where they are, so it needs one of
// its own.
const inChild = "SESSIONSTORE_TEST_CHILD"

// child runs a test of this binary in a process of its own and returns what it
// wrote.
func child(t *testing.T, test, arg string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.v", "-test.count=1", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), inChild+"="+arg)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// failing is a file system of which one operation fails, once: a read as on a bad
// disk, a write as on a bad or a full one.
type failing struct {
	mem  *vfs.MemFS
	at   int64               // which; 0 for none
	fail func(op errorfs.Op) // is told in front of it

	n    atomic.Int64
	mu   sync.Mutex // guards what follows
	what string     // failed
}

func (f *failing) fs() vfs.FS {
	return watched(f.mem, func(op errorfs.Op) error {
		if f.n.Add(1) != f.at {
			return nil
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.what = whatOf(op)
		f.fail(op)
		err := syscall.EIO
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && f.at%2 == 0 {
			err = syscall.ENOSPC
		}
		return &os.PathError{Op: "fail", Path: op.Path, Err: err}
	})
}

// failed names what failed, nothing before it has.
func (f *failing) failed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.what
}

// whatOf names an operation and the kind of its file.
func whatOf(op errorfs.Op) string {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return "read " + kindOf(op.Path)
	}
	return "write " + kindOf(op.Path)
}

// stopper is Pebble's logger. Its Fatalf stops the process, as far as a test can
// see: the caller never goes on, and what the disk holds then is kept.
type stopper struct {
	mem     *vfs.MemFS
	once    sync.Once
	image   *vfs.MemFS
	stopped chan struct{}
}

func (*stopper) Infof(string, ...any)  {}
func (*stopper) Errorf(string, ...any) {}

func (p *stopper) Fatalf(string, ...any) {
	p.once.Do(func() {
		p.image = p.mem.CrashClone(vfs.CrashCloneCfg{})
		close(p.stopped)
	})
	select {} // as good as gone
}

// faultRun mirrors records onto a failing file system and looks at the store after
// each step: what it answers is all that was applied, or an error.
type faultRun struct {
	t *testing.T
	o *oracle
	f *failing
	p *stopper

	applied, synced atomic.Uint64
}

func (r *faultRun) config() sessionstore.Config {
	return sessionstore.Tuned(sessionstore.Config{Dir: "mirror", FS: r.f.fs()}, func(o *pebble.Options) {
		smallTables(o)
		o.Logger = r.p
	})
}

// mirror runs the scenario: open, batches with syncs, tables, and once more from
// the disk. An error ends it, as it ends a coordinator's mirror.
func (r *faultRun) mirror() error {
	at := 0
	for _, upTo := range []int{len(r.o.raws) / 2, len(r.o.raws)} {
		s, err := sessionstore.Open(r.config())
		if err != nil {
			return err
		}
		mark, _ := s.Watermark(0)
		if mark.Seq != uint64(at) {
			r.t.Errorf("with %s failing: watermark %d after a restart, want %d", r.f.failed(), mark.Seq, at)
		}
		for ; at < upTo && err == nil; at = min(at+7, upTo) {
			if err = r.look(s); err == nil {
				r.applied.Store(uint64(min(at+7, upTo)))
				err = s.Apply(0, incarnation, r.o.raws[at:min(at+7, upTo)])
			}
			if err == nil {
				err = sessionstore.TrySync(s)
			}
			if err == nil {
				r.synced.Store(r.applied.Load())
			}
		}
		if err == nil {
			err = sessionstore.TryFlush(s)
		}
		if err = errors.Join(err, r.look(s), s.Close()); err != nil {
			return err
		}
	}
	return nil
}

// look reads the whole store.
func (r *faultRun) look(s *sessionstore.Store) error {
	at, err := r.o.prefix(s)
	if _, silent := errors.AsType[*shortError](err); silent {
		r.t.Errorf("with %s failing: %v", r.f.failed(), err)
	}
	if err == nil && at != r.applied.Load() && at != r.synced.Load() {
		r.t.Errorf("with %s failing: the store is at %d, applied are %d", r.f.failed(), at, r.applied.Load())
	}
	return err
}

// outcomes of a run in which one operation failed.
const (
	toldOf  = "told"    // a method returned an error
	halted  = "stopped" // Pebble stopped the process
	nothing = "whole"   // the store did without, and holds everything
)

// run mirrors with the operation at failing, and holds what is left on the disk
// to a prefix that catches up.
func (r *faultRun) run() string {
	t := r.t
	done := make(chan error, 1)
	go func() { done <- r.mirror() }()
	how := nothing
	var image *vfs.MemFS
	select {
	case err := <-done:
		if err != nil {
			how = toldOf
			if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("with %s failing: %v, want the system's error", r.f.failed(), err)
			}
		}
		image = r.f.mem.CrashClone(vfs.CrashCloneCfg{})
	case <-r.p.stopped:
		how, image = halted, r.p.image
	case <-time.After(patience):
		t.Fatalf("with %s failing the store hangs", r.f.failed())
	}
	afterCrash(t, image, r.o, r.applied.Load(), r.synced.Load())
	return how
}

func newFaultRun(t *testing.T, o *oracle, at int64, fail func(*faultRun, errorfs.Op)) *faultRun {
	t.Helper()
	mem := vfs.NewCrashableMem()
	r := &faultRun{t: t, o: o, p: &stopper{mem: mem, stopped: make(chan struct{})}}
	r.f = &failing{mem: mem, at: at, fail: func(op errorfs.Op) { fail(r, op) }}
	return r
}

// fault is what a child says of a run: when an operation is about to fail, and
// how the run ended.
type fault struct {
	At              int64
	What, How       string
	Applied, Synced uint64
	Image           image `json:",omitempty"`
}

const faultLine = "fault: "

func (f fault) say(t *testing.T) {
	t.Helper()
	line, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "\n%s%s\n", faultLine, line)
}

// faultsFrom lets every operation fail, from one on, and says so.
func faultsFrom(t *testing.T, o *oracle, first int64) {
	t.Helper()
	whole := newFaultRun(t, o, 0, nil)
	if how := whole.run(); how != nothing {
		t.Fatalf("without a failure the run ends %s", how)
	}
	for at := first; at <= whole.f.n.Load(); at++ {
		r := newFaultRun(t, o, at, func(r *faultRun, op errorfs.Op) {
			image := imageIn(t, r.f.mem.CrashClone(vfs.CrashCloneCfg{}))
			fault{At: at, What: whatOf(op), Applied: r.applied.Load(), Synced: r.synced.Load(), Image: image}.say(t)
		})
		how := r.run()
		fault{At: at, What: r.f.failed(), How: how}.say(t)
	}
}

// lastFault is the last thing that a child said.
func lastFault(t *testing.T, out string, each func(fault)) (last fault) {
	t.Helper()
	for line := range strings.Lines(out) {
		text, ok := strings.CutPrefix(line, faultLine)
		if !ok {
			continue
		}
		last = fault{}
		if err := json.Unmarshal([]byte(text), &last); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if last.How != "" {
			each(last)
		}
	}
	return last
}

// TestEveryFailingOperation lets each file operation of a run fail once, in turn.
// The store then says so, or Pebble stops the process, or nothing is missing; it
// never answers anything but what was applied. Opened again it is a prefix that
// has what was synced, and catches up.
func TestEveryFailingOperation(t *testing.T) {
	t.Parallel()
	o := newOracle(t, troubled(t, 9, 40))
	if arg := os.Getenv(inChild); arg != "" {
		first, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		faultsFrom(t, o, first)
		return
	}
	counts := map[string]map[string]int{}
	failures := 0
	count := func(f fault) {
		if f.What == "" {
			return // the background did less this time
		}
		failures++
		if counts[f.What] == nil {
			counts[f.What] = map[string]int{}
		}
		counts[f.What][f.How]++
	}
	for first := int64(1); ; {
		out, err := child(t, "TestEveryFailingOperation", strconv.FormatInt(first, 10))
		last := lastFault(t, out, count)
		if err == nil && strings.Contains(out, "--- PASS: TestEveryFailingOperation") {
			break
		}
		why := out[strings.LastIndex(out, faultLine)+1:]
		if last.How != "" || last.At < first || !strings.Contains(why, "fatal error: ") && !strings.Contains(why, "panic: ") {
			t.Fatalf("%v:\n%s", err, why)
		}
		// It stopped for good, as the process of a coordinator would.
		last.How = halted
		count(last)
		afterCrash(t, last.Image.fs(t), o, last.Applied, last.Synced)
		first = last.At + 1
	}
	t.Logf("%d operations failed: %v", failures, counts)
	if failures < 100 {
		t.Errorf("%d operations failed, want 100", failures)
	}
	for what, n := range map[string]int{"write log": 4, "write MANIFEST": 4} {
		if c := counts[what]; c[halted]+c[toldOf] < n {
			t.Errorf("%s: %v, want at least %d to be told or to stop the process", what, c, n)
		}
	}
	if c := counts["read sst"]; c[toldOf] < 2 {
		t.Errorf("read sst: %v, want at least 2 to be told", c)
	}
}

// TestFullDiskStopsTheProcess shows that the process of a mirror that cannot write
// its log ends, with the reason, and that the mirror goes on from there.
func TestFullDiskStopsTheProcess(t *testing.T) {
	t.Parallel()
	raws := troubled(t, 9, 40)
	if dir := os.Getenv(inChild); dir != "" {
		full := atomic.Bool{}
		fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				return syscall.ENOSPC
			}
			return nil
		}))
		s, err := sessionstore.Open(sessionstore.Config{Dir: dir, FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		apply(t, s, raws[:5])
		sessionstore.Sync(t, s)
		full.Store(true)
		apply(t, s, raws[5:])
		sessionstore.Sync(t, s)
		t.Fatal("the process goes on")
	}
	dir := filepath.Join(t.TempDir(), "mirror")
	out, err := child(t, "TestFullDiskStopsTheProcess", dir)
	if err == nil || !strings.Contains(out, "panic: ") || !strings.Contains(out, syscall.ENOSPC.Error()) {
		t.Fatalf("the process ended with %v, want a panic that says why:\n%s", err, out)
	}
	o := newOracle(t, raws)
	s := open(t, sessionstore.Config{Dir: dir})
	at, err := o.prefix(s)
	if err != nil || at < 5 {
		t.Fatalf("the mirror is at %d, %v, want a prefix of 5 at least", at, err)
	}
	apply(t, s, raws[at:])
	if end, err := o.prefix(s); err != nil || end != o.end() {
		t.Errorf("the mirror has caught up to %d of %d, %v", end, o.end(), err)
	}
}
