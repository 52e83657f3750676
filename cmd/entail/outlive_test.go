package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/telemetry"
)

// commands runs commands against a server, as world does against its own.
func (r *running) commands(t *testing.T) *world {
	t.Helper()
	return &world{t: t, dir: r.dir, work: t.TempDir()}
}

// summary is a session as a program sees it.
func (w *world) summary(id string) client.Summary {
	w.t.Helper()
	var s client.Summary
	w.must(json.Unmarshal([]byte(w.entail("session", "show", id, "-o", "json")), &s))
	return s
}

// events reads a log.
func (w *world) events(id string) []logged {
	w.t.Helper()
	var out []logged
	for line := range strings.Lines(w.entail("session", "tail", id, "-o", "json")) {
		var l logged
		w.must(json.Unmarshal([]byte(line), &l))
		l, err := read(l.Session, l.Class, l.Event)
		w.must(err)
		out = append(out, l)
	}
	return out
}

// TestMessagesOutliveKilledWorkers sends messages from several sides while workers
// are killed in the middle of turns, and cancels a session that has unread ones. A
// message whose sending succeeded is consumed once, in the order of the log, or
// cancelled by name (SPEC 7.2, 7.4, I7).
func TestMessagesOutliveKilledWorkers(t *testing.T) {
	t.Parallel()
	const senders = 3
	r := up(t)
	w := r.commands(t)
	story := filepath.Join(w.work, "story.yaml")
	steps := strings.Repeat("    - calls: [{id: c, tool: bash, args: {command: sleep 0.1}}]\n    - text: heard\n", 200)
	w.must(os.WriteFile(story, []byte("sessions:\n  root:\n"+steps), 0o600))
	id := strings.TrimSpace(w.entail("session", "new", "--cwd", w.work, "--model", "scripted:"+story))
	var sending sync.WaitGroup
	var sent atomic.Int64
	enough := make(chan struct{})
	for s := range senders {
		sending.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond) // no faster than they are read
			defer tick.Stop()
			for n := 0; ; n++ {
				if got := (command{args: []string{"send", id, fmt.Sprintf("%d-%d", s, n), "--dir", w.dir}}).run(); got.exit != exitDone {
					t.Errorf("send: exit %d: %s", got.exit, got.err)
				}
				sent.Add(1)
				select {
				case <-enough:
					return
				case <-tick.C:
				}
			}
		})
	}
	for steps, kills := 0, 0; kills < 3; kills++ {
		var s client.Summary
		w.eventually(func() bool {
			s = w.summary(id)
			return s.Status == client.StatusRunning && s.Worker != "" && s.Steps > steps
		})
		steps = s.Steps + 1
		r.kill(t, s.Worker)
	}
	close(enough)
	sending.Wait()
	w.eventually(func() bool { s := w.summary(id); return s.Pending == 0 && s.Status == client.StatusIdle })
	var accepted, consumed []session.Seq
	last := map[string]int{}
	for _, e := range w.events(id) {
		switch p := e.payload.(type) {
		case *session.UserMessage:
			if e.Class != session.ClassInbox {
				continue
			}
			accepted = append(accepted, e.seq)
			var n int
			sender, number, _ := strings.Cut(p.Content, "-")
			if _, err := fmt.Sscan(number, &n); err != nil || n != last[sender] {
				t.Errorf("message %q of seq %d comes after %d of its sender's", p.Content, e.seq, last[sender])
			}
			last[sender] = n + 1
		case *session.Consumed:
			consumed = append(consumed, p.Seqs...)
		}
	}
	if diff := cmp.Diff(accepted, consumed); diff != "" || int64(len(accepted)) != sent.Load() {
		t.Errorf("%d messages were sent, %d accepted; consumed (-accepted +consumed):\n%s", sent.Load(), len(accepted), diff)
	}
	w.cancelledByName(r, id)
}

