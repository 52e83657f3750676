package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// records reads the raw records of a session.
func (w *world) records(id string) []session.Raw {
	w.t.Helper()
	a := &app{dir: w.dir, lookup: func(string) (string, bool) { return "", false }}
	d, err := a.connect()
	w.must(err)
	defer d.close()
	var out []session.Raw
	w.must(records{d: d}.Records(w.t.Context(), session.ID(id), func(r session.Raw) error {
		out = append(out, r)
		return nil
	}))
	return out
}

// publish stores a record by hand, past every part of the product, and returns
// where it stands.
func (w *world) publish(r session.Raw) uint64 {
	w.t.Helper()
	msg := nats.NewMsg(stream.Subject(r.Address))
	msg.Data = r.Body
	for k, v := range r.Headers {
		if strings.HasPrefix(k, "Entail-") { // what it expected then does not hold now
			msg.Header.Set(k, v)
		}
	}
	answer, err := w.nc.RequestMsg(msg, 5*time.Second)
	w.must(err)
	var ack struct {
		Seq   uint64
		Error any
	}
	w.must(json.Unmarshal(answer.Data, &ack))
	if ack.Error != nil || ack.Seq == 0 {
		w.t.Fatalf("the broker answered %s", answer.Data)
	}
	return ack.Seq
}

const damagedStory = `sessions:
  root:
    - calls: [{id: c1, tool: delegate, args: {kind: spawn, label: child, prompt: look}}]
    - text: fine
  child:
    - text: seen
`

// create starts a session; with a prompt it has had its turn.
func (w *world) create(prompt ...string) string {
	w.t.Helper()
	id := strings.TrimSpace(w.entail(append([]string{"session", "new", "--model", "scripted:story.yaml", "--cwd", w.work}, prompt...)...))
	if len(prompt) > 0 {
		w.until("idle (completed", "session", "show", id)
	}
	return id
}

// says runs a command and wants its exit code and words, on either stream.
func (w *world) says(t *testing.T, exit int, words []string, args ...string) {
	t.Helper()
	r := command{args: append(args, "--dir", w.dir)}.run()
	if r.exit != exit {
		t.Errorf("entail %v: exit %d, want %d: %s%s", args, r.exit, exit, r.out, r.err)
	}
	for _, word := range words {
		if !strings.Contains(r.out+r.err, word) {
			t.Errorf("entail %v does not say %q: %s%s", args, word, r.out, r.err)
		}
	}
}

// TestDamagedLogs publishes by hand what no part of the product would, and asks
// every command about the session that it stands in (SPEC 1.4, 1.7).
//
// It is not parallel: it changes the working directory.
func TestDamagedLogs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	w := newWorld(t)
	t.Chdir(w.work)
	w.must(os.WriteFile("story.yaml", []byte(damagedStory), 0o600))
	other := w.create("go")
	genesis := w.records(other)[0]
	cut := func(n int) func(session.Raw) session.Raw {
		return func(r session.Raw) session.Raw { r.Body = r.Body[:n]; return r }
	}
	body := func(b []byte) func(session.Raw) session.Raw {
		return func(r session.Raw) session.Raw { r.Body = b; return r }
	}
	inbox := func(r session.Raw) session.Raw {
		r.Address.Class, r.Body = session.ClassInbox, []byte(`{"hello":"world"}`+"\n")
		return r
	}
	for _, tt := range []struct {
		name   string
		change func(session.Raw) session.Raw // of the record of a switch
	}{
		{"half a record", cut(40)},
		{"an empty record", cut(0)},
		{"zero bytes", body(make([]byte, 64))},
		{"foreign JSON", body([]byte(`{"hello":"world"}` + "\n"))},
		{"two records glued", func(r session.Raw) session.Raw {
			r.Body = append(bytes.TrimSuffix(bytes.Clone(r.Body), []byte("\n")), r.Body...)
			return r
		}},
		{"a second genesis", func(r session.Raw) session.Raw {
			return session.Raw{Address: session.Address{Session: r.Address.Session, Creator: r.Address.Session, Class: session.ClassGenesis}, Headers: genesis.Headers, Body: genesis.Body}
		}},
		{"foreign JSON in the inbox", inbox},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := w.create()
			w.entail("policy", "set", id, "--sandbox", "workspace-write")
			all := w.records(id)
			at := w.publish(tt.change(all[len(all)-1]))
			w.stopped(t, id, 2, at, "`entail session release`")
			w.entail("send", other, "go on")
			w.says(t, exitFailed, []string{id, fmt.Sprintf("stream sequence %d", at), "1 findings"}, "verify", id)

			w.says(t, exitDone, []string{fmt.Sprintf("[%d]", at)}, "session", "release", id, "--reason", "seen")
			w.says(t, exitDone, []string{"state        idle"}, "session", "show", id)
			w.says(t, exitDone, []string{"session/release", "seen"}, "session", "tail", id)
			w.says(t, exitDone, []string{"sandbox    read-only"}, "policy", "get", id)
			w.entail("send", id, "and now")
			w.until("idle (completed", "session", "show", id)
			w.until("idle (completed", "session", "show", other)
			w.says(t, exitDone, []string{" 0 findings"}, "verify", id)
		})
	}
	t.Run("a genesis under another id", func(t *testing.T) {
		w.misplaced(t, genesis)
	})
	t.Run("a turn record", func(t *testing.T) {
		id := w.create("go")
		w.publish(session.Raw{Address: session.Address{Session: session.ID(id), Class: session.ClassTurn}, Body: []byte(`{"type":"step/st`)})
		w.until("void         1 records", "session", "show", id)
		w.entail("send", id, "and now")
		w.until("turn 2", "session", "show", id)
		w.says(t, exitDone, []string{"note: void", " 1 void", " 0 findings"}, "verify", id)
	})
}

