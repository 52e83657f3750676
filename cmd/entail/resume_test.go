package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/session"
)

// damage makes a session's log unreadable from its end on: a record of class policy,
// which nobody but a coordinator could publish, is no record.
func (h *household) damage(id session.ID) {
	h.t.Helper()
	nc, err := node.Connect(h.srv.broker.Credentials(broker.Coordinator, string(broker.Coordinator)), slog.New(slog.DiscardHandler))
	h.must(err)
	h.t.Cleanup(nc.Close)
	h.nc = nc
	h.publish(session.Raw{Address: session.Address{Session: id, Class: session.ClassPolicy}, Body: []byte("half a rec")})
}

// all kills every process of the deployment but the broker, which is this one.
func (h *household) all() {
	h.t.Helper()
	for _, name := range []string{"w1", "w2", "coordinator"} {
		h.kill(name)
	}
	h.eventually(func() bool {
		return command{args: []string{"session", "ls", "--dir", h.dir}}.run().exit == exitDone
	})
}

func (h *household) send(id session.ID, content string) {
	h.t.Helper()
	h.must(h.api.Call(h.t.Context(), client.MethodSend, client.SendRequest{
		Head: client.Head{Version: client.APIVersion}, ID: id, MessageID: ulid.Make().String(), Content: content,
	}, nil))
}

// idle waits until a session has ended so many turns and has nothing to do.
func (h *household) idle(id session.ID, turns int) client.Summary {
	h.t.Helper()
	var s client.Summary
	h.eventually(func() bool {
		s = h.show(id)
		return s.Status == client.StatusIdle && s.LastEnd != nil && s.LastEnd.Turn >= turns && s.Pending == 0
	})
	return s
}

// inherits wants a session to be what it was delegated as, by its log: read-only,
// with nobody to ask, and nothing that a switch of its own would be. It returns the
// results of its calls.
func (h *household) inherits(id session.ID) []*session.ToolResult {
	t := h.t
	t.Helper()
	var results []*session.ToolResult
	first := h.show(id).Header.FirstLiveSeq
	for _, e := range h.events(string(id)) {
		if e.seq < first {
			continue // its parent's
		}
		switch p := e.payload.(type) {
		case *session.SandboxSwitch:
			if p.Source != session.SourceDelegation || p.Mode != session.ReadOnly {
				t.Errorf("event %d of %s switches the sandbox: %+v", e.seq, id, p)
			}
		case *session.ApprovalSwitch:
			if p.Source != session.SourceDelegation || p.Policy != session.Never {
				t.Errorf("event %d of %s switches approvals: %+v", e.seq, id, p)
			}
		case *session.PresetSwitch:
			t.Errorf("event %d of %s selects a preset: %+v", e.seq, id, p)
		case *session.ToolDecision:
			if p.Mode != session.ReadOnly {
				t.Errorf("call %s of %s was decided under %s", p.CallID, id, p.Mode)
			}
		case *session.ToolResult:
			results = append(results, p)
		}
	}
	if s := h.show(id); s.Sandbox != session.ReadOnly || s.Approvals != session.Never {
		t.Errorf("%s is shown as %s, %s", id, s.Sandbox, s.Approvals)
	}
	return results
}

