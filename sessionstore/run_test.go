package sessionstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

// patience bounds how long a test waits for what must come.
const patience = 30 * time.Second

// interval is how often the tests' stores look at an idle stream.
const interval = 5 * time.Millisecond

// run mirrors a feed until the test ends. The channel gives what Run returned.
func run(t testing.TB, s *sessionstore.Store, f sessionstore.Feed, partition int) (stop func(), result <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		out <- s.Run(ctx, f, partition)
	}()
	t.Cleanup(func() {
		cancel()
		<-gone
	})
	return cancel, out
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func wait(t testing.TB, s *sessionstore.Store, seq uint64) {
	t.Helper()
	if err := s.WaitFor(within(t), 0, seq); err != nil {
		t.Fatalf("WaitFor(%d): %v", seq, err)
	}
}

// ended gives what Run returned, within patience.
func ended(t testing.TB, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-within(t).Done():
		t.Fatal("Run goes on")
		return nil
	}
}

func TestRunMirrorsWhatComes(t *testing.T) {
	t.Parallel()
	tp := family(t)
	f := newFeed(tp.raws[:2])
	s := open(t, sessionstore.Config{Interval: interval})
	stop, result := run(t, s, f, 0)
	wait(t, s, 2)
	f.change(func() { f.raws = append(f.raws, tp.raws[2:5]...) })
	wait(t, s, 5)
	f.restart(func() { f.raws = append(f.raws, tp.raws[5:7]...) })
	wait(t, s, 7)
	f.restart(func() { f.err = errDown })
	f.change(func() { f.err = nil; f.raws = slices.Clone(tp.raws) })
	wait(t, s, uint64(len(tp.raws)))
	agree(t, s, tp)
	stop()
	if err := ended(t, result); err != nil {
		t.Errorf("Run = %v, want nil after its context ended", err)
	}
}

// Records gather only while nobody waits for them: with an hour for it, whoever
// waits is answered all the same, before and after the records have come.
func TestRecordsGatherWhileNobodyWaits(t *testing.T) {
	t.Parallel()
	tp := family(t)
	f := newFeed(tp.raws[:1])
	s := open(t, sessionstore.Config{Gather: time.Hour})
	run(t, s, f, 0)
	for n := 1; n < len(tp.raws); n++ {
		if n%2 == 0 {
			f.change(func() { f.raws = append(f.raws, tp.raws[n]) })
			wait(t, s, uint64(n+1))
			continue
		}
		waited := make(chan error, 1)
		go func() { waited <- s.WaitFor(within(t), 0, uint64(n+1)) }()
		f.change(func() { f.raws = append(f.raws, tp.raws[n]) })
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
	}
	agree(t, s, tp)
}

func TestRunHoldsAPartitionAlone(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s := open(t, sessionstore.Config{})
	run(t, s, newFeed(tp.raws), 0)
	wait(t, s, 1)
	if err := s.Run(t.Context(), newFeed(tp.raws), 0); err == nil {
		t.Error("a second Run of the partition started")
	}
}

// losses are the ways in which a stream can turn out to have lost something that
// was mirrored. Each edits a stream of which all is mirrored.
func losses(tp *tape) map[string]func(f *feed) {
	other := tp.raws[len(tp.raws)-1]
	other.Body = []byte("{}\n")
	return map[string]func(f *feed){
		"the stream ends before the watermark":  func(f *feed) { f.raws = f.raws[:len(f.raws)-1] },
		"the stream is empty":                   func(f *feed) { f.raws, f.first = nil, 0 },
		"the stream is gone":                    func(f *feed) { f.gone = true },
		"another incarnation":                   func(f *feed) { f.incarnation = "stream two" },
		"another record at the watermark":       func(f *feed) { f.raws[len(f.raws)-1] = other },
		"no record at the watermark":            func(f *feed) { f.raws[len(f.raws)-1].StreamSeq = 0 },
		"the records at the beginning are gone": func(f *feed) { f.first = 3 },
		"the feed says so":                      func(f *feed) { f.err = session.ErrLoss },
	}
}

// stopped holds a partition to what a loss means: every view of it is refused,
// whatever was mirrored of it can be read raw and is listed.
func stopped(t *testing.T, s *sessionstore.Store, tp *tape, err error) {
	t.Helper()
	if !errors.Is(err, session.ErrLoss) {
		t.Errorf("Run = %v, want ErrLoss", err)
	}
	id := tp.ids[0]
	_, viewErr := s.View(t.Context(), id, 0)
	for name, err := range map[string]error{
		"View":    viewErr,
		"Empty":   s.Empty(t.Context(), id, 0),
		"WaitFor": s.WaitFor(t.Context(), 0, 1),
		"Events":  s.Events(id, 0, 0, func(session.Event) error { return nil }),
		"Apply":   s.Apply(0, incarnation, nil),
		"Run":     s.Run(t.Context(), newFeed(tp.raws), 0),
	} {
		if !errors.Is(err, session.ErrLoss) {
			t.Errorf("%s = %v, want ErrLoss", name, err)
		}
	}
	if got := records(t, s, id); len(got) == 0 {
		t.Error("no records are left to repair from")
	}
	if all, err := s.Sessions(sessionstore.ListOptions{}); err != nil || len(all) != len(tp.ids) {
		t.Errorf("Sessions = %d, %v, want %d", len(all), err, len(tp.ids))
	}
}

