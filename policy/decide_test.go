package policy_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/session"
)

// TestDecide runs the transcripts of testdata/decide. Each command and its words:
//
//	deployment [sandbox=M] [approval=P] [reviewer=R] [without=(a,b)] [depth=N] [live=N]
//	root [surface=none]
//	switch [sandbox=M] [approval=P] [preset=N]   a person's, one record each
//	child [fork] [narrow=M] [deny=(a,b)] [allow=(a,b)]
//	open TOOL                                    a turn with one call of the tool
//	decide [escalate=M] [why=W] [digest=D]       that call; why=blank is white space
//	call TOOL ...                                open, then decide
//	answer OUTCOME                               the last question
//	interrupt
//
// A decision is appended with its question, so that what follows sees it. The
// tool delegate takes narrow, deny and allow. What is printed are the fields of
// the decision and nothing that only a person or a model reads.
func TestDecide(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		t.Helper()
		s := &script{t: t, deployment: deploy(t)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			return s.run(d)
		})
	})
}

// script is the state of one transcript.
type script struct {
	t          *testing.T
	deployment policy.Deployment
	log        *log
	tool       string
	call       session.CallID
}

func (s *script) run(d *datadriven.TestData) string {
	s.t.Helper()
	switch d.Cmd {
	case "deployment":
		s.deployment = deploy(s.t, s.settings(d)...)
	case "root":
		s.log = policytest.NewTree(s.t, 0, 0).Root(session.Surface(word(d, "surface", "any")))
	case "switch":
		return s.change(d)
	case "child":
		return s.child(d)
	case "open":
		s.open(d)
	case "decide":
		return s.decide(d)
	case "call":
		s.open(d)
		return s.decide(d)
	case "answer":
		ask := s.asked()
		s.log.Add(session.ClassInbox, &session.ApprovalDecided{ID: ask.ID, Outcome: session.Outcome(d.CmdArgs[0].Key), By: &alice})
	case "interrupt":
		s.log.Add(session.ClassInbox, &session.Interrupt{ID: "i", Turn: s.log.State.Turn, By: &alice})
	default:
		d.Fatalf(s.t, "unknown command %s", d.Cmd)
	}
	return "ok\n"
}

func (s *script) settings(d *datadriven.TestData) []func(*policy.Settings) {
	number := func(name string, into func(*policy.Settings) *int) func(*policy.Settings) {
		return func(set *policy.Settings) {
			if v := word(d, name, ""); v != "" {
				n, err := strconv.Atoi(v)
				if err != nil {
					d.Fatalf(s.t, "%s: %v", name, err)
				}
				*into(set) = n
			}
		}
	}
	without := strings.Join(words(d, "without"), " ")
	has := func(c string) bool { return !strings.Contains(without, c) }
	return []func(*policy.Settings){
		defaults(session.SandboxMode(word(d, "sandbox", "read-only")), session.ApprovalPolicy(word(d, "approval", "ask"))),
		func(set *policy.Settings) { set.Reviewer = policy.Reviewer(word(d, "reviewer", "none")) },
		compose(has("sandbox"), has("approvals"), has("presets")),
		number("depth", func(set *policy.Settings) *int { return &set.Caps.Depth }),
		number("live", func(set *policy.Settings) *int { return &set.Caps.Live }),
	}
}

// change appends what a person's wish comes to.
func (s *script) change(d *datadriven.TestData) string {
	s.t.Helper()
	for _, a := range d.CmdArgs {
		var w policy.Wished
		var err error
		switch v := a.SingleVal(s.t); a.Key {
		case "sandbox":
			w, err = policy.SwitchSandbox(s.log.State, s.deployment, session.SandboxMode(v), alice)
		case "approval":
			w, err = policy.SwitchApproval(s.log.State, s.deployment, session.ApprovalPolicy(v), alice)
		case "preset":
			w, err = policy.Select(s.log.State, s.deployment, session.Preset(v), alice)
		}
		if err != nil {
			return fmt.Sprintf("refused %s\n", policy.CodeOf(err))
		}
		s.log.Add(session.ClassPolicy, w.Events...)
	}
	return strings.Join(s.log.Own(), "\n") + "\n"
}

func (s *script) child(d *datadriven.TestData) string {
	s.t.Helper()
	s.finish()
	c := child{Wish: wish(d)}
	if d.HasArg("fork") {
		c.Kind = session.Fork
	}
	born, dec := s.log.Delegate(s.deployment, c)
	if born == nil {
		return show(dec)
	}
	s.log = born
	return strings.Join(born.Own(), "\n") + "\n"
}

