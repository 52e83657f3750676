package session_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// Each test here is one sentence of the specification, named after its clause.
// docs/guarantees.md names them.

// "An invalid turn record is void: skipped, counted, alarmed", and "a turn record
// that carries a policy event, a person's message or a granting decision is the
// attack": every bad record one after the other, and the honest log between.
func TestSPEC1_4_VoidTurnRecordChangesNothing(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	bad := badTurns(t, s, root)
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		s.Put(bad[name])
	}
	want := s.State(root)
	r := sessiontest.Replay(s.Records)
	c := r.Chains[root]
	if diff := cmp.Diff(want, c.State()); diff != "" {
		t.Errorf("%d void records changed the state:\n%s", len(bad), diff)
	}
	if c.Voids() != len(bad) || len(r.Alarms) != len(bad) || c.Halted() != nil {
		t.Errorf("%d records: %d void, %d alarms, %v", len(bad), c.Voids(), len(r.Alarms), c.Halted())
	}
	s.Write(root, session.ClassTurn, sessiontest.Allow(want, "1.1.0"))
	if j, err := c.Next(s.Records[len(s.Records)-1]); err != nil || j.Ruling != session.Valid {
		t.Errorf("the session does not go on: ruling %d, %v", j.Ruling, err)
	}
}

// "Every reader finds the same chain": one that reads all, one that starts from a
// snapshot, one that is told everything twice.
func TestSPEC1_4_EveryReaderFindsTheSameChain(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	for _, raw := range badTurns(t, s, root) {
		s.Put(raw)
	}
	s.Write(root, session.ClassTurn, sessiontest.Allow(s.State(root), "1.1.0"))
	s.Delegate(root, sessiontest.Delegation{Call: "1.1.1", Kind: session.Spawn})
	whole := sessiontest.Replay(s.Records)
	for at := range s.Records {
		r := sessiontest.Replay(s.Records[:at])
		if c := r.Chains[root]; c != nil {
			r.Resume(root, c.State())
		}
		for _, raw := range s.Records[at:] {
			r.Next(raw)
			r.Next(raw)
		}
		if diff := cmp.Diff(whole.Events, r.Events); diff != "" {
			t.Fatalf("a reader that starts at record %d finds another chain:\n%s", at, diff)
		}
	}
}

