package coordinator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// badWorld is a deployment in which nothing goes on by itself.
type badWorld struct {
	*deployment
	person, worker                         *nats.Conn
	idle, driven, stopped, asking, unknown session.ID
	relay                                  client.RelayRequest
	methods                                []client.MethodSchema
	table                                  map[string][]refusal
	before                                 traces
}

// traces are what a request could leave behind.
type traces struct {
	Last, Revision uint64
	Orders         int
}

func newBadWorld(t *testing.T) *badWorld {
	t.Helper()
	d := deploy(t, 1, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) })
	w := &badWorld{deployment: d, person: d.broker.Conn(t, broker.Client, "client"), worker: d.broker.Conn(t, broker.Worker, "w1")}
	quiet := func(in *client.CreateRequest) { in.Prompt = "" }
	w.idle, w.stopped, w.driven = d.root(quiet), d.root(quiet), d.root()
	d.claim(w.driven)
	d.step(w.driven, 1)
	w.asking, w.unknown = d.asks(), d.unknown()
	w.relay = d.relayed()
	_, err := d.broker.Conn(t, broker.Coordinator, "coordinator").Request(
		stream.Subject(session.Address{Session: w.stopped, Class: session.ClassInbox}), []byte("half a rec"), 5*time.Second)
	d.must(err)
	d.catchUp()
	var reply client.SchemasReply
	d.must(d.api.Call(t.Context(), client.MethodSchemas, head, &reply))
	w.methods = reply.Methods
	w.table, w.before = w.refusals(), w.traces()
	return w
}

func (w *badWorld) traces() traces {
	w.t.Helper()
	info, err := w.log.Info(w.t.Context(), 0)
	w.must(err)
	_, revision, err := w.log.Settings().Load(w.t.Context())
	w.must(err)
	orders, err := w.log.AllOrders(w.t.Context())
	w.must(err)
	return traces{info.LastSeq, revision, len(orders)}
}

// ask sends a request as it is, and returns the error that it is answered with:
// a delegation's stands in its outcome.
func (w *badWorld) ask(m client.MethodSchema, body []byte) *client.Error {
	w.t.Helper()
	nc, msg := w.person, nats.NewMsg(m.Subject)
	if rest, ok := strings.CutPrefix(m.Subject, client.SubjectWorker+"*"); ok {
		nc, msg.Subject = w.worker, client.SubjectWorker+"w1"+rest
	}
	msg.Data = body
	msg.Header.Set("Authorization", "Bearer "+adminToken)
	answer, err := nc.RequestMsg(msg, 5*time.Second)
	if err != nil {
		w.t.Fatalf("%s with %d bytes: %v", m.Method, len(body), err)
	}
	var reply client.Reply
	w.must(json.Unmarshal(answer.Data, &reply))
	if reply.Error != nil || m.Method != client.MethodDelegate {
		return reply.Error
	}
	var out client.DelegateReply
	w.must(json.Unmarshal(reply.Result, &out))
	return out.Outcomes[0].Error
}

// refused sends a request that makes no sense and wants it refused with a code,
// in words, and without a trace.
func (w *badWorld) refused(t *testing.T, m client.MethodSchema, what string, body []byte, code client.Code, says ...string) {
	t.Helper()
	e := w.ask(m, body)
	if after := w.traces(); after != w.before {
		t.Fatalf("%s: %s: it left %+v, before it there was %+v", m.Method, what, after, w.before)
	}
	if e == nil {
		t.Errorf("%s: %s: it was answered", m.Method, what)
		return
	}
	if e.Code != code {
		t.Errorf("%s: %s: code %s, want %s: %s", m.Method, what, e.Code, code, e.Message)
	}
	for _, alternatives := range says {
		if !slices.ContainsFunc(strings.Split(alternatives, "|"), func(s string) bool { return strings.Contains(e.Message, s) }) {
			t.Errorf("%s: %s: the message has no %q: %s", m.Method, what, alternatives, e.Message)
		}
	}
	if len(e.Message) > 1200 || strings.ContainsFunc(e.Message, func(r rune) bool { return r < ' ' }) {
		t.Errorf("%s: %s: a message of %d bytes, or with control characters: %q", m.Method, what, len(e.Message), e.Message[:min(len(e.Message), 200)])
	}
}

// TestBadRequestsAreRefused breaks one thing at a time of a request of every
// method that the service publishes: its body, its version, each of its fields.
// A method or a field that the tables do not know fails it.
func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	w := newBadWorld(t)
	requests := w.requests()
	if len(w.methods) < 24 || len(w.methods) != len(requests) {
		t.Errorf("the service publishes %d methods, the table has %d, want at least 24", len(w.methods), len(requests))
	}
	judged := map[string]bool{}
	for _, m := range w.methods {
		if requests[m.Method] == nil {
			t.Errorf("method %s has no request in the table", m.Method)
			continue
		}
		good := plain(t, requests[m.Method])
		var s schema
		w.must(json.Unmarshal(m.Request, &s))
		w.badBodies(t, m, encoded(t, good))
		for _, f := range append(s.fields(), field{path: nil, schema: s}) {
			w.badTypes(t, m, good, f)
			w.badValues(t, m, good, f, judged)
		}
	}
	for name := range w.table {
		if !judged[name] {
			t.Errorf("no method has the field %s of the table", name)
		}
	}
	w.confinements(t)
	w.control(t, requests)
}

