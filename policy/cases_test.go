package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// The tests below show conformance cases on the level of logs that are composed
// and folded, without a broker. Each reads the child's log back.

const pin = "approval/policy never delegation"

// bothKinds runs a case for a spawn and for a fork, in both modes.
func bothKinds(t *testing.T, f func(*testing.T, child)) {
	t.Helper()
	for _, k := range []session.Kind{session.Spawn, session.Fork} {
		for _, m := range []session.Mode{session.OneShot, session.Continuable} {
			t.Run(string(k)+" "+string(m), func(t *testing.T) {
				t.Parallel()
				f(t, child{kind: k, mode: m})
			})
		}
	}
}

// mode is the effective sandbox mode.
func (l *log) mode(d policy.Deployment) session.SandboxMode {
	return policy.EffectiveOf(l.state.Knobs, d).Sandbox
}

func (l *log) wantMode(d policy.Deployment, want session.SandboxMode) {
	l.t.Helper()
	if got := l.mode(d); got != want {
		l.t.Fatalf("%s is under %q, want %q", l.state.Header.ID, got, want)
	}
}

func TestINH01_CaptureExplicitSandboxSwitch(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, c child) {
		t.Helper()
		d := deploy(t, defaults(session.DangerFullAccess, session.Ask))
		born := newRoot(t).sandbox(session.ReadOnly).mustDelegate(d, c)
		same(t, "the child's policy events", born.own(), []string{"0 sandbox/mode read-only delegation", "1 " + pin})
		born.wantMode(d, session.ReadOnly)
	})
}

func TestINH02_CapturePinsApprovals(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]session.Payload{
		"never switched": nil, "ask": knobs("", session.Ask), "never": knobs("", session.Never),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t)
			born := newRoot(t, flags...).mustDelegate(d, child{})
			same(t, "the child's policy events", born.own(), []string{"0 " + pin})
			if got := policy.EffectiveOf(born.state.Knobs, d).Approval; got != session.Never {
				t.Errorf("approval is %q", got)
			}
		})
	}
}

func TestINH03_CaptureIdentity(t *testing.T) {
	t.Parallel()
	d := deploy(t, reviewed)
	for choose, want := range map[session.Preset][]string{
		session.PresetAuto:           {"0 sandbox/mode danger-full-access delegation", "1 " + pin, "2 permission/preset auto"},
		session.PresetFullAccess:     {"0 sandbox/mode danger-full-access delegation", "1 " + pin, "2 permission/preset danger-full-access"},
		session.PresetWorkspaceWrite: {"0 sandbox/mode workspace-write delegation", "1 " + pin},
		session.PresetReadOnly:       {"0 " + pin},
	} {
		t.Run(string(choose), func(t *testing.T) {
			t.Parallel()
			l := newRoot(t)
			l.choose(d, choose)
			same(t, "the child's policy events", l.mustDelegate(d, child{}).own(), want)
		})
	}
	t.Run("custom", func(t *testing.T) {
		t.Parallel()
		l := newRoot(t, knobs(session.WorkspaceWrite, session.Never)...)
		same(t, "the child's policy events", l.mustDelegate(d, child{}).own(), []string{"0 sandbox/mode workspace-write delegation", "1 " + pin})
	})
}

func TestINH08_CaptureOfUnswitchedParent(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, c child) {
		t.Helper()
		d := deploy(t, defaults(session.WorkspaceWrite, session.Ask))
		l := newRoot(t)
		l.open("read")
		l.finish() // a turn to fork at
		born := l.mustDelegate(d, c)
		// The pin alone: at seq 0 of a spawn, right behind the seed's end of a fork.
		at := born.state.Header.FirstLiveSeq
		if c.kind == session.Fork {
			at++
			if got := born.events[at-1].Type; at == 1 || got != session.TypeEndSeed {
				t.Fatalf("event %d of a fork is %s, want the seed's end", at-1, got)
			}
		}
		same(t, "the child's policy events", born.own(), []string{fmt.Sprintf("%d %s", at, pin)})
		if born.state.Knobs.Sandbox.Set() {
			t.Errorf("the sandbox fold is %+v, want empty", born.state.Knobs.Sandbox)
		}
		born.wantMode(d, session.WorkspaceWrite)
		// A later change of the default reaches the child.
		born.wantMode(deploy(t, defaults(session.ReadOnly, session.Ask)), session.ReadOnly)
	})
}

func TestINH09_CaptureNoDefaultNoGrant(t *testing.T) {
	t.Parallel()
	d := deploy(t, defaults(session.WorkspaceWrite, session.Ask))
	l := newRoot(t).sandbox(session.ReadOnly)
	id := l.open("bash")
	l.grant(d, policy.Call{ID: id, Tool: "bash", Effect: true, Digest: "d", Escalate: session.DangerFullAccess, Justification: "needed"})
	l.finish()
	born := l.mustDelegate(d, child{kind: session.Fork})
	same(t, "the child's policy events", ungrounded(born.own()), []string{"sandbox/mode read-only delegation", pin})
	born.wantMode(d, session.ReadOnly)
}