func (s *script) open(d *datadriven.TestData) {
	s.t.Helper()
	s.finish()
	s.tool = d.CmdArgs[0].Key
	s.call = s.log.Open(s.tool)
}

func (s *script) finish() {
	s.t.Helper()
	if s.log.State.Open != nil {
		s.log.Finish()
	}
}

func (s *script) decide(d *datadriven.TestData) string {
	s.t.Helper()
	c := policy.Call{
		ID: s.call, Tool: s.tool, Effect: s.tool != "read", Digest: word(d, "digest", "d1"),
		Escalate: session.SandboxMode(word(d, "escalate", "")), Justification: word(d, "why", ""),
	}
	if c.Justification == "blank" {
		c.Justification = " \t"
	}
	if s.tool == session.ToolDelegate {
		w := wish(d)
		c.Wish = &w
	}
	dec, err := policy.Decide(s.log.State, s.deployment, c, tools)
	if refusal, ok := errors.AsType[*policy.RefusalError](err); ok {
		return fmt.Sprintf("not decided: %s\n", refusal.Code)
	}
	if err != nil {
		d.Fatalf(s.t, "decide: %v", err)
	}
	s.append(dec)
	return show(dec)
}

// append logs a decision. One that allows a delegation stands in a genesis only,
// which is the command child's.
func (s *script) append(dec policy.Decision) {
	s.t.Helper()
	rec := dec.Record()
	switch dec := dec.(type) {
	case policy.Permit:
		if s.tool != session.ToolDelegate {
			s.log.Add(session.ClassTurn, &rec)
		}
	case policy.Denial:
		if ask, outcome, ok := dec.Asked(); ok {
			s.log.Add(session.ClassTurn, &ask, &session.ApprovalDecided{ID: ask.ID, Outcome: outcome})
		}
		s.log.Add(session.ClassTurn, &rec)
	case policy.Question:
		ask := dec.Ask()
		s.log.Add(session.ClassTurn, &rec, &ask)
	}
}

func (s *script) asked() session.Question {
	s.t.Helper()
	c, ok := s.log.State.Call(s.call)
	if !ok || c.Ask == nil {
		s.t.Fatalf("call %s has no question", s.call)
	}
	return *c.Ask
}

// show writes a decision: what it is, the basis it stands on, and the question it
// brings along.
func show(dec policy.Decision) string {
	rec := dec.Record()
	var b strings.Builder
	fmt.Fprintf(&b, "%s by=%s mode=%s", rec.Verdict, rec.By, rec.Mode)
	if rec.Final {
		b.WriteString(" final")
	}
	if rec.Grant != "" {
		b.WriteString(" granted")
	}
	if denial, ok := dec.(policy.Denial); ok && denial.Code() != "" {
		fmt.Fprintf(&b, " code=%s", denial.Code())
	}
	if rec.Defaults != nil {
		fmt.Fprintf(&b, " defaults=%s+%s", rec.Defaults.Sandbox, rec.Defaults.Approval)
	}
	fmt.Fprintf(&b, "\nbasis sandbox=%s approval=%s preset=%s\n", ground(rec.Basis.Sandbox), ground(rec.Basis.Approval), ground(rec.Basis.Preset))
	switch dec := dec.(type) {
	case policy.Denial:
		if ask, outcome, ok := dec.Asked(); ok {
			fmt.Fprintf(&b, "asked %s for %s, decided %s\n", ask.ToolName, ask.Mode, outcome)
		}
	case policy.Question:
		fmt.Fprintf(&b, "asks for %s, digest %s\n", dec.Ask().Mode, dec.Ask().Digest)
	case policy.Permit:
	}
	return b.String()
}

// ground writes a value with the seq of its event, or with an asterisk where no
// event set it.
func ground(g session.Ground) string {
	if g.Seq == nil {
		return g.Value + "*"
	}
	return fmt.Sprintf("%s@%d", g.Value, *g.Seq)
}

func wish(d *datadriven.TestData) policy.Wish {
	w := policy.Wish{Sandbox: session.SandboxMode(word(d, "narrow", ""))}
	if d.HasArg("allow") || d.HasArg("deny") {
		w.Filter = &session.ToolFilter{Deny: words(d, "deny")}
	}
	if d.HasArg("allow") {
		allow := words(d, "allow")
		w.Filter.Allow = &allow
	}
	return w
}

func word(d *datadriven.TestData, key, unset string) string {
	if v := words(d, key); len(v) > 0 {
		return v[0]
	}
	return unset
}

func words(d *datadriven.TestData, key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}
