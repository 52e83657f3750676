package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// said is a logger that keeps what it is told.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), text)
}

// What a worker says of a coordinator that is of no use.
const (
	saysUseless = "a coordinator's copy of a session is of no use"
	saysSilent  = "no coordinator gives cold records"
)

// lied has a worker ask somebody else for cold records, who answers what answer
// makes of a request; all else goes to nobody. A nil answer is none.
func (w *world) lied(name string, answer answer) func(*agent.Config) {
	w.t.Helper()
	liar := w.broker.Conn(w.t, broker.Coordinator, "coordinator")
	to := name + "." + ulid.Make().String()
	_, err := liar.Subscribe(client.SubjectWorker+to+"."+client.MethodCold, func(m *nats.Msg) {
		var in client.ColdRequest
		err := json.Unmarshal(m.Data, &in)
		if reply := answer(in); err == nil && reply != nil {
			var body []byte
			if body, err = json.Marshal(reply); err == nil {
				err = m.Respond(body)
			}
		}
		if err != nil {
			w.t.Errorf("lie: %v", err)
		}
	})
	w.must(err)
	w.must(liar.Flush())
	nc := w.broker.Conn(w.t, broker.Worker, name)
	return func(cfg *agent.Config) { cfg.Client = client.New(nc, client.Config{Worker: to}) }
}

type answer = func(client.ColdRequest) *client.Reply

// gives answers with records after those that were asked for, n in a reply.
func gives(w *world, records []session.Raw, n int) answer {
	return func(in client.ColdRequest) *client.Reply {
		var out client.ColdReply
		left := n
		for _, r := range records {
			if r.StreamSeq <= in.After {
				continue
			}
			if out.More = left == 0; out.More {
				break
			}
			out.Records = client.Pack(out.Records, r)
			left--
		}
		result, err := json.Marshal(out)
		if err != nil {
			w.t.Errorf("lie: %v", err)
		}
		return &client.Reply{Version: client.APIVersion, Result: result}
	}
}

// forge writes records again, with every event that change changes, as a log that
// holds in itself: links and all.
func (w *world) forge(records []session.Raw, change func(session.Payload) session.Payload) []session.Raw {
	w.t.Helper()
	var out []session.Raw
	var link session.Link
	drafts := func(events []session.Event) []session.Draft {
		var d []session.Draft
		for _, e := range events {
			d = append(d, session.Draft{Time: e.Time, Payload: change(e.Payload)})
		}
		return d
	}
	for _, raw := range records {
		rec, err := session.DecodeRecord(raw)
		w.must(err)
		if rec.Own == nil {
			birth, err := session.ComposeBirth(rec.Birth.Header, session.Link{}, drafts(rec.Birth.First.Events)...)
			w.must(err)
			rec.Birth, link = &birth, birth.First.After
		} else {
			sec, err := session.Compose(rec.Own.Session, rec.Own.Class, rec.Own.Seq, link, drafts(rec.Own.Events)...)
			w.must(err)
			rec.Own, link = &sec, sec.After
		}
		headers, body, err := session.EncodeRecord(rec)
		w.must(err)
		out = append(out, session.Raw{StreamSeq: raw.StreamSeq, Address: raw.Address, Headers: headers, Body: body})
	}
	return out
}

// folds folds a root's records, each of which must be valid.
func (w *world) folds(records []session.Raw) session.State {
	w.t.Helper()
	links := map[session.Seq]session.Link{}
	chain, _, err := session.Open(records[0], session.Prefix{}, func(s session.Seq) (session.Link, bool) { l, ok := links[s]; return l, ok })
	w.must(err)
	for _, r := range records[1:] {
		if j, err := chain.Next(r); err != nil || j.Ruling != session.Valid {
			w.t.Fatalf("record at %d: ruling %v, %v", r.StreamSeq, j.Ruling, err)
		}
	}
	return chain.State()
}

