package coordinator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// still keeps the sweep out of a test that drives by hand.
func still(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) }

func continuable(s *client.DelegateSpec) { s.Mode = session.Continuable }

// state is what a log folds to, in a mirror that has all there is.
func (d *deployment) state(id session.ID) session.State {
	d.t.Helper()
	d.catchUp()
	e, err := d.store.Session(id)
	d.must(err)
	return e.State
}

// messages are the messages of a log, the prompt among them.
func (d *deployment) messages(id session.ID) []session.UserMessage {
	d.t.Helper()
	d.catchUp()
	var out []session.UserMessage
	d.must(d.store.Events(id, 0, d.state(id).Next, func(e session.Event) error {
		if m, ok := e.Payload.(*session.UserMessage); ok {
			out = append(out, *m)
		}
		return nil
	}))
	return out
}

// A start and a follow-up are answered when the message is in the child's log: before
// anybody drives it, before a turn and before a model is asked. Each message says whose it
// is: the prompt and a follow-up are the parent's, by its session; a person's are a
// person's (SPEC 3.2, 4.4, 7.2).
func TestCON01_CON16_AcceptedIsInTheLog(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	child := d.spawn(root, continuable)
	if s := d.state(child); s.Epoch != 0 || s.Turn != 0 || len(s.Pending) != 1 {
		t.Errorf("the child is in epoch %d, turn %d, with %d messages; want one that nobody has driven, with its prompt", s.Epoch, s.Turn, len(s.Pending))
	}
	_, err := d.said(d.says(root, client.ToolSend, client.Send{To: string(child), Message: "second"}))
	d.must(err)
	d.must(d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: child, MessageID: "m", Content: "third"}, nil))
	if s := d.state(child); s.Epoch != 0 || s.Turn != 0 || len(s.Pending) != 3 {
		t.Errorf("the child is in epoch %d, turn %d, with %d messages, want 3 in its inbox", s.Epoch, s.Turn, len(s.Pending))
	}
	parent := session.Party{Kind: session.SessionParty, ID: string(root)}
	ada := session.Party{Kind: session.Person, ID: "ada"}
	want := []struct {
		text   string
		by     session.Party
		kind   session.MessageKind
		form   string
		sender session.ID
	}{
		{"work", parent, session.FromUser, "", ""},
		{"second", parent, session.FromAgent, "relay", root},
		{"third", ada, session.FromUser, "", ""},
	}
	got := d.messages(child)
	if len(got) != len(want) {
		t.Fatalf("the child has %d messages, want %d", len(got), len(want))
	}
	for i, w := range want {
		m := got[i]
		if m.Content != w.text || m.By == nil || *m.By != w.by || m.Source.Kind != w.kind || m.Source.Form != w.form || m.Source.SenderSessionID != w.sender {
			t.Errorf("message %d is %q from %+v by %+v, want %+v", i, m.Content, m.Source, m.By, w)
		}
	}
}

// A caller that is interrupted before its call was decided has sent nothing; what was
// accepted before stays, whatever becomes of the caller (SPEC 5.1, 7.2).
func TestCON03_AnInterruptReachesNoAcceptedWork(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	child := d.spawn(root, continuable)
	_, err := d.said(d.says(root, client.ToolSend, client.Send{To: string(child), Message: "accepted"}))
	d.must(err)
	s := d.turn(root, func(s session.State) []session.Payload {
		step := s.Open.Step + 1
		return []session.Payload{
			&session.StepStart{Turn: s.Turn, Step: step},
			&session.AssistantMessage{Turn: s.Turn, Step: step, Calls: []int{0}},
			&session.ToolCall{Turn: s.Turn, Step: step, CallID: session.MakeCallID(s.Turn, step, 0), Name: client.ToolSend, Arguments: `{"to":"` + string(child) + `","message":"late"}`},
		}
	})
	d.must(d.api.Call(t.Context(), client.MethodInterrupt, client.StopRequest{Head: head, ID: root, RequestID: "stop"}, nil))
	v, err := d.store.View(t.Context(), root, 0)
	d.must(err)
	in := client.RelayRequest{Head: head, Session: root, Call: session.MakeCallID(s.Turn, s.Open.Step, 0), Epoch: s.Epoch, Tail: v.Tail}
	if err := d.worker.Call(t.Context(), client.MethodRelay, in, nil); client.CodeOf(err) != client.CodePrecondition {
		t.Errorf("a call that nobody decided was carried out: %v", err)
	}
	var texts []string
	for _, m := range d.messages(child) {
		texts = append(texts, m.Content)
	}
	if c := d.state(child); !slices.Equal(texts, []string{"work", "accepted"}) || len(c.Pending) != 2 || c.Stopping() {
		t.Errorf("the child has %q, %d unread, stopping %t", texts, len(c.Pending), c.Stopping())
	}
}

