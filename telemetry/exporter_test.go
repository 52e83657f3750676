package telemetry_test

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
	"github.com/entail-fleet/entail/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is an OTLP endpoint that keeps what it takes.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*tracepb.Span
	answers []int // statuses to give first
}

func receive(t *testing.T, answers ...int) *receiver {
	t.Helper()
	r := &receiver{answers: answers}
	r.Server = httptest.NewServer(http.HandlerFunc(r.take))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answers) > 0 {
		status := r.answers[0]
		r.answers = r.answers[1:]
		w.WriteHeader(status)
		return
	}
	body, err := io.ReadAll(req.Body)
	var data tracepb.TracesData
	if err != nil || proto.Unmarshal(body, &data) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, rs := range data.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			r.spans = append(r.spans, ss.GetSpans()...)
		}
	}
}

func (r *receiver) all() []*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*tracepb.Span(nil), r.spans...)
}

// memory is a log that is all there: Follow gives it in batches and then waits.
type memory struct {
	broken  error // what reading events gives, if set
	records []session.Raw
	replica *sessiontest.Replica
	batch   int
	given   chan struct{} // closed when everything was given
}

func hold(records []session.Raw, batch int) *memory {
	return &memory{records: records, replica: sessiontest.Replay(records), batch: batch, given: make(chan struct{})}
}

