package coordinator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/damage"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// asks makes a root whose only call waits for an answer, as a worker leaves it.
func (d *deployment) asks(change ...func(*client.CreateRequest)) session.ID {
	d.t.Helper()
	id := d.root(append(change, func(in *client.CreateRequest) { in.Surface = session.SurfaceAny })...)
	d.claim(id)
	const justification = "escalate sandbox to workspace-write: to build"
	d.turn(id, func(s session.State) []session.Payload {
		call := session.MakeCallID(s.Turn, 1, 0)
		stored, revision, err := d.log.Settings().Load(d.t.Context())
		d.must(err)
		dep, err := policy.NewDeployment(stored, revision)
		d.must(err)
		e := policy.EffectiveOf(s.Knobs, dep)
		ask := "ask-" + string(call) + "-1"
		return []session.Payload{
			&session.StepStart{Turn: s.Turn, Step: 1},
			&session.AssistantMessage{Turn: s.Turn, Step: 1, Content: "building", Calls: []int{0}},
			&session.ToolCall{Turn: s.Turn, Step: 1, CallID: call, Name: "bash", Arguments: `{"command":"make"}`},
			&session.ToolDecision{CallID: call, Verdict: session.AskPerson, Mode: e.Sandbox, Basis: e.Basis, By: session.StageApproval, Revision: dep.Revision, Settings: dep.Hash},
			&session.ApprovalAsked{ID: ask, CallID: call, ToolName: "bash", Digest: strings.Repeat("0", 64), Mode: session.WorkspaceWrite, Basis: e.Basis, Reason: justification},
			&session.TurnPark{Turn: s.Turn, WaitsFor: []session.Wait{{Kind: session.WaitApproval, ID: ask}}},
		}
	})
	d.catchUp()
	return id
}

// question is the id of the only question of a session.
func (d *deployment) question(id session.ID) string {
	d.t.Helper()
	e, err := d.store.Session(id)
	d.must(err)
	return e.State.Questions()[0].Ask.ID
}

func (d *deployment) approvals(change ...func(*client.ApprovalsRequest)) client.ApprovalsReply {
	d.t.Helper()
	in := client.ApprovalsRequest{Head: head}
	for _, fn := range change {
		fn(&in)
	}
	var out client.ApprovalsReply
	d.must(d.api.Call(d.t.Context(), client.MethodApprovals, in, &out))
	return out
}

func (d *deployment) answer(id session.ID, o session.Outcome) (client.AnswerReply, error) {
	d.t.Helper()
	var out client.AnswerReply
	err := d.api.Call(d.t.Context(), client.MethodAnswer, client.AnswerRequest{Head: head, ID: id, Ask: "ask-1.1.0-1", Outcome: o}, &out)
	return out, err
}

// What waits for a person is listed with all that an answer rests on, over the whole
// deployment or a tree, page by page; what was answered is not.
func TestQuestionsAreListedUntilTheyAreAnswered(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) })
	d.root() // asks nothing
	ids := []session.ID{d.asks(), d.asks(), d.asks()}
	slices.Sort(ids)
	all := d.approvals().Approvals
	if len(all) != len(ids) {
		t.Fatalf("%d questions, want %d: %+v", len(all), len(ids), all)
	}
	for i, a := range all {
		age := time.Duration(a.ExpiresAt-a.AskedAt) * time.Millisecond
		if a.Session != ids[i] || a.Ask != "ask-1.1.0-1" || a.Tool != "bash" || a.Arguments != `{"command":"make"}` || a.Have != session.ReadOnly ||
			a.Want != session.WorkspaceWrite || a.Reason != "escalate sandbox to workspace-write: to build" || age != 24*time.Hour || a.Stale {
			t.Errorf("question %d is %+v", i, a)
		}
	}
	if one := d.approvals(func(in *client.ApprovalsRequest) { in.Root = ids[1] }).Approvals; len(one) != 1 || one[0].Session != ids[1] {
		t.Errorf("of one tree: %+v", one)
	}
	page := d.approvals(func(in *client.ApprovalsRequest) { in.Limit = 2 })
	rest := d.approvals(func(in *client.ApprovalsRequest) { in.AfterID = page.Approvals[len(page.Approvals)-1].Session })
	if len(page.Approvals) != 2 || !page.More || len(rest.Approvals) != 1 || rest.More {
		t.Errorf("pages of %d (more %v) and %d (more %v)", len(page.Approvals), page.More, len(rest.Approvals), rest.More)
	}
	var shown client.ApprovalReply
	d.must(d.api.Call(t.Context(), client.MethodApproval, client.ApprovalRequest{Head: head, ID: ids[0]}, &shown))
	if shown.Approval != all[0] || len(shown.Values) == 0 {
		t.Errorf("shown is %+v", shown)
	}
	if out, err := d.answer(ids[0], session.AllowedOnce); err != nil || out.Outcome != session.AllowedOnce {
		t.Errorf("answered: %+v, %v", out, err)
	}
	d.catchUp()
	if left := d.approvals().Approvals; len(left) != 2 {
		t.Errorf("%d questions are left, want 2", len(left))
	}
}