// A driver whose session was taken over speaks for nobody, also with a call that it had
// decided itself; the one that took over carries the call out (SPEC 7.1, 7.6).
func TestCON08_AReplacedDriverSpeaksForNobody(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	child := d.spawn(root, continuable)
	in := d.says(root, client.ToolSend, client.Send{To: string(child), Message: "go on"})
	s := d.turn(root, func(s session.State) []session.Payload {
		return []session.Payload{&session.Claim{Epoch: s.Epoch + 1, Worker: "w1", Incarnation: "i2", Cause: session.CauseTakeover}}
	})
	if err := d.worker.Call(t.Context(), client.MethodRelay, in, nil); client.CodeOf(err) != client.CodePrecondition {
		t.Errorf("the driver of epoch %d spoke in epoch %d: %v", in.Epoch, s.Epoch, err)
	}
	if n := len(d.messages(child)); n != 1 {
		t.Fatalf("the child has %d messages, want its prompt alone", n)
	}
	in.Epoch = s.Epoch
	_, err := d.said(in)
	d.must(err)
	if n := len(d.messages(child)); n != 2 {
		t.Errorf("the child has %d messages, want the follow-up, too", n)
	}
}

// An interrupt by a person needs nobody but the session's log: its parent's driver may be
// gone, and is not asked (SPEC 7.4, 7.6).
func TestINT01_APersonStopsAChildWithoutItsParent(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	child := d.spawn(root, continuable)
	d.endTurn(root) // and nobody drives it any more
	d.claim(child)
	var out client.StopReply
	d.must(d.api.Call(t.Context(), client.MethodInterrupt, client.StopRequest{Head: head, ID: child, RequestID: "stop", Reason: "wrong"}, &out))
	before := d.state(root).Next
	s := d.state(child)
	if out.Turn != 1 || s.Open == nil || s.Open.Interrupt == nil {
		t.Fatalf("answered %+v, the turn is %+v", out, s.Open)
	}
	var found session.Interrupt
	d.must(d.store.Events(child, *s.Open.Interrupt, *s.Open.Interrupt+1, func(e session.Event) error {
		if p, ok := e.Payload.(*session.Interrupt); ok {
			found = *p
		}
		return nil
	}))
	if found.By == nil || found.By.Kind != session.Person || found.By.ID != "ada" || found.Turn != 1 || found.Reason != "wrong" {
		t.Errorf("the log has %+v", found)
	}
	if after := d.state(root).Next; after != before {
		t.Errorf("%d events were added to the parent", after-before)
	}
}