// cancelledByName sends messages while nobody can read them and cancels.
func (w *world) cancelledByName(r *running, id string) {
	t := w.t
	t.Helper()
	for _, name := range []string{"w1", "w2"} { // nobody reads now
		w.must(syscall.Kill(r.pids[name], syscall.SIGSTOP))
		w.eventually(func() bool { return stopped(r.pids[name]) })
	}
	for range 3 {
		w.entail("send", id, "too late")
	}
	w.entail("cancel", id)
	for _, name := range []string{"w1", "w2"} {
		w.must(syscall.Kill(r.pids[name], syscall.SIGCONT))
	}
	w.eventually(func() bool { return w.summary(id).Status == client.StatusEnded })
	log := w.events(id)
	var late []session.Seq
	for _, e := range log {
		if p, ok := e.payload.(*session.UserMessage); ok && p.Content == "too late" {
			late = append(late, e.seq)
		}
	}
	end, ok := log[len(log)-1].payload.(*session.End)
	if !ok || len(late) != 3 {
		t.Fatalf("%d late messages, and the log ends with %s", len(late), log[len(log)-1].typ)
	}
	if diff := cmp.Diff(late, end.Cancelled); diff != "" {
		t.Errorf("cancelled by name (-late +cancelled):\n%s", diff)
	}
}

// spans is an OTLP endpoint that keeps what it was sent, by span id.
type spans struct {
	mu  sync.Mutex
	all map[string][]string // each form in which it came
}

func (s *spans) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var data tracepb.TracesData
	if err != nil || proto.Unmarshal(body, &data) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range data.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				id, form := hex.EncodeToString(span.GetSpanId()), span.String()
				if !slices.Contains(s.all[id], form) {
					s.all[id] = append(s.all[id], form)
				}
			}
		}
	}
}

// forms says in how many forms each span came.
func (s *spans) forms() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for id, forms := range s.all {
		out[id] = len(forms)
	}
	return out
}

// TestSpansOutliveKilledCoordinators kills the coordinator, which sends the spans,
// whenever a session has ended its turn. What the endpoint has
// then is what the logs imply: a death loses no span and makes none another, and
// a fork's prefix is not sent again (SPEC 8.1, 8.2, I10).
func TestSpansOutliveKilledCoordinators(t *testing.T) {
	t.Parallel()
	endpoint := &spans{all: map[string][]string{}}
	srv := httptest.NewServer(endpoint)
	t.Cleanup(srv.Close)
	r := up(t, "--otlp-endpoint", srv.URL)
	w := r.commands(t)
	story := filepath.Join(w.work, "story.yaml")
	w.must(os.WriteFile(story, []byte(`sessions:
  root:
    - calls: [{id: c1, tool: delegate, args: {kind: fork, label: child, prompt: look}}, {id: c2, tool: list, args: {path: .}}]
    - text: fine
    - text: fine again
    - text: and again
  child:
    - calls: [{id: c1, tool: write, args: {path: new, content: x}}]
    - text: seen
`), 0o600))
	var roots []string
	for range 3 {
		id := strings.TrimSpace(w.entail("session", "new", "--cwd", w.work, "--model", "scripted:"+story, "go"))
		w.until("idle (completed", "session", "show", id)
		r.kill(t, "coordinator") // whatever of it was sent, and whatever was noted as sent
		roots = append(roots, id)
	}
	w.entail("session", "fork", roots[0], "once more")
	r.kill(t, "coordinator")
	want, seeded := map[string]int{}, 0
	w.eventually(func() bool {
		want, seeded = map[string]int{}, 0
		for line := range strings.Lines(w.entail("session", "ls", "-o", "json")) {
			var s client.Summary
			w.must(json.Unmarshal([]byte(line), &s))
			if !settled(s) {
				return false
			}
			if s.Header.FirstLiveSeq > 0 {
				seeded++
			}
			w.implied(s.Header, want)
		}
		return len(endpoint.forms()) >= len(want)
	})
	if diff := cmp.Diff(want, endpoint.forms()); diff != "" || len(want) < 3*5 || seeded == 0 {
		t.Errorf("%d spans are implied, %d sessions have a prefix; forms of each (-want +got):\n%s", len(want), seeded, diff)
	}
}

// implied adds the spans of a session to those that logs imply: one for the
// session, for each turn that ended and for each call that has a result.
func (w *world) implied(h session.Header, want map[string]int) {
	w.t.Helper()
	want[hex.EncodeToString(telemetry.SessionSpan(h.ID))] = 1
	for _, e := range w.events(string(h.ID)) {
		if e.seq < h.FirstLiveSeq {
			continue
		}
		switch p := e.payload.(type) {
		case *session.TurnEnd:
			want[hex.EncodeToString(telemetry.TurnSpan(h.ID, p.Turn))] = 1
		case *session.ToolResult:
			want[hex.EncodeToString(telemetry.CallSpan(h.ID, p.CallID))] = 1
		}
	}
}