// unswept keeps the sweep from adding to logs that nobody drives.
func unswept(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) }

// widens turns every switch to read-only into one to full access.
func widens(p session.Payload) session.Payload {
	if s, ok := p.(*session.SandboxSwitch); ok && s.Mode == session.ReadOnly {
		wide := *s
		wide.Mode = session.DangerFullAccess
		return &wide
	}
	return p
}

// politer changes what people said.
func politer(p session.Payload) session.Payload {
	if m, ok := p.(*session.UserMessage); ok && m.Source.Kind == session.FromUser {
		other := *m
		other.Content += " please"
		return &other
	}
	return p
}

// moved is a record at another place.
func moved(r session.Raw, streamSeq uint64) session.Raw {
	r.StreamSeq = streamSeq
	return r
}

// restricted is a session with a long history that a person then made read-only.
// Its worker died in its next turn, which tries to write: what its log ends with,
// a record of class turn, would not stop another history.
func (w *world) restricted() session.ID {
	w.t.Helper()
	k := w.work("w1", 1)
	id := w.root("sessions:\n  root:\n" + steps(6) + fmt.Sprintf(`    - text: first
    - wait_for: %q
      calls: [{id: w, tool: write, args: {path: never, content: x}}]
    - text: second
`, w.path("go")))
	w.idle(id)
	w.must(w.api.Call(w.t.Context(), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: id, Sandbox: session.ReadOnly}, nil))
	w.send(id, "again")
	w.until(id, "asking the model", func(s session.State) bool { return s.Turn == 2 && s.Open != nil && s.Open.StepOpen })
	k.die(w.t)
	w.letGo()
	return id
}

// A coordinator gives a worker a log that is old, cut, changed, another one's, or
// nothing. The worker finds out by what the stream itself holds and reads there
// what it needs.
func TestColdRecordsAreProven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unswept)
	other := w.root("sessions: {root: [{text: done}]}")
	id := w.restricted()
	log, stray := w.space(id), w.space(other)
	want := w.folds(log)
	if len(log) < 25 || want.Knobs.Sandbox.Value != session.ReadOnly {
		t.Fatalf("%d records fold to %q, want a long read-only session", len(log), want.Knobs.Sandbox.Value)
	}
	pieces := func(records []session.Raw) answer { return gives(w, records, 100) }
	without := func(i int) []session.Raw { return slices.Delete(slices.Clone(log), i, i+1) }
	first := gives(w, log, 3)(client.ColdRequest{})
	refusal := &client.Reply{Version: client.APIVersion, Error: &client.Error{Code: client.CodeNotFound, Message: "no such session"}}
	garbage := &client.Reply{Version: client.APIVersion, Result: json.RawMessage(`{"records":"AAAA","more":true}`)}
	for name, tt := range map[string]struct {
		answer answer
		says   string // nothing where the copy is of use, and the stream need not be read from the start
	}{
		"honest":                         {gives(w, log, 7), ""},
		"behind":                         {gives(w, log[:len(log)-5], 7), ""},
		"without what comes last":        {pieces(without(len(log) - 2)), ""},
		"changed in itself whole":        {pieces(w.forge(log, widens)), saysUseless},
		"changed and behind":             {pieces(w.forge(log, widens)[:len(log)-1]), saysUseless},
		"changed at its start":           {pieces(w.forge(log, politer)), saysUseless},
		"without a record in the middle": {pieces(without(9)), saysUseless},
		"without its genesis":            {pieces(log[1:]), saysUseless},
		"another session's":              {pieces(stray), saysUseless},
		"mixed with another session's":   {pieces(append(slices.Clone(log[:4]), moved(stray[0], log[4].StreamSeq))), saysUseless},
		"the same piece for ever":        {func(client.ColdRequest) *client.Reply { return first }, saysUseless},
		"empty":                          {pieces(nil), saysUseless},
		"garbage":                        {func(client.ColdRequest) *client.Reply { return garbage }, saysUseless},
		"refused":                        {func(client.ColdRequest) *client.Reply { return refusal }, saysUseless},
		"nothing":                        {func(client.ColdRequest) *client.Reply { return nil }, saysSilent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told said
			cfg := agent.Config{Lease: lease, Logger: slog.New(slog.NewTextHandler(&told, nil))}
			w.lied("w2", tt.answer)(&cfg)
			count, counting := w.counting("w2")
			counting(&cfg)
			r, done, err := agent.NewReplicas(cfg, time.Minute, 10, 1<<30).Open(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			if s, _ := r.State(); s.Link != want.Link || s.Knobs.Sandbox.Value != session.ReadOnly {
				t.Errorf("the log folds to %q at seq %d, want what the stream says: %q at %d", s.Knobs.Sandbox.Value, s.Next, want.Knobs.Sandbox.Value, want.Next)
			}
			for _, says := range []string{saysUseless, saysSilent} {
				if n := told.count(says); n > 1 || (n == 1) != (says == tt.says) {
					t.Errorf("it was said %d times: %s", n, says)
				}
			}
			if _, read := count.of(log); (read == len(log)) != (tt.says != "") || read == 0 || tt.says == "" && read > 6 {
				t.Errorf("%d of %d records were read from the stream", read, len(log))
			}
		})
	}
}