// Where a partition has lost records, the questions of the others are listed all the
// same, and the answer says what is missing.
func TestQuestionsAreListedBesideALoss(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.startBroker()
	s.coordinate(s.mirror())
	for _, id := range []session.ID{s.quiet, s.other} {
		s.asks(id)
	}
	s.caughtUp()
	list := func() (out client.ApprovalsReply) {
		s.must(s.api.Call(t.Context(), client.MethodApprovals, client.ApprovalsRequest{Head: head}, &out))
		return out
	}
	if out := list(); len(out.Approvals) != 2 || len(out.Lost) != 0 {
		t.Fatalf("before the loss: %+v", out)
	}
	s.stop()
	s.must(s.broker.Close())
	s.flip(s.dir, quietLast(s), damage.Body, true) // the last of the stream, too
	s.startBroker()
	s.coordinate(s.mirror())
	out := list()
	if len(out.Approvals) != 1 || out.Approvals[0].Session != s.other || len(out.Lost) != 1 || !strings.Contains(out.Lost[0], "partition 0") {
		t.Errorf("after the loss: %+v", out)
	}
	in := client.AnswerRequest{Head: head, ID: s.quiet, Ask: "q", Outcome: session.AllowedOnce}
	if err := s.api.Call(t.Context(), client.MethodAnswer, in, nil); client.CodeOf(err) != client.CodeLoss {
		t.Errorf("an answer in the lost partition: %v, want %s", err, client.CodeLoss)
	}
	in.ID = s.other
	s.must(s.api.Call(t.Context(), client.MethodAnswer, in, nil))
}

// asks has a worker ask about a session's only call.
func (s *site) asks(id session.ID) {
	s.t.Helper()
	r, err := agent.OpenReplica(s.t.Context(), s.log, id, "", nil)
	s.must(err)
	stored, revision, err := s.log.Settings().Load(s.t.Context())
	s.must(err)
	dep, err := policy.NewDeployment(stored, revision)
	s.must(err)
	_, err = s.log.Append(s.t.Context(), r, id, stream.Change{
		Name: "ask", Class: session.ClassTurn,
		Epoch: func(v session.View) uint64 { return v.State.Epoch + 1 },
		Drafts: func(v session.View) (out []session.Draft, err error) {
			basis := policy.EffectiveOf(v.State.Knobs, dep).Basis
			for _, p := range []session.Payload{
				&session.Claim{Epoch: v.State.Epoch + 1, Worker: "w1", Incarnation: "i1", Cause: session.CauseStart},
				&session.TurnStart{Turn: 1}, &session.StepStart{Turn: 1, Step: 1},
				&session.AssistantMessage{Turn: 1, Step: 1, Calls: []int{0}},
				&session.ToolCall{Turn: 1, Step: 1, CallID: "1.1.0", Name: "bash", Arguments: "{}"},
				&session.ToolDecision{CallID: "1.1.0", Verdict: session.AskPerson, Mode: session.ReadOnly, Basis: basis, By: session.StageApproval, Revision: 1},
				&session.ApprovalAsked{ID: "q", CallID: "1.1.0", ToolName: "bash", Mode: session.WorkspaceWrite, Basis: basis, Reason: "r"},
				&session.TurnPark{Turn: 1, WaitsFor: []session.Wait{{Kind: session.WaitApproval, ID: "q"}}},
			} {
				out = append(out, session.Draft{Time: time.Now().UnixMilli(), Payload: p})
			}
			return out, nil
		},
	})
	s.must(err)
}

