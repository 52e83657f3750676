package scenario_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/agent/model/modeltest"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// told reports whether an event is a driver's word to the model, in a form.
func told(form string) func(*session.UserMessage) bool {
	return func(m *session.UserMessage) bool { return m.Source.Kind == session.FromPlugin && m.Source.Form == form }
}

// serve gives workers an endpoint that answers as choose says.
func serve(t *testing.T, choose func(modeltest.Request) modeltest.Step) (*modeltest.Server, map[string]broker.Secret) {
	t.Helper()
	srv := modeltest.NewServerFunc(t, choose)
	srv.Key = "a-key"
	return srv, map[string]broker.Secret{
		"OPENAI_BASE_URL": broker.NewSecret(srv.URL), "OPENAI_API_KEY": broker.NewSecret(srv.Key),
	}
}

func endpointModel(in *client.CreateRequest) {
	in.Model = client.Model{Provider: "openai", Model: "m"}
}

// A child is told its scope before its first model request, in order, and not in
// the system prompt: that one is the same for the parent, in the log and on the
// wire.
func TestINH22_RuntimeContextComesFirst(t *testing.T) {
	t.Parallel()
	w := own(t)
	srv, endpoints := serve(t, func(r modeltest.Request) modeltest.Step {
		child := !strings.Contains(string(r.Body), "hand it over")
		switch {
		case child || r.Steps() > 0:
			return modeltest.Reply{Text: []string{"over"}}.Step()
		default:
			return modeltest.Reply{Calls: []modeltest.Call{{
				ID: "call_0", Name: "delegate", Arguments: `{"kind":"spawn","label":"c","prompt":"look around"}`,
			}}}.Step()
		}
	})
	w.must(w.coordinate())
	w.must(w.work("w1", 2, endpoints))
	root := w.root("", readOnly, endpointModel, func(in *client.CreateRequest) { in.Prompt = "hand it over" })
	w.turns(root, 1)
	child := w.child(root, "1.1.0")
	w.ended(child)

	events := w.events(child)
	snapshots := where(events, told("snapshot"))
	requests := where[*session.RequestHeader](events, nil)
	if len(snapshots) != 1 || len(requests) != 1 || snapshots[0] > requests[0] {
		t.Fatalf("snapshots at %v, requests at %v, want one of each in this order:\n%s", snapshots, requests, list(events))
	}
	snapshot, _ := events[snapshots[0]].Payload.(*session.UserMessage)
	if diff := cmp.Diff([]string{"sandbox:policy", "approval:policy", "subagent:delegation"}, snapshot.Source.Sections); diff != "" {
		t.Errorf("sections (-want +got):\n%s", diff)
	}
	if events[snapshots[0]].Class != session.ClassTurn || !inOrder(snapshot.Content, "read-only", "never", "delegation") {
		t.Errorf("the context, of class %s, is %q", events[snapshots[0]].Class, snapshot.Content)
	}
	own, parents := payloads[*session.RequestHeader](events)[0], payloads[*session.RequestHeader](w.events(root))[0]
	if own.System == "" || own.System != parents.System {
		t.Errorf("system prompts %s of the child and %s of the parent", own.System, parents.System)
	}
	wantUniform(t, srv.Requests(), snapshot.Content)
}

// inOrder reports whether words stand in a text one after the other.
func inOrder(text string, words ...string) bool {
	for _, word := range words {
		_, rest, ok := strings.Cut(text, word)
		if !ok {
			return false
		}
		text = rest
	}
	return true
}

// wantUniform wants one system prompt in all requests, without the lines of a
// context, and the context before anything that the model said.
func wantUniform(t *testing.T, requests []modeltest.Request, context string) {
	t.Helper()
	said := 0
	for _, r := range requests {
		if r.First("system") != requests[0].First("system") || r.First("system") == "" {
			t.Errorf("two system prompts:\n%s\n%s", requests[0].First("system"), r.First("system"))
		}
		for line := range strings.Lines(context) {
			if strings.Contains(r.First("system"), strings.TrimSpace(line)) {
				t.Errorf("the system prompt holds %q", line)
			}
		}
		isContext := func(m modeltest.Message) bool { return m.Role == "user" && strings.Contains(m.Content, context) }
		if slices.ContainsFunc(r.Messages, isContext) {
			said++
		}
	}
	if said == 0 {
		t.Error("no request tells the context")
	}
}

// A person's switch, in a running session and in an idle one, is one event and one
// notice before the next model step. A switch to what is in force is nothing, and
// what a delegation seeds is no switch.
func TestAPR08_ASwitchIsToldOnce(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{tool: bash, args: {command: "touch running; while [ ! -e %[1]s/switched ]; do sleep 0.05; done"}}]
    - text: seen
    - text: seen again
    - calls: [{tool: delegate, args: {kind: spawn, label: c, prompt: look}}]
    - text: over
`, w.ws))
	w.seen(w.at("running"))
	if got := w.set(root, approvalsTo(session.Never)); got.Events != 1 {
		t.Errorf("the switch is %d events, want 1", got.Events)
	}
	if got := w.set(root, approvalsTo(session.Never)); got.Events != 0 {
		t.Errorf("the same value again is %d events, want 0", got.Events)
	}
	w.file(w.at("switched"), "")
	w.turns(root, 1)
	w.set(root, approvalsTo(session.Ask))
	w.send(root, "go on")
	w.turns(root, 2)
	w.send(root, "hand it over")
	w.turns(root, 3)

	events := w.events(root)
	switches := where[*session.ApprovalSwitch](events, nil)
	notices := where(events, told("notice"))
	requests := where[*session.RequestHeader](events, nil)
	if len(switches) != 2 || len(notices) != 2 {
		t.Fatalf("switches at %v, notices at %v, want two of each:\n%s", switches, notices, list(events))
	}
	for i, words := range [][]string{{"approval policy", `"ask"`, `"never"`}, {"approval policy", `"never"`, `"ask"`}} {
		at, e := notices[i], events[switches[i]]
		next := slices.IndexFunc(requests, func(r int) bool { return r > switches[i] })
		if at < switches[i] || at > requests[next] {
			t.Errorf("notice %d at %d, want it between its switch at %d and the next request at %d", i, at, switches[i], requests[next])
		}
		m, _ := events[at].Payload.(*session.UserMessage)
		if !inOrder(m.Content, words...) {
			t.Errorf("notice %d says %q, want %q", i, m.Content, words)
		}
		p, _ := e.Payload.(*session.ApprovalSwitch)
		if e.Class != session.ClassPolicy || p.Source != "" || p.By == nil || p.By.ID != "ada" {
			t.Errorf("switch %d is of class %s, from %q by %+v", i, e.Class, p.Source, p.By)
		}
	}
	child := w.events(w.child(root, "3.1.0"))
	wantKnobs(t, child, pinned(0))
	if n := where(child, told("notice")); len(n) > 0 {
		t.Errorf("the child was told of a switch that nobody made:\n%s", list(child))
	}
}