// badBodies sends what is no request at all.
func (w *badWorld) badBodies(t *testing.T, m client.MethodSchema, good []byte) {
	t.Helper()
	for what, body := range map[string]string{
		"an empty body": "", "zero bytes": "\x00\x00\x00", "half a body": string(good[:len(good)-1]), "an array": "[" + string(good) + "]",
		"a text": `"entail"`, "a number": "7", "two bodies glued": string(good) + string(good), "something behind the body": string(good) + " }",
		"foreign JSON": `{"hello":"world"}`, "a field twice": `{"v":1,` + string(good[1:]), "a name in another case": strings.Replace(string(good), `"v"`, `"V"`, 1),
		"bytes that are no text": string(good[:len(good)-1]) + ",\"\xff\":1}",
	} {
		w.refused(t, m, what, []byte(body), client.CodeInvalid, m.Method, "method schemas")
	}
	for what, body := range map[string]string{"null": "null", "an empty object": "{}"} {
		w.refused(t, m, what, []byte(body), client.CodeVersion, "version 0", "speaks 1")
	}
	for _, version := range []int{-1, 0, 2} {
		w.refused(t, m, fmt.Sprint("version ", version), encoded(t, with(plain(t, json.RawMessage(good)), []string{"v"}, version)),
			client.CodeVersion, fmt.Sprint("version ", version), "speaks 1", "use a client of that version")
	}
}

// badTypes gives a field each JSON type that is not its own, and an object a
// field that it does not have.
func (w *badWorld) badTypes(t *testing.T, m client.MethodSchema, good any, f field) {
	t.Helper()
	at := strings.Join(f.path, ".")
	for _, wrong := range map[string][]any{
		"string": {7, true, []any{}, map[string]any{}}, "boolean": {7, "true", []any{}, map[string]any{}},
		"integer": {"7", 1.5, true, []any{}, map[string]any{}, json.Number("1e40")},
		"object":  {"x", 7, true, []any{}}, "array": {"x", 7, true, map[string]any{}},
	}[f.schema.Type] {
		if len(f.path) > 0 {
			w.refused(t, m, fmt.Sprintf("%s is %v", at, wrong), encoded(t, with(good, f.path, wrong)), client.CodeInvalid, m.Method, f.named()+"|hex digits", "method schemas")
		}
	}
	if f.schema.Type == "object" {
		path := append(slices.Clone(f.path), "unheard")
		w.refused(t, m, strings.Join(path, ".")+" is no field", encoded(t, with(good, path, 1)), client.CodeInvalid, m.Method, `"unheard"`, "method schemas")
	}
	if f.required && f.schema.Type != "object" && at != "v" {
		e := w.ask(m, encoded(t, with(good, f.path, absent{})))
		if e == nil || e.Code == client.CodeInternal || w.traces() != w.before {
			t.Errorf("%s without %s, which its schema requires: %v, it left %+v", m.Method, at, e, w.traces())
		}
	}
}

// badValues gives a field of the right type each value that the tables say it
// does not take.
func (w *badWorld) badValues(t *testing.T, m client.MethodSchema, good any, f field, judged map[string]bool) {
	t.Helper()
	if len(f.path) == 0 || f.schema.Type == "object" {
		return
	}
	exempt := notJudged()
	for _, name := range f.names(m.Method) {
		if _, ok := exempt[name]; ok {
			return
		}
		values, ok := w.table[name]
		if !ok {
			continue
		}
		judged[name] = true
		for _, r := range values {
			request := with(good, f.path, r.value)
			for _, rival := range rivals(m.Method, name) {
				request = with(request, []string{rival}, absent{})
			}
			w.refused(t, m, fmt.Sprintf("%s is %.40q", strings.Join(f.path, "."), fmt.Sprint(r.value)), encoded(t, request), r.code, r.says...)
		}
		return
	}
	t.Errorf("%s: the tables say nothing of the field %s", m.Method, strings.Join(f.path, "."))
}

// control answers the requests that were broken: what was refused was refused
// for what was broken in it.
func (w *badWorld) control(t *testing.T, requests map[string]any) {
	t.Helper()
	for _, m := range inOrder(w.methods) {
		if e := w.ask(m, encoded(t, requests[m.Method])); e != nil {
			t.Errorf("%s: the whole request is refused: %v", m.Method, e)
		}
	}
	if after := w.traces(); after.Last == w.before.Last || after.Revision == w.before.Revision || after.Orders != 1 {
		t.Errorf("requests that make sense left %+v, before them there was %+v", after, w.before)
	}
}
