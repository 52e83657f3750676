package policy_test

import (
	"strings"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/session"
)

// The conformance cases of escalation that are policy's: what is asked, what an
// answer allows, and for how long. That nothing runs that was not allowed is shown
// by package agent's tests.

// escalation is a shell call that asks for a wider mode.
func escalation(id session.CallID, want session.SandboxMode) policy.Call {
	return policy.Call{ID: id, Tool: "bash", Effect: true, Digest: strings.Repeat("0a", 32), Escalate: want, Justification: "to reach the registry"}
}

func decided(t *testing.T, l *log, d policy.Deployment, c policy.Call) policy.Decision {
	t.Helper()
	dec, err := policy.Decide(l.State, d, c, tools)
	if err != nil {
		t.Fatalf("decide %s: %v", c.ID, err)
	}
	return dec
}

// question asks for the call and logs that.
func question(t *testing.T, l *log, d policy.Deployment, c policy.Call) session.ApprovalAsked {
	t.Helper()
	q, ok := decided(t, l, d, c).(policy.Question)
	if !ok {
		t.Fatalf("call %s was decided %+v, want a question", c.ID, decided(t, l, d, c))
	}
	rec, ask := q.Record(), q.Ask()
	l.Add(session.ClassTurn, &rec, &ask)
	return ask
}

func answer(l *log, ask session.ApprovalAsked, o session.Outcome) {
	l.Add(session.ClassInbox, &session.ApprovalDecided{ID: ask.ID, Outcome: o, By: &alice})
}

// Half an escalation is no call: nothing is decided and nothing is asked.
func TestESC01_HalfAnEscalationIsNoCall(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*policy.Call){
		"no justification":      func(c *policy.Call) { c.Justification = "" },
		"a blank justification": func(c *policy.Call) { c.Justification = " \n\t" },
		"no mode":               func(c *policy.Call) { c.Escalate = "" },
	} {
		for _, p := range []session.ApprovalPolicy{session.Ask, session.Never} {
			l := newRoot(t, approval(p))
			c := escalation(l.Open("bash"), session.DangerFullAccess)
			change(&c)
			if dec, err := policy.Decide(l.State, deploy(t), c, tools); policy.CodeOf(err) != policy.CodeArguments || dec != nil {
				t.Errorf("%s under %s: %+v, %v, want code %s", name, p, dec, err, policy.CodeArguments)
			}
		}
	}
}

// What is not strictly wider is denied by policy, and nobody is asked.
func TestESC02_OnlyAStrictlyWiderModeIsAskedFor(t *testing.T) {
	t.Parallel()
	modes := []session.SandboxMode{"read-only", "workspace-write", "danger-full-access", "yolo", "Danger-Full-Access"}
	for i, have := range modes[:3] {
		for j, want := range modes {
			l := newRoot(t, sandbox(have))
			dec := decided(t, l, deploy(t), escalation(l.Open("bash"), want))
			if j > i && j < 3 {
				if q, ok := dec.(policy.Question); !ok || q.Ask().Mode != want {
					t.Errorf("from %s to %s: %+v, want a question for it", have, want, dec)
				}
				continue
			}
			denial, ok := dec.(policy.Denial)
			if !ok || denial.Record().By != session.StagePolicy || denial.Record().Mode != have || !denial.Record().Final {
				t.Errorf("from %s to %s: %+v, want a final denial by policy", have, want, dec)
				continue
			}
			if _, _, asked := denial.Asked(); asked {
				t.Errorf("from %s to %s: a question is logged", have, want)
			}
		}
	}
}

