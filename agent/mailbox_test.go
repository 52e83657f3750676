package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// taken are the messages of a log in the order in which its turns consumed them, as
// "turn: content".
func taken(events []session.Event) []string {
	texts := map[session.Seq]string{}
	var out []string
	for _, e := range events {
		switch p := e.Payload.(type) {
		case *session.UserMessage:
			texts[e.Seq] = p.Content
		case *session.Consumed:
			for _, seq := range p.Seqs {
				out = append(out, fmt.Sprintf("%d: %s", p.Turn, texts[seq]))
			}
		}
	}
	return out
}

// ends are how the turns of a log ended, in order.
func ends(events []session.Event) (kinds []session.EndKind) {
	for _, end := range payloads[*session.TurnEnd](events) {
		kinds = append(kinds, end.Reason.Kind)
	}
	return kinds
}

// child waits for the child that a call of a session starts.
func (w *world) child(parent session.ID, call session.CallID) session.ID {
	w.t.Helper()
	id := session.ChildID(parent, call)
	w.until(parent, "it has a child", func(s session.State) bool {
		_, ok := s.Child(id)
		return ok
	})
	return id
}

// A follow-up to a child that waits for its own child wakes it, in the order in which it
// was sent: the messages are taken into the open turn, which waits on (SPEC 7.2).
func TestCON04_AFollowUpReachesAWaitingChild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 3)
	root := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: helper, prompt: start, background: true}}]
    - calls: [{id: a, tool: send, args: {to: helper, message: first}}, {id: b, tool: send, args: {to: helper, message: second}}]
      wait_for: ` + w.path("parked") + `
  helper:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, label: leaf, prompt: p}}]
    - text: heard
  leaf:
    - {text: the answer, wait_for: ` + w.path("go") + `}
`)
	helper := w.child(root, "1.1.0")
	parked := func(s session.State) bool { return s.Open != nil && s.Open.Parked && len(s.Pending) == 0 }
	w.until(helper, "parked", parked)
	w.touch("parked")
	w.until(helper, "the messages are taken, and it is parked", func(s session.State) bool {
		return parked(s) && len(taken(w.open(helper).Events())) == 3
	})
	w.letGo()
	s := w.idle(helper)
	events := w.open(helper).Events()
	got := taken(events)
	if len(got) != 4 || !slices.Equal(got[:3], []string{"1: start", "1: first", "1: second"}) || !strings.Contains(got[3], "the answer") || s.Turn != 1 {
		t.Errorf("taken were %q in %d turns, want the prompt, both messages, the notice, in one turn", got, s.Turn)
	}
	told := strings.Join(spoken(events), "\n")
	if first, second := strings.Index(told, ":\nfirst"), strings.Index(told, ":\nsecond"); first < 0 || second < first || strings.Index(told, "assistant: heard") < second {
		t.Errorf("the model was told:\n%s", told)
	}
}

// Follow-ups that come while turns end meet no gap: each is taken once, in order, by one
// driver at a time, and the parent has one notice for each turn (SPEC 7.1 to 7.3).
func TestCON06_FollowUpsMeetTheEndsOfTurns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 2)
	w.work("w2", 2)
	root := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: helper, prompt: "0"}}]
    - text: done
`)
	w.idle(root)
	helper := w.child(root, "1.1.0")
	const senders, each = 3, 8
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for i := range each {
				in := client.SendRequest{Head: head, ID: helper, MessageID: fmt.Sprintf("%d-%d", s, i), Content: "go on"}
				for range 2 { // whoever is in doubt sends again
					if err := w.api.Call(t.Context(), client.MethodSend, in, nil); err != nil {
						t.Errorf("send: %v", err)
					}
				}
			}
		})
	}
	all.Wait()
	s := w.idle(helper)
	p := w.until(root, "it was told of every turn", func(p session.State) bool {
		c, ok := childOf(p)
		return ok && c.Noticed == s.Turn && len(p.Pending) == 0
	})
	events := w.open(helper).Events()
	var accepted, consumed []session.Seq
	for _, e := range events {
		switch p := e.Payload.(type) {
		case *session.UserMessage:
			if p.Source.Kind != session.FromPlugin {
				accepted = append(accepted, e.Seq)
			}
		case *session.Consumed:
			consumed = append(consumed, p.Seqs...)
		}
	}
	if len(accepted) != 1+senders*each || !slices.Equal(accepted, consumed) {
		t.Errorf("accepted were %v, consumed %v, want %d, each once, in order", accepted, consumed, 1+senders*each)
	}
	for i, c := range payloads[*session.Claim](events) {
		if c.Epoch != uint64(i)+1 {
			t.Errorf("claim %d has epoch %d", i, c.Epoch)
		}
	}
	notices := 0
	for _, m := range payloads[*session.UserMessage](w.open(root).Events()) {
		if m.Source.Kind == session.FromSettled {
			if notices++; m.Source.Turn != notices {
				t.Errorf("notice %d is of turn %d", notices, m.Source.Turn)
			}
		}
	}
	if notices != s.Turn || p.Ended != nil {
		t.Errorf("%d notices of %d turns", notices, s.Turn)
	}
}