// What has no open turn is not interrupted: a child that was never driven, one that is
// idle, one-shot children that have ended. It is no error, nothing is written, nobody is
// woken; what is no session is none (SPEC 7.4). A second interrupt of one turn, under an
// id of its own, changes nothing that the first did not.
func TestINT04_WithoutAnOpenTurnNothingIsInterrupted(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	fresh, idle, ended := d.spawn(root, continuable), d.spawn(root, continuable), d.spawn(root)
	d.claim(idle)
	d.endTurn(idle)
	d.claim(ended)
	d.endTurn(ended, &session.End{Outcome: session.OutcomeCompleted})
	for _, id := range []session.ID{fresh, idle, ended} {
		before := d.state(id).Next
		reply, err := d.said(d.says(root, client.ToolInterrupt, client.Stop{Session: string(id)}))
		if err != nil || !strings.Contains(reply.Text, "no open turn") || !strings.Contains(reply.Text, string(id)) {
			t.Errorf("interrupt of %s: %q, %v", id, reply.Text, err)
		}
		var out client.StopReply
		d.must(d.api.Call(t.Context(), client.MethodInterrupt, client.StopRequest{Head: head, ID: id, RequestID: "stop"}, &out))
		if after := d.state(id).Next; after != before || out.Turn != 0 || out.Note == "" {
			t.Errorf("an interrupt added %d events to %s and was answered %+v", after-before, id, out)
		}
	}
	d.refused(client.CodeNotFound, client.MethodInterrupt, client.StopRequest{Head: head, ID: unknownID, RequestID: "stop"})
}

// The results of the tools name the session that they are about (SPEC 5.1).
func TestINT07_ResultsNameTheSession(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	child := d.spawn(root, continuable)
	d.claim(child)
	for _, c := range []struct {
		from      session.ID
		tool      string
		arguments any
		names     session.ID
	}{
		{root, client.ToolSend, client.Send{To: "child", Message: "go on"}, child},
		{child, client.ToolReport, client.Report{Message: "so far"}, root},
		{root, client.ToolInterrupt, client.Stop{Session: "child"}, child},
		{root, client.ToolCancel, client.Stop{Session: "child"}, child},
	} {
		if reply, err := d.said(d.says(c.from, c.tool, c.arguments)); err != nil || !strings.Contains(reply.Text, string(c.names)) {
			t.Errorf("%s by %s: %q, %v", c.tool, c.from, reply.Text, err)
		}
	}
}

// A report travels one edge: a grandchild's is its parent's to read, and nobody else is
// told (SPEC 7.3).
func TestRPT04_AReportTravelsOneEdge(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	child := d.spawn(root, continuable)
	d.claim(child)
	grandchild := d.spawn(child, continuable)
	d.claim(grandchild)
	before := d.state(root).Next
	_, err := d.said(d.says(grandchild, client.ToolReport, client.Report{Message: "deep down"}))
	d.must(err)
	all := d.messages(child)
	last := all[len(all)-1]
	if last.Content != "deep down" || last.Source.Kind != session.FromReport || last.Source.SenderSessionID != grandchild || last.By == nil || last.By.ID != string(grandchild) {
		t.Errorf("the parent was told %+v", last)
	}
	if after := d.state(root).Next; after != before {
		t.Errorf("%d events were added to the grandparent", after-before)
	}
}

// From its cancel on a tree takes nothing new, in any of its sessions: no start, no
// follow-up, no report, no message. What was accepted before is named by the end of its
// session, and a cancel again is no second one (SPEC 7.4). The cancels go down from the
// top, before anything ends.
func TestDRN01_DRN06_ACancelledTreeTakesNothing(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	child := d.spawn(root, continuable)
	d.claim(child)
	grandchild := d.spawn(child, continuable)
	d.must(d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: child, MessageID: "before", Content: "just in time"}, nil))
	in := d.says(root, client.ToolSend, client.Send{To: string(child), Message: "too late"})
	up := d.says(child, client.ToolReport, client.Report{Message: "too late"})
	d.claim(grandchild)
	d.step(grandchild, 1)
	start := d.delegations(grandchild, client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "x", Prompt: "x"})
	d.must(d.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: root, RequestID: "stop"}, nil))
	d.catchUp()
	start.Tail = d.tail(grandchild)
	var last uint64
	for _, id := range []session.ID{root, child, grandchild} {
		at := d.at(id, session.TypeCancel)
		if at <= last {
			t.Errorf("the cancel of %s stands at %d, that of its parent at %d", id, at, last)
		}
		last = at
		d.refused(client.CodeDraining, client.MethodSend, client.SendRequest{Head: head, ID: id, MessageID: "after", Content: "too late"})
	}
	before := d.last()
	for what, in := range map[string]client.RelayRequest{"follow-up": in, "report": up} {
		if err := d.worker.Call(t.Context(), client.MethodRelay, in, nil); client.CodeOf(err) != client.CodeDraining {
			t.Errorf("%s: %v, want %s", what, err, client.CodeDraining)
		}
	}
	if code := d.notDelegated(start); code != client.CodePrecondition {
		t.Errorf("a start under a cancel: %s", code)
	}
	d.must(d.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: root, RequestID: "again"}, nil))
	if now := d.last(); now != before {
		t.Errorf("%d records were written after the cancel", now-before)
	}
	pending := d.state(child).Pending
	if len(pending) != 1 || pending[0].Seq >= d.seqOf(child, session.TypeCancel) {
		t.Fatalf("the child has %+v unread, want the message that came before its cancel", pending)
	}
}

