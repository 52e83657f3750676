package scenario_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// twoWrites takes two turns.
const twoWrites = `
sessions:
  root:
    - calls: [{tool: write, args: {path: a.txt, content: x}}]
    - text: over
    - calls: [{tool: write, args: {path: b.txt, content: x}}]
    - text: over
`

// publish puts a record at the end of a session's log by hand: its headers are
// right, its body is what it is. It returns the record's stream sequence.
func (w *world) publish(id session.ID, class session.Class, body string) uint64 {
	w.t.Helper()
	s, _ := w.open(id).State()
	after := session.EventLink(s.Link, id, class, []byte(strings.TrimSuffix(body, "\n")))
	msg := nats.NewMsg(stream.Subject(session.Address{Session: id, Class: class}))
	msg.Data = []byte(body)
	msg.Header.Set(session.HeaderFormat, strconv.Itoa(s.Format))
	msg.Header.Set(session.HeaderSeq, fmt.Sprint(s.Next))
	msg.Header.Set(session.HeaderCount, "1")
	msg.Header.Set(session.HeaderLinkName, s.Link.String()+" "+after.String())
	msg.Header.Set(session.HeaderEpoch, strconv.FormatUint(s.Epoch, 10))
	msg.Header.Set(session.HeaderWriter, "worker w1 i1")
	answer, err := w.nc.RequestMsg(msg, patience)
	w.must(err)
	var ack struct{ Seq uint64 }
	if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.Seq == 0 {
		w.t.Fatalf("the broker answered %s", answer.Data)
	}
	return ack.Seq
}

// show waits until the mirror has come to a stream sequence and returns what it
// has of a session.
func (w *world) show(id session.ID, seq uint64) client.Summary {
	w.t.Helper()
	var out client.Summary
	eventually(w.t, func() string { return fmt.Sprintf("the mirror came to %d: %+v", seq, out) }, func() bool {
		err := w.api.Call(w.t.Context(), client.MethodShow, client.SessionRequest{Head: head, ID: id}, &out)
		if client.CodeOf(err) == client.CodeNotFound {
			return false
		}
		w.must(err)
		return out.Tail >= seq
	})
	return out
}

// mirrored returns a log's lines as a coordinator has them.
func (w *world) mirrored(id session.ID) []string {
	w.t.Helper()
	var out []string
	var reply client.EventsReply
	for from := session.Seq(0); ; from = reply.Next {
		reply = client.EventsReply{}
		w.call(client.MethodEvents, client.EventsRequest{Head: head, ID: id, From: from}, &reply)
		if len(reply.Lines) == 0 {
			return out
		}
		for _, l := range reply.Lines {
			out = append(out, string(l))
		}
	}
}

func lines(events []session.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, string(e.Line))
	}
	return out
}

// torn are bodies that a writer, a disk or a glue can leave of a record.
func (w *world) torn(p session.Payload) map[string]string {
	w.t.Helper()
	line, err := session.Encode(0, 1, p)
	w.must(err)
	whole := string(line) + "\n"
	return map[string]string{
		"half": whole[:len(whole)/2], "zero bytes": strings.Repeat("\x00", len(whole)),
		"glued": string(line) + whole, "empty": "", "another shape": `{"hello":"world"}` + "\n",
	}
}

// A torn record of a worker, at the end of a log and, when the session has gone
// on, in its middle, is named and skipped; it hides nothing that comes after it.
func TestE2_TornTurnRecordsAreSkipped(t *testing.T) {
	t.Parallel()
	w := shared(t)
	root := w.root(twoWrites)
	var torn []uint64
	for turn := 1; turn <= 2; turn++ {
		before := w.turns(root, turn)
		for _, body := range w.torn(&session.StepStart{Turn: 1, Step: 1}) {
			torn = append(torn, w.publish(root, session.ClassTurn, body))
		}
		got := w.show(root, torn[len(torn)-1])
		if got.Stopped != "" || got.Next != before.Next || got.LastEnd.Turn != turn || got.Voids != len(torn) {
			t.Errorf("after turn %d: stopped %q, next %d, last turn %d, %d void; want none, %d, %d, %d",
				turn, got.Stopped, got.Next, got.LastEnd.Turn, got.Voids, before.Next, turn, len(torn))
		}
		if turn == 1 {
			w.send(root, "go on")
		}
	}
	var named []uint64
	r, err := agent.OpenReplica(t.Context(), w.log, root, "", func(a session.Alarm) {
		if a.Session == root {
			named = append(named, a.StreamSeq)
		}
	})
	w.must(err)
	if diff := cmp.Diff(torn, named); diff != "" {
		t.Errorf("records named (-torn +named):\n%s", diff)
	}
	done(t, r.Events(), "2.1.0")
	if diff := cmp.Diff(lines(r.Events()), w.mirrored(root)); diff != "" {
		t.Errorf("the log from the stream and from the mirror (-stream +mirror):\n%s", diff)
	}
}

