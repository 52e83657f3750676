package coordinator_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// The first batch of a read-only parent's child, read back over the API: SPEC
// 4.3's order, at seq 0, nothing else added to the parent.
func TestINH01_ChildOfAReadOnlyParentStartsReadOnly(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.policySet(root, readOnly)
	d.claim(root)
	before := d.step(root, 1)
	in := d.delegations(root, client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"})
	var out client.DelegateReply
	d.must(d.worker.Call(t.Context(), client.MethodDelegate, in, &out))
	child := d.child(out)
	got := d.lines(child)
	want := []session.Type{session.TypeSandboxMode, session.TypeApprovalPolicy, session.TypeDescriptor, session.TypeModelSelected, session.TypeUserMessage}
	if diff := cmp.Diff(want, types(got)); diff != "" {
		t.Fatalf("first batch (-want +got):\n%s", diff)
	}
	if s := string(got[0].Data); s != `{"mode":"read-only","source":"delegation"}` {
		t.Errorf("seq 0 holds %s", s)
	}
	if s := string(got[1].Data); s != `{"policy":"never","source":"delegation"}` {
		t.Errorf("seq 1 holds %s", s)
	}
	after, err := d.store.View(t.Context(), root, out.Tail)
	d.must(err)
	if n := after.State.Next - before.Next; n != 1 {
		t.Errorf("the parent's log grew by %d events, want its own decision only", n)
	}
	if at := out.Outcomes[0].StreamSeq; at != out.Tail {
		t.Errorf("the reply says that the genesis stands at %d, the new tail is %d", at, out.Tail)
	}
	raw, err := d.log.Genesis(t.Context(), out.Outcomes[0].Child, root)
	d.must(err)
	r, err := session.DecodeRecord(raw)
	d.must(err)
	if line, stands := string(out.Outcomes[0].Line), string(r.Own.Events[0].Line); line != stands {
		t.Errorf("the reply brings the decision as %s, in the log stands %s", line, stands)
	}
}

// An unswitched parent hands down the pin and nothing else, at seq 0, and the
// child follows the live default.
func TestINH08_UnswitchedParentHandsDownNoMode(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.claim(root)
	child := d.spawn(root)
	got := d.lines(child)
	if got[0].Type != session.TypeApprovalPolicy {
		t.Fatalf("seq 0 is %s, want the pin", got[0].Type)
	}
	for _, mode := range []session.SandboxMode{session.WorkspaceWrite, session.ReadOnly} {
		var cfg client.ConfigReply
		d.must(d.api.Call(t.Context(), client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "defaults.sandbox", Value: []byte(`"` + mode + `"`)}, &cfg))
		var now client.PolicyReply
		d.must(d.api.Call(t.Context(), client.MethodPolicyGet, client.SessionRequest{Head: head, ID: child}, &now))
		if now.Sandbox != mode {
			t.Errorf("default %s: the child has %s", mode, now.Sandbox)
		}
	}
}

// A switch that stands in the log before the commit is inherited; a decision made
// before it is refused and has to be made again.
func TestINH06_ASwitchBetweenDecisionAndCommitIsAConflict(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.claim(root)
	d.step(root, 1)
	spec := client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"}
	stale := d.delegations(root, spec)
	d.policySet(root, readOnly)
	var out client.DelegateReply
	d.must(d.worker.Call(t.Context(), client.MethodDelegate, stale, &out))
	if e := out.Outcomes[0].Error; e == nil || e.Code != client.CodeConflict {
		t.Fatalf("a stale decision gave %+v, want a conflict", out.Outcomes[0])
	}
	out = client.DelegateReply{}
	d.must(d.worker.Call(t.Context(), client.MethodDelegate, d.delegations(root, spec), &out))
	if got := d.lines(d.child(out))[0]; got.Type != session.TypeSandboxMode {
		t.Errorf("decided again, seq 0 is %s, want the captured mode", got.Type)
	}
}

