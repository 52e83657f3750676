package golden_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// The sessions of the story. Their ids follow from fixed ULIDs and call ids.
var (
	keeper   = rootID(1)                        // two turns, the second one interrupted
	child    = session.ChildID(keeper, "1.1.1") // spawned by the keeper, has ended
	grand    = session.ChildID(child, "1.1.0")  // spawned by the child, nothing but its genesis
	fork     = session.ChildID(keeper, "2.1.0") // forked from the keeper after it was switched
	persons  = forkID(keeper, 1)                // a person's fork of the keeper
	full     = rootID(2)                        // Full access, parked
	fullkid  = session.ChildID(full, "1.1.0")   // what it waits for
	released = rootID(3)                        // stopped, released, goes on
	needy    = rootID(5)                        // asks something of its workers, since format 2
	needykid = session.ChildID(needy, "1.1.0")  // has what it asks handed down
	broken   = rootID(4)                        // stopped
)

const (
	vendorTurn   = `{"type":"vendor/note","seq":%d,"time":1,"data":{"z":1,"a":[1.50,-0,1e3,null,{"é":"\u0041\/\t"}],"a":2},"ignorable":true}`
	vendorPolicy = `{"type":"vendor/audit","seq":%d,"time":-5,"data":null,"ignorable":true}`
)

var (
	person = session.Party{Kind: session.Person, ID: "ann"}
	tools  = []string{"read", "write", "bash", "delegate"}
)

func rootID(n int) session.ID {
	id, err := session.RootID(ulidOf(n), 1)
	if err != nil {
		panic("unreachable: " + err.Error())
	}
	return id
}

func forkID(root session.ID, n int) session.ID {
	id, err := session.ForkID(root, ulidOf(n))
	if err != nil {
		panic("unreachable: " + err.Error())
	}
	return id
}

func ulidOf(n int) string { return fmt.Sprintf("01k9z3x5q8r7m6n4p2v0w1%04d", n) }

// teller writes the story through the one append, into a real stream that a real
// mirror follows.
type teller struct {
	t     *testing.T
	nc    *nats.Conn
	log   *stream.Log
	store *sessionstore.Store
	dep   policy.Deployment
	clock int64
}

// tell writes the story and returns all records, and the mirror's directory, closed.
func tell(t *testing.T) (records []session.Raw, mirror string) {
	t.Helper()
	server := natstest.Start(t)
	owner, err := stream.New(server.Conn(t, broker.Provisioner, string(broker.Provisioner)), stream.Config{})
	must(t, err)
	must(t, owner.Provision(t.Context(), stream.ProvisionConfig{}))
	mirror = filepath.Join(t.TempDir(), "mirror")
	store, err := sessionstore.Open(sessionstore.Config{Dir: mirror})
	must(t, err)
	s := &teller{t: t, nc: server.Conn(t, broker.Coordinator, string(broker.Coordinator)), store: store, clock: 1_760_000_000_000}
	s.log, err = stream.New(s.nc, stream.Config{Witness: store, Writer: session.Writer{Component: "golden", Instance: "one", Incarnation: "1"}})
	must(t, err)
	settings, err := policy.DefaultSettings().Encode()
	must(t, err)
	s.dep, err = policy.NewDeployment(settings, 1)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx, feed{s.log}, 0) }()

	s.story()

	records = s.all()
	must(t, store.WaitFor(t.Context(), 0, records[len(records)-1].StreamSeq))
	cancel()
	must(t, errors.Join(<-ended, store.Close()))
	return records, mirror
}

func (s *teller) story() {
	s.root(delegation.Root{ID: keeper, Label: "keeper", Sandbox: session.WorkspaceWrite, Prompt: "keep this"})
	s.keeperBegins()
	s.childLives()
	s.vendor(keeper, session.ClassTurn, vendorTurn)
	s.voids()
	s.write(keeper, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: &person})
	s.vendor(keeper, session.ClassPolicy, vendorPolicy)
	s.keeperIsInterrupted()
	s.personForks()
	s.parks()
	s.release()
	s.needs()
	s.breaks()
}

