package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// tell starts a root on a story and returns its id.
func (w *world) tell(story string) string {
	w.t.Helper()
	path := filepath.Join(w.work, "story.yaml")
	w.must(os.WriteFile(path, []byte(story), 0o600))
	return strings.TrimSpace(w.entail("session", "new", "--cwd", w.work, "--model", "scripted:"+path, "go"))
}

// taken are the messages of a session's own log in the order in which its turns consumed
// them.
func (w *world) taken(id string) (texts []string) {
	w.t.Helper()
	live := w.summary(id).Header.FirstLiveSeq
	said := map[session.Seq]string{}
	for _, e := range w.events(id) {
		switch p := e.payload.(type) {
		case *session.UserMessage:
			said[e.seq] = p.Content
		case *session.Consumed:
			if e.seq >= live {
				for _, seq := range p.Seqs {
					texts = append(texts, said[seq])
				}
			}
		}
	}
	return texts
}

// kill9 kills every process of a deployment at once, the broker among them.
func (r *running) kill9(t *testing.T) {
	t.Helper()
	pids := maps.Clone(r.pids)
	pids["up"] = r.cmd.Process.Pid
	for name, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("kill %s: %v", name, err)
		}
	}
	_ = r.cmd.Wait() // it was killed
	gone(t, pids)
}

// Messages that were accepted and that nobody has read outlive the end of everything, the
// broker among it: a child takes them once, in order, in its next turn, its parent is told
// of each of its turns once, and whoever sends again under the same id sends nothing new.
// A fork that was made while they waited has none of them (SPEC 1.3, 7.2, 7.3).
func TestCON12_MailboxesOutliveEverything(t *testing.T) {
	t.Parallel()
	r := up(t)
	w := r.commands(t)
	id := w.tell(`
sessions:
  root:
    - calls: [{id: c, tool: delegate, args: {kind: spawn, mode: continuable, label: helper, prompt: start}}]
    - text: done
  helper:
    - text: ready
`)
	idle := func(id string, turns int) client.Summary {
		var s client.Summary
		w.eventually(func() bool {
			s = w.summary(id)
			return s.Status == client.StatusIdle && s.Pending == 0 && s.LastEnd != nil && s.LastEnd.Turn >= turns
		})
		return s
	}
	helper := string(idle(id, 1).Children[0])
	idle(helper, 1)
	for _, name := range []string{"w1", "w2"} { // nobody reads now
		w.must(syscall.Kill(r.pids[name], syscall.SIGSTOP))
		w.eventually(func() bool { return stopped(r.pids[name]) })
	}
	send := func(key, text string) ran {
		return command{args: []string{"send", helper, text, "--id", key, "--dir", w.dir}}.run()
	}
	keys := []string{"one", "two", "three"}
	for _, key := range keys {
		if got := send(key, "message "+key); got.exit != exitDone {
			t.Fatalf("send: exit %d: %s", got.exit, got.err)
		}
	}
	fork := strings.TrimSpace(w.entail("session", "fork", helper))
	if s, f := w.summary(helper), w.summary(fork); s.Pending != len(keys) || s.Turn != 1 || f.Pending != 0 {
		t.Fatalf("%d messages wait for turn %d, %d for the fork; want %d for turn 1 and none", s.Pending, s.Turn, f.Pending, len(keys))
	}
	r.kill9(t)
	upIn(t, r.dir)
	child := idle(helper, 2)
	again := func() []string {
		return slices.DeleteFunc(w.taken(helper), func(s string) bool { return s == "start" })
	}
	want := []string{"message one", "message two", "message three"}
	if got := again(); !slices.Equal(got, want) {
		t.Errorf("the child took %q, want %q", got, want)
	}
	if got := send("two", "message two"); got.exit != exitDone {
		t.Errorf("the same message again: exit %d: %s", got.exit, got.err)
	}
	if got := send("two", "something else"); got.exit != exitFailed || !strings.Contains(got.err, string(client.CodeIDTaken)) {
		t.Errorf("another message under the id: exit %d: %s", got.exit, got.err)
	}
	w.entail("send", fork, "a message of its own")
	idle(fork, 2)
	if got := w.taken(fork); got[0] != "a message of its own" || slices.ContainsFunc(got, func(s string) bool { return slices.Contains(want, s) }) {
		t.Errorf("the fork took %q, want its own message and none of its source's", got)
	}
	if got := again(); !slices.Equal(got, want) {
		t.Errorf("the child took %q by now", got)
	}
	w.eventually(func() bool {
		told := 0
		for _, e := range w.events(id) {
			if m, ok := e.payload.(*session.UserMessage); ok && m.Source.Kind == session.FromSettled {
				if told++; m.Source.Turn != told {
					t.Errorf("notice %d is of turn %d", told, m.Source.Turn)
				}
			}
		}
		return told == child.Turn
	})
	idle(id, 2)
	w.says(t, exitDone, []string{" 0 findings"}, "verify", id)
}

