package agent_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// append writes one record as an identity of the broker may.
func (w *world) append(role broker.Role, name string, id session.ID, class session.Class, payloads ...session.Payload) {
	w.t.Helper()
	log, err := stream.New(w.broker.Conn(w.t, role, name), stream.Config{Witness: w.store})
	w.must(err)
	rep := w.open(id)
	s, _ := rep.State()
	epoch := s.Epoch
	if c, ok := payloads[0].(*session.Claim); ok {
		epoch = c.Epoch
	}
	_, err = log.Append(w.t.Context(), rep, id, stream.Change{
		Name: "write for a test", Class: class,
		Epoch: func(session.View) uint64 { return epoch },
		Drafts: func(session.View) ([]session.Draft, error) {
			var out []session.Draft
			for _, p := range payloads {
				out = append(out, session.Draft{Time: time.Now().UnixMilli(), Payload: p})
			}
			return out, nil
		},
	})
	w.must(err)
}

// begun brings a session to where a worker that is gone has left its one call, and
// decides that as it would have.
func (w *world) begun(id session.ID, c policy.Call, arguments string) policy.Decision {
	w.t.Helper()
	s, _ := w.open(id).State()
	w.must(sandbox.Mark(w.dir, s.Header.Workspace.ID)) // as that worker did
	w.append(broker.Worker, "w2", id, session.ClassTurn,
		&session.Claim{Epoch: 1, Worker: "w2", Incarnation: "gone", Cause: session.CauseStart}, &session.TurnStart{Turn: 1},
		&session.Consumed{Turn: 1, Seqs: []session.Seq{s.Pending[0].Seq}}, &session.StepStart{Turn: 1, Step: 1},
		&session.AssistantMessage{Turn: 1, Step: 1, Calls: []int{0}},
		&session.ToolCall{Turn: 1, Step: 1, CallID: c.ID, Name: c.Tool, Arguments: arguments})
	stored, revision, err := w.log.Settings().Load(w.t.Context())
	w.must(err)
	d, err := policy.NewDeployment(stored, revision)
	w.must(err)
	s, _ = w.open(id).State()
	sum := sha256.Sum256([]byte(arguments)) // they are in the one form
	c.Digest = hex.EncodeToString(sum[:])
	dec, err := policy.Decide(s, d, c, agent.Tools())
	w.must(err)
	return dec
}

// asked brings a session to where a worker that is gone has parked it on the
// question whether its one call, of bash with these arguments, may run wider.
func (w *world) asked(id session.ID, want session.SandboxMode, arguments string) session.ApprovalAsked {
	w.t.Helper()
	dec := w.begun(id, policy.Call{ID: "1.1.0", Tool: "bash", Effect: true, Escalate: want, Justification: "please"}, arguments)
	q, ok := dec.(policy.Question)
	if !ok {
		w.t.Fatalf("the call was decided %+v, want a question", dec)
	}
	rec, ask := q.Record(), q.Ask()
	w.append(broker.Worker, "w2", id, session.ClassTurn, &rec, &ask,
		&session.TurnPark{Turn: 1, WaitsFor: []session.Wait{{Kind: session.WaitApproval, ID: ask.ID}}})
	return ask
}

func bashArguments(command string, want session.SandboxMode) string {
	return fmt.Sprintf(`{"command":%q,"justification":"please","sandbox_permissions":%q}`, command, want)
}