// A child is resumed from its own log alone: with every process killed and its
// parent's records unreadable, the next message to a spawned child and to a forked
// one, whose prefix is the parent's, runs under the policy that it was delegated.
func TestSPEC4_7_AChildResumesWithoutItsParent(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	id := h.start(`
sessions:
  root:
    - text: before
    - calls:
        - {id: s, tool: delegate, args: {kind: spawn, mode: continuable, label: spawned, prompt: look, background: true}}
        - {id: f, tool: delegate, args: {kind: fork, mode: continuable, label: forked, prompt: look, background: true}}
    - text: delegated
    - text: heard
    - text: heard
  spawned:
    - text: ready
    - calls: [{id: w, tool: write, args: {path: made, content: x}}]
    - text: refused
  forked:
    - text: ready
    - calls: [{id: w, tool: write, args: {path: made, content: x}}]
    - text: refused
`, func(in *client.CreateRequest) { in.Sandbox = session.ReadOnly })
	h.idle(id, 1)
	h.send(id, "delegate")
	h.idle(id, 2)
	kids := h.show(id).Children
	if len(kids) != 2 {
		t.Fatalf("the parent has the children %v, want two:\n%s", kids, h.entail("session", "tail", string(id)))
	}
	for _, kid := range kids {
		h.idle(kid, 1)
	}
	h.idle(id, 2)
	h.damage(id)
	h.eventually(func() bool { return strings.Contains(string(h.show(id).Status), "stopped") })
	h.all()
	for _, kid := range kids {
		h.send(kid, "and now write")
		turn := h.show(kid).LastEnd.Turn
		h.eventually(func() bool { s := h.show(kid); return s.LastEnd.Turn > turn && s.Status == client.StatusIdle })
		results := h.inherits(kid)
		if len(results) != 1 || !results[0].Denied {
			t.Errorf("the call of %s has the results %+v, want one denial", kid, results)
		}
	}
	if s := h.show(id); s.Stopped == "" {
		t.Errorf("the parent is %s, want stopped", s.Status)
	}
}

// What happens to a child between its genesis and its first claim does not touch what
// it was delegated: an interrupt, which finds no turn, a person's message, and the
// death of every worker. There is no first prompt that could be vetoed, and no moment
// at which the child is there and its policy is not (SPEC 4.4).
func TestSPEC4_4_NothingComesBetweenGenesisAndPolicy(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	endless := func() { h.start(storyEndless) }
	for range slots - 1 {
		endless()
	}
	h.begun(slots - 1)
	id := h.start(`
sessions:
  root:
    - calls:
        - {id: d, tool: delegate, args: {kind: spawn, mode: continuable, label: child, prompt: look, background: true}}
        - {id: b, tool: bash, args: {command: "sleep 1000"}}
    - text: went on
    - text: heard
  child:
    - calls: [{id: w, tool: write, args: {path: made, content: x}}]
    - text: first
    - calls: [{id: w, tool: bash, args: {command: "echo x >made"}}]
    - text: second
`, func(in *client.CreateRequest) { in.Sandbox = session.ReadOnly })
	h.eventually(func() bool { return len(h.show(id).Children) == 1 })
	child := h.show(id).Children[0]
	var reply client.StopReply
	h.must(h.api.Call(t.Context(), client.MethodInterrupt, client.StopRequest{
		Head: client.Head{Version: client.APIVersion}, ID: child, RequestID: ulid.Make().String(),
	}, &reply))
	h.send(child, "and this")
	if s := h.show(child); s.Turn != 0 || s.Pending != 2 || reply.Note == "" {
		t.Fatalf("the child is %+v after %+v, want one that nobody has claimed, with two messages: the test is void", s, reply)
	}
	h.kill("w1")
	h.kill("w2")
	h.eventually(func() bool {
		s := h.show(child)
		return s.Status == client.StatusIdle && s.Pending == 0 && s.LastEnd != nil
	})
	results := h.inherits(child)
	if len(results) == 0 {
		t.Error("the child made no call")
	}
	for _, r := range results {
		if !r.Denied {
			t.Errorf("call %s has the result %+v, want a denial", r.CallID, r)
		}
	}
	var claims, consumed int
	for _, e := range h.events(string(child)) {
		switch p := e.payload.(type) {
		case *session.Claim:
			claims++
		case *session.Consumed:
			consumed += len(p.Seqs)
		}
	}
	if claims == 0 || consumed != 2 {
		t.Errorf("%d claims and %d messages consumed, want each of two messages once", claims, consumed)
	}
	var policy client.PolicyReply
	h.must(json.Unmarshal([]byte(h.entail("policy", "get", string(child), "-o", "json")), &policy))
	if got := fmt.Sprint(policy.Sandbox, policy.Approvals); !strings.Contains(got, "read-only") || !strings.Contains(got, "never") {
		t.Errorf("the child's policy is %s", got)
	}
}
