package agent_test

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// partitions is a fleet's partition count.
const partitions = 8

// wide is a world of eight partitions with two coordinators. Its broker can be
// started again.
type wide struct {
	*world
	cfg broker.Config
	ids []broker.Identity
}

func newWide(t *testing.T) *wide {
	t.Helper()
	w := &wide{world: &world{t: t, dir: t.TempDir(), parts: partitions}, cfg: broker.Config{Dir: t.TempDir(), Partitions: partitions}, ids: natstest.Identities(t)}
	w.serve()
	t.Cleanup(func() { w.must(w.broker.Close()) })
	log := w.logOf(broker.Provisioner, "provisioner")
	w.must(log.Provision(t.Context(), stream.ProvisionConfig{AckWait: time.Second}))
	s := policy.DefaultSettings()
	s.Lease = policy.Duration(500 * time.Millisecond) // of the sweep
	stored, err := s.Encode()
	w.must(err)
	_, err = w.logOf(broker.Coordinator, "coordinator").Settings().Update(t.Context(), stored, 0)
	w.must(err)
	for range 2 {
		w.coordinate()
	}
	w.api = client.New(w.broker.Conn(t, broker.Client, "client"), client.Config{Token: token})
	return w
}

// serve starts the broker, on the port that it had before.
func (w *wide) serve() {
	w.t.Helper()
	s, err := broker.Start(w.t.Context(), w.cfg, w.ids)
	w.must(err)
	w.broker = natstest.Server{Server: s}
	creds, _ := s.Credentials(broker.Client, "client")
	at, err := url.Parse(creds.URL)
	w.must(err)
	w.cfg.Port, err = strconv.Atoi(at.Port())
	w.must(err)
}

func (w *wide) logOf(role broker.Role, name string) *stream.Log {
	w.t.Helper()
	log, err := stream.New(w.broker.Conn(w.t, role, name), stream.Config{Partitions: partitions})
	w.must(err)
	return log
}

// start makes a root in a partition.
func (w *wide) start(partition int, script string) (session.ID, error) {
	w.t.Helper()
	for {
		id, err := session.RootID(ulid.Make().String(), partitions)
		w.must(err)
		if id.Partition() != partition {
			continue
		}
		return id, w.api.Call(w.t.Context(), client.MethodCreate, client.CreateRequest{
			Head: head, ID: id, Cwd: w.dir, Label: "root", Prompt: "go",
			Model: client.Model{Provider: "scripted", Model: "test", Script: script},
		}, nil)
	}
}

// each starts one root in each of some partitions.
func (w *wide) each(in []int, script string) []session.ID {
	w.t.Helper()
	var ids []session.ID
	for _, p := range in {
		id, err := w.start(p, script)
		w.must(err)
		ids = append(ids, id)
	}
	return ids
}

// lose takes a partition's stream away while the broker is down.
func (w *wide) lose(partition int) {
	w.t.Helper()
	w.must(w.broker.Close())
	gone := 0
	w.must(filepath.WalkDir(w.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == stream.StreamName(partition) {
			gone++
			w.must(os.RemoveAll(path))
			return fs.SkipDir
		}
		return err
	}))
	if gone != 1 {
		w.t.Fatalf("%d directories of the stream were found, want 1", gone)
	}
	w.serve()
}

func (w *wide) list() (out client.ListReply) {
	w.t.Helper()
	w.must(w.api.Call(w.t.Context(), client.MethodList, client.ListRequest{Head: head}, &out))
	return out
}

// Eight partitions, two coordinators and two workers. Each partition is swept, each
// coordinator mirrors all, the sessions of each end though the worker that drove
// them dies, and when the stream of one is lost, those of the seven others start
// and end, and listings say what is missing.
func TestEightPartitions(t *testing.T) {
	t.Parallel()
	w := newWide(t)
	all := make([]int, partitions)
	for p := range all {
		all[p] = p
	}
	const quick = "sessions:\n  root:\n    - text: done\n"
	held := w.each(all, fmt.Sprintf("sessions:\n  root:\n    - {text: done, wait_for: %q}\n", w.path("go")))
	for p, id := range held {
		if id.Partition() != p {
			t.Fatalf("session %s is of partition %d, want %d", id, id.Partition(), p)
		}
	}
	eventually(t, "the sweep has nudged a session of each partition", func() bool {
		return !slices.ContainsFunc(held, func(id session.ID) bool { return len(payloads[*session.Nudge](w.open(id).Events())) == 0 })
	})

	soon := func(c *agent.Config) { c.Lease = time.Second }
	first := w.work("w1", partitions, soon)
	for _, id := range held {
		w.until(id, "asking the model", func(s session.State) bool { return s.Open != nil && s.Open.StepOpen })
	}
	w.work("w2", partitions, soon)
	first.die(t)
	w.touch("go")
	for _, id := range append(held, w.each(all, quick)...) {
		if s := w.idle(id); s.Claim.Worker != "w2" {
			t.Errorf("session %s was ended by %s, want w2", id, s.Claim.Worker)
		}
	}
	for p := range partitions {
		info, err := w.log.Info(t.Context(), p)
		w.must(err)
		for i, store := range w.stores {
			w.must(store.WaitFor(t.Context(), p, info.LastSeq))
			if mark, _ := store.Watermark(p); info.LastSeq < 8 || mark.Seq < info.LastSeq {
				t.Errorf("coordinator %d has %d of %d records of partition %d, want all, and some", i, mark.Seq, info.LastSeq, p)
			}
		}
	}
	if out := w.list(); len(out.Lost) != 0 || len(out.Sessions) != 2*partitions {
		t.Errorf("%d sessions and %v lost, want %d and none", len(out.Sessions), out.Lost, 2*partitions)
	}

	const lost = 3
	w.lose(lost)
	eventually(t, "both coordinators know the loss", func() bool {
		return !slices.ContainsFunc(w.stores, func(s *sessionstore.Store) bool { return s.WaitFor(t.Context(), lost, 0) == nil })
	})
	rest := slices.DeleteFunc(slices.Clone(all), func(p int) bool { return p == lost })
	for _, id := range w.each(rest, quick) {
		w.idle(id)
	}
	if _, err := w.start(lost, quick); client.CodeOf(err) != client.CodeLoss && client.CodeOf(err) != client.CodeNotFound {
		t.Errorf("a new session of the lost partition: %v, want it refused", err)
	}
	for range 4 { // both coordinators
		out := w.list()
		if len(out.Lost) != 1 || !strings.Contains(out.Lost[0], fmt.Sprintf("partition %d is stopped", lost)) {
			t.Errorf("the list says that %q is lost, want partition %d", out.Lost, lost)
		}
		stopped := 0
		for _, s := range out.Sessions {
			switch is := s.Header.ID.Partition() == lost; {
			case is != (s.Status == client.StatusStopped):
				t.Errorf("session %s of partition %d is %s (%s)", s.Header.ID, s.Header.ID.Partition(), s.Status, s.Stopped)
			case is:
				stopped++
			}
		}
		if stopped != 2 || len(out.Sessions) != 2*partitions+len(rest) {
			t.Errorf("%d sessions are listed, %d of the lost partition, want %d and 2", len(out.Sessions), stopped, 2*partitions+len(rest))
		}
	}
}