// The reasons why nobody is asked come in one order, each with its own end: not
// wider, switching left out, stopped, approvals left out, never, nobody there.
func TestESC03_WhyNobodyIsAskedComesInOrder(t *testing.T) {
	t.Parallel()
	type reason struct {
		name    string
		want    session.SandboxMode // "" is a wider one
		change  func(*policy.Settings)
		flags   []session.Payload
		stopped bool
		surface session.Surface
		by      session.Stage
		code    string
		outcome session.Outcome // of the logged pair, "" if none is
	}
	reasons := []reason{
		{name: "not wider", want: session.ReadOnly, by: session.StagePolicy},
		{name: "switching left out", change: func(s *policy.Settings) { s.Composition.Sandbox = false }, by: session.StagePolicy, code: "NOT_COMPOSED"},
		{name: "stopped", stopped: true, by: session.StageApproval, outcome: session.Cancelled},
		{name: "approvals left out", change: func(s *policy.Settings) { s.Composition.Approvals = false }, by: session.StageApproval, outcome: session.Unavailable},
		{name: "never", flags: []session.Payload{approval(session.Never)}, by: session.StageApproval, outcome: session.Rejected},
		{name: "nobody there", surface: session.SurfaceNone, by: session.StageApproval, outcome: session.Unavailable},
	}
	texts := map[string]string{}
	for i := range reasons {
		// All later reasons hold too.
		surface, want := session.SurfaceAny, session.DangerFullAccess
		var flags []session.Payload
		var changes []func(*policy.Settings)
		stopped := false
		for _, r := range reasons[i:] {
			if r.change != nil {
				changes = append(changes, r.change)
			}
			flags, stopped = append(flags, r.flags...), stopped || r.stopped
			if r.surface != "" {
				surface = r.surface
			}
		}
		r := reasons[i]
		if r.want != "" {
			want = r.want
		}
		l := policytest.NewTree(t, 0, 0).Root(surface, flags...)
		c := escalation(l.Open("bash"), want)
		if stopped {
			l.Add(session.ClassInbox, &session.Interrupt{ID: "i", Turn: l.State.Turn, By: &alice})
		}
		denial, ok := decided(t, l, deploy(t, changes...), c).(policy.Denial)
		if !ok {
			t.Fatalf("%s: no denial", r.name)
		}
		_, outcome, _ := denial.Asked()
		if denial.Record().By != r.by || denial.Code() != r.code || outcome != r.outcome {
			t.Errorf("%s: by %s, code %q, outcome %q; want %s, %q, %q", r.name, denial.Record().By, denial.Code(), outcome, r.by, r.code, r.outcome)
		}
		if r.outcome != session.Unavailable { // one text for both
			if other, twice := texts[denial.Text()]; twice {
				t.Errorf("%s is told as %s is: %q", r.name, other, denial.Text())
			}
			texts[denial.Text()] = r.name
		}
	}
}

// A question names the call, its arguments, the mode and the basis, and says why in
// one form. Until it is answered there is no permit.
func TestESC04_AQuestionSaysWhatAndWhy(t *testing.T) {
	t.Parallel()
	d, l := deploy(t), newRoot(t, sandbox(session.WorkspaceWrite))
	c := escalation(l.Open("bash"), session.DangerFullAccess)
	ask := question(t, l, d, c)
	if want := "escalate sandbox to danger-full-access: to reach the registry"; ask.Reason != want {
		t.Errorf("the reason is %q, want %q", ask.Reason, want)
	}
	if ask.CallID != c.ID || ask.Digest != c.Digest || ask.Mode != c.Escalate || ask.ToolName != "bash" || ask.Basis.Sandbox.Value != "workspace-write" {
		t.Errorf("asked %+v of %+v", ask, c)
	}
	if dec, ok := decided(t, l, d, c).(policy.Permit); ok {
		t.Errorf("without an answer it is allowed: %+v", dec)
	}
	if _, err := session.Fold(l.State, session.Event{
		Session: l.State.Header.ID, Class: session.ClassTurn, Seq: l.State.Next, Type: session.TypeApprovalDecided,
		Payload: &session.ApprovalDecided{ID: ask.ID, Outcome: session.AllowedOnce},
	}); err == nil {
		t.Error("a worker answers its own question")
	}
}

