package coordinator_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// accepting are the methods that write, each with another request under the same id and
// the code that it is refused with. Without one it has no id that another request could
// have: what it asks for is a state, which is there when it is asked for again, or stands
// in a log.
func accepting(requests map[string]any) map[string]struct {
	other any
	code  client.Code
} {
	create := requests[client.MethodCreate].(client.CreateRequest) //nolint:forcetypeassert // the table's own
	create.Prompt = "something else"
	fork := requests[client.MethodFork].(client.ForkRequest) //nolint:forcetypeassert // the table's own
	fork.Prompt = "something else"
	send := requests[client.MethodSend].(client.SendRequest) //nolint:forcetypeassert // the table's own
	send.Content = "something else"
	interrupt := requests[client.MethodInterrupt].(client.StopRequest) //nolint:forcetypeassert // the table's own
	interrupt.Reason = "another reason"
	cancel := requests[client.MethodCancel].(client.StopRequest) //nolint:forcetypeassert // the table's own
	cancel.Reason = "another reason"
	answer := requests[client.MethodAnswer].(client.AnswerRequest) //nolint:forcetypeassert // the table's own
	answer.Outcome = session.AllowedOnce
	settle := requests[client.MethodCallSettle].(client.SettleRequest) //nolint:forcetypeassert // the table's own
	settle.Message = "something else"
	delegate := requests[client.MethodDelegate].(client.DelegateRequest) //nolint:forcetypeassert // the table's own
	delegate.Calls = []client.Delegation{delegate.Calls[0]}
	delegate.Calls[0].Spec.Prompt = "something else"
	return map[string]struct {
		other any
		code  client.Code
	}{
		client.MethodCreate:     {create, client.CodeExists},
		client.MethodFork:       {fork, client.CodeExists},
		client.MethodSend:       {send, client.CodeIDTaken},
		client.MethodInterrupt:  {interrupt, client.CodeIDTaken},
		client.MethodCancel:     {cancel, client.CodeIDTaken},
		client.MethodAnswer:     {answer, client.CodeAnswered},
		client.MethodCallSettle: {settle, client.CodeSettled},
		client.MethodDelegate:   {delegate, client.CodeExists},
		client.MethodRelay:      {},
		client.MethodRelease:    {},
		client.MethodPolicySet:  {},
		client.MethodConfigSet:  {},
		client.MethodWorkerSet:  {},
	}
}

// Every method of the service that writes takes a request once: sent again, it is the
// same request and writes nothing; another one under its id is refused and writes nothing.
// Every other method writes nothing at all.
func TestSPEC7_2_ARequestIsTakenOnce(t *testing.T) {
	t.Parallel()
	w := newBadWorld(t)
	requests := w.requests()
	table := accepting(requests)
	written := func() string {
		_, orders, err := w.log.Orders("w7").Load(t.Context())
		w.must(err)
		return fmt.Sprint(w.traces(), orders)
	}
	const floor = 25
	if len(w.methods) < floor {
		t.Errorf("the service publishes %d methods, want at least %d", len(w.methods), floor)
	}
	seen := 0
	for _, m := range inOrder(w.methods) {
		before := written()
		body := encoded(t, requests[m.Method])
		if e := w.ask(m, body); e != nil {
			t.Fatalf("%s: %v", m.Method, e)
		}
		after := written()
		row, writes := table[m.Method]
		if writes != (after != before) {
			t.Errorf("%s left %s, before it there was %s; the table says that it writes: %t", m.Method, after, before, writes)
		}
		if !writes {
			continue
		}
		seen++
		for range 2 {
			e := w.ask(m, body)
			if e != nil && (m.Method != client.MethodRelease || e.Code != client.CodePrecondition) { // there is nothing left to release
				t.Errorf("%s again: %v", m.Method, e)
			}
			if now := written(); now != after {
				t.Errorf("%s again left %s, before it there was %s", m.Method, now, after)
			}
		}
		if row.other == nil {
			continue
		}
		if e := w.ask(m, encoded(t, row.other)); e == nil || e.Code != row.code {
			t.Errorf("%s: another request under the same id: %v, want %s", m.Method, e, row.code)
		}
		if now := written(); now != after {
			t.Errorf("%s: a refused request left %s, before it there was %s", m.Method, now, after)
		}
	}
	if seen != len(table) {
		t.Errorf("%d of the table's %d methods were asked", seen, len(table))
	}
}

// One message is sent by many at once, and another under its id: one of the two is
// accepted, once, and all senders of the other are refused. Nobody is told that his own
// was done when it was not (SPEC 7.2).
func TestSPEC7_2_SendersAtOnceAgreeOnAnID(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2)
	id := d.root(func(in *client.CreateRequest) { in.Prompt = "" })
	texts := []string{"this", "that"}
	var mu sync.Mutex
	got := map[string]map[client.Code]int{"this": {}, "that": {}}
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			text := texts[i%2]
			err := d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: id, MessageID: "m", Content: text}, nil)
			mu.Lock()
			defer mu.Unlock()
			if code := client.CodeOf(err); err == nil || code != "" {
				got[text][code]++
				return
			}
			t.Errorf("send %q: %v", text, err)
		})
	}
	all.Wait()
	d.catchUp()
	var log []string
	for _, l := range d.lines(id) {
		if l.Type == session.TypeUserMessage {
			log = append(log, string(l.Data))
		}
	}
	if len(log) != 1 {
		t.Fatalf("the log has %d messages: %v", len(log), log)
	}
	for _, text := range texts {
		want := client.CodeIDTaken
		if strings.Contains(log[0], text) {
			want = ""
		}
		if got[text][want] != 12 {
			t.Errorf("%q was answered %v, the log has %s", text, got[text], log[0])
		}
	}
}

// An interrupt that is sent again is of the turn that it was of: the next turn is not
// stopped by it, and the answer does not say so (SPEC 7.4).
func TestSPEC7_4_AnInterruptAgainIsOfItsTurn(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	id := d.root()
	d.claim(id)
	in := client.StopRequest{Head: head, ID: id, RequestID: "stop", Reason: "wrong"}
	var out client.StopReply
	d.must(d.api.Call(t.Context(), client.MethodInterrupt, in, &out))
	d.turn(id, func(s session.State) []session.Payload {
		return []session.Payload{&session.TurnEnd{Turn: s.Turn, Reason: session.EndReason{Kind: session.EndAborted, By: "person:ada"}}}
	})
	d.must(d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: id, MessageID: "m", Content: "go on"}, nil))
	d.claim(id)
	var again client.StopReply
	d.must(d.api.Call(t.Context(), client.MethodInterrupt, in, &again))
	d.catchUp()
	e, err := d.store.Session(id)
	d.must(err)
	if out.Turn != 1 || again != out || e.State.Open == nil || e.State.Open.Interrupt != nil {
		t.Errorf("answered %+v, then %+v, and turn %d is open: %+v", out, again, e.State.Turn, e.State.Open)
	}
}