// A question has exactly one answer, whoever answers at once (SPEC 5.7).
func TestSPEC5_7_OneAnswerToAQuestion(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) })
	const rounds, people = 5, 8
	for range rounds {
		id := d.asks()
		var mu sync.Mutex
		var all sync.WaitGroup
		came := map[string]int{}
		for i := range people {
			all.Go(func() {
				o := []session.Outcome{session.AllowedOnce, session.Rejected}[i%2]
				out, err := d.answer(id, o)
				mu.Lock()
				defer mu.Unlock()
				came[fmt.Sprint(out.Outcome, client.CodeOf(err))]++
				if err != nil && client.CodeOf(err) != client.CodeAnswered {
					t.Errorf("an answer: %v", err)
				}
			})
		}
		all.Wait()
		d.catchUp()
		decided := 0
		for _, l := range d.lines(id) {
			if l.Type == session.TypeApprovalDecided {
				decided++
			}
		}
		// The same answer from the same person again is the one that stands.
		if decided != 1 || came[string(client.CodeAnswered)] != people/2 {
			t.Errorf("%d answers are in the log, the requests came to %v", decided, came)
		}
	}
}

// An answer counts only if no policy event stands between the question and it: else it
// is cancelled, whoever wrote the event, and the answer says so (SPEC 5.6).
func TestSPEC5_6_AnAnswerAfterASwitchDoesNotCount(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) })
	id := d.asks()
	log, err := stream.New(d.broker.Conn(t, broker.Coordinator, "coordinator"), stream.Config{})
	d.must(err)
	_, err = log.Append(t.Context(), d.store, id, stream.Change{
		Name: "another coordinator's switch", Class: session.ClassPolicy,
		Drafts: func(session.View) ([]session.Draft, error) {
			by := &session.Party{Kind: session.Person, ID: "bob"}
			return []session.Draft{{Time: 1, Payload: &session.SandboxSwitch{Mode: session.ReadOnly, By: by}}}, nil
		},
	})
	d.must(err)
	out, err := d.answer(id, session.AllowedOnce)
	d.must(err)
	if out.Outcome != session.Cancelled || out.Note == "" {
		t.Errorf("the answer came to %+v, want it cancelled, and why", out)
	}
	if again, err := d.answer(id, session.AllowedOnce); err != nil || again.Outcome != session.Cancelled || again.Note == "" {
		t.Errorf("the same request again came to %+v, %v", again, err)
	}
	d.catchUp()
	for _, l := range d.lines(id) {
		if l.Type == session.TypeApprovalDecided && !strings.Contains(string(l.Data), string(session.Cancelled)) {
			t.Errorf("the log has %s", l.Data)
		}
	}
}

// The same answer again is the same request: it changes nothing and comes to the same,
// also one that was not offered or that came too late to count. Other words with it would
// be lost, and are refused.
func TestSPEC5_7_AnAnswerAgainIsTheSameRequest(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) })
	say := func(id session.ID, o session.Outcome, message string) (client.AnswerReply, error) {
		var out client.AnswerReply
		err := d.api.Call(t.Context(), client.MethodAnswer, client.AnswerRequest{Head: head, ID: id, Ask: "ask-1.1.0-1", Outcome: o, Message: message}, &out)
		return out, err
	}
	stale := func(id session.ID) {
		d.must(d.api.Call(t.Context(), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: id, Sandbox: session.ReadOnly}, nil))
	}
	for name, c := range map[string]struct {
		answer  session.Outcome
		message string
		want    session.Outcome
		other   session.Outcome // another answer
	}{
		"allowed":                 {answer: session.AllowedOnce, want: session.AllowedOnce, other: session.Rejected},
		"rejected, with words":    {answer: session.Rejected, message: "use the other file", want: session.Rejected, other: session.AllowedOnce},
		"not offered":             {answer: "allowed-always", want: session.Rejected, other: session.AllowedOnce},
		"not offered, with words": {answer: "yes", message: "go on", want: session.Rejected, other: session.AllowedOnce},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := d.asks()
			for range 3 {
				if out, err := say(id, c.answer, c.message); err != nil || out.Outcome != c.want || (out.Note != "") != (c.answer != c.want) {
					t.Errorf("it came to %+v, %v, want %s", out, err, c.want)
				}
			}
			for _, wrong := range []struct {
				o       session.Outcome
				message string
			}{{c.other, c.message}, {c.answer, c.message + ", now"}} {
				if out, err := say(id, wrong.o, wrong.message); client.CodeOf(err) != client.CodeAnswered {
					t.Errorf("%q with %q after it came to %+v, %v, want %s", wrong.o, wrong.message, out, err, client.CodeAnswered)
				}
			}
			d.catchUp()
			decided, told := 0, 0
			for _, l := range d.lines(id) {
				if l.Type == session.TypeApprovalDecided {
					decided++
				}
				if l.Type == session.TypeUserMessage && c.message != "" && strings.Contains(string(l.Data), c.message) {
					told++
				}
			}
			if want := min(len(c.message), 1); decided != 1 || told != want {
				t.Errorf("the log has %d answers and %d messages, want 1 and %d", decided, told, want)
			}
		})
	}
	id := d.asks()
	stale(id)
	if out, err := say(id, session.AllowedOnce, ""); client.CodeOf(err) != client.CodeAnswered || !strings.Contains(err.Error(), string(session.Cancelled)) {
		t.Errorf("an answer after the switch ended the question came to %+v, %v", out, err)
	}
}