// A grant lets exactly its call run under the wider mode, with that mode's network,
// and dies with it: nothing else of the log is wider, the same call included.
func TestESC05_AGrantIsOneCallsAndDiesWithIt(t *testing.T) {
	t.Parallel()
	d := deploy(t, func(s *policy.Settings) {
		s.Confinement.Network = policy.Networks{ReadOnly: session.NetworkDeny, WorkspaceWrite: session.NetworkLoopback}
	})
	for want, network := range map[session.SandboxMode]session.Network{session.WorkspaceWrite: session.NetworkLoopback, session.DangerFullAccess: session.NetworkAllow} {
		l := newRoot(t)
		c := escalation(l.Open("bash"), want)
		ask := question(t, l, d, c)
		answer(l, ask, session.AllowedOnce)
		p, ok := decided(t, l, d, c).(policy.Permit)
		if !ok || p.Mode() != want || p.Network() != network || p.Record().Grant != ask.ID {
			t.Fatalf("the granted call is decided %+v, want mode %s and network %s by grant %s", p, want, network, ask.ID)
		}
		plain := c
		plain.Escalate, plain.Justification = "", ""
		if p, ok := decided(t, l, d, plain).(policy.Permit); !ok || p.Mode() != session.ReadOnly || p.Network() != session.NetworkDeny || p.Record().Grant != "" {
			t.Errorf("the same call without its wish is decided %+v, want the session's own mode and network", p)
		}
		other := c
		other.Digest = strings.Repeat("0b", 32)
		if q, ok := decided(t, l, d, other).(policy.Question); !ok || q.Record().Network != "" {
			t.Errorf("the call with other arguments is decided %+v, want a question", q)
		}
		rec := p.Record()
		l.Add(session.ClassTurn, &rec)
		l.Finish()
		// Afterwards: a plain call has the session's mode, an escalated one asks.
		if p, ok := decided(t, l, d, policy.Call{ID: l.Open("bash"), Tool: "bash", Effect: true}).(policy.Permit); !ok || p.Mode() != session.ReadOnly || p.Network() != session.NetworkDeny {
			t.Errorf("the next call is decided %+v, want the session's own mode and network", p)
		}
		l.Finish()
		again := escalation(l.Open("bash"), want)
		if _, ok := decided(t, l, d, again).(policy.Question); !ok {
			t.Errorf("the same wish again is decided %+v, want a question", decided(t, l, d, again))
		}
		if l.State.Knobs.Sandbox.Set() {
			t.Errorf("the grant is left in the log as a switch: %+v", l.State.Knobs)
		}
	}
}

// Each answer that does not grant has a text of its own, names the mode, and denies
// the call. An answer outside of the vocabulary cannot stand in a log.
func TestESC06_EveryOtherAnswerDenies(t *testing.T) {
	t.Parallel()
	d, texts := deploy(t), map[string]session.Outcome{}
	for o, final := range map[session.Outcome]bool{session.Rejected: true, session.Cancelled: false, session.Unavailable: true} {
		l := newRoot(t)
		c := escalation(l.Open("bash"), session.WorkspaceWrite)
		answer(l, question(t, l, d, c), o)
		denial, ok := decided(t, l, d, c).(policy.Denial)
		if !ok || denial.Record().By != session.StageApproval || denial.Record().Final != final || denial.Record().Network != "" {
			t.Fatalf("%s: decided %+v, want a denial by approval, final %t", o, decided(t, l, d, c), final)
		}
		if _, _, asked := denial.Asked(); asked {
			t.Errorf("%s: it is asked about a second time", o)
		}
		if other, twice := texts[denial.Text()]; twice || !strings.Contains(denial.Text(), `"workspace-write"`) {
			t.Errorf("%s is told as %q (and %s so, too)", o, denial.Text(), other)
		}
		texts[denial.Text()] = o
	}
	if _, err := session.Encode(0, 0, &session.ApprovalDecided{ID: "q", Outcome: "sure", By: &alice}); err == nil {
		t.Error("an outcome of no vocabulary is written")
	}
}