// A fork carries the stale wider switch in its prefix; the captured value comes
// after the seed's end and wins.
func TestINH10_ForkSnapshotBeatsStalePrefix(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root(func(in *client.CreateRequest) { in.Sandbox = session.WorkspaceWrite })
	d.claim(root)
	cut := d.endTurn(root).Cut.Count
	d.policySet(root, readOnly)
	d.claim(root)
	child := d.spawn(root, func(s *client.DelegateSpec) { s.Kind = session.Fork })
	v, err := d.store.View(t.Context(), child, 0)
	d.must(err)
	h := v.State.Header
	if h.InheritedEventCount != cut || h.FirstLiveSeq != cut {
		t.Errorf("cut %d, firstLiveSeq %d, want %d", h.InheritedEventCount, h.FirstLiveSeq, cut)
	}
	got := d.lines(child)
	if string(got[0].Data) == "" || got[0].Type != session.TypeSandboxMode {
		t.Errorf("the prefix does not begin with the parent's first switch: %s", got[0].Type)
	}
	own := types(got[cut:])[:3]
	if diff := cmp.Diff([]session.Type{session.TypeEndSeed, session.TypeSandboxMode, session.TypeApprovalPolicy}, own); diff != "" {
		t.Errorf("own events (-want +got):\n%s", diff)
	}
	if m := v.State.Knobs.Sandbox.Value; m != session.ReadOnly {
		t.Errorf("the fork folds to %s", m)
	}
}

// Retries of the same request, and two coordinators asked at once, give one child.
func TestSPEC4_5_RetriesGiveOneChild(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2)
	root := d.root()
	d.claim(root)
	d.step(root, 1)
	spec := client.DelegateSpec{Kind: session.Spawn, Mode: session.Continuable, Label: "child", Prompt: "work"}
	in := d.delegations(root, spec)
	const tries = 16
	children := make([]session.ID, tries)
	var all sync.WaitGroup
	for i := range tries {
		all.Go(func() {
			var out client.DelegateReply
			if err := d.worker.Call(t.Context(), client.MethodDelegate, in, &out); err != nil {
				t.Errorf("try %d: %v", i, err)
				return
			}
			children[i] = out.Outcomes[0].Child
		})
	}
	all.Wait()
	want := session.ChildID(root, in.Calls[0].CallID)
	for i, c := range children {
		if c != want {
			t.Errorf("try %d found child %q, want %s", i, c, want)
		}
	}
	var out client.DelegateReply
	d.must(d.worker.Call(t.Context(), client.MethodDelegate, in, &out))
	if out.Outcomes[0].Child != want {
		t.Errorf("the retry gave %+v, want child %s", out.Outcomes[0], want)
	}
	var list client.ListReply
	d.must(d.api.Call(t.Context(), client.MethodTree, client.SessionRequest{Head: head, ID: root}, &list))
	if n := len(list.Sessions); n != 2 {
		t.Errorf("the tree has %d sessions, want the root and one child", n)
	}
	in.Calls[0].Spec.Prompt = "something else"
	out = client.DelegateReply{}
	d.must(d.worker.Call(t.Context(), client.MethodDelegate, in, &out))
	if e := out.Outcomes[0].Error; e == nil || e.Code != client.CodeExists {
		t.Errorf("another request under the same call gave %+v", out.Outcomes[0])
	}
}

// Several delegations of one step go in one request, each its own record.
func TestSPEC4_4_DelegationsOfOneStepShareARequest(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.claim(root)
	d.step(root, 3)
	spec := client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"}
	var out client.DelegateReply
	d.must(d.worker.Call(t.Context(), client.MethodDelegate, d.delegations(root, spec, spec, spec), &out))
	seen := map[session.ID]bool{}
	for _, o := range out.Outcomes {
		if o.Error != nil {
			t.Fatalf("call %s: %v", o.CallID, o.Error)
		}
		seen[o.Child] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d children, want 3", len(seen))
	}
}

