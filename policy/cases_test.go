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
				f(t, child{Kind: k, Mode: m})
			})
		}
	}
}

// mode is the effective sandbox mode.
func mode(l *log, d policy.Deployment) session.SandboxMode {
	return policy.EffectiveOf(l.State.Knobs, d).Sandbox
}

func wantMode(t *testing.T, l *log, d policy.Deployment, want session.SandboxMode) {
	t.Helper()
	if got := mode(l, d); got != want {
		t.Fatalf("%s is under %q, want %q", l.State.Header.ID, got, want)
	}
}

func TestINH01_CaptureExplicitSandboxSwitch(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, c child) {
		t.Helper()
		d := deploy(t, defaults(session.DangerFullAccess, session.Ask))
		born := newRoot(t).Sandbox(session.ReadOnly).MustDelegate(d, c)
		same(t, "the child's policy events", born.Own(), []string{"0 sandbox/mode read-only delegation", "1 " + pin})
		wantMode(t, born, d, session.ReadOnly)
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
			born := newRoot(t, flags...).MustDelegate(d, child{})
			same(t, "the child's policy events", born.Own(), []string{"0 " + pin})
			if got := policy.EffectiveOf(born.State.Knobs, d).Approval; got != session.Never {
				t.Errorf("approval is %q", got)
			}
		})
	}
}

func TestINH03_CaptureIdentity(t *testing.T) {
	t.Parallel()
	d := deploy(t, reviewed)
	for chosen, want := range map[session.Preset][]string{
		session.PresetAuto:           {"0 sandbox/mode danger-full-access delegation", "1 " + pin, "2 permission/preset auto"},
		session.PresetFullAccess:     {"0 sandbox/mode danger-full-access delegation", "1 " + pin, "2 permission/preset danger-full-access"},
		session.PresetWorkspaceWrite: {"0 sandbox/mode workspace-write delegation", "1 " + pin},
		session.PresetReadOnly:       {"0 " + pin},
	} {
		t.Run(string(chosen), func(t *testing.T) {
			t.Parallel()
			l := newRoot(t)
			choose(t, l, d, chosen)
			same(t, "the child's policy events", l.MustDelegate(d, child{}).Own(), want)
		})
	}
	t.Run("custom", func(t *testing.T) {
		t.Parallel()
		l := newRoot(t, knobs(session.WorkspaceWrite, session.Never)...)
		same(t, "the child's policy events", l.MustDelegate(d, child{}).Own(), []string{"0 sandbox/mode workspace-write delegation", "1 " + pin})
	})
}

func TestINH08_CaptureOfUnswitchedParent(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(t *testing.T, c child) {
		t.Helper()
		d := deploy(t, defaults(session.WorkspaceWrite, session.Ask))
		l := newRoot(t)
		l.Open("read")
		l.Finish() // a turn to fork at
		born := l.MustDelegate(d, c)
		// The pin alone: at seq 0 of a spawn, right behind the seed's end of a fork.
		at := born.State.Header.FirstLiveSeq
		if c.Kind == session.Fork {
			at++
			if got := born.Events[at-1].Type; at == 1 || got != session.TypeEndSeed {
				t.Fatalf("event %d of a fork is %s, want the seed's end", at-1, got)
			}
		}
		same(t, "the child's policy events", born.Own(), []string{fmt.Sprintf("%d %s", at, pin)})
		if born.State.Knobs.Sandbox.Set() {
			t.Errorf("the sandbox fold is %+v, want empty", born.State.Knobs.Sandbox)
		}
		wantMode(t, born, d, session.WorkspaceWrite)
		// A later change of the default reaches the child.
		wantMode(t, born, deploy(t, defaults(session.ReadOnly, session.Ask)), session.ReadOnly)
	})
}