// needs is a session that not every worker may drive, and its child.
func (s *teller) needs() {
	s.root(delegation.Root{ID: needy, Label: "needy", Prompt: "draw", Needs: &session.Needs{Labels: []string{"gpu", "zone=b"}, Tier: session.TierUID}})
	s.begin(needy, 1, "w1", 1)
	s.step(needy, 1, wanted{session.ToolDelegate, `{"kind":"spawn","label":"kid","prompt":"draw it"}`})
	s.delegate(needy, "1.1.0", delegation.Request{Kind: session.Spawn, Mode: session.OneShot, Label: "kid", Prompt: "draw it"})
}

// keeperBegins is the first turn: one call that runs, and a child.
func (s *teller) keeperBegins() {
	s.begin(keeper, 1, "w1", 2)
	s.step(keeper, 1, wanted{"write", `{"path": "a.txt", "content": "<&>"}`},
		wanted{session.ToolDelegate, `{"kind":"spawn","label":"child","prompt":"help","persona":"a helper"}`})
	s.write(keeper, session.ClassTurn, s.decision(keeper, "1.1.0", "write"))
	s.write(keeper, session.ClassTurn, s.result(keeper, "1.1.0", ""))
	s.delegate(keeper, "1.1.1", delegation.Request{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "help", Persona: "a helper"})
	s.write(keeper, session.ClassTurn, s.result(keeper, "1.1.1", ""), s.stepEnd(keeper), s.turnEnd(keeper, session.EndCompleted))
}

// childLives is the child's one turn: a grandchild, and an escalation that nobody is
// asked about. Its end reaches the keeper once, and frees its slot.
func (s *teller) childLives() {
	last := s.state(child).Next - 1
	s.begin(child, 1, "w1", last)
	s.step(child, 1,
		wanted{session.ToolDelegate, `{"kind":"spawn","mode":"continuable","label":"grandchild","prompt":"look","sandbox":"read-only","tools":{"deny":["bash"]}}`},
		wanted{"write", `{"path":"/x","content":"x","sandbox_permissions":"danger-full-access","justification":"outside"}`})
	s.delegate(child, "1.1.0", delegation.Request{
		Kind: session.Spawn, Mode: session.Continuable, Label: "grandchild", Prompt: "look", Sandbox: session.ReadOnly,
		Tools: &session.ToolFilter{Deny: []string{"bash"}},
	})
	s.write(child, session.ClassTurn, s.result(child, "1.1.0", ""))
	allowed := s.decision(child, "1.1.1", "write")
	denial := &session.ToolDecision{
		CallID: allowed.CallID, Verdict: session.Deny, Mode: allowed.Mode, Basis: allowed.Basis, By: session.StageApproval,
		Reason: "approvals are never", Final: true, Revision: allowed.Revision, Settings: allowed.Settings,
	}
	s.write(child, session.ClassTurn,
		&session.ApprovalAsked{
			ID: "q1", CallID: "1.1.1", ToolName: "write", Digest: strings.Repeat("0a", 32), Mode: session.DangerFullAccess, Basis: denial.Basis,
			Reason: "escalate sandbox to danger-full-access: outside",
		},
		&session.ApprovalDecided{ID: "q1", Outcome: session.Rejected}, denial, s.result(child, "1.1.1", "SANDBOX_DENIED"),
		s.stepEnd(child), s.turnEnd(child, session.EndCompleted))
	s.write(child, session.ClassTurn, &session.End{Outcome: session.OutcomeDenials})
	at := s.state(child)
	by := &session.Party{Kind: session.CoordinatorOwn, ID: "c1"}
	s.write(keeper, session.ClassInbox, &session.UserMessage{
		ID: session.NoticeID(child, 1, at.LastEnd.Seq), Role: "user", Content: "the child is done", By: by,
		Source: session.MessageSource{
			Kind: session.FromSettled, Form: "notice", Summary: "done", SenderSessionID: child, Turn: 1, Seq: at.LastEnd.Seq,
			Outcome: string(session.OutcomeDenials),
		},
	}, &session.Closed{ID: "closed-" + string(child), Child: child, Reason: "it has ended", By: by})
}

// voids are what one worker can write and nobody reads: half a record, and the
// attack that SPEC 3.1 names.
func (s *teller) voids() {
	s.publish(keeper, session.ClassTurn, `{"type":"turn/start","se`)
	at := s.state(keeper).Next
	s.publish(keeper, session.ClassTurn, fmt.Sprintf(`{"type":"sandbox/mode","seq":%d,"time":1,"data":{"mode":"danger-full-access"}}`+"\n", at))
}

