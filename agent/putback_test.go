package agent_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// homeless publishes the geneses of so many roots whose workspace no worker has.
func (w *world) homeless(n int) {
	w.t.Helper()
	stored, revision, err := w.log.Settings().Load(w.t.Context())
	w.must(err)
	d, err := policy.NewDeployment(stored, revision)
	w.must(err)
	nc := w.broker.Conn(w.t, broker.Coordinator, "coordinator")
	dir := filepath.Join(w.t.TempDir(), "away")
	before, err := w.log.Info(w.t.Context(), 0)
	w.must(err)
	for range n {
		id, err := session.RootID(ulid.Make().String(), 1)
		w.must(err)
		rec, err := delegation.Root{
			ID: id, Tenant: "default", By: session.Party{Kind: session.Person, ID: "ada"}, Time: 1, Cwd: dir, Label: "homeless", Prompt: "go",
			Workspace: session.Workspace{Kind: session.WorkspaceShared, Label: "default", Path: dir, ID: "w-away"},
			Provider:  "scripted", Model: "test", Script: "sessions: {}",
		}.Genesis(d)
		w.must(err)
		headers, body, err := session.EncodeRecord(rec)
		w.must(err)
		m := nats.NewMsg(stream.Subject(rec.Address))
		m.Data = body
		for k, v := range headers {
			m.Header[k] = []string{v}
		}
		w.must(nc.PublishMsg(m))
	}
	w.must(nc.Flush())
	eventually(w.t, "all are in the stream", func() bool {
		now, err := w.log.Info(w.t.Context(), 0)
		w.must(err)
		return now.LastSeq == before.LastSeq+uint64(n)
	})
}

// homes counts how often a worker says that a session waits for its workspace.
type homes struct{ n atomic.Int64 }

func (h *homes) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (h *homes) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h *homes) WithGroup(string) slog.Handler                { return h }
func (h *homes) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "waits for its workspace") {
		h.n.Add(1)
	}
	return nil
}

// Thousands of sessions wait for a workspace that no worker has. Their hints are
// put back, and do not stand before that of a session which is started now: of
// those that wait, less than a quarter is looked at before it is driven. How
// many come back is a matter of time, so the bound is a loose one here. Why one
// waits is shown. In a run of make chaos there are twenty thousand.
func TestBacklogDoesNotDelayWhatIsNew(t *testing.T) {
	t.Parallel()
	waiting := 1_000
	if os.Getenv("CHAOS_SECONDS") != "" {
		waiting = 20_000
	}
	w := newWorld(t, unswept)
	w.homeless(waiting)
	var h homes
	w.work("w1", 4, func(c *agent.Config) { c.Logger = slog.New(&h) })
	eventually(t, "each was looked at and put back", func() bool { return h.n.Load() >= int64(waiting) })
	for range 3 {
		began := h.n.Load()
		id := w.root("sessions:\n  root:\n    - text: done\n")
		w.until(id, "claimed", func(s session.State) bool { return s.Epoch == 1 })
		if n := h.n.Load() - began; n > int64(waiting/4) {
			t.Errorf("%d hints that were put back were looked at before the new session was driven, want %d at most", n, waiting/4)
		}
		w.idle(id)
	}
	eventually(t, "it is shown why one waits", func() bool {
		var out client.ListReply
		w.must(w.api.Call(t.Context(), client.MethodList, client.ListRequest{Head: head}, &out))
		shown := 0
		for _, s := range out.Sessions {
			if s.Why != "" {
				shown++
				if s.Status != client.StatusWaiting || !strings.Contains(s.Why, "w1: ") || !strings.Contains(s.Why, "away") {
					t.Fatalf("%s is %s: %q, want waiting, with the worker and the workspace", s.Header.ID, s.Status, s.Why)
				}
			}
		}
		return shown > 0
	})
}

// Why a session waits is shown as long as it does, and no longer.
func TestWhySessionWaitsIsShownAndForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unswept)
	w.listen("w1")
	id := w.root(oneWrite)
	w.idle(id)
	w.drained()
	back := w.swap()
	w.send(id, "again")
	show := func() (s client.Summary) {
		w.must(w.api.Call(t.Context(), client.MethodShow, client.SessionRequest{Head: head, ID: id}, &s))
		return s
	}
	eventually(t, "it is shown why it waits", func() bool {
		s := show()
		return s.Status == client.StatusWaiting && strings.HasPrefix(s.Why, "w1: ") && strings.Contains(s.Why, w.dir+" has no mark")
	})
	back()
	w.until(id, "a second turn", func(s session.State) bool { return s.Turn == 2 && s.Open == nil })
	eventually(t, "it does not wait any more", func() bool { s := show(); return s.Status == client.StatusIdle && s.Why == "" })
}