func TestINH09_CaptureNoDefaultNoGrant(t *testing.T) {
	t.Parallel()
	d := deploy(t, defaults(session.WorkspaceWrite, session.Ask))
	l := newRoot(t).Sandbox(session.ReadOnly)
	id := l.Open("bash")
	grant(t, l, d, policy.Call{ID: id, Tool: "bash", Effect: true, Digest: "d", Escalate: session.DangerFullAccess, Justification: "needed"})
	l.Finish()
	born := l.MustDelegate(d, child{Kind: session.Fork})
	same(t, "the child's policy events", ungrounded(born.Own()), []string{"sandbox/mode read-only delegation", pin})
	wantMode(t, born, d, session.ReadOnly)
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
	l.Open("read")
	l.Finish()
	l.Sandbox(session.ReadOnly)
	born := l.MustDelegate(d, child{Kind: session.Fork})
	if s, ok := born.Events[0].Payload.(*session.SandboxSwitch); !ok || s.Mode != session.WorkspaceWrite {
		t.Fatalf("the prefix starts with %s, want the stale switch", born.Events[0].Line)
	}
	same(t, "the child's policy events", ungrounded(born.Own()), []string{"sandbox/mode read-only delegation", pin})
	wantMode(t, born, d, session.ReadOnly)
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
			choose(t, l, d, tt[0])
			l.Open("read")
			l.Finish()
			choose(t, l, d, tt[1])
			born := l.MustDelegate(d, child{Kind: session.Fork})
			var seen []session.Preset
			for _, e := range born.Events {
				if p, ok := e.Payload.(*session.PresetSwitch); ok {
					seen = append(seen, p.Preset)
				}
			}
			same(t, "identities in the child's log", seen, tt[:])
			if got := policy.Current(born.State.Knobs, d); got != tt[1] {
				t.Errorf("current is %q, want %q", got, tt[1])
			}
		})
	}
}

func TestINH13_CaptureYieldsToSwitchInChild(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	born := newRoot(t).Sandbox(session.ReadOnly).MustDelegate(d, child{})
	w, err := policy.SwitchSandbox(born.State, d, session.WorkspaceWrite, alice)
	if err != nil {
		t.Fatalf("SwitchSandbox: %v", err)
	}
	born.Add(session.ClassPolicy, w.Events...)
	same(t, "the child's policy events", ungrounded(born.Own()), []string{"sandbox/mode read-only delegation", pin, "sandbox/mode workspace-write"})
	wantMode(t, born, d, session.WorkspaceWrite)
}

func TestINH14_CaptureOfGrandchild(t *testing.T) {
	t.Parallel()
	d := deploy(t, defaults(session.DangerFullAccess, session.Ask))
	root := newRoot(t).Sandbox(session.ReadOnly)
	c := root.MustDelegate(d, child{})
	// Nothing that the root does from here on is seen by its grandchild.
	root.Sandbox(session.DangerFullAccess)
	g := c.MustDelegate(d, child{})
	same(t, "the grandchild's policy events", g.Own(), []string{"0 sandbox/mode read-only delegation", "1 " + pin})
	wantMode(t, g, d, session.ReadOnly)
}

func TestINH16_CaptureIsASnapshot(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	l := newRoot(t).Sandbox(session.ReadOnly)
	first := l.MustDelegate(d, child{})
	length := len(first.Events)
	l.Sandbox(session.WorkspaceWrite)
	wantMode(t, first, d, session.ReadOnly)
	if len(first.Events) != length {
		t.Errorf("the child's log grew from %d to %d", length, len(first.Events))
	}
	second := l.MustDelegate(d, child{})
	same(t, "a fresh snapshot", second.Own(), []string{"0 sandbox/mode workspace-write delegation", "1 " + pin})
}

func TestAPR06_CaptureRejectsBeforeAnyoneIsAsked(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	born := newRoot(t).MustDelegate(d, child{})
	id := born.Open("bash")
	dec, err := policy.Decide(born.State, d, policy.Call{
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
	born.Add(session.ClassTurn, &ask, &session.ApprovalDecided{ID: ask.ID, Outcome: outcome}, &rec)
	var seen []session.Type
	for _, e := range born.Events[len(born.Events)-3:] {
		seen = append(seen, e.Type)
	}
	same(t, "the end of the log", seen, []session.Type{session.TypeApprovalAsked, session.TypeApprovalDecided, session.TypeToolDecision})
	if c, _ := born.State.Call(id); c.State != session.CallDenied || c.Ask.Outcome != session.Rejected {
		t.Errorf("the call folds to %+v", c)
	}
}