// A start beyond the cap is refused at once, with its code and without a trace of a
// child; a continuable child holds its place, so that a follow-up to it needs none (SPEC
// 4.6).
func TestCON14_ACapIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *policy.Settings) { s.Caps.Live = 1 })
	w.work("w1", 2)
	root := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: one, prompt: p}}]
    - calls: [{id: a, tool: delegate, args: {kind: spawn, label: two, prompt: p}}]
    - calls: [{id: a, tool: send, args: {to: one, message: go on}}]
    - text: done
`)
	w.until(root, "the follow-up was answered", func(s session.State) bool {
		c, ok := childOf(s)
		return ok && c.Noticed == 2 && s.Open == nil && len(s.Pending) == 0
	})
	events := w.open(root).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.2.0"); r.Code != "ACTIVATION_LIMIT_REACHED" || !r.Denied || !r.IsError {
		t.Errorf("the second start ended %+v", r)
	}
	if r := resultOf(t, events, "1.3.0"); r.IsError {
		t.Errorf("the follow-up ended %+v", r)
	}
	if ids := children(events); len(ids) != 1 {
		t.Errorf("the children are %v, want one", ids)
	}
}

// A one-shot child does not end before its own child has: what the leaf owes is in the
// middle's log before the leaf's place is given back, and both before the middle's end
// (SPEC 7.3, 7.4).
func TestCON17_SET06_AChildEndsAfterItsChildren(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 3)
	root := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, label: middle, prompt: p, background: true}}]
  middle:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, label: leaf, prompt: p, background: true}}]
    - text: said
  leaf:
    - {text: the answer, wait_for: ` + w.path("go") + `}
`)
	middle := w.child(root, "1.1.0")
	w.child(middle, "1.1.0")
	if s := w.until(middle, "its turn has ended", func(s session.State) bool { return s.LastEnd != nil && s.Open == nil }); s.Ended != nil || s.Runnable() {
		t.Errorf("the middle has ended (%v), or has something to do (%t), while its child works", s.Ended, s.Runnable())
	}
	if s := w.until(root, "it was told", func(s session.State) bool { c, ok := childOf(s); return ok && c.Noticed == 1 }); len(s.Children) != 1 {
		t.Errorf("the middle's place was given back: %+v", s.Children)
	}
	w.letGo()
	w.until(root, "the middle's place is free", func(s session.State) bool { return len(s.Children) == 0 })
	w.idle(root)
	var order []session.Type
	for _, e := range w.open(middle).Events() {
		switch p := e.Payload.(type) {
		case *session.UserMessage:
			if p.Source.Kind == session.FromSettled {
				order = append(order, e.Type)
			}
		case *session.Closed, *session.End:
			order = append(order, e.Type)
		}
	}
	if want := []session.Type{session.TypeUserMessage, session.TypeClosed, session.TypeEnd}; !slices.Equal(order, want) {
		t.Errorf("the middle's log has %v, want %v", order, want)
	}
	if got := taken(w.open(middle).Events()); len(got) != 2 || !strings.Contains(got[1], "the answer") {
		t.Errorf("the middle has taken %q", got)
	}
}