// tail is a session's tail.
func (d *deployment) tail(id session.ID) uint64 {
	d.t.Helper()
	v, err := d.store.View(d.t.Context(), id, 0)
	d.must(err)
	return v.Tail
}

// at is the stream sequence of the record whose first event has a type.
func (d *deployment) at(id session.ID, typ session.Type) uint64 {
	d.t.Helper()
	var found uint64
	d.must(d.store.Records(id, func(raw session.Raw) error {
		r, err := session.DecodeRecord(raw)
		if err == nil && r.Own != nil && raw.Address.Session == id && r.Own.Events[0].Type == typ {
			found = raw.StreamSeq
		}
		return nil
	}))
	if found == 0 {
		d.t.Fatalf("session %s has no %s", id, typ)
	}
	return found
}

// seqOf is the seq of the last event of a type.
func (d *deployment) seqOf(id session.ID, typ session.Type) session.Seq {
	d.t.Helper()
	var found session.Seq
	for _, l := range d.lines(id) {
		if l.Type == typ {
			found = l.Seq
		}
	}
	return found
}

// A notice tells of its own turn: what other turns said or were refused is not in it,
// also where it is written late. The last text that is one is a turn's answer; a turn
// that said nothing has none (SPEC 7.3).
func TestSET07_SET13_ANoticeTellsOfItsOwnTurn(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	child := d.spawn(root, continuable)
	say := func(s session.State, texts ...string) (out []session.Payload) {
		for i, text := range texts {
			step := i + 1
			out = append(out, &session.StepStart{Turn: s.Turn, Step: step}, &session.AssistantMessage{Turn: s.Turn, Step: step, Content: text})
			if i < len(texts)-1 || text == "" {
				call := session.MakeCallID(s.Turn, step, 0)
				out[len(out)-1].(*session.AssistantMessage).Calls = []int{0} //nolint:forcetypeassert // made above
				out = append(out, &session.ToolCall{Turn: s.Turn, Step: step, CallID: call, Name: "read", Arguments: "{}"},
					&session.ToolResult{Turn: s.Turn, Step: step, CallID: call, IsError: true, Code: session.CodeToolNotStarted})
			}
			out = append(out, &session.StepEnd{Turn: s.Turn, Step: step})
		}
		return append(out, &session.TurnEnd{Turn: s.Turn, Reason: session.EndReason{Kind: session.EndCompleted}})
	}
	turn := func(texts ...string) {
		if d.state(child).Turn > 0 {
			d.must(d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: child, MessageID: "m" + texts[0], Content: "go on"}, nil))
		}
		d.claim(child)
		d.turn(child, func(s session.State) []session.Payload { return say(s, texts...) })
	}
	turn("first", "") // an empty answer behind a text
	d.must(d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: child, MessageID: "denied", Content: "go on"}, nil))
	d.claim(child)
	d.deny(child)
	turn("")
	turn("fourth")
	d.must(d.worker.Call(t.Context(), client.MethodSettled, client.SettledRequest{Head: head, Session: child}, nil))
	want := []struct {
		outcome session.EndOutcome
		ends    string
	}{
		{session.OutcomeCompleted, "Its last message:\nfirst"},
		{session.OutcomeDenials, "It said nothing at the end."},
		{session.OutcomeCompleted, "It said nothing at the end."},
		{session.OutcomeCompleted, "Its last message:\nfourth"},
	}
	got := slices.DeleteFunc(d.messages(root), func(m session.UserMessage) bool { return m.Source.Kind != session.FromSettled })
	if len(got) != len(want) {
		t.Fatalf("the parent has %d notices, want %d", len(got), len(want))
	}
	for i, w := range want {
		m := got[i]
		if m.Source.Turn != i+1 || m.Source.Outcome != string(w.outcome) || !strings.HasSuffix(m.Content, w.ends) {
			t.Errorf("turn %d was told as %s of turn %d: %q; want %s, %q", i+1, m.Source.Outcome, m.Source.Turn, m.Content, w.outcome, w.ends)
		}
	}
}