// keeperIsInterrupted is the second turn, on another worker: a fork, a call that is
// interrupted before it started.
func (s *teller) keeperIsInterrupted() {
	s.write(keeper, session.ClassInbox, s.message("m2", "go on"))
	pending := s.state(keeper).Pending
	var seqs []session.Seq
	for _, m := range pending {
		seqs = append(seqs, m.Seq)
	}
	s.begin(keeper, 2, "w2", seqs...)
	s.step(keeper, 1, wanted{session.ToolDelegate, `{"kind":"fork","mode":"continuable","label":"fork","prompt":"go your way"}`},
		wanted{"bash", `{"command":"make"}`})
	s.delegate(keeper, "2.1.0", delegation.Request{Kind: session.Fork, Mode: session.Continuable, Label: "fork", Prompt: "go your way"})
	s.write(keeper, session.ClassInbox, &session.Interrupt{ID: "stop", Turn: 2, Reason: "enough", By: &person})
	s.write(keeper, session.ClassTurn, s.result(keeper, "2.1.0", ""), s.result(keeper, "2.1.1", session.CodeToolNotStarted),
		s.stepEnd(keeper), s.turnEnd(keeper, session.EndAborted))
}

// personForks is a person's fork at the keeper's last event, and a switch in it.
func (s *teller) personForks() {
	f := delegation.Fork{ID: persons, By: person, Time: s.now(), Source: keeper, Label: "mine", Prompt: "what if"}
	source := s.state(keeper)
	_, err := s.log.Append(s.t.Context(), s.store, persons, stream.Change{
		Name: "fork", Inherits: source.InheritAll(),
		Genesis: func(session.View) (session.Record, error) { return f.Genesis(source) },
	})
	must(s.t, err)
	s.write(persons, session.ClassPolicy, &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: &person})
}

// parks is Full access: the identity goes down to a child, and the turn parks until
// the child is done.
func (s *teller) parks() {
	s.root(delegation.Root{ID: full, Label: "full", Preset: session.PresetFullAccess, Prompt: "do", Surface: session.SurfaceAny})
	s.begin(full, 1, "w1", 4)
	s.step(full, 1, wanted{session.ToolDelegate, `{"kind":"spawn","label":"kid","prompt":"do it"}`})
	s.delegate(full, "1.1.0", delegation.Request{Kind: session.Spawn, Mode: session.OneShot, Label: "kid", Prompt: "do it"})
	s.write(full, session.ClassTurn, &session.TurnPark{Turn: 1, WaitsFor: []session.Wait{{Kind: session.WaitChild, ID: string(fullkid)}}})
}

// release is a session that somebody stopped with a record that may have been policy,
// and that a person let go on.
func (s *teller) release() {
	s.root(delegation.Root{ID: released, Label: "released", Sandbox: session.WorkspaceWrite})
	at := s.publish(released, session.ClassPolicy, "\x00\xff not a record")
	must(s.t, s.store.WaitFor(s.t.Context(), 0, at))
	halt, err := s.store.Halted(released)
	must(s.t, err)
	_, err = s.log.Append(s.t.Context(), sessionstore.Releases{Store: s.store}, released, stream.Change{
		Name: "release", Class: session.ClassPolicy,
		Drafts: func(v session.View) ([]session.Draft, error) {
			return []session.Draft{{Time: s.now(), Payload: &session.Release{
				Skip: halt.Since, Seq: v.State.Next, Link: v.State.Link, Reason: "looked at", By: &person,
			}}}, nil
		},
	})
	must(s.t, err)
	s.write(released, session.ClassInbox, s.message("m1", "and on"))
}

// breaks is a session that stays stopped.
func (s *teller) breaks() {
	s.root(delegation.Root{ID: broken, Label: "broken", Approvals: session.Never})
	s.publish(broken, session.ClassInbox, `{"hello":"world"}`+"\n")
}

func (s *teller) now() int64 { s.clock++; return s.clock }

func (s *teller) message(id, content string) *session.UserMessage {
	return &session.UserMessage{ID: id, Role: "user", Content: content, By: &person, Source: session.MessageSource{Kind: session.FromUser}}
}

