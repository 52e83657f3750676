package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// foreign publishes an event line, with right links, at the end of a session's log,
// and returns where it stands.
func (w *world) foreign(id string, class session.Class, form string) (seq session.Seq, line string, at uint64) {
	w.t.Helper()
	chain := sessiontest.Replay(w.records(id)).Chains[session.ID(id)]
	if chain == nil {
		w.t.Fatalf("session %s cannot be opened", id)
	}
	s := chain.State()
	line = fmt.Sprintf(form, s.Next)
	after := session.EventLink(s.Link, s.Header.ID, class, []byte(line))
	at = w.publish(session.Raw{
		Address: session.Address{Session: s.Header.ID, Class: class}, Body: []byte(line + "\n"),
		Headers: map[string]string{
			session.HeaderFormat: strconv.Itoa(s.Format), session.HeaderSeq: fmt.Sprint(s.Next), session.HeaderCount: "1",
			session.HeaderLinkName: s.Link.String() + " " + after.String(), session.HeaderEpoch: strconv.FormatUint(s.Epoch, 10), session.HeaderWriter: "newer one 1",
		},
	})
	return s.Next, line, at
}

// exported reads the lines of a file of an export.
func (w *world) exported(dir, name string) []string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	w.must(err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// Events of a type that this build does not know, which their writer marked as
// ignorable, stand in an export as they were written, byte for byte, in the session
// and in a fork of it; the session goes on, and the export verifies. SES-11 asks for
// the first, SPEC 1.4 for the second.
func TestSES11_UnknownEventsSurviveAnExport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	story := filepath.Join(w.work, "story.yaml")
	w.must(os.WriteFile(story, []byte("sessions:\n  root:\n    - text: one\n    - text: two\n"), 0o600))
	id := strings.TrimSpace(w.entail("session", "new", "--model", "scripted:"+story, "--cwd", w.work, "go"))
	w.until("turn 1", "session", "show", id)
	w.until("idle (completed", "session", "show", id)

	want := map[session.Seq]string{}
	for class, forms := range map[session.Class][]string{
		// Key order, numbers, escapes and repeated keys are the writer's own.
		session.ClassTurn:   {`{"type":"vendor/note","seq":%d,"time":-1,"data":{"z":1,"a":[1.50,-0,1e3,0.10E+2,null,true],"é":"\u0041\/\b\ud800 <&>","z":2},"ignorable":true}`},
		session.ClassInbox:  {`{"type":"vendor/"<&>é","seq":%d,"time":0,"data":"","ignorable":true}`, `{"type":"vendor/list","seq":%d,"time":9223372036854775807,"data":[],"ignorable":true}`},
		session.ClassPolicy: {`{"type":"vendor/audit","seq":%d,"time":1,"data":null,"ignorable":true}`},
	} {
		for _, form := range forms {
			form = strings.Replace(form, `vendor/"`, `vendor/\"`, 1)
			seq, line, at := w.foreign(id, class, form)
			w.eventually(func() bool { r := w.records(id); return r[len(r)-1].StreamSeq >= at })
			want[seq] = line
		}
	}
	if len(want) != 4 {
		t.Fatalf("%d events were published, want 4", len(want))
	}
	// Another spelling of the envelope is not the one form: of a worker it is void, and
	// the export keeps the record.
	_, spaced, voided := w.foreign(id, session.ClassTurn, `{"type": "vendor/note", "seq":%d,"time":1,"data":{},"ignorable":true}`)
	w.until("void         1 records", "session", "show", id)
	fork := strings.TrimSpace(w.entail("session", "fork", id))
	w.entail("send", id, "and now")
	w.until("turn 2", "session", "show", id)
	w.until("idle (completed", "session", "show", id)

	dir := filepath.Join(w.work, "out")
	w.entail("session", "export", id, dir)
	for _, name := range []string{id, fork} {
		lines := w.exported(dir, name+".jsonl")
		for seq, line := range want {
			if got := lines[1+seq]; got != line {
				t.Errorf("%s: event %d is exported as\n%s\nand was written as\n%s", name, seq, got, line)
			}
		}
		if strings.Contains(strings.Join(lines, "\n"), spaced) {
			t.Errorf("%s holds a void event", name)
		}
	}
	kept := 0
	for _, line := range w.exported(dir, id+".records.jsonl") {
		var r struct {
			StreamSeq uint64
			Body      []byte
		}
		w.must(json.Unmarshal([]byte(line), &r))
		if r.StreamSeq == voided && bytes.Equal(r.Body, []byte(spaced+"\n")) {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("the void record is exported %d times, want once, as it was written", kept)
	}
	w.says(t, exitDone, []string{" 1 void", " 0 findings"}, "verify", id)
	w.says(t, exitDone, []string{" 1 void", " 0 findings"}, "verify", "--export", dir)

	// The control: one byte of an event that nobody knows is not what it was.
	file := filepath.Join(dir, id+".jsonl")
	text, err := os.ReadFile(file)
	w.must(err)
	w.must(os.WriteFile(file, bytes.Replace(text, []byte(`[1.50,`), []byte(`[1.5,`), 1), 0o600))
	w.says(t, exitFailed, nil, "verify", "--export", dir)
}
