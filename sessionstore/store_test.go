package sessionstore_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

func TestMain(m *testing.M) {
	if os.Getenv(inChild) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

var equateEmpty = cmpopts.EquateEmpty()

const incarnation = "stream one"

// alarms collects what a store tells.
type alarms struct {
	mu  sync.Mutex
	all []session.Alarm
}

func (a *alarms) add(al session.Alarm) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, al)
}

func (a *alarms) seqs() []uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []uint64
	for _, al := range a.all {
		out = append(out, al.StreamSeq)
	}
	return out
}

func open(t testing.TB, cfg sessionstore.Config) *sessionstore.Store {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s, err := sessionstore.Open(cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func apply(t testing.TB, s *sessionstore.Store, raws []session.Raw) {
	t.Helper()
	if err := s.Apply(0, incarnation, raws); err != nil {
		t.Fatalf("apply: %v", err)
	}
}

// agree holds everything that the store says of the sessions of a tape to what
// the tape folded.
func agree(t *testing.T, s *sessionstore.Store, tp *tape) {
	t.Helper()
	var runnable, asking []session.ID
	for _, id := range tp.ids {
		v, err := s.View(t.Context(), id, uint64(len(tp.raws)))
		if err != nil {
			t.Fatalf("View(%s): %v", id, err)
		}
		if diff := cmp.Diff(tp.states[id], v.State); diff != "" {
			t.Errorf("state of %s (-fold from zero +mirror):\n%s", id, diff)
		}
		if diff := cmp.Diff(tp.logOf(id), events(t, s, id, 0, 0)); diff != "" {
			t.Errorf("log of %s (-written +mirror):\n%s", id, diff)
		}
		if tp.states[id].Runnable() {
			runnable = append(runnable, id)
		}
		if len(tp.states[id].Questions()) > 0 {
			asking = append(asking, id)
		}
		if want := spaceOf(tp, id); v.Tail != lastOf(want) {
			t.Errorf("tail of %s = %d, want %d", id, v.Tail, lastOf(want))
		}
		if diff := cmp.Diff(recordsOf(tp, id), records(t, s, id), equateEmpty); diff != "" {
			t.Errorf("records of %s (-written +mirror):\n%s", id, diff)
		}
	}
	slices.Sort(asking)
	if got, err := s.Asking(0); err != nil || !slices.Equal(got, asking) {
		t.Errorf("Asking = %v, %v, want %v", got, err, asking)
	}
	got, err := s.Runnable(0)
	if err != nil {
		t.Fatalf("Runnable: %v", err)
	}
	slices.Sort(runnable)
	if diff := cmp.Diff(runnable, got); diff != "" {
		t.Errorf("runnable (-folds +index):\n%s", diff)
	}
}

// spaceOf are the records under a session's own subjects.
func spaceOf(tp *tape, id session.ID) []session.Raw {
	var out []session.Raw
	for _, raw := range tp.raws {
		if raw.Address.Space() == id {
			out = append(out, raw)
		}
	}
	return out
}

func recordsOf(tp *tape, id session.ID) []session.Raw {
	var out []session.Raw
	for i, raw := range tp.raws {
		if raw.Address.Space() == id || i == tp.births[id] {
			out = append(out, raw)
		}
	}
	return out
}

func lastOf(raws []session.Raw) uint64 {
	if len(raws) == 0 {
		return 0
	}
	return raws[len(raws)-1].StreamSeq
}

func events(t *testing.T, s *sessionstore.Store, id session.ID, from, to session.Seq) []session.Event {
	t.Helper()
	var out []session.Event
	err := s.Events(id, from, to, func(e session.Event) error {
		out = append(out, e)
		return nil
	})
	if err != nil {
		t.Fatalf("Events(%s, %d, %d): %v", id, from, to, err)
	}
	return out
}

func records(t *testing.T, s *sessionstore.Store, id session.ID) []session.Raw {
	t.Helper()
	var out []session.Raw
	err := s.Records(id, func(r session.Raw) error {
		out = append(out, r)
		return nil
	})
	if err != nil {
		t.Fatalf("Records(%s): %v", id, err)
	}
	return out
}

// family writes a tree with children, a fork by delegation, one by a person and
// one of a fork.
func family(t testing.TB) *tape {
	t.Helper()
	tp := newTape(t)
	a := tp.root(&session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()})
	tp.turn(a)
	tp.add(a, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: person()})
	spawned := tp.delegate(a, session.Spawn)
	forked := tp.delegate(a, session.Fork)
	tp.turn(spawned)
	tp.turn(forked)
	tp.delegate(forked, session.Fork)
	tp.add(a, session.ClassPolicy, &session.SandboxSwitch{Mode: session.DangerFullAccess, By: person()})
	tp.fork(a, tp.states[a].InheritAll())
	b := tp.root()
	tp.add(b, session.ClassInbox, tp.message(session.FromUser))
	return tp
}