// A grant lets exactly its call run under the wider mode and with that mode's
// network. The same command without it is refused by the fence, the same wish is
// asked about anew, and the session's mode is what it was.
func TestESC05_AGrantedCallAloneRunsWider(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unswept)
	id := w.root(`
sessions:
  root:
    - text: the call above
    - calls:
        - {id: p, tool: bash, args: {command: "echo plain > plain"}}
        - {id: e, tool: bash, args: {command: "echo granted > granted; echo again > again", sandbox_permissions: workspace-write, justification: please}}
    - text: done
`, func(in *client.CreateRequest) { in.Sandbox, in.Surface = session.ReadOnly, session.SurfaceAny })
	ask := w.asked(id, session.WorkspaceWrite, bashArguments("echo granted > granted", session.WorkspaceWrite))
	if exists(w.path("granted")) {
		t.Fatal("it ran before it was granted")
	}
	w.append(broker.Coordinator, "coordinator", id, session.ClassInbox, &session.ApprovalDecided{
		ID: ask.ID, Outcome: session.AllowedOnce, By: &session.Party{Kind: session.Person, ID: "ada"},
	})
	w.work("w1", 1)
	again := w.until(id, "the same wish asks again", func(s session.State) bool { return s.Open != nil && s.Open.Parked && len(s.Questions()) == 1 })
	if _, err := w.answer(id, again, session.Rejected, ""); err != nil {
		t.Fatal(err)
	}
	s := w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	if b, err := os.ReadFile(w.path("granted")); err != nil || string(b) != "granted\n" {
		t.Errorf("the granted call left %q, %v", b, err)
	}
	granted := w.ranUnder(events, "1.1.0", session.WorkspaceWrite, session.NetworkAllow)
	if granted.Grant != ask.ID || granted.By != session.StageApproval {
		t.Errorf("it was decided %+v, want by grant %s", granted, ask.ID)
	}
	if plain := w.ranUnder(events, "1.2.0", session.ReadOnly, session.NetworkDeny); plain.Grant != "" {
		t.Errorf("the next call was decided %+v", plain)
	}
	if r := resultOf(t, events, "1.2.0"); !r.Denied || exists(w.path("plain")) {
		t.Errorf("the next call has result %+v, want the fence's refusal", r)
	}
	if r := resultOf(t, events, "1.2.1"); !r.Denied || r.Effect != nil || exists(w.path("again")) {
		t.Errorf("the same wish again has result %+v, want a denial and no effect", r)
	}
	if asked := payloads[*session.ApprovalAsked](events); len(asked) != 2 {
		t.Errorf("%d questions were asked, want one for each wish", len(asked))
	}
	if k := s.Knobs.Sandbox; k.Value != session.ReadOnly {
		t.Errorf("the session is under %q afterwards", k.Value)
	}
}

// An answer that does not grant starts nothing.
func TestESC06_ARefusedCallStartsNothing(t *testing.T) {
	t.Parallel()
	for _, o := range []session.Outcome{session.Rejected, session.Cancelled, session.Unavailable} {
		t.Run(string(o), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, unswept)
			id := w.root("sessions:\n  root: [{text: the call}, {text: done}]\n", func(in *client.CreateRequest) { in.Sandbox, in.Surface = session.ReadOnly, session.SurfaceAny })
			ask := w.asked(id, session.WorkspaceWrite, bashArguments("echo x > made", session.WorkspaceWrite))
			w.append(broker.Coordinator, "coordinator", id, session.ClassInbox, &session.ApprovalDecided{
				ID: ask.ID, Outcome: o, By: &session.Party{Kind: session.Person, ID: "ada"},
			})
			w.work("w1", 1)
			w.idle(id)
			events := w.open(id).Events()
			onceEach(t, events)
			if r := resultOf(t, events, "1.1.0"); !r.Denied || r.Effect != nil || exists(w.path("made")) {
				t.Errorf("the call has result %+v, want a denial and no effect", r)
			}
		})
	}
}

// ranUnder wants a call to be decided and to have run under a mode with a network,
// and returns the decision.
func (w *world) ranUnder(events []session.Event, call session.CallID, mode session.SandboxMode, network session.Network) *session.ToolDecision {
	w.t.Helper()
	r := resultOf(w.t.(*testing.T), events, call)
	for _, d := range payloads[*session.ToolDecision](events) {
		if d.CallID != call || d.Verdict != session.Allow {
			continue
		}
		if r.Effect == nil {
			w.t.Fatalf("call %s has no effect: %+v", call, r)
		}
		held := r.Effect.Sandbox
		if d.Mode != mode || d.Network != network || held.Mode != mode || held.Network != network {
			w.t.Errorf("call %s was decided %s, network %s and ran under %s, network %s; want %s and %s", call, d.Mode, d.Network, held.Mode, held.Network, mode, network)
		}
		if confined := mode != session.DangerFullAccess; confined == (held.Tier == session.TierNone) || confined == (held.Enforcement == session.NotEnforced) {
			w.t.Errorf("call %s was held by %+v", call, held)
		}
		return d
	}
	w.t.Fatalf("call %s was not allowed:\n%s", call, list(events))
	return nil
}

// Half an escalation is no call, for every tool that may ask for one: nothing is
// decided, nothing is asked, nothing runs.
func TestESC01_HalfAnEscalationRunsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - calls:
        - {id: a, tool: bash, args: {command: "touch f", sandbox_permissions: danger-full-access}}
        - {id: b, tool: bash, args: {command: "touch f", justification: please}}
        - {id: c, tool: bash, args: {command: "touch f", sandbox_permissions: danger-full-access, justification: "  "}}
        - {id: d, tool: write, args: {path: f, content: x, sandbox_permissions: danger-full-access}}
        - {id: e, tool: edit, args: {path: f, old: x, new: y, justification: please}}
        - {id: f, tool: delegate, args: {kind: spawn, label: l, prompt: p, sandbox_permissions: danger-full-access}}
        - {id: g, tool: read, args: {path: f, sandbox_permissions: danger-full-access, justification: please}}
    - text: done