// The caps are exact, checked before anything is written, and changeable.
func TestSPEC4_6_CapsHold(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, func(s *policy.Settings) { s.Caps = policy.Caps{Depth: 1, Live: 2, Tree: 4, Inbox: 256} })
	root := d.root()
	d.claim(root)
	child := d.spawn(root, func(s *client.DelegateSpec) { s.Mode = session.Continuable })
	d.spawn(root)
	d.step(root, 1)
	in := d.delegations(root, client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "x", Prompt: "x"})
	if in.Calls[0].Decision.By != session.StageDepth || in.Calls[0].Decision.Verdict != session.Deny {
		t.Errorf("a third live child was decided %+v", in.Calls[0].Decision)
	}
	in.Calls[0].Decision.Verdict = session.Allow // a worker that lies
	var out client.DelegateReply
	d.must(d.worker.Call(t.Context(), client.MethodDelegate, in, &out))
	if e := out.Outcomes[0].Error; e == nil || e.Code != client.CodeDenied {
		t.Errorf("the coordinator answered %+v, want DENIED", out.Outcomes[0])
	}
	d.claim(child)
	d.step(child, 1)
	deep := d.delegations(child, client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "x", Prompt: "x"})
	if deep.Calls[0].Decision.By != session.StageDepth {
		t.Errorf("a grandchild at depth 2 was decided %+v", deep.Calls[0].Decision)
	}
}

// A retry finds its child, also where the child itself has used up the room.
func TestSPEC4_5_RetryUnderAMetCap(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, func(s *policy.Settings) { s.Caps = policy.Caps{Depth: 1, Live: 1, Tree: 2, Inbox: 256} })
	root := d.root()
	d.claim(root)
	d.step(root, 1)
	in := d.delegations(root, client.DelegateSpec{Kind: session.Spawn, Mode: session.Continuable, Label: "child", Prompt: "work"})
	for try := range 3 {
		var out client.DelegateReply
		d.must(d.worker.Call(t.Context(), client.MethodDelegate, in, &out))
		d.catchUp()
		if o := out.Outcomes[0]; o.Child != session.ChildID(root, in.Calls[0].CallID) || o.StreamSeq == 0 || o.Error != nil {
			t.Errorf("try %d gave %+v, want the child", try, o)
		}
	}
}

// A child's end reaches its parent's log exactly once, whoever asks how often.
func TestSPEC7_3_OneNoticeForEachEnd(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2)
	root := d.root()
	d.claim(root)
	child := d.spawn(root)
	d.claim(child)
	ended := d.endTurn(child, &session.End{Outcome: session.OutcomeCompleted})
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			err := d.worker.Call(t.Context(), client.MethodSettled, client.SettledRequest{Head: head, Session: child}, nil)
			var e *client.Error
			if err != nil && !errors.As(err, &e) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	d.catchUp() // the other coordinator may have written
	notices, closings := 0, 0
	for _, l := range d.lines(root) {
		if l.Type == session.TypeClosed {
			closings++
		}
		if l.Type == session.TypeUserMessage && strings.Contains(string(l.Data), session.NoticeID(child, 1, ended.LastEnd.Seq)) {
			notices++
		}
	}
	v, err := d.store.View(t.Context(), root, 0)
	d.must(err)
	if !v.Has(session.NoticeID(child, 1, ended.LastEnd.Seq)) {
		t.Error("the parent has no notice under the derived id")
	}
	if notices != 1 || closings != 1 {
		t.Errorf("%d notices and %d closings, want one each", notices, closings)
	}
	if len(v.State.Children) != 0 {
		t.Errorf("the slot is still held: %+v", v.State.Children)
	}
}

// A cancel reaches every live session of the tree, in its log.
func TestSPEC7_4_CancelGoesDown(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.claim(root)
	child := d.spawn(root)
	d.claim(child)
	grandchild := d.spawn(child)
	d.must(d.api.Call(t.Context(), client.MethodCancel, client.StopRequest{Head: head, ID: root, RequestID: "stop-1"}, nil))
	for _, id := range []session.ID{root, child, grandchild} {
		lines := d.lines(id)
		if last := lines[len(lines)-1]; last.Type != session.TypeCancel {
			t.Errorf("the log of %s ends with %s", id, last.Type)
		}
	}
}

// A coordinator that is behind the worker's tail waits for it: being behind is no
// conflict.
func TestSPEC4_4_ACoordinatorCatchesUpWithTheTail(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2)
	for range 8 {
		root := d.root()
		d.claim(root)
		d.step(root, 1)
		in := d.delegations(root, client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"})
		var out client.DelegateReply
		d.must(d.worker.Call(t.Context(), client.MethodDelegate, in, &out))
		d.child(out)
	}
}