func TestReopenedMirrorAgrees(t *testing.T) {
	t.Parallel()
	tp := family(t)
	dir := t.TempDir()
	for i := range tp.raws {
		s, err := sessionstore.Open(sessionstore.Config{Dir: dir})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		apply(t, s, tp.raws[i:i+1])
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	agree(t, open(t, sessionstore.Config{Dir: dir}), tp)
}

func TestRedeliveryIsIgnored(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s := open(t, sessionstore.Config{})
	for i := range tp.raws {
		apply(t, s, tp.raws[max(0, i-3):i+1])
	}
	apply(t, s, tp.raws)
	agree(t, s, tp)
	last := tp.raws[len(tp.raws)-1].StreamSeq
	if m, ok := s.Watermark(0); !ok || m.Seq != last || m.Incarnation != incarnation {
		t.Errorf("Watermark = %+v, %v, want %d of %q", m, ok, last, incarnation)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	t.Run("a directory in use", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		open(t, sessionstore.Config{Dir: dir})
		_, err := sessionstore.Open(sessionstore.Config{Dir: dir})
		if err == nil || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), dir) {
			t.Errorf("Open = %v, want in use, with the directory", err)
		}
	})
	t.Run("a newer format", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		s := open(t, sessionstore.Config{Dir: dir})
		sessionstore.SetFormat(t, s, "7")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := sessionstore.Open(sessionstore.Config{Dir: dir})
		if !errors.Is(err, session.ErrFormat) || !strings.Contains(err.Error(), "format 7") || !strings.Contains(err.Error(), "up to 2") {
			t.Errorf("Open = %v, want ErrFormat naming 7 and 2", err)
		}
	})
	t.Run("a foreign store", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		s := open(t, sessionstore.Config{Dir: dir})
		apply(t, s, family(t).raws)
		sessionstore.SetFormat(t, s, "")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := sessionstore.Open(sessionstore.Config{Dir: dir}); !errors.Is(err, sessionstore.ErrDamaged) {
			t.Errorf("Open = %v, want ErrDamaged", err)
		}
	})
	t.Run("a file in the directory's place", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sessionstore.Open(sessionstore.Config{Dir: file}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("Open = %v, want an error with the path", err)
		}
	})
	t.Run("a directory that cannot be written", func(t *testing.T) {
		t.Parallel()
		_, err := sessionstore.Open(sessionstore.Config{Dir: "mirror", FS: readOnlyFS{vfs.NewMem()}})
		if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "not writable") {
			t.Errorf("Open = %v, want not writable", err)
		}
	})
}

// readOnlyFS gives no lock, as a directory that the user may only read. The
// tests may run as root, whom the disk refuses nothing.
type readOnlyFS struct{ vfs.FS }

func (readOnlyFS) Lock(name string) (io.Closer, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrPermission}
}

func TestClosedStoreAnswersNobody(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s, err := sessionstore.Open(sessionstore.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, tp.raws)
	v, err := s.View(t.Context(), tp.ids[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	go func() { waits <- s.WaitFor(t.Context(), 0, 1<<40) }()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if err := <-waits; !errors.Is(err, sessionstore.ErrClosed) {
		t.Errorf("WaitFor = %v, want ErrClosed", err)
	}
	if _, ok := v.Link(0); ok {
		t.Error("a view of a closed store found a link")
	}
	if v.Has("m1") {
		t.Error("a view of a closed store found a message")
	}
	_, viewErr := s.View(t.Context(), tp.ids[0], 0)
	_, listErr := s.Sessions(sessionstore.ListOptions{})
	for name, err := range map[string]error{
		"View": viewErr, "Sessions": listErr, "Apply": s.Apply(0, incarnation, tp.raws),
		"Empty": s.Empty(t.Context(), tp.ids[0], 0),
	} {
		if !errors.Is(err, sessionstore.ErrClosed) {
			t.Errorf("%s = %v, want ErrClosed", name, err)
		}
	}
}