// ungrounded drops the seqs.
func ungrounded(events []string) []string {
	var out []string
	for _, e := range events {
		_, text, _ := strings.Cut(e, " ")
		out = append(out, text)
	}
	return out
}

func TestINH10_CaptureBeatsStaleForkPrefix(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	l := newRoot(t, sandbox(session.WorkspaceWrite))
	l.open("read")
	l.finish()
	l.sandbox(session.ReadOnly)
	born := l.mustDelegate(d, child{kind: session.Fork})
	if s, ok := born.events[0].Payload.(*session.SandboxSwitch); !ok || s.Mode != session.WorkspaceWrite {
		t.Fatalf("the prefix starts with %s, want the stale switch", born.events[0].Line)
	}
	same(t, "the child's policy events", ungrounded(born.own()), []string{"sandbox/mode read-only delegation", pin})
	born.wantMode(d, session.ReadOnly)
}

func TestINH12_CaptureSiblingIdentity(t *testing.T) {
	t.Parallel()
	d := deploy(t, reviewed)
	for _, tt := range [][2]session.Preset{
		{session.PresetAuto, session.PresetFullAccess},
		{session.PresetFullAccess, session.PresetAuto},
	} {
		t.Run(string(tt[0])+" in the prefix", func(t *testing.T) {
			t.Parallel()
			l := newRoot(t)
			l.choose(d, tt[0])
			l.open("read")
			l.finish()
			l.choose(d, tt[1])
			born := l.mustDelegate(d, child{kind: session.Fork})
			var seen []session.Preset
			for _, e := range born.events {
				if p, ok := e.Payload.(*session.PresetSwitch); ok {
					seen = append(seen, p.Preset)
				}
			}
			same(t, "identities in the child's log", seen, tt[:])
			if got := policy.Current(born.state.Knobs, d); got != tt[1] {
				t.Errorf("current is %q, want %q", got, tt[1])
			}
		})
	}
}

func TestINH13_CaptureYieldsToSwitchInChild(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	born := newRoot(t).sandbox(session.ReadOnly).mustDelegate(d, child{})
	w, err := policy.SwitchSandbox(born.state, d, session.WorkspaceWrite, alice)
	if err != nil {
		t.Fatalf("SwitchSandbox: %v", err)
	}
	born.add(session.ClassPolicy, w.Events...)
	same(t, "the child's policy events", ungrounded(born.own()), []string{"sandbox/mode read-only delegation", pin, "sandbox/mode workspace-write"})
	born.wantMode(d, session.WorkspaceWrite)
}

func TestINH14_CaptureOfGrandchild(t *testing.T) {
	t.Parallel()
	d := deploy(t, defaults(session.DangerFullAccess, session.Ask))
	root := newRoot(t).sandbox(session.ReadOnly)
	c := root.mustDelegate(d, child{})
	// Nothing that the root does from here on is seen by its grandchild.
	root.sandbox(session.DangerFullAccess)
	g := c.mustDelegate(d, child{})
	same(t, "the grandchild's policy events", g.own(), []string{"0 sandbox/mode read-only delegation", "1 " + pin})
	g.wantMode(d, session.ReadOnly)
}

func TestINH16_CaptureIsASnapshot(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	l := newRoot(t).sandbox(session.ReadOnly)
	first := l.mustDelegate(d, child{})
	length := len(first.events)
	l.sandbox(session.WorkspaceWrite)
	first.wantMode(d, session.ReadOnly)
	if len(first.events) != length {
		t.Errorf("the child's log grew from %d to %d", length, len(first.events))
	}
	second := l.mustDelegate(d, child{})
	same(t, "a fresh snapshot", second.own(), []string{"0 sandbox/mode workspace-write delegation", "1 " + pin})
}

func TestAPR06_CaptureRejectsBeforeAnyoneIsAsked(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	born := newRoot(t).mustDelegate(d, child{})
	id := born.open("bash")
	dec, err := policy.Decide(born.state, d, policy.Call{
		ID: id, Tool: "bash", Effect: true, Digest: "d", Escalate: session.DangerFullAccess, Justification: "needed",
	}, tools)
	if err != nil {
		t.Fatalf("Decide: %v", err)
	}
	denial, ok := dec.(policy.Denial)
	if !ok {
		t.Fatalf("decided %+v, want a denial", dec)
	}
	ask, outcome, ok := denial.Asked()
	if !ok || outcome != session.Rejected {
		t.Fatalf("asked %v, outcome %q, want a rejected question", ok, outcome)
	}
	rec := denial.Record()
	born.add(session.ClassTurn, &ask, &session.ApprovalDecided{ID: ask.ID, Outcome: outcome}, &rec)
	var seen []session.Type
	for _, e := range born.events[len(born.events)-3:] {
		seen = append(seen, e.Type)
	}
	same(t, "the end of the log", seen, []session.Type{session.TypeApprovalAsked, session.TypeApprovalDecided, session.TypeToolDecision})
	if c, _ := born.state.Call(id); c.State != session.CallDenied || c.Ask.Outcome != session.Rejected {
		t.Errorf("the call folds to %+v", c)
	}
}