// deny has the open turn of a session be refused a call, and ends it.
func (d *deployment) deny(id session.ID) {
	d.t.Helper()
	d.turn(id, func(s session.State) []session.Payload {
		stored, revision, err := d.log.Settings().Load(d.t.Context())
		d.must(err)
		dep, err := policy.NewDeployment(stored, revision)
		d.must(err)
		e := policy.EffectiveOf(s.Knobs, dep)
		call := session.MakeCallID(s.Turn, 1, 0)
		return []session.Payload{
			&session.StepStart{Turn: s.Turn, Step: 1},
			&session.AssistantMessage{Turn: s.Turn, Step: 1, Calls: []int{0}},
			&session.ToolCall{Turn: s.Turn, Step: 1, CallID: call, Name: "bash", Arguments: "{}"},
			&session.ToolDecision{CallID: call, Verdict: session.Deny, Mode: e.Sandbox, Basis: e.Basis, By: session.StagePolicy, Revision: dep.Revision, Settings: dep.Hash, Reason: "no"},
			&session.ToolResult{Turn: s.Turn, Step: 1, CallID: call, IsError: true, Denied: true},
			&session.StepEnd{Turn: s.Turn, Step: 1},
			&session.TurnEnd{Turn: s.Turn, Reason: session.EndReason{Kind: session.EndCompleted}},
		}
	})
}

// A turn that failed has failed, also when the session is cancelled later; the session's
// own end says that it was cancelled (SPEC 7.3, 7.5).
func TestSET08_AFailureIsNotHiddenByACancel(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	child := d.spawn(root, continuable)
	d.claim(child)
	d.turn(child, func(s session.State) []session.Payload {
		return []session.Payload{&session.TurnEnd{Turn: s.Turn, Reason: session.EndReason{Kind: session.EndError, Message: "no model"}}}
	})
	d.must(d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: child, MessageID: "m", Content: "never read"}, nil))
	d.must(d.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: child, RequestID: "stop"}, nil))
	d.turn(child, func(s session.State) []session.Payload {
		return []session.Payload{
			&session.Claim{Epoch: s.Epoch + 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart},
			&session.End{Outcome: session.OutcomeCancelled, Cancelled: []session.Seq{s.Pending[0].Seq}},
		}
	})
	d.must(d.worker.Call(t.Context(), client.MethodSettled, client.SettledRequest{Head: head, Session: child}, nil))
	all := d.messages(root)
	if m := all[len(all)-1]; m.Source.Kind != session.FromSettled || m.Source.Outcome != string(session.OutcomeFailed) || !strings.Contains(m.Content, "no model") {
		t.Errorf("the parent was told %+v", m)
	}
	if s := d.state(root); len(s.Children) != 0 {
		t.Errorf("the slot is held: %+v", s.Children)
	}
}