// "Closed vocabularies are validated ... even when a later event would shadow the
// bad one": loud, with session, seq and value.
func TestSPEC1_5_ShadowedForeignValueStops(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root()
	good := s.Raw(s.Compose(root, session.ClassPolicy,
		&session.SandboxSwitch{Mode: session.ReadOnly, By: person()}, &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()}))
	lines := bodyLines(good)
	lines[0] = strings.Replace(lines[0], "read-only", "yolo", 1)
	_, _, err := judge(t, s, body(good, lines...))
	if !errors.Is(err, session.ErrCorrupt) {
		t.Fatalf("error %v, want a stop", err)
	}
	for _, want := range []string{string(root), "seq 1", "yolo"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

// "If a policy event may have been among them, the session comes back read-only",
// even when the override before was wider and nothing is known to be lost.
func TestSPEC1_7_ReleaseComesBackReadOnly(t *testing.T) {
	t.Parallel()
	_, r, root := stopped(t)
	c := r.Chains[root]
	if got := c.State().Knobs.Sandbox.Value; got != session.WorkspaceWrite {
		t.Fatalf("sandbox before is %s", got)
	}
	if _, err := c.Next(release(t, c, nil)); err != nil {
		t.Fatal(err)
	}
	if got := c.State().Knobs.Sandbox.Value; got != session.ReadOnly {
		t.Errorf("sandbox after the release is %s, want read-only", got)
	}
}

// "A turn record that carries sandbox/mode, approval/policy, permission/preset
// ... is void": each, with right seq, link and epoch, at the tail.
func TestSPEC3_1_PolicyInATurnRecordIsNeverEffective(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	before := s.State(root).Knobs
	tried := map[session.Type]bool{}
	for name, raw := range badTurns(t, s, root) {
		typ, attack := strings.CutPrefix(name, "type ")
		if !attack {
			continue
		}
		typ, _, _ = strings.Cut(typ, " ")
		tried[session.Type(typ)] = true
		c, j, err := judge(t, s, raw)
		if err != nil || j.Ruling != session.Void {
			t.Errorf("%s: ruling %d, %v", name, j.Ruling, err)
		}
		if diff := cmp.Diff(before, c.State().Knobs); diff != "" {
			t.Errorf("%s is effective:\n%s", name, diff)
		}
	}
	for _, spec := range session.Catalogue() {
		if spec.In(session.ClassPolicy) && !tried[spec.Type] {
			t.Errorf("%s was not tried", spec.Type)
		}
	}
}

// "A granting approval outcome counts only when it stands in class inbox."
func TestSPEC3_GrantCountsInClassInboxOnly(t *testing.T) {
	t.Parallel()
	s, root := asked(t)
	granting := func(by *session.Party) session.Payload {
		return &session.ApprovalDecided{ID: "q1", Outcome: session.AllowedOnce, By: by}
	}
	if c, j, err := judge(t, s, s.Raw(s.Compose(root, session.ClassTurn, granting(nil)))); err != nil || j.Ruling != session.Void {
		t.Errorf("by a worker: ruling %d, %v", j.Ruling, err)
	} else if call, _ := c.State().Call("1.1.0"); call.Ask.Outcome != "" {
		t.Errorf("the question has outcome %s", call.Ask.Outcome)
	}
	c, _, err := judge(t, s, s.Raw(s.Compose(root, session.ClassInbox, granting(person()))))
	if call, _ := c.State().Call("1.1.0"); err != nil || call.Ask.Outcome != session.AllowedOnce {
		t.Errorf("by a person: %v, outcome %s", err, call.Ask.Outcome)
	}
}

// "Everything after the seed has seq >= firstLiveSeq, so the snapshot beats stale
// fork history by the ordinary fold, and a later switch beats the snapshot."
func TestSPEC4_3_SnapshotBeatsStaleForkHistory(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root(&session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()}, sessiontest.Model())
	s.Write(root, session.ClassTurn, claim(1, session.CauseStart), &session.TurnStart{Turn: 1}, turnEnd(1))
	s.Write(root, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: person()})
	openCalls(s, root, 2, session.ToolDelegate)
	child := s.Delegate(root, sessiontest.Delegation{Call: "2.1.0", Kind: session.Fork})
	c := sessiontest.Replay(s.Records).Chains[child]
	at := c.State()
	if k := at.Knobs.Sandbox; k.Value != session.ReadOnly || k.Source != session.SourceDelegation || k.Seq < at.Header.FirstLiveSeq {
		t.Errorf("sandbox of the fork is %+v", k)
	}
	if at.Header.InheritedEventCount != 5 || at.Header.FirstLiveSeq != 5 {
		t.Errorf("cut at %d, live from %d, want 5", at.Header.InheritedEventCount, at.Header.FirstLiveSeq)
	}
	s.Write(child, session.ClassPolicy, &session.SandboxSwitch{Mode: session.WorkspaceWrite, By: person()})
	if j, err := c.Next(s.Records[len(s.Records)-1]); err != nil || j.Ruling != session.Valid || c.State().Knobs.Sandbox.Value != session.WorkspaceWrite {
		t.Errorf("a later switch: %v, %+v", err, c.State().Knobs.Sandbox)
	}
}

// "There is no half-made child; there is no child without the parent's decision
// and no allowed delegation without its child": both are one record.
func TestSPEC4_4_DecisionAndChildAreOneRecord(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	child := s.Delegate(root, sessiontest.Delegation{Call: "1.1.1", Kind: session.Spawn})
	for n := range len(s.Records) + 1 {
		r := sessiontest.Replay(s.Records[:n])
		var decided bool
		if c := r.Chains[root]; c != nil {
			_, decided = c.State().Child(child)
		}
		if born := r.Chains[child] != nil; born != decided || born && len(r.Events[child]) != 5 {
			t.Errorf("after %d records: decided %t, born %t with %d events", n, decided, born, len(r.Events[child]))
		}
	}
}

// I4, "no call ever starts under a policy older than the log at its decision".
func TestSPEC5_1_DecisionOnAnOldBasisIsVoid(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	old := sessiontest.Allow(s.State(root), "1.1.0")
	s.Write(root, session.ClassPolicy, &session.SandboxSwitch{Mode: session.ReadOnly, By: person()})
	if _, j, err := judge(t, s, s.Raw(s.Compose(root, session.ClassTurn, old))); err != nil || j.Ruling != session.Void {
		t.Errorf("on the old basis: ruling %d, %v", j.Ruling, err)
	}
	fresh := sessiontest.Allow(s.State(root), "1.1.0")
	if _, j, err := judge(t, s, s.Raw(s.Compose(root, session.ClassTurn, fresh))); err != nil || j.Ruling != session.Valid {
		t.Errorf("decided again: ruling %d, %v", j.Ruling, err)
	}
}