func (m *memory) Follow(ctx context.Context, _ int, after uint64, fn func([]session.Raw) error) error {
	var rest []session.Raw
	for _, raw := range m.records {
		if raw.StreamSeq > after {
			rest = append(rest, raw)
		}
	}
	for len(rest) > 0 {
		n := min(m.batch, len(rest))
		if err := fn(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	close(m.given)
	<-ctx.Done()
	return ctx.Err()
}

func (m *memory) WaitFor(context.Context, int, uint64) error { return nil }

func (m *memory) Header(id session.ID) (session.Header, error) {
	c, ok := m.replica.Chains[id]
	if !ok {
		return session.Header{}, session.ErrNotFound
	}
	return c.State().Header, nil
}

func (m *memory) Events(id session.ID, from, to session.Seq, fn func(session.Event) error) error {
	if m.broken != nil {
		return m.broken
	}
	for _, e := range m.replica.Events[id] {
		if e.Seq >= from && e.Seq < to {
			if err := fn(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// export runs an exporter until it has been given the whole log.
func export(t *testing.T, dir, url string, m *memory) {
	t.Helper()
	x, err := telemetry.New(telemetry.Config{Endpoint: url, Dir: dir}, m)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx, 0) }()
	select {
	case <-m.given:
	case err := <-ended:
		t.Fatalf("the exporter ended: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the exporter does not get through the log")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// implied counts, straight from SPEC 8.1, the spans of a log: one for each
// session, each turn that ended and each call that has a result in the session's
// own events.
func implied(m *memory) map[string]int {
	want := map[string]int{}
	for id, c := range m.replica.Chains {
		h := c.State().Header
		want[hex.EncodeToString(telemetry.SessionSpan(id))]++
		for _, e := range m.replica.Events[id] {
			if e.Seq < h.FirstLiveSeq {
				continue
			}
			switch p := e.Payload.(type) {
			case *session.TurnEnd:
				want[hex.EncodeToString(telemetry.TurnSpan(id, p.Turn))]++
			case *session.ToolResult:
				want[hex.EncodeToString(telemetry.CallSpan(id, p.CallID))]++
			}
		}
	}
	return want
}

func count(spans []*tracepb.Span) map[string]int {
	got := map[string]int{}
	for _, s := range spans {
		got[hex.EncodeToString(s.GetSpanId())]++
	}
	return got
}

func compare(t *testing.T, got, want map[string]int) {
	t.Helper()
	for id, n := range want {
		if got[id] != n {
			t.Errorf("span %s was exported %d times, want %d", id, got[id], n)
		}
	}
	for id, n := range got {
		if want[id] == 0 {
			t.Errorf("span %s was exported %d times, the log implies none", id, n)
		}
	}
}

func TestTEL01_I10_SpansAreWhatTheLogImplies(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	sessions, forks, spans := 0, 0, 0
	for range 40 {
		log := sessiontest.Generate(t, rng.IntN, 60)
		m := hold(log.Records, 7)
		r := receive(t)
		export(t, t.TempDir(), r.URL, m)
		got := r.all()
		compare(t, count(got), implied(m))
		sessions += len(m.replica.Chains)
		spans += len(got)
		for _, c := range m.replica.Chains {
			if c.State().Header.Seeded() {
				forks++
			}
		}
		for _, s := range got {
			if s.GetEndTimeUnixNano() <= s.GetStartTimeUnixNano() {
				t.Errorf("span %q has no length", s.GetName())
			}
		}
	}
	t.Logf("sessions %d, of them with a prefix %d, spans %d", sessions, forks, spans)
	if sessions < 60 || forks < 10 || spans < 200 {
		t.Errorf("too little was tried: sessions %d, with a prefix %d, spans %d", sessions, forks, spans)
	}
}

// A restart goes on behind what the endpoint has taken: none is missing, none is
// there twice.
func TestTEL03_RestartExportsNothingTwice(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	log := sessiontest.Generate(t, rng.IntN, 200)
	dir := t.TempDir()
	r := receive(t)
	half := len(log.Records) / 2
	export(t, dir, r.URL, hold(log.Records[:half], 5))
	whole := hold(log.Records, 5)
	export(t, dir, r.URL, whole)
	compare(t, count(r.all()), implied(whole))
}

func TestEndpointThatFailsLosesNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	log := sessiontest.Generate(t, rng.IntN, 100)
	m := hold(log.Records, 1000)
	r := receive(t, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusBadGateway)
	export(t, t.TempDir(), r.URL, m)
	compare(t, count(r.all()), implied(m))
}

// An endpoint that refuses one request whole takes the halves of it.
func TestRejectedRequestIsHalved(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	log := sessiontest.Generate(t, rng.IntN, 100)
	m := hold(log.Records, 1000)
	r := receive(t, http.StatusBadRequest)
	export(t, t.TempDir(), r.URL, m)
	compare(t, count(r.all()), implied(m))
}

func TestACursorThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := telemetry.New(telemetry.Config{}, nil); err == nil {
		t.Error("no endpoint was accepted")
	}
	var none *memory
	x, err := telemetry.New(telemetry.Config{Endpoint: "http://127.0.0.1:1", Dir: "/proc/self/mem"}, none)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Run(t.Context(), 0); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a cursor under a file gave %v", err)
	}
}

// A log that cannot be read ends the export where it is: the cursor does not pass
// spans that were never made.
func TestI10_AnUnreadableLogLosesNoSpan(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	m := hold(sessiontest.Generate(t, rng.IntN, 40).Records, 5)
	m.broken = errors.New("the disk is gone")
	dir, r := t.TempDir(), receive(t)
	x, err := telemetry.New(telemetry.Config{Endpoint: r.URL, Dir: dir}, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Run(t.Context(), 0); !errors.Is(err, m.broken) {
		t.Fatalf("the export ended with %v", err)
	}
	m.broken = nil
	export(t, dir, r.URL, m)
	compare(t, count(r.all()), implied(m))
}

// A child's span hangs on its parent's delegating call, a root's on its caller.
func TestSPEC8_3_ParentsOfSessions(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	h := s.Header()
	h.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	root := telemetry.ProjectBirth(h, "")
	if got := hex.EncodeToString(root.Span.GetParentSpanId()); got != "b7ad6b7169203331" {
		t.Errorf("the root hangs on %q, want its caller", got)
	}
	if got := hex.EncodeToString(root.Span.GetTraceId()); got != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the root is in trace %q, want its caller's", got)
	}
	child := h
	child.ID, child.ParentSession, child.Origin = session.ChildID(h.ID, "1.1.0"), h.ID, session.OriginSubagent
	got := telemetry.ProjectBirth(child, "1.1.0").Span.GetParentSpanId()
	if want := telemetry.CallSpan(h.ID, "1.1.0"); string(got) != string(want) {
		t.Errorf("the child hangs on %x, want the delegating call %x", got, want)
	}
}

// L10: how far the export has come is kept on disk and moves once the endpoint has
// taken what was sent. What one process sent, the next does not send to another
// endpoint; what was refused, it does. A span that both have is the same one, so that
// its id is enough to tell a repetition.
func TestL10_TheCursorOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 10))
	log := sessiontest.Generate(t, rng.IntN, 200)
	dir := t.TempDir()
	first, second := receive(t, http.StatusServiceUnavailable), receive(t)
	half := len(log.Records) / 2
	export(t, dir, first.URL, hold(log.Records[:half], 5))
	whole := hold(log.Records, 5)
	export(t, dir, second.URL, whole)
	before, after := count(first.all()), count(second.all())
	if len(before) < 10 || len(after) < 10 {
		t.Fatalf("%d spans went to the first endpoint and %d to the second: too few", len(before), len(after))
	}
	both := map[string]int{}
	for id, n := range before {
		both[id] += n
	}
	for id, n := range after {
		both[id] += n
	}
	compare(t, both, implied(whole))
}