// A record that only a coordinator may write and that nobody can read stops the
// session, by name, and no other. Released, the session is read-only: what could
// not be read may have been a restriction.
func TestE2_UnreadablePolicyClosesTheSession(t *testing.T) {
	t.Parallel()
	w := shared(t)
	for name, body := range w.torn(&session.SandboxSwitch{Mode: session.ReadOnly, By: &session.Party{Kind: session.Person, ID: "ada"}}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := shared(t)
			root := w.root(twoWrites)
			last := w.turns(root, 1)
			w.stopped(root, w.publish(root, session.ClassPolicy, body), last.Next)
			w.readOnlyOnceReleased(root)
		})
	}
	other := w.root(twoWrites)
	w.turns(other, 1)
	done(t, w.events(other), "1.1.0")
}

// stopped wants a session to be stopped at a stream sequence, with its last good
// seq, listed and refused.
func (w *world) stopped(id session.ID, at uint64, next session.Seq) {
	w.t.Helper()
	got := w.show(id, at)
	if got.Status != client.StatusStopped || got.Next != next || !strings.Contains(got.Stopped, strconv.FormatUint(at, 10)) || !strings.Contains(got.Stopped, string(id)) {
		w.t.Errorf("%s is %s at %d: %q; want it stopped at %d by stream sequence %d", id, got.Status, got.Next, got.Stopped, next, at)
	}
	var listed client.ListReply
	w.call(client.MethodList, client.ListRequest{Head: head, Root: id}, &listed)
	if len(listed.Sessions) != 1 || listed.Sessions[0].Status != client.StatusStopped || listed.Sessions[0].LastEnd == nil {
		w.t.Errorf("listed as %+v, want it stopped with its last turn", listed.Sessions)
	}
	in := client.SendRequest{Head: head, ID: id, MessageID: "m", Content: "go on"}
	if err := w.api.Call(w.t.Context(), client.MethodSend, in, nil); client.CodeOf(err) != client.CodeStopped {
		w.t.Errorf("a message to a stopped session: %v, want %s", err, client.CodeStopped)
	}
}

// readOnlyOnceReleased releases a stopped session and wants its next write denied.
func (w *world) readOnlyOnceReleased(id session.ID) {
	w.t.Helper()
	w.call(client.MethodRelease, client.ReleaseRequest{Head: head, ID: id, Reason: "looked at"}, nil)
	w.send(id, "go on")
	w.turns(id, 2)
	denied(w.t, w.events(id), "2.1.0", session.ReadOnly)
	w.absent(w.at("b.txt"))
}

// A kind of event that this build does not know is kept as it is where its writer
// says that it can be ignored, is void where a worker wrote it, and stops the
// session where it may be policy. So is a known kind with a foreign value.
func TestE3_UnknownKinds(t *testing.T) {
	t.Parallel()
	const by = `"by":{"kind":"person","id":"ada"}`
	for _, tt := range []struct {
		name, typ, data, more string
		class                 session.Class
		then                  string // kept, void, or what a stop names
	}{
		{"ignorable", "vendor/note", `{"a":1}`, `,"ignorable":true`, session.ClassTurn, "kept"},
		{"ignorable beside policy", "vendor/note", `{"a":1}`, `,"ignorable":true`, session.ClassPolicy, "kept"},
		{"unknown", "vendor/note", `{"a":1}`, "", session.ClassTurn, "void"},
		{"another type of field", "turn/start", `{"turn":"two"}`, "", session.ClassTurn, "void"},
		{"another field", "turn/start", `{"turn":2,"mood":"good"}`, "", session.ClassTurn, "void"},
		{"policy of a newer build", "sandbox/network", `{"mode":"none",` + by + `}`, "", session.ClassPolicy, "sandbox/network"},
		{"foreign value of a knob", "sandbox/mode", `{"mode":"super-user",` + by + `}`, "", session.ClassPolicy, "super-user"},
		{"foreign value in the inbox", "approval/decided", `{"id":"ask-1.1.0-1","outcome":"allowed-always",` + by + `}`, "", session.ClassInbox, "allowed-always"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := shared(t)
			root := w.root(twoWrites)
			next := w.turns(root, 1).Next
			line := fmt.Sprintf(`{"type":%q,"seq":%d,"time":1,"data":%s%s}`, tt.typ, next, tt.data, tt.more)
			at := w.publish(root, tt.class, line+"\n")
			if tt.then != "kept" && tt.then != "void" {
				w.stopped(root, at, next)
				if got := w.show(root, at).Stopped; !strings.Contains(got, tt.then) {
					t.Errorf("stopped by %q, want it to name %q", got, tt.then)
				}
				w.readOnlyOnceReleased(root)
				return
			}
			w.send(root, "go on")
			w.turns(root, 2)
			events := w.events(root)
			done(t, events, "2.1.0")
			if kept := string(events[next].Line) == line; kept != (tt.then == "kept") {
				t.Errorf("event %d is %s, want it %s", next, events[next].Line, tt.then)
			}
			got := w.show(root, at)
			if want := map[string]int{"void": 1}[tt.then]; got.Voids != want || got.Stopped != "" {
				t.Errorf("%d void, stopped %q, want %d and not", got.Voids, got.Stopped, want)
			}
			if diff := cmp.Diff(lines(events), w.mirrored(root)); diff != "" {
				t.Errorf("the log from the stream and from the mirror (-stream +mirror):\n%s", diff)
			}
		})
	}
}