func TestLossStopsThePartition(t *testing.T) {
	t.Parallel()
	for name, edit := range losses(family(t)) {
		t.Run(name+" at start", func(t *testing.T) {
			t.Parallel()
			tp := family(t)
			s := open(t, sessionstore.Config{Patience: interval})
			apply(t, s, tp.raws)
			f := newFeed(tp.raws)
			edit(f)
			_, result := run(t, s, f, 0)
			stopped(t, s, tp, ended(t, result))
		})
		t.Run(name+" at a reset", func(t *testing.T) {
			t.Parallel()
			tp := family(t)
			s := open(t, sessionstore.Config{Interval: time.Hour, Patience: interval})
			f := newFeed(tp.raws)
			_, result := run(t, s, f, 0)
			wait(t, s, uint64(len(tp.raws)))
			f.restart(func() { edit(f) })
			stopped(t, s, tp, ended(t, result))
		})
		t.Run(name+" while idle", func(t *testing.T) {
			t.Parallel()
			tp := family(t)
			s := open(t, sessionstore.Config{Interval: interval, Patience: interval})
			f := newFeed(tp.raws)
			_, result := run(t, s, f, 0)
			wait(t, s, uint64(len(tp.raws)))
			f.mu.Lock()
			edit(f) // nobody is woken
			f.mu.Unlock()
			stopped(t, s, tp, ended(t, result))
		})
	}
}

func TestLossWhileReading(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(raws []session.Raw) []session.Raw{
		"a sequence is missing": func(raws []session.Raw) []session.Raw { return slices.Delete(raws, 4, 5) },
		"a record says so": func(raws []session.Raw) []session.Raw {
			raws[4].Hole = true
			return raws
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tp := family(t)
			s := open(t, sessionstore.Config{})
			f := newFeed(tp.raws)
			f.raws = edit(f.raws)
			_, result := run(t, s, f, 0)
			if err := ended(t, result); !errors.Is(err, session.ErrLoss) {
				t.Errorf("Run = %v, want ErrLoss", err)
			}
			if _, err := s.View(t.Context(), tp.ids[0], 0); !errors.Is(err, session.ErrLoss) {
				t.Errorf("View = %v, want ErrLoss", err)
			}
			if m, _ := s.Watermark(0); m.Seq != 3 {
				t.Errorf("watermark = %d, want 3: the batch with the gap counts for nothing", m.Seq)
			}
		})
	}
}

func TestLossOfOnePartitionLeavesTheOthers(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s := open(t, sessionstore.Config{})
	run(t, s, newFeed(tp.raws), 0)
	broken := newFeed(nil)
	broken.first = 5
	_, result := run(t, s, broken, 1)
	if err := ended(t, result); !errors.Is(err, session.ErrLoss) {
		t.Fatalf("Run of partition 1 = %v, want ErrLoss", err)
	}
	wait(t, s, uint64(len(tp.raws)))
	agree(t, s, tp)
}

// A leader of three may say for a moment that it holds less than one of its copies
// delivered. The mirror goes on once it says otherwise; what stays is a loss.
func TestALeaderThatIsBehindIsNoLoss(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s := open(t, sessionstore.Config{Interval: interval, Patience: time.Minute})
	f := newFeed(tp.raws[:len(tp.raws)-1])
	run(t, s, f, 0)
	wait(t, s, uint64(len(f.raws)))
	f.restart(func() { f.raws = f.raws[:len(f.raws)-1] })
	before, _ := f.looked()
	for n := before; n < before+3; {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("nobody looks at the stream")
		}
		n, _ = f.looked()
	}
	f.change(func() { f.raws = slices.Clone(tp.raws) })
	wait(t, s, uint64(len(tp.raws)))
	agree(t, s, tp)
}

func TestWaitersHearOfALoss(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s := open(t, sessionstore.Config{Interval: interval})
	f := newFeed(tp.raws)
	run(t, s, f, 0)
	heard := make(chan error, 1)
	go func() {
		_, err := s.View(t.Context(), tp.ids[0], 1<<40)
		heard <- err
	}()
	wait(t, s, uint64(len(tp.raws)))
	f.restart(func() { f.incarnation = "stream two" })
	if err := ended(t, heard); !errors.Is(err, session.ErrLoss) {
		t.Errorf("View = %v, want ErrLoss", err)
	}
}

func TestAnUnreachableFeedIsNoLoss(t *testing.T) {
	t.Parallel()
	tp := family(t)
	s := open(t, sessionstore.Config{Interval: interval})
	f := newFeed(tp.raws[:4])
	run(t, s, f, 0)
	wait(t, s, 4)
	f.mu.Lock()
	f.err = errDown
	asked := f.infos
	f.mu.Unlock()
	for tick := time.NewTicker(interval); ; <-tick.C { // looked at at least twice while down
		if n, _ := f.looked(); n >= asked+2 {
			tick.Stop()
			break
		}
	}
	f.restart(func() { f.err, f.raws = nil, slices.Clone(tp.raws) })
	wait(t, s, uint64(len(tp.raws)))
	agree(t, s, tp)
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	tp := family(t)
	other := tp.raws[2]
	other.Body = []byte("{}\n")
	for name, c := range map[string]struct {
		incarnation string
		raws        []session.Raw
	}{
		"a gap":                           {incarnation, tp.raws[4:]},
		"another incarnation":             {"stream two", tp.raws[3:]},
		"another record at the watermark": {incarnation, []session.Raw{other}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, sessionstore.Config{})
			apply(t, s, tp.raws[:3])
			if err := s.Apply(0, c.incarnation, c.raws); !errors.Is(err, session.ErrLoss) {
				t.Errorf("Apply = %v, want ErrLoss", err)
			}
			if err := s.WaitFor(t.Context(), 0, 0); !errors.Is(err, session.ErrLoss) {
				t.Errorf("WaitFor = %v, want the partition's loss", err)
			}
		})
	}
}