func (s *teller) root(r delegation.Root) {
	s.t.Helper()
	r.Tenant, r.By, r.Time, r.Cwd, r.Provider, r.Model = "default", person, s.now(), "/work/repo", "scripted", "story"
	r.Script = "sessions: {root: [{text: done}]}"
	r.Workspace = session.Workspace{Kind: session.WorkspaceHost, Label: "host", Path: "/work/repo", ID: "w-1"}
	_, err := s.log.Append(s.t.Context(), s.store, r.ID, stream.Change{
		Name: "create", Genesis: func(session.View) (session.Record, error) { return r.Genesis(s.dep) },
	})
	must(s.t, err)
}

// state is what a session folds to, with all that is in the stream.
func (s *teller) state(id session.ID) session.State {
	s.t.Helper()
	info, err := s.log.Info(s.t.Context(), 0)
	must(s.t, err)
	v, err := s.store.View(s.t.Context(), id, info.LastSeq)
	must(s.t, err)
	return v.State
}

func (s *teller) write(id session.ID, class session.Class, payloads ...session.Payload) {
	s.t.Helper()
	s.state(id) // so that the view is the newest
	c := stream.Change{Name: "golden", Class: class, Drafts: func(session.View) ([]session.Draft, error) {
		var out []session.Draft
		for _, p := range payloads {
			out = append(out, session.Draft{Time: s.now(), Payload: p})
		}
		return out, nil
	}}
	if class == session.ClassTurn {
		c.Epoch = func(v session.View) uint64 {
			if claim, ok := payloads[0].(*session.Claim); ok {
				return claim.Epoch
			}
			return v.State.Epoch
		}
	}
	_, err := s.log.Append(s.t.Context(), s.store, id, c)
	must(s.t, err)
}

// begin claims a session, opens a turn and consumes messages.
func (s *teller) begin(id session.ID, turn int, worker string, seqs ...session.Seq) {
	s.t.Helper()
	s.write(id, session.ClassTurn,
		&session.Claim{Epoch: s.state(id).Epoch + 1, Worker: worker, Incarnation: worker + "-1", Cause: session.CauseStart},
		&session.TurnStart{Turn: turn}, &session.Consumed{Turn: turn, Seqs: seqs},
		&session.UserMessage{
			ID: fmt.Sprintf("context-%d", turn), Role: "user", Content: "[entail] sandbox, approvals, delegation",
			Source: session.MessageSource{Kind: session.FromPlugin, Form: "snapshot", Plugin: "entail", Sections: []string{"sandbox:policy", "approval:policy"}},
		})
}

// wanted is a call that the model wants.
type wanted struct{ tool, arguments string }

// step asks the model, which wants calls.
func (s *teller) step(id session.ID, step int, calls ...wanted) {
	s.t.Helper()
	turn := s.state(id).Turn
	answer := &session.AssistantMessage{
		Turn: turn, Step: step, Content: "I shall", Model: "story-1", Finish: "tool_calls",
		Usage: &session.Usage{InputTokens: 10, OutputTokens: 3}, Extent: s.extent(id),
	}
	out := []session.Payload{answer}
	for i, c := range calls {
		answer.Calls = append(answer.Calls, i)
		out = append(out, &session.ToolCall{
			Turn: turn, Step: step, Index: i, CallID: session.MakeCallID(turn, step, i), ModelID: "call_0", Name: c.tool, Arguments: c.arguments,
		})
	}
	s.write(id, session.ClassTurn, &session.StepStart{Turn: turn, Step: step},
		&session.RequestHeader{Turn: turn, Step: step, Provider: "scripted", Model: "story", Tools: tools, System: strings.Repeat("5", 64), Attempt: 1})
	s.write(id, session.ClassTurn, out...)
}

func (s *teller) extent(id session.ID) session.Extent {
	o := s.state(id).Open
	return session.Extent{StartSeq: o.StartSeq, StartTime: o.StartTime, Worker: "w1", Incarnation: "w1-1", Attempt: 1}
}

func (s *teller) decision(id session.ID, call session.CallID, tool string) *session.ToolDecision {
	s.t.Helper()
	d, err := policy.Decide(s.state(id), s.dep, policy.Call{ID: call, Tool: tool, Effect: true}, tools)
	must(s.t, err)
	permit, ok := d.(policy.Permit)
	if !ok {
		s.t.Fatalf("call %s of %s is not allowed: %+v", call, id, d)
	}
	record := permit.Record()
	return &record
}