// An answer counts only if no new default stands between the question and it, also one
// that was taken back, and only in a deployment that still has what it is about. Nothing
// of it waits for a sweep.
func TestSPEC5_6_AnAnswerAfterANewDefaultDoesNotCount(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][][2]string{
		"another default":           {{"defaults.approval", `"never"`}},
		"there and back":            {{"defaults.sandbox", `"workspace-write"`}, {"defaults.sandbox", `"read-only"`}},
		"approvals left out":        {{"composition.approvals", "false"}},
		"sandbox switches left out": {{"composition.sandbox", "false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, 1, func(s *policy.Settings) { s.Lease = policy.Duration(10 * time.Minute) })
			id, switched := d.asks(), d.asks(func(in *client.CreateRequest) { in.Sandbox, in.Approvals = session.ReadOnly, session.Ask })
			for _, set := range settings {
				d.must(d.api.Call(t.Context(), client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: set[0], Value: []byte(set[1])}, nil))
			}
			out, err := d.answer(id, session.AllowedOnce)
			if client.CodeOf(err) != client.CodeAnswered || !strings.Contains(err.Error(), string(session.Cancelled)) {
				t.Errorf("the answer came to %+v, %v, want it refused because the question is cancelled", out, err)
			}
			// A default does not move what a session has switched itself.
			wantCancelled := strings.HasPrefix(settings[0][0], "composition")
			if out, err := d.answer(switched, session.AllowedOnce); (client.CodeOf(err) == client.CodeAnswered) != wantCancelled {
				t.Errorf("in a session with switches of its own the answer came to %+v, %v", out, err)
			}
		})
	}
}

// What nobody answers in time ends unavailable, by the coordinator, once, with two
// coordinators sweeping and no worker at all; what is not late is left alone.
func TestSPEC5_7_QuestionsExpireOnce(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, func(s *policy.Settings) {
		s.Lease, s.Approvals.ExpireAfter = policy.Duration(500*time.Millisecond), policy.Duration(3*time.Second)
	})
	id := d.asks()
	expired := func() (n int) {
		for _, l := range d.lines(id) {
			if l.Type == session.TypeExpired {
				n++
			}
		}
		return n
	}
	began := time.Now()
	eventually(t, "the question expires", func() bool { return expired() > 0 })
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it expired after %v, it had 3 s", took)
	}
	eventually(t, "nothing is asked any more", func() bool { return len(d.approvals().Approvals) == 0 })
	if n := expired(); n != 1 {
		t.Errorf("it expired %d times", n)
	}
	_, err := d.answer(id, session.AllowedOnce)
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != client.CodeAnswered || !strings.Contains(refused.Message, "unavailable") {
		t.Errorf("a late answer: %v", err)
	}
}

// A worker whose clock is ahead cannot make its question wait for longer than the
// deployment says: it counts from when a coordinator first saw it.
func TestSPEC5_7_AClockAheadKeepsNoQuestion(t *testing.T) {
	t.Parallel()
	const wait = 2 * time.Second
	d := deploy(t, 1, func(s *policy.Settings) {
		s.Lease, s.Approvals.ExpireAfter = policy.Duration(500*time.Millisecond), policy.Duration(wait)
	})
	d.ahead = time.Hour
	began := time.Now()
	id := d.asks()
	eventually(t, "the question expires", func() bool {
		e, err := d.store.Session(id)
		d.must(err)
		return len(e.State.Questions()) == 0
	})
	if took := time.Since(began); took < wait {
		t.Errorf("it expired after %v, it had %v", took, wait)
	}
	if _, err := d.answer(id, session.AllowedOnce); client.CodeOf(err) != client.CodeAnswered || !strings.Contains(err.Error(), string(session.Unavailable)) {
		t.Errorf("a late answer: %v", err)
	}
}
