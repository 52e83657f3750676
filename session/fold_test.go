package session_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// TestFold runs the transcripts in testdata/fold. A command writes one record,
// one event to a line as its type and the fields that matter; `state` shows what
// the session folds to. What they expect is reviewed against the specification;
// -rewrite writes what is there now.
func TestFold(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/fold", func(t *testing.T, path string) {
		t.Helper()
		tr := &transcript{t: t, s: sessiontest.NewStream(t), ids: map[string]session.ID{}}
		datadriven.RunTest(t, path, tr.run)
	})
}

type transcript struct {
	t   *testing.T
	s   *sessiontest.Stream
	ids map[string]session.ID
}

func (tr *transcript) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	name := "root"
	d.MaybeScanArgs(t, "in", &name)
	id := tr.ids[name]
	switch d.Cmd {
	case "root":
		tr.ids["root"] = tr.s.Root(tr.events(session.ClassGenesis, id, d.Input)...)
	case "spawn", "fork":
		var as, call string
		d.ScanArgs(t, "as", &as)
		d.ScanArgs(t, "call", &call)
		tr.ids[as] = tr.s.Delegate(id, sessiontest.Delegation{Call: session.CallID(call), Kind: session.Kind(d.Cmd)})
	case "person-fork":
		var as string
		d.ScanArgs(t, "as", &as)
		tr.ids[as] = tr.s.Fork(id)
	case "turn", "policy", "inbox":
		return tr.record(id, session.Class(d.Cmd), d.Input)
	case "state":
		return tr.show(tr.s.State(id), d.CmdArgs)
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return "ok\n"
}

// record writes one record, or says why the fold refuses it and checks that it
// changed nothing.
func (tr *transcript) record(id session.ID, class session.Class, input string) string {
	tr.t.Helper()
	events := tr.events(class, id, input)
	before := tr.s.State(id)
	kept := encoded(tr.t, before)
	_, err := session.FoldSection(before, *tr.s.Compose(id, class, events...).Own)
	if after := encoded(tr.t, before); after != kept {
		tr.t.Errorf("folding wrote to the state it was given:\n%s", cmp.Diff(kept, after))
	}
	if err != nil {
		return "refused: " + tr.names(err.Error()) + "\n"
	}
	tr.s.Write(id, class, events...)
	return "ok\n"
}

// names shows sessions by their names in the transcript.
func (tr *transcript) names(s string) string {
	for name, id := range tr.ids {
		if !id.IsRoot() {
			s = strings.ReplaceAll(s, string(id), name)
		}
	}
	for _, id := range tr.ids {
		if id.IsRoot() {
			s = strings.ReplaceAll(s, string(id), "root")
		}
	}
	return s
}

// events reads one event a line. A missing party or basis is filled in as an
// honest writer would.
func (tr *transcript) events(class session.Class, id session.ID, input string) []session.Payload {
	tr.t.Helper()
	var out []session.Payload
	for line := range strings.Lines(input) {
		typ, data, _ := strings.Cut(strings.TrimSpace(line), " ")
		i := slices.IndexFunc(session.Catalogue(), func(s session.Spec) bool { return string(s.Type) == typ })
		if i < 0 {
			tr.t.Fatalf("unknown type %q", typ)
		}
		p := session.Catalogue()[i].Payload()
		for name, id := range tr.ids {
			data = strings.ReplaceAll(data, "$"+name, string(id))
		}
		if err := json.Unmarshal([]byte("{"+data+"}"), p); err != nil {
			tr.t.Fatalf("%s: %v", line, err)
		}
		tr.complete(p, class, id, data)
		out = append(out, p)
	}
	return out
}

func (tr *transcript) complete(p session.Payload, class session.Class, id session.ID, data string) {
	if by := reflect.ValueOf(p).Elem().FieldByName("By"); class != session.ClassTurn && by.IsValid() &&
		by.Type() == reflect.TypeFor[*session.Party]() && !strings.Contains(data, `"by"`) && !strings.Contains(data, `"source":"delegation"`) {
		by.Set(reflect.ValueOf(person()))
	}
	switch p := p.(type) {
	case *session.ToolDecision:
		p.By = session.StagePolicy
		tr.basis(&p.Basis, &p.Mode, id)
	case *session.ApprovalAsked:
		tr.basis(&p.Basis, &p.Mode, id)
	case *session.Claim:
		p.Worker, p.Incarnation = "w1", "i1"
	case *session.UserMessage:
		p.Role = "user"
	}
}