// The children of a session are those that it delegated: a person's forks of it are none,
// nor are grandchildren. They are listed by creation; a child that was forked from one
// that is a child itself is what its own descriptor says (SPEC 1.8, 6.2). A tree is listed
// with each session's parent and depth, parents before children.
func TestLST01_LST03_LST04_ChildrenAreListed(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	first := d.spawn(root, continuable)
	second := d.spawn(root)
	d.claim(first)
	d.endTurn(first)
	d.must(d.api.Call(t.Context(), client.MethodSend, client.SendRequest{Head: head, ID: first, MessageID: "m", Content: "go on"}, nil))
	d.claim(first)
	deep := d.spawn(first, func(s *client.DelegateSpec) { s.Kind, s.Label = session.Fork, "deep" })
	d.endTurn(root)
	fork, err := session.ForkID(root, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
	d.must(err)
	d.must(d.api.Call(t.Context(), client.MethodFork, client.ForkRequest{Head: head, ID: fork, Source: root}, nil))
	d.catchUp()
	list := func(in client.ListRequest) (ids []session.ID) {
		in.Head = head
		var out client.ListReply
		d.must(d.api.Call(t.Context(), client.MethodList, in, &out))
		for _, s := range out.Sessions {
			ids = append(ids, s.Header.ID)
		}
		return ids
	}
	if got := list(client.ListRequest{Parent: root, Origin: session.OriginSubagent}); !slices.Equal(got, []session.ID{first, second}) {
		t.Errorf("the children of %s are %v, want %v", root, got, []session.ID{first, second})
	}
	if got := list(client.ListRequest{Parent: first, Origin: session.OriginSubagent}); !slices.Equal(got, []session.ID{deep}) {
		t.Errorf("the children of %s are %v, want %s", first, got, deep)
	}
	if s := d.state(deep); s.Header.InheritedEventCount == 0 || s.Descriptor == nil || s.Descriptor.Mode != session.OneShot || s.Header.Label != "deep" {
		t.Errorf("the forked child is %+v, labelled %q", s.Descriptor, s.Header.Label)
	}
	var tree client.ListReply
	d.must(d.api.Call(t.Context(), client.MethodTree, client.SessionRequest{Head: head, ID: deep}, &tree))
	seen := map[session.ID]int{}
	for _, s := range tree.Sessions {
		h := s.Header
		if above, ok := seen[h.ParentSession]; h.ID != root && (!ok || h.IsChild() && h.DelegationDepth != above+1) {
			t.Errorf("%s of depth %d is listed before its parent %s, or is not below it", h.ID, h.DelegationDepth, h.ParentSession)
		}
		seen[h.ID] = h.DelegationDepth
	}
	if len(seen) != 5 || seen[deep] != 2 {
		t.Errorf("the tree has %v, want 5 sessions, %s at depth 2", seen, deep)
	}
}

// A child whose log cannot be read is listed as stopped, with why; the others are what
// they are (SPEC 1.4).
func TestLST02_AStoppedChildIsListed(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, still)
	root := d.root()
	d.claim(root)
	bad, good := d.spawn(root, continuable), d.spawn(root, continuable)
	_, err := d.broker.Conn(t, broker.Coordinator, "coordinator").Request(
		stream.Subject(session.Address{Session: bad, Class: session.ClassInbox}), []byte("half a rec"), 5*time.Second)
	d.must(err)
	d.catchUp()
	var out client.ListReply
	d.must(d.api.Call(t.Context(), client.MethodList, client.ListRequest{Head: head, Parent: root}, &out))
	if len(out.Sessions) != 2 || out.Sessions[0].Header.ID != bad || out.Sessions[1].Header.ID != good {
		t.Fatalf("listed are %+v, want both", out.Sessions)
	}
	if s := out.Sessions[0]; s.Status != client.StatusStopped || s.Stopped == "" {
		t.Errorf("the stopped child is listed as %s: %q", s.Status, s.Stopped)
	}
	if s := out.Sessions[1]; s.Status == client.StatusStopped || s.Stopped != "" {
		t.Errorf("the other child is listed as %s: %q", s.Status, s.Stopped)
	}
}