func (s *teller) result(id session.ID, call session.CallID, code string) *session.ToolResult {
	turn, step, _, _ := call.Parts()
	r := &session.ToolResult{Turn: turn, Step: step, CallID: call, Content: "done <&> \u2028 é", Extent: s.extent(id)}
	if code != "" {
		r.IsError, r.Code, r.Denied, r.Content = true, code, code == "SANDBOX_DENIED", "not done"
	}
	return r
}

func (s *teller) stepEnd(id session.ID) *session.StepEnd {
	at := s.state(id)
	return &session.StepEnd{Turn: at.Turn, Step: at.Open.Step, Extent: s.extent(id)}
}

func (s *teller) turnEnd(id session.ID, kind session.EndKind) *session.TurnEnd {
	return &session.TurnEnd{Turn: s.state(id).Turn, Reason: session.EndReason{Kind: kind}, Extent: s.extent(id)}
}

// delegate commits a delegating call as a coordinator does.
func (s *teller) delegate(id session.ID, call session.CallID, r delegation.Request) {
	s.t.Helper()
	at := s.state(id)
	wish := r.Wish()
	d, err := policy.Decide(at, s.dep, policy.Call{ID: call, Tool: session.ToolDelegate, Effect: true, Wish: &wish}, tools)
	must(s.t, err)
	permit, ok := d.(policy.Permit)
	if !ok {
		s.t.Fatalf("delegating call %s of %s is not allowed: %+v", call, id, d)
	}
	order := delegation.Order{CallID: call, Request: r, Decision: permit.Record(), Epoch: at.Epoch, Time: s.now(), Tools: tools}
	_, err = s.log.Append(s.t.Context(), s.store, id, stream.Change{
		Name: "delegate", Genesis: func(v session.View) (session.Record, error) { return order.Child(v, s.dep) },
	})
	must(s.t, err)
}

// vendor publishes an event of a type that nobody knows, with right links.
func (s *teller) vendor(id session.ID, class session.Class, form string) {
	s.t.Helper()
	s.publish(id, class, fmt.Sprintf(form, s.state(id).Next)+"\n")
}

// publish puts a record at the end of a session's log by hand: its headers are right,
// its body is what it is.
func (s *teller) publish(id session.ID, class session.Class, body string) uint64 {
	s.t.Helper()
	at := s.state(id)
	after := session.EventLink(at.Link, id, class, []byte(strings.TrimSuffix(body, "\n")))
	m := nats.NewMsg(stream.Subject(session.Address{Session: id, Class: class}))
	m.Data = []byte(body)
	for name, value := range map[string]string{
		session.HeaderFormat: strconv.Itoa(at.Format), session.HeaderSeq: fmt.Sprint(at.Next), session.HeaderCount: "1",
		session.HeaderLinkName: at.Link.String() + " " + after.String(), session.HeaderEpoch: strconv.FormatUint(at.Epoch, 10), session.HeaderWriter: "worker w9 i9",
	} {
		m.Header[name] = []string{value}
	}
	_, err := s.nc.RequestMsg(m, 5*time.Second)
	must(s.t, err)
	info, err := s.log.Info(s.t.Context(), 0)
	must(s.t, err)
	return info.LastSeq
}

// all reads the whole stream.
func (s *teller) all() []session.Raw {
	s.t.Helper()
	info, err := s.log.Info(s.t.Context(), 0)
	must(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	var out []session.Raw
	err = s.log.Follow(ctx, 0, 0, func(raws []session.Raw) error {
		if out = append(out, raws...); out[len(out)-1].StreamSeq == info.LastSeq {
			cancel()
		}
		return nil
	})
	if uint64(len(out)) != info.LastSeq {
		s.t.Fatalf("read %d of %d records: %v", len(out), info.LastSeq, err)
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// feed gives a mirror the stream's records.
type feed struct{ log *stream.Log }

// Info implements sessionstore.Feed.
func (f feed) Info(ctx context.Context, partition int) (incarnation string, first, last uint64, err error) {
	i, err := f.log.Info(ctx, partition)
	return i.Incarnation, i.FirstSeq, i.LastSeq, err
}

// At implements sessionstore.Feed.
func (f feed) At(ctx context.Context, partition int, seq uint64) (session.Raw, error) {
	return f.log.At(ctx, partition, seq)
}

// Follow implements sessionstore.Feed.
func (f feed) Follow(ctx context.Context, partition int, after uint64, fn func([]session.Raw) error) error {
	return f.log.Follow(ctx, partition, after, fn)
}