func (tr *transcript) basis(b *session.Basis, m *session.SandboxMode, id session.ID) {
	if b.Sandbox.Value == "" {
		*b = sessiontest.Basis(tr.s.State(id))
	}
	if *m == "" {
		*m = session.SandboxMode(b.Sandbox.Value)
	}
}

// show prints the named parts of a state, a line each.
func (tr *transcript) show(s session.State, parts []datadriven.CmdArg) string {
	var out strings.Builder
	for _, part := range parts {
		if part.Key != "in" {
			fmt.Fprintf(&out, "%s: %s\n", part.Key, strings.TrimSpace(tr.names(show(s, part.Key))))
		}
	}
	return out.String()
}

func show(s session.State, part string) string {
	switch part {
	case "next":
		return fmt.Sprint(s.Next)
	case "knobs":
		return fmt.Sprintf("sandbox %s, approval %s, preset %s", knob(s.Knobs.Sandbox), knob(s.Knobs.Approval), knob(s.Knobs.Preset))
	case "turn":
		return turnOf(s)
	case "calls":
		return callsOf(s)
	case "epoch":
		return fmt.Sprintf("%d %s", s.Epoch, s.Claim.Cause)
	case "pending":
		return list(s.Pending, func(m session.Pending) string { return fmt.Sprintf("%d %s", m.Seq, m.Kind) })
	case "children":
		return list(s.Children, func(c session.Child) string {
			return fmt.Sprintf("%s of %s (noticed turn %d)", c.ID, c.Call, c.Noticed)
		})
	case "counts":
		return fmt.Sprintf("steps %d, calls %d, denials %d", s.Steps, s.Calls, s.Denials)
	case "cut":
		return fmt.Sprintf("%d events, turn %d, sandbox %s", s.Cut.Count, s.Cut.Turn, knob(s.Cut.Knobs.Sandbox))
	case "ended":
		if s.Ended == nil {
			return "no"
		}
		return fmt.Sprintf("%s, cancelled %v, archived %t", s.Ended.Outcome, s.Ended.Cancelled, s.Archived)
	case "stopping":
		return strconv.FormatBool(s.Stopping())
	case "runnable":
		return strconv.FormatBool(s.Runnable())
	case "seed":
		return fmt.Sprintf("inherited %d, first live seq %d", s.Header.InheritedEventCount, s.Header.FirstLiveSeq)
	case "descriptor":
		if s.Descriptor == nil {
			return "none"
		}
		return fmt.Sprintf("%s %s", s.Descriptor.Mode, s.Descriptor.Provider)
	}
	return "no such part"
}

func knob[V ~string](k session.Knob[V]) string {
	if !k.Set() {
		return "-"
	}
	from := ""
	if k.Source != "" {
		from = " by " + string(k.Source)
	}
	return fmt.Sprintf("%s@%d%s", k.Value, k.Seq, from)
}

func turnOf(s session.State) string {
	switch {
	case s.Open == nil && s.LastEnd == nil:
		return fmt.Sprintf("%d, none open", s.Turn)
	case s.Open == nil:
		return fmt.Sprintf("%d, none open, %d ended %s at %d", s.Turn, s.LastEnd.Turn, s.LastEnd.Reason.Kind, s.LastEnd.Seq)
	}
	out := fmt.Sprintf("%d open, step %d open %t, attempts %d", s.Turn, s.Open.Step, s.Open.StepOpen, s.Open.Attempts)
	if s.Open.Parked {
		out += fmt.Sprintf(", parked for %v", s.Open.WaitsFor)
	}
	if s.Open.Interrupt != nil {
		out += fmt.Sprintf(", interrupted at %d", *s.Open.Interrupt)
	}
	return out
}

func callsOf(s session.State) string {
	if s.Open == nil {
		return "-"
	}
	return list(s.Open.Calls, func(c session.Call) string {
		state := []string{"", "undecided", "asked", "allowed", "denied", "ended"}[c.State]
		out := fmt.Sprintf("%s %s %s", c.ID, c.Name, state)
		if c.Decision > 0 {
			out += fmt.Sprintf(" %s@%d", c.Mode, c.Decision)
		}
		if c.Ask != nil {
			out += fmt.Sprintf(" (question %s %s used %t)", c.Ask.ID, c.Ask.Outcome, c.Ask.Used)
		}
		return out
	})
}

func list[T any](items []T, text func(T) string) string {
	var out []string
	for _, item := range items {
		out = append(out, text(item))
	}
	if out == nil {
		return "-"
	}
	return strings.Join(out, "; ")
}
