package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/entail-fleet/entail/agent/model/modeltest"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// L7: writers in different processes exclude each other by what they expect of the
// log, and none starves: two that append to one session as fast as they can both come
// through, each record once, on one chain.
func TestL7_WritersExcludeEachOther(t *testing.T) {
	t.Parallel()
	const writers, each = 2, 25
	w := newWorld(t)
	id := w.root("sessions:\n  root:\n    - text: done\n")
	var g errgroup.Group
	for n := range writers {
		log, err := stream.New(w.broker.Conn(t, broker.Coordinator, "coordinator"), stream.Config{
			Witness: w.store, Writer: session.Writer{Component: "coordinator", Instance: fmt.Sprintf("x%d", n), Incarnation: "i1"},
		})
		w.must(err)
		rep := w.open(id)
		g.Go(func() error {
			for i := range each {
				message := &session.UserMessage{
					ID: fmt.Sprintf("m-%d-%d", n, i), Role: "user", Content: "x", By: ada, Source: session.MessageSource{Kind: session.FromUser},
				}
				if _, err := log.Append(t.Context(), rep, id, stream.Change{
					Name: "race", Class: session.ClassInbox,
					Drafts: func(session.View) ([]session.Draft, error) {
						return []session.Draft{{Time: time.Now().UnixMilli(), Payload: message}}, nil
					},
				}); err != nil {
					return fmt.Errorf("writer %d, append %d: %w", n, i, err)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	next := make([]int, writers)
	for _, m := range payloads[*session.UserMessage](w.open(id).Events()) { // which follows the chain
		var n, i int
		if _, err := fmt.Sscanf(m.ID, "m-%d-%d", &n, &i); err != nil {
			continue // the prompt
		}
		if i != next[n] {
			t.Errorf("message %d of writer %d comes after %d", i, n, next[n])
		}
		next[n]++
	}
	if !slices.Equal(next, []int{each, each}) {
		t.Errorf("the log holds %v messages of the writers, want %d of each", next, each)
	}
}

// L8: nothing is written behind: when a model is asked, the stream holds the request
// and all before it, and when a call runs, it holds the call's decision.
func TestL8_NothingIsWrittenBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var id session.ID
	ready := make(chan struct{})
	srv := modeltest.NewServerFunc(t, func(r modeltest.Request) modeltest.Step {
		<-ready
		n := r.Steps()
		events := w.open(id).Events()
		if headers, results := len(payloads[*session.RequestHeader](events)), len(payloads[*session.ToolResult](events)); headers != n+1 || results != n {
			t.Errorf("at request %d the stream holds %d requests and %d results:\n%s", n, headers, results, list(events))
		}
		if n < 3 {
			return calling(modeltest.Call{ID: "c", Name: "bash", Arguments: fmt.Sprintf(`{"command":"touch running%d; while [ ! -e go%d ]; do sleep 0.01; done"}`, n, n)}).Step()
		}
		return saying("done")
	})
	w.work("w1", 1, at(t, srv))
	id = w.root("", endpoint)
	close(ready)
	for n := range 3 {
		eventually(t, "the call runs", func() bool { return exists(w.path(fmt.Sprintf("running%d", n))) })
		events := w.open(id).Events()
		if last := payloads[*session.ToolDecision](events); len(last) != n+1 || last[n].Verdict != session.Allow {
			t.Errorf("while call %d runs the stream holds the decisions %+v", n, last)
		}
		w.file(fmt.Sprintf("go%d", n))
	}
	w.idle(id)
}

// L11: what happens to a session is a fact in its log, which a process that was not
// there when it happened reads as well as any other.
func TestL11_LifecycleIsInTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 2)
	id := w.root(`
sessions:
  root:
    - calls: [{id: d, tool: delegate, args: {kind: spawn, label: child, prompt: look}}]
    - text: done
  child: [{text: looked}]
`)
	s := w.idle(id)
	w.until(id, "the child's slot is free", func(s session.State) bool { return len(s.Children) == 0 })
	child := children(w.open(id).Events())[0]
	w.coordinate() // which comes later
	late := w.stores[1]
	eventually(t, "it has read to the end", func() bool { e, err := late.Session(id); return err == nil && e.State.Next >= s.Next })
	for of, want := range map[session.ID][]session.Type{
		child: {session.TypeDescriptor, session.TypeClaim, session.TypeTurnStart, session.TypeTurnEnd, session.TypeEnd},
		id:    {session.TypeTurnStart, session.TypeToolDecision, session.TypeTurnPark, session.TypeTurnWake, session.TypeTurnEnd},
	} {
		var got []session.Type
		e, err := late.Session(of)
		w.must(err)
		w.must(late.Events(of, 0, e.State.Next, func(e session.Event) error {
			if slices.Contains(want, e.Type) {
				got = append(got, e.Type)
			}
			return nil
		}))
		if !slices.Equal(got, want) {
			t.Errorf("the log of %s tells %v, want %v", of, got, want)
		}
	}
	told := slices.ContainsFunc(payloads[*session.UserMessage](w.open(id).Events()), func(m *session.UserMessage) bool {
		return m.Source.Kind == session.FromSettled && m.Source.SenderSessionID == child && strings.Contains(m.Content, "looked")
	})
	if !told {
		t.Error("the parent's log does not tell how its child ended")
	}
}