// An interrupt keeps the inbox: what was taken is not taken again, what was not is taken
// by the next turn, in order (SPEC 7.4).
func TestINT05_AnInterruptKeepsTheInbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 2)
	root := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: helper, prompt: start, background: true}}]
    - text: done
  helper:
    - {text: heard, wait_for: ` + w.path("go") + `}
`)
	helper := w.child(root, "1.1.0")
	w.until(helper, "the model is asked", func(s session.State) bool { return s.Open != nil && s.Open.StepOpen })
	w.send(helper, "first")
	w.send(helper, "second")
	w.interrupt(helper)
	w.until(helper, "the turn has ended", func(s session.State) bool { return s.LastEnd != nil })
	w.letGo()
	w.until(helper, "the second turn has ended", func(s session.State) bool { return s.Turn == 2 && s.Open == nil })
	w.idle(helper)
	events := w.open(helper).Events()
	if got := taken(events); !slices.Equal(got, []string{"1: start", "2: first", "2: second"}) {
		t.Errorf("taken were %q", got)
	}
	if got := ends(events); !slices.Equal(got, []session.EndKind{session.EndAborted, session.EndCompleted}) {
		t.Errorf("the turns ended %v", got)
	}
}

// What a child reports and the notice that it is idle reach a busy parent in one batch, in
// that order, at its next step and without a turn of their own; the child's turn went on
// after its report, and there is one notice though it reported (SPEC 7.2, 7.3). To an idle
// parent a notice is one ordinary turn.
func TestRPT02_RPT05_SET01_SET03_AReportGoesBeforeTheNotice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 2)
	root := w.root(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: helper, prompt: start, background: true}}]
    - {text: busy, wait_for: ` + w.path("go") + `}
    - text: heard both
    - text: heard the last
  helper:
    - calls: [{id: a, tool: report, args: {message: half way}}]
    - text: done with it
    - {text: done again, wait_for: ` + w.path("later") + `}
`)
	helper := w.child(root, "1.1.0")
	w.until(root, "both wait", func(s session.State) bool { return len(s.Pending) == 2 })
	w.letGo()
	s := w.idle(root)
	events := w.open(root).Events()
	batches := payloads[*session.Consumed](events)
	got := taken(events)
	if len(got) != 3 || got[1] != "1: half way" || !strings.Contains(got[2], "done with it") || s.Turn != 1 {
		t.Errorf("taken were %q in %d turns, want the prompt, the report and the notice in one", got, s.Turn)
	}
	if last := batches[len(batches)-1]; len(last.Seqs) != 2 {
		t.Errorf("the batches are %+v, want both in the last one", batches)
	}
	if c, _ := w.open(helper).State(); c.Turn != 1 || c.Steps != 2 {
		t.Errorf("the child made %d turns of %d steps, want one of 2", c.Turn, c.Steps)
	}
	w.send(helper, "go on")
	w.until(helper, "its second turn", func(s session.State) bool { return s.Turn == 2 && s.Open != nil })
	w.touch("later")
	s = w.until(root, "the notice is read", func(s session.State) bool { return s.Turn == 2 && s.Open == nil && len(s.Pending) == 0 })
	if got := taken(w.open(root).Events()); len(got) != 4 || !strings.HasPrefix(got[3], "2: ") || !strings.Contains(got[3], "done again") {
		t.Errorf("taken were %q in %d turns, want the second notice in a turn of its own", got, s.Turn)
	}
}