// stopped wants every command to say of a session that it is stopped and where,
// and how it can go on; none of them writes anything.
func (w *world) stopped(t *testing.T, id string, seq int, at uint64, wayOut string) {
	t.Helper()
	w.until("stopped", "session", "show", id)
	before := w.traces()
	why := []string{fmt.Sprintf("session %s is stopped at seq %d (stream sequence %d): ", id, seq, at), wayOut}
	w.says(t, exitDone, append(why, "state        stopped"), "session", "show", id)
	w.says(t, exitDone, why, "session", "ls")
	w.says(t, exitDone, []string{id, "stopped"}, "session", "tree", id)
	for _, args := range [][]string{
		{"session", "tail", id},
		{"session", "tail", "-f", id},
		{"send", id, "hello"},
		{"interrupt", id},
		{"cancel", id},
		{"session", "fork", id},
		{"policy", "get", id},
		{"policy", "set", id, "--sandbox", "danger-full-access"},
		{"policy", "explain", id},
		{"explain", id, "1.1.0"},
	} {
		w.says(t, exitFailed, append(why, "SESSION_STOPPED"), args...)
	}
	if after := w.traces(); !reflect.DeepEqual(after, before) {
		t.Errorf("questions left %+v, before them there was %+v", after, before)
	}
}

// misplaced publishes geneses that stand where their ids do not belong.
func (w *world) misplaced(t *testing.T, genesis session.Raw) {
	t.Helper()
	parent := w.create("go")
	var child session.Raw
	for _, r := range w.records(parent) {
		if r.Address.Class == session.ClassGenesis && r.Address.Session != session.ID(parent) {
			child = r
		}
	}
	if child.Body == nil {
		t.Fatal("the parent has no child")
	}
	child.Headers = maps.Clone(child.Headers)
	child.Address.Session = session.ID(parent + "-01arz3ndektsv4rrffq69g5fav")
	root := newRootID(1)
	genesis.Address = session.Address{Session: root, Creator: root, Class: session.ClassGenesis}
	for _, r := range []session.Raw{child, genesis} {
		id := string(r.Address.Session)
		w.stopped(t, id, 0, w.publish(r), "nothing to release: start another session")
		w.says(t, exitFailed, []string{"start another"}, "session", "release", id, "--reason", "seen")
		w.says(t, exitFailed, []string{id, "its genesis is not valid", "1 findings"}, "verify", id)
	}
	// The parent has the child that its call started, and goes on.
	w.entail("send", parent, "and now")
	w.until("turn 2", "session", "show", parent)
	w.until("idle (completed", "session", "show", parent)
}

// A log that is damaged while a run follows it fails the run, by name.
func TestRunOverADamagedLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	story := filepath.Join(w.work, "story.yaml")
	w.must(os.WriteFile(story, []byte(`sessions:
  root:
    - calls: [{id: c1, tool: bash, args: {command: "until test -e go; do sleep 0.05; done"}}]
    - text: fine
`), 0o600))
	done := make(chan ran, 1)
	go func() {
		done <- command{args: []string{"run", "--dir", w.dir, "--cwd", w.work, "--model", "scripted:" + story, "-o", "json", "go"}}.run()
	}()
	w.until("running", "session", "ls")
	w.until("\"type\":\"tool/decision\"", "session", "tail", w.only(), "-o", "json")
	at := w.publish(session.Raw{Address: session.Address{Session: session.ID(w.only()), Class: session.ClassInbox}, Body: []byte("half a rec")})
	r := <-done
	w.must(os.WriteFile(filepath.Join(w.work, "go"), nil, 0o600))
	if want := fmt.Sprintf("(stream sequence %d)", at); r.exit != exitFailed || !strings.Contains(r.out, `"outcome":"failed"`) || !strings.Contains(r.out, want) {
		t.Errorf("exit %d, want %d and %s: %s%s", r.exit, exitFailed, want, r.out, r.err)
	}
}

// only is the one session there is.
func (w *world) only() string {
	w.t.Helper()
	id, _, _ := strings.Cut(w.entail("session", "ls"), " ")
	return id
}