// Without sandbox switching an escalation is refused by name, whatever the session
// has, and nobody is asked.
func TestESC07_WithoutSwitchingNothingIsWider(t *testing.T) {
	t.Parallel()
	d := deploy(t, func(s *policy.Settings) { s.Composition.Sandbox = false })
	for _, p := range []session.ApprovalPolicy{session.Ask, session.Never} {
		l := newRoot(t, approval(p))
		denial, ok := decided(t, l, d, escalation(l.Open("bash"), session.WorkspaceWrite)).(policy.Denial)
		if !ok || denial.Code() != string(policy.CodeLeftOut) || !strings.Contains(denial.Text(), "left out of this deployment") {
			t.Errorf("under %s: decided %+v, want %s", p, denial, policy.CodeLeftOut)
		}
		if _, _, asked := denial.Asked(); asked {
			t.Errorf("under %s: a question is logged", p)
		}
	}
}

// A turn that was stopped between the grant and the decision uses no grant.
func TestESC10_AGrantIsNotUsedOnceTheTurnIsStopped(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*log){
		"interrupted": func(l *log) {
			l.Add(session.ClassInbox, &session.Interrupt{ID: "i", Turn: l.State.Turn, By: &alice})
		},
		"cancelled": func(l *log) { l.Add(session.ClassInbox, &session.Cancel{ID: "c", By: &alice}) },
	} {
		d, l := deploy(t), newRoot(t)
		c := escalation(l.Open("bash"), session.DangerFullAccess)
		answer(l, question(t, l, d, c), session.AllowedOnce)
		if _, ok := decided(t, l, d, c).(policy.Permit); !ok {
			t.Fatalf("%s: the grant allows nothing to begin with", name)
		}
		stop(l)
		if denial, ok := decided(t, l, d, c).(policy.Denial); !ok || denial.Record().Grant != "" || denial.Record().Final {
			t.Errorf("%s: decided %+v, want a denial that is not final", name, decided(t, l, d, c))
		}
	}
}

// The last switch is what is effective, in both directions; without one it is the
// default, which is ask unless the deployment sets another. A value that is neither is
// refused, and what holds already is switched by no event.
func TestAPR07_TheLastSwitchIsEffective(t *testing.T) {
	t.Parallel()
	effective := func(l *log, d policy.Deployment) session.ApprovalPolicy {
		return policy.EffectiveOf(l.State.Knobs, d).Approval
	}
	shipped, set := deploy(t), deploy(t, defaults(session.ReadOnly, session.Never))
	l := newRoot(t)
	if a, n := effective(l, shipped), effective(l, set); a != session.Ask || n != session.Never {
		t.Errorf("without a switch it is %q by the shipped default and %q by one of never", a, n)
	}
	for _, p := range []session.ApprovalPolicy{session.Never, session.Ask, session.Never} {
		before := len(l.Own())
		w, err := policy.SwitchApproval(l.State, set, p, alice)
		if err != nil {
			t.Fatal(err)
		}
		l.Add(session.ClassPolicy, w.Events...)
		if got := effective(l, set); got != p || len(l.Own()) != before+1 {
			t.Errorf("after a switch to %q it is %q, by %d events", p, got, len(l.Own())-before)
		}
		same, err := policy.SwitchApproval(l.State, set, p, alice)
		if err != nil || len(same.Events) != 0 {
			t.Errorf("the same switch again writes %d events, %v", len(same.Events), err)
		}
		for _, foreign := range []session.ApprovalPolicy{"", "maybe", "ASK", "ask "} {
			w, err := policy.SwitchApproval(l.State, set, foreign, alice)
			refused(t, err, policy.CodeUnknownPolicy, string(foreign))
			if len(w.Events) != 0 {
				t.Errorf("%q writes %d events", foreign, len(w.Events))
			}
		}
	}
}