// A worker that takes a session over is given one that a person restricted as one
// that may do anything. Nothing happens that the log does not allow.
func TestNoEffectUnderAForgedLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.restricted()
	var told said
	w.work("w2", 2, w.lied("w2", gives(w, w.forge(w.space(id), widens), 100)), func(cfg *agent.Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&told, nil))
	})
	w.until(id, "its second turn's end", func(s session.State) bool { return s.Turn == 2 && s.Open == nil })
	if r := resultOf(t, w.open(id).Events(), "2.1.0"); !r.Denied || exists(w.path("never")) || told.count(saysUseless) == 0 {
		t.Errorf("the write came to %+v, and the copy was called useless %d times; want it refused after that", r, told.count(saysUseless))
	}
}

// The forged log of the tests above holds in itself: what refuses it is the record
// in the stream that does not link to it, and that alone.
func TestAForgedLogHoldsInItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	records := w.space(w.restricted())
	forged := w.forge(records, widens)
	if got := w.folds(forged); got.Knobs.Sandbox.Value != session.DangerFullAccess || got.Next != w.folds(records).Next {
		t.Errorf("the forged log folds to %q at seq %d, want full access at the same seq", got.Knobs.Sandbox.Value, got.Next)
	}
	if same := w.forge(records, func(p session.Payload) session.Payload { return p }); w.folds(same).Link != w.folds(records).Link {
		t.Error("a log forged without a change has other links: the forger is wrong")
	}
}