// I6, "allowed-once runs exactly that call once under the wider mode and dies
// with it".
func TestSPEC5_6_GrantIsUsedOnceByItsCall(t *testing.T) {
	t.Parallel()
	s, root := asked(t)
	s.Write(root, session.ClassInbox, &session.ApprovalDecided{ID: "q1", Outcome: session.AllowedOnce, By: person()})
	granted := func(call session.CallID) *session.ToolDecision {
		d := sessiontest.Allow(s.State(root), call)
		d.Mode, d.Grant = session.DangerFullAccess, "q1"
		return d
	}
	ruling := func(p session.Payload) session.Ruling {
		_, j, err := judge(t, s, s.Raw(s.Compose(root, session.ClassTurn, p)))
		if err != nil {
			t.Fatal(err)
		}
		return j.Ruling
	}
	if got := ruling(granted("1.1.1")); got != session.Void {
		t.Errorf("another call uses it: ruling %d", got)
	}
	s.Write(root, session.ClassTurn, granted("1.1.0"))
	if got := ruling(granted("1.1.0")); got != session.Void {
		t.Errorf("it is used twice: ruling %d", got)
	}
	if got := s.State(root).Knobs.Sandbox.Value; got != session.ReadOnly {
		t.Errorf("it outlives its call: sandbox is %s", got)
	}
}

// I7, "pending messages cancelled by name, one terminal event each, nothing after
// it".
func TestSPEC7_4_EndCancelsByName(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root(sessiontest.Model(), prompt("m1"))
	s.Write(root, session.ClassTurn, claim(1, session.CauseStart))
	s.Write(root, session.ClassInbox, prompt("m2"))
	for _, forgotten := range [][]session.Seq{nil, {1}, {3}, {1, 2, 3}} {
		raw := s.Raw(s.Compose(root, session.ClassTurn, &session.End{Outcome: session.OutcomeCancelled, Cancelled: forgotten}))
		if _, j, err := judge(t, s, raw); err != nil || j.Ruling != session.Void {
			t.Errorf("an end that cancels %v: ruling %d, %v", forgotten, j.Ruling, err)
		}
	}
	s.Write(root, session.ClassTurn, &session.End{Outcome: session.OutcomeCancelled, Cancelled: []session.Seq{1, 3}})
	again := s.Raw(s.Compose(root, session.ClassTurn, &session.End{Outcome: session.OutcomeCompleted}))
	if _, j, err := judge(t, s, again); err != nil || j.Ruling != session.Void {
		t.Errorf("a second end: ruling %d, %v", j.Ruling, err)
	}
}

// I8, "no valid event of an older epoch follows a newer claim".
func TestSPEC7_1_OlderEpochIsVoidAfterAClaim(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	late := sessiontest.Allow(s.State(root), "1.1.0")
	s.Write(root, session.ClassTurn, claim(2, session.CauseTakeover))
	r := s.Compose(root, session.ClassTurn, late)
	r.Epoch = 1
	if _, j, err := judge(t, s, s.Raw(r)); err != nil || j.Ruling != session.Void {
		t.Errorf("the driver before: ruling %d, %v", j.Ruling, err)
	}
	r.Epoch = 2
	if _, j, err := judge(t, s, s.Raw(r)); err != nil || j.Ruling != session.Valid {
		t.Errorf("the driver in force: ruling %d, %v", j.Ruling, err)
	}
}

// I11: a changed, dropped, swapped or inserted record is found, in the parent, in
// a fork, and across the cut between them.
func TestI11_ChangedHistoryIsFound(t *testing.T) {
	t.Parallel()
	_, s, _ := tree(t)
	honest := sessiontest.Replay(s.Records)
	found := func(records []session.Raw) bool {
		r := sessiontest.Replay(records)
		for id, c := range honest.Chains {
			if got := r.Chains[id]; got == nil || got.Halted() != nil || got.Voids() > 0 || got.State().Link != c.State().Link {
				return true
			}
		}
		return false
	}
	if found(s.Records) {
		t.Fatal("the honest stream is refused")
	}
	for i := range s.Records {
		if !found(slices.Delete(slices.Clone(s.Records), i, i+1)) {
			t.Errorf("record %d was dropped and nobody noticed", i)
		}
		for _, at := range []int{0, len(s.Records[i].Body) / 2, len(s.Records[i].Body) - 2} {
			changed := slices.Clone(s.Records)
			changed[i].Body = slices.Clone(changed[i].Body)
			changed[i].Body[at] ^= 1
			if !found(changed) {
				t.Errorf("byte %d of record %d was changed and nobody noticed", at, i)
			}
		}
		if i > 0 {
			swapped := slices.Clone(s.Records)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			swapped[i-1].StreamSeq, swapped[i].StreamSeq = swapped[i].StreamSeq, swapped[i-1].StreamSeq
			if !found(swapped) {
				t.Errorf("records %d and %d were swapped and nobody noticed", i-1, i)
			}
		}
	}
}