`, func(in *client.CreateRequest) { in.Surface = session.SurfaceAny })
	w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	for i := range 7 {
		call := session.MakeCallID(1, 1, i)
		if r := resultOf(t, events, call); r.Code != session.CodeToolNotStarted || r.Denied || r.Effect != nil {
			t.Errorf("result of %s is %+v, want %s and no effect", call, r, session.CodeToolNotStarted)
		}
	}
	if len(payloads[*session.ToolDecision](events))+len(payloads[*session.ApprovalAsked](events)) > 0 || exists(w.path("f")) {
		t.Errorf("something was decided, asked or run:\n%s", list(events))
	}
}

// A tool's schema offers the modes that can be wider than another, with a
// justification, where a call can have an effect and nowhere else.
func TestESC01_OnlyWiderModesAreOffered(t *testing.T) {
	t.Parallel()
	offered := 0
	for _, tool := range newLedger(t).opened().f.Offered() {
		schema := string(tool.Parameters)
		if !strings.Contains(schema, "sandbox_permissions") {
			continue
		}
		offered++
		if !strings.Contains(schema, `"sandbox_permissions": {"type": "string", "enum": ["workspace-write", "danger-full-access"]`) || !strings.Contains(schema, `"justification"`) {
			t.Errorf("%s offers %s", tool.Name, schema)
		}
	}
	if offered != 4 {
		t.Errorf("%d tools offer an escalation, want write, edit, bash and delegate", offered)
	}
}

// What a shell says is no denial: it takes a failed command, which no signal ended,
// and one of the fence's errors on its standard error.
func TestESC08_DenialsAreTheFencesOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root(`
sessions:
  root:
    - calls:
        - {id: a, tool: bash, args: {command: "echo access denied >&2; echo denied; exit 1"}}
        - {id: b, tool: bash, args: {command: "echo Permission denied; exit 1"}}
        - {id: c, tool: bash, args: {command: "echo Permission denied >&2"}}
        - {id: d, tool: bash, args: {command: "echo Permission denied >&2; kill -KILL $$"}}
        - {id: e, tool: bash, args: {command: "touch /etc/entail-was-here"}}
        - {id: f, tool: write, args: {path: /etc/entail-was-here, content: x}}
        - {id: g, tool: read, args: {path: nothing-there}}
    - text: done
`)
	s := w.idle(id)
	events := w.open(id).Events()
	onceEach(t, events)
	for call, want := range map[session.CallID]struct {
		denial session.Denial
		exit   int
		signal string
		code   string
	}{
		"1.1.0": {session.DenialNone, 1, "", ""},
		"1.1.1": {session.DenialNone, 1, "", ""},
		"1.1.2": {session.DenialNone, 0, "", ""},
		"1.1.3": {session.DenialNone, 137, "SIGKILL", ""},
		"1.1.4": {session.DenialSuspected, 1, "", session.CodeSandboxDenied},
		"1.1.5": {session.DenialCertain, 0, "", session.CodeSandboxDenied},
		"1.1.6": {session.DenialNone, 0, "", "FS_NOT_FOUND"},
	} {
		w.ranUnder(events, call, session.WorkspaceWrite, session.NetworkAllow)
		r := resultOf(t, events, call)
		if e := r.Effect; e.Denial != want.denial || e.ExitCode != want.exit || e.Signal != want.signal || e.Limit != "" || e.TimedOut || e.Truncated {
			t.Errorf("call %s has effect %+v, want %+v", call, *e, want)
		}
		denied := want.denial != session.DenialNone
		if r.Denied != denied || strings.Contains(r.Content, "[sandbox: file access denied") != denied || (want.code != "" && r.Code != want.code) {
			t.Errorf("call %s: denied %t, code %q, %q", call, r.Denied, r.Code, r.Content)
		}
		if r.IsError == (call == "1.1.2") {
			t.Errorf("call %s is an error: %t", call, r.IsError)
		}
	}
	if s.Denials != 2 || exists("/etc/entail-was-here") {
		t.Errorf("%d denials, want 2", s.Denials)
	}
}

// The marker stands before the exit code, and the hint last, where an escalation is
// possible at all. Full access has neither.
func TestESC09_MarkerExitCodeHint(t *testing.T) {
	t.Parallel()
	const marker, exit, hint = "[sandbox: file access denied under read-only mode]", "[exit code 1]", "[sandbox: escalation available"
	for name, tt := range map[string]struct {
		change func(*policy.Settings)
		flags  func(*client.CreateRequest)
		hint   bool
	}{
		"somebody can be asked": {nil, func(in *client.CreateRequest) { in.Surface = session.SurfaceAny }, true},
		"nobody is there":       {nil, func(in *client.CreateRequest) { in.Surface = session.SurfaceNone }, false},
		"never":                 {nil, func(in *client.CreateRequest) { in.Surface, in.Approvals = session.SurfaceAny, session.Never }, false},
		"approvals left out": {
			func(s *policy.Settings) { s.Composition.Approvals = false }, func(in *client.CreateRequest) { in.Surface = session.SurfaceAny }, false,
		},
		"switching left out": {
			func(s *policy.Settings) { s.Composition.Sandbox = false }, func(in *client.CreateRequest) { in.Surface = session.SurfaceAny }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *policy.Settings) {
				s.Defaults.Sandbox = session.ReadOnly
				if tt.change != nil {
					tt.change(s)
				}
			})
			w.work("w1", 1)
			id := w.root("sessions:\n  root:\n    - calls: [{id: a, tool: bash, args: {command: touch f}}]\n    - text: done\n", tt.flags)
			w.idle(id)
			text := resultOf(t, w.open(id).Events(), "1.1.0").Content
			at := []int{strings.Index(text, marker), strings.Index(text, exit), strings.Index(text, hint)}
			if at[0] < 0 || at[1] < at[0] || (at[2] > at[1]) != tt.hint || (at[2] >= 0) != tt.hint {
				t.Errorf("marker, exit code and hint stand at %v of %q; want them in order, the hint %t", at, text, tt.hint)
			}
		})
	}
	t.Run("full access", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.work("w1", 1)
		id := w.root("sessions:\n  root:\n    - calls: [{id: a, tool: bash, args: {command: 'echo Permission denied >&2; exit 1'}}]\n    - text: done\n",
			func(in *client.CreateRequest) { in.Sandbox, in.Surface = session.DangerFullAccess, session.SurfaceAny })
		w.idle(id)
		events := w.open(id).Events()
		w.ranUnder(events, "1.1.0", session.DangerFullAccess, session.NetworkAllow)
		if r := resultOf(t, events, "1.1.0"); r.Denied || strings.Contains(r.Content, "[sandbox:") || r.Effect.Denial != session.DenialNone {
			t.Errorf("the call has result %+v", r)
		}
	})
}

// One line says which limit ended a call.
func TestALimitIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 1)
	id := w.root("sessions:\n  root:\n    - calls: [{id: a, tool: bash, args: {command: 'echo begun; sleep 60', timeout: 0.2}}]\n    - text: done\n")
	w.idle(id)
	events := w.open(id).Events()
	w.ranUnder(events, "1.1.0", session.WorkspaceWrite, session.NetworkAllow)
	r := resultOf(t, events, "1.1.0")
	if r.Content != "begun\n[ended by limit time]" || !r.IsError || r.Denied {
		t.Errorf("the call has result %+v", r)
	}
	if e := r.Effect; e.Limit != session.LimitTime || !e.TimedOut || e.Denial != session.DenialNone {
		t.Errorf("the call has effect %+v", e)
	}
}

// A call that only reads is run again under what its decision says and nothing
// else. Where the network of its mode has changed since, its outcome is unknown.
func TestReadsAreRunAgainWithTheirNetworkAlone(t *testing.T) {
	t.Parallel()
	for network, again := range map[session.Network]bool{session.NetworkAllow: true, session.NetworkDeny: false} {
		t.Run(string(network), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, unswept)
			w.must(os.WriteFile(w.path("one.txt"), []byte("first"), 0o600))
			id := w.root("sessions:\n  root: [{text: the call}, {text: done}]\n")
			dec := w.begun(id, policy.Call{ID: "1.1.0", Tool: "read"}, `{"path":"one.txt"}`)
			rec := dec.Record()
			if rec.Network != session.NetworkAllow {
				t.Fatalf("the call was decided %+v", rec)
			}
			rec.Network = network // what the settings said then
			w.append(broker.Worker, "w2", id, session.ClassTurn, &rec)
			w.work("w1", 1)
			w.idle(id)
			r := resultOf(t, w.open(id).Events(), "1.1.0")
			if again && (r.IsError || !strings.Contains(r.Content, "first")) {
				t.Errorf("the call has result %+v, want what it read", r)
			}
			if !again && (r.Code != session.CodeToolOutcomeUnknown || r.Effect != nil) {
				t.Errorf("the call has result %+v, want %s and no effect", r, session.CodeToolOutcomeUnknown)
			}
		})
	}
}