// A fork's prefix comes from a mirror with it, and is proven with it: its first
// link covers what it inherits.
func TestPrefixFromAMirrorIsProven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.work("w1", 2)
	id := w.root("sessions:\n  root:\n" + steps(5) + `    - text: first
    - calls: [{id: d, tool: delegate, args: {kind: fork, label: child, prompt: p}}]
    - text: second
  child:
` + steps(5) + "    - text: the answer\n")
	w.idle(id)
	w.send(id, "delegate")
	w.until(id, "its second turn's end", func(s session.State) bool { return s.Turn == 2 && s.Open == nil })
	w.drained()
	k.die(t)
	child := children(w.open(id).Events())[0]
	want := w.open(child).Events()
	logs := map[session.ID][]session.Raw{id: nil, child: nil}
	for of := range logs {
		w.must(w.store.Records(of, func(r session.Raw) error { logs[of] = append(logs[of], r); return nil }))
	}
	if len(logs[child]) < 15 || want[0].Session != id || want[len(want)-1].Session != child {
		t.Fatalf("the child has %d records and its log begins in %s, want a long fork of %s", len(logs[child]), want[0].Session, id)
	}
	lied := maps.Clone(logs)
	lied[id] = w.forge(logs[id], func(p session.Payload) session.Payload {
		if r, ok := p.(*session.ToolResult); ok {
			other := *r
			other.Content = "never seen"
			return &other
		}
		return p
	})
	w.folds(lied[id]) // the prefix holds in itself
	for name, tt := range map[string]struct {
		logs    map[session.ID][]session.Raw
		useless int
	}{"honest": {logs, 0}, "another prefix": {lied, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told said
			count, counting := w.counting("w2")
			cfg := agent.Config{Lease: lease, Logger: slog.New(slog.NewTextHandler(&told, nil))}
			w.lied("w2", func(in client.ColdRequest) *client.Reply { return gives(w, tt.logs[in.ID], 100)(in) })(&cfg)
			counting(&cfg)
			r, done, err := agent.NewReplicas(cfg, time.Minute, 10, 1<<30).Open(t.Context(), child)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			if diff := cmp.Diff(want, r.Events()); diff != "" {
				t.Errorf("the fork's log (-stream +mirror)\n%s", diff)
			}
			if n := told.count(saysUseless); n != tt.useless {
				t.Errorf("said %d times that the copy is useless, want %d", n, tt.useless)
			}
			if _, read := count.of(logs[id]); (read > 0) != (tt.useless > 0) {
				t.Errorf("%d records of the parent were read from the stream", read)
			}
		})
	}
}

// Nobody answers, for several sessions. The worker says so once, waits for an
// answer once, and asks again later.
func TestSilentCoordinatorIsSaidOnce(t *testing.T) {
	t.Parallel()
	const sessions = 3
	w := newWorld(t)
	k := w.work("w1", 2)
	var ids []session.ID
	for range sessions {
		ids = append(ids, w.root("sessions:\n  root:\n"+steps(8)+"    - text: done\n"))
	}
	for _, id := range ids {
		w.idle(id)
	}
	w.drained()
	k.die(t)
	var told said
	asked := make(chan session.ID, 100)
	cfg := agent.Config{Log: w.log, Lease: lease, Logger: slog.New(slog.NewTextHandler(&told, nil))}
	w.lied("w2", func(in client.ColdRequest) *client.Reply { asked <- in.ID; return nil })(&cfg)
	all := agent.NewReplicas(cfg, time.Minute, 10, 1<<30)
	for _, id := range ids {
		r, done, err := all.Open(t.Context(), id)
		w.must(err)
		want, _ := w.open(id).State()
		if s, _ := r.State(); s.Link != want.Link {
			t.Errorf("%s was read up to seq %d, want %d", id, s.Next, want.Next)
		}
		done()
	}
	if n := told.count(saysSilent); n != 1 || len(asked) != 1 {
		t.Errorf("said %d times after asking %d times, want 1 and 1", n, len(asked))
	}
}

// A short log is not asked for: the stream gives it as quickly.
func TestShortLogsAreReadFromTheStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.root("sessions: {root: [{text: done}]}")
	for i := range agent.FewEvents {
		w.send(id, fmt.Sprint("message ", i))
	}
	var asked atomic.Int64
	cfg := agent.Config{Log: w.log, Lease: lease}
	w.lied("w1", func(client.ColdRequest) *client.Reply { asked.Add(1); return nil })(&cfg)
	short := w.root("sessions: {root: [{text: done}]}")
	for _, tt := range []struct {
		id   session.ID
		want int64
	}{{short, 0}, {id, 1}} {
		_, done, err := agent.NewReplicas(cfg, time.Minute, 10, 1<<30).Open(t.Context(), tt.id)
		w.must(err)
		done()
		if n := asked.Load(); n != tt.want {
			t.Errorf("a coordinator was asked %d times, want %d", n, tt.want)
		}
	}
}