// A parent starts a child that stays, sends to it twice, is reported to, stops it in the
// middle of a call and ends it; the place is free, and the logs hold all that they must
// (SPEC 7.3 to 7.6, 9).
func TestCON05_AConversationIsVerified(t *testing.T) {
	t.Parallel()
	w := up(t, "--default-sandbox", "workspace-write").commands(t)
	busy := filepath.Join(w.work, "busy")
	id := w.tell(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: helper, prompt: first}}]
    - calls: [{id: a, tool: send, args: {to: helper, message: second}}]
    - calls: [{id: a, tool: send, args: {to: helper, message: third}}, {id: b, tool: write, args: {path: sent, content: x}}]
    - {calls: [{id: a, tool: interrupt, args: {session: helper, reason: enough}}], wait_for: ` + busy + `}
    - {calls: [{id: a, tool: cancel, args: {session: helper}}], wait_for: ` + filepath.Join(w.work, "cut") + `}
    - text: over
  helper:
    - text: ready
    - calls: [{id: a, tool: report, args: {message: half way}}]
    - {calls: [{id: a, tool: list, args: {}}], wait_for: ` + filepath.Join(w.work, "sent") + `}
    - calls: [{id: a, tool: bash, args: {command: "echo x > busy; sleep 1000"}}]
`)
	var s client.Summary
	w.eventually(func() bool {
		s = w.summary(id)
		return len(s.Children) == 1 && w.summary(string(s.Children[0])).Outcome == session.OutcomeInterrupted
	})
	w.must(os.WriteFile(filepath.Join(w.work, "cut"), nil, 0o600))
	w.eventually(func() bool {
		s = w.summary(id)
		return s.Status == client.StatusIdle && s.Pending == 0 && len(s.Children) == 0 && s.Turn > 0 && s.Calls == 6
	})
	helper := ""
	for _, e := range w.events(id) {
		switch p := e.payload.(type) {
		case *session.ToolDecision:
			helper += string(p.Child)
		case *session.ToolResult:
			if p.IsError {
				t.Errorf("call %s ended %+v", p.CallID, p)
			}
		}
	}
	if c := w.summary(helper); c.Outcome != session.OutcomeCancelled || s.Outcome != session.OutcomeCompleted {
		t.Errorf("the child is %s (%s), its parent %s (%s)", c.Status, c.Outcome, s.Status, s.Outcome)
	}
	told := strings.Join(w.taken(id), "\n")
	for _, part := range []string{"has finished. Its last message:\nready", "half way", "was stopped (enough)"} {
		if !strings.Contains(told, part) {
			t.Errorf("the parent was not told %q:\n%s", part, told)
		}
	}
	if got := w.taken(helper); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("the child took %q", got)
	}
	w.says(t, exitDone, []string{" 0 findings"}, "verify", id)
}