// A cancel goes down from the top and sessions end from below, each once; what was
// accepted before and not read is named by the end, and nothing of a driver comes behind
// it (SPEC 7.4).
func TestDRN02_DRN06_CancelsGoDownAndEndsComeUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 3)
	root := w.root(fmt.Sprintf(`
sessions:
  root:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, mode: continuable, label: middle, prompt: p}}]
  middle:
    - calls: [{id: a, tool: delegate, args: {kind: spawn, label: leaf, prompt: p}}]
  leaf:
    - calls: [{id: a, tool: bash, args: {command: %q}}]
`, hold))
	middle := w.child(root, "1.1.0")
	leaf := w.child(middle, "1.1.0")
	eventually(t, "the call runs", func() bool { return w.ran() == 1 })
	w.send(leaf, "just in time")
	w.cancel(root)
	w.until(root, "ended", func(s session.State) bool { return s.Ended != nil })
	cancels, ends := map[session.ID]uint64{}, map[session.ID]uint64{}
	for _, id := range []session.ID{root, middle, leaf} {
		for _, raw := range w.space(id) {
			r, err := session.DecodeRecord(raw)
			w.must(err)
			if r.Own == nil {
				continue
			}
			if ends[id] != 0 && raw.Address.Class == session.ClassTurn {
				t.Errorf("a driver of %s wrote behind its end", id)
			}
			for _, e := range r.Own.Events {
				switch e.Payload.(type) {
				case *session.Cancel:
					cancels[id] = raw.StreamSeq
				case *session.End:
					if ends[id] != 0 {
						t.Errorf("%s has ended twice", id)
					}
					ends[id] = raw.StreamSeq
				}
			}
		}
	}
	if cancels[root] == 0 || cancels[root] >= cancels[middle] || cancels[middle] >= cancels[leaf] {
		t.Errorf("the cancels stand at %v, want the root's first, the leaf's last", cancels)
	}
	if ends[leaf] == 0 || ends[leaf] >= ends[middle] || ends[middle] >= ends[root] {
		t.Errorf("the ends stand at %v, want the leaf's first, the root's last", ends)
	}
	s, _ := w.open(leaf).State()
	events := w.open(leaf).Events()
	i := slices.IndexFunc(events, func(e session.Event) bool {
		m, ok := e.Payload.(*session.UserMessage)
		return ok && m.Content == "just in time"
	})
	if i < 0 || s.Ended == nil || !slices.Equal(s.Ended.Cancelled, []session.Seq{events[i].Seq}) {
		t.Errorf("the leaf ended %+v, want the message %d cancelled by name", s.Ended, i)
	}
}

// The result of a delegation that is waited for is what became of the child: its last
// message if it completed, an error that says why if not (SPEC 7.3, 7.5).
func TestSET12_AResultIsWhatBecameOfTheChild(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 3)
	root := w.root(`
sessions:
  root:
    - calls:
        - {id: a, tool: delegate, args: {kind: spawn, label: good, prompt: p}}
        - {id: b, tool: delegate, args: {kind: spawn, label: bad, prompt: p}}
    - text: done
  good:
    - text: the answer
  bad:
    - {text: never, wait_for: ` + w.path("never") + `}
`)
	bad := w.child(root, "1.1.1")
	w.until(bad, "the model is asked", func(s session.State) bool { return s.Open != nil && s.Open.StepOpen })
	w.must(w.api.Call(t.Context(), client.MethodInterrupt, client.StopRequest{Head: head, ID: bad, RequestID: "stop", Reason: "wrong branch"}, nil))
	w.idle(root)
	events := w.open(root).Events()
	onceEach(t, events)
	if r := resultOf(t, events, "1.1.0"); r.IsError || !strings.HasSuffix(r.Content, "the answer") {
		t.Errorf("the good child's result is %+v", r)
	}
	if r := resultOf(t, events, "1.1.1"); !r.IsError || !strings.Contains(r.Content, "was stopped") || !strings.Contains(r.Content, "wrong branch") {
		t.Errorf("the bad child's result is %+v", r)
	}
	if s, _ := w.open(bad).State(); s.Ended == nil || s.Ended.Outcome != session.OutcomeInterrupted {
		t.Errorf("the bad child ended %+v", s.Ended)
	}
}
