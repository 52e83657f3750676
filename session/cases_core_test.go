package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/session/sessiontest"
)

// The conformance cases of the log itself, one test each, on raw records.

// An envelope has type, seq, time and data, and may say that it is ignorable; the
// seqs of a log count from 0 without a gap.
func TestSES01_AnEnvelopeHasOneForm(t *testing.T) {
	t.Parallel()
	const good = `{"type":"vendor/note","seq":4,"time":1,"data":{"a":1},"ignorable":true}`
	if e, err := session.DecodeEvent([]byte(good)); err != nil || e.Seq != 4 {
		t.Fatalf("%s: %+v, %v", good, e, err)
	}
	for what, edit := range map[string][2]string{
		"surfaceOp": {`"data"`, `"surfaceOp":{"op":"append"},"data"`}, "sourceEventSeqs": {`"data"`, `"sourceEventSeqs":[1],"data"`},
		"ignorable that is false": {`:true}`, `:false}`}, "ignorable that is no boolean": {`:true}`, `:1}`},
		"no time": {`"time":1,`, ``}, "no data": {`"data":{"a":1},`, ``}, "no seq": {`"seq":4,`, ``}, "no type": {`"type":"vendor/note",`, ``},
		"negative seq": {`"seq":4`, `"seq":-4`}, "seq as a text": {`"seq":4`, `"seq":"4"`}, "fractional seq": {`"seq":4`, `"seq":4.0`},
		"another order": {`"seq":4,"time":1`, `"time":1,"seq":4`}, "something behind": {`:true}`, `:true}{}`},
	} {
		line := strings.Replace(good, edit[0], edit[1], 1)
		if line == good {
			t.Fatalf("%s: nothing was changed", what)
		}
		if e, err := session.DecodeEvent([]byte(line)); err == nil {
			t.Errorf("%s: %s was read as %+v", what, line, e)
		}
	}
	s, root := driven(t)
	s.Delegate(root, sessiontest.Delegation{Call: "1.1.1", Kind: session.Spawn})
	for id, events := range sessiontest.Replay(s.Records).Events {
		for i, e := range events {
			if e.Seq != session.Seq(i) {
				t.Errorf("session %s: event %d has seq %d", id, i, e.Seq)
			}
		}
	}
}

// A fork carries the end of its seed as its first own event, also where its prefix
// holds one already; markers in a prefix mean nothing, the header holds the cut.
func TestSES07_AForkMarksItsOwnSeed(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root()
	first := s.Fork(root)
	second := s.Fork(first)
	s.Write(second, session.ClassTurn, claim(1, session.CauseStart), &session.TurnStart{Turn: 1}, turnEnd(1))
	openCalls(s, second, 2, session.ToolDelegate)
	third := s.Delegate(second, sessiontest.Delegation{Call: "2.1.0", Kind: session.Fork})
	spawned := sessiontest.NewStream(t)
	parent := spawned.Root()
	openCalls(spawned, parent, 1, session.ToolDelegate)
	plain := spawned.Delegate(parent, sessiontest.Delegation{Call: "1.1.0", Kind: session.Fork}) // no ended turn: no seed

	r := sessiontest.Replay(s.Records)
	for id, cut := range map[session.ID]session.Seq{first: 1, second: 3, third: 8} {
		h, own := r.Chains[id].State().Header, r.Events[id]
		if h.InheritedEventCount != cut || h.FirstLiveSeq != cut {
			t.Errorf("%s inherits %d events and lives from %d, want %d", id, h.InheritedEventCount, h.FirstLiveSeq, cut)
		}
		want := fmt.Sprintf(`{"type":"session/end-seed","seq":%d,`, cut)
		if line := string(own[0].Line); !strings.HasPrefix(line, want) || !strings.HasSuffix(line, `"data":{"inherited":true}}`) {
			t.Errorf("%s begins with %s", id, line)
		}
		for _, e := range own[1:] {
			if e.Type == session.TypeEndSeed {
				t.Errorf("%s has a second marker at %d", id, e.Seq)
			}
		}
	}
	p := sessiontest.Replay(spawned.Records)
	if h, own := p.Chains[plain].State().Header, p.Events[plain]; h.Seeded() || own[0].Type == session.TypeEndSeed || own[0].Seq != 0 {
		t.Errorf("a fork of a parent without an ended turn begins with %s at %d", own[0].Type, own[0].Seq)
	}
}

// What a header says of its seed must fit together and fit what is inherited.
func TestSES09_InconsistentSeedsAreRefused(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root()
	fork := s.Fork(root)
	genesis := s.Records[len(s.Records)-1]
	line := bodyLines(genesis)[0]
	for what, edit := range map[string][2]string{
		"seeded without a prefix":      {`"inheritedEventCount":1,"firstLiveSeq":1`, `"inheritedEventCount":0,"firstLiveSeq":1`},
		"a prefix that is not live":    {`"inheritedEventCount":1,"firstLiveSeq":1`, `"inheritedEventCount":1,"firstLiveSeq":0`},
		"a longer prefix than there":   {`"inheritedEventCount":1,"firstLiveSeq":1`, `"inheritedEventCount":9,"firstLiveSeq":9`},
		"a prefix without a parent":    {`"parentSession":"` + string(root) + `",`, ``},
		"the reference's older member": {`"inheritedEventCount":1`, `"seedLength":1`},
		"no count":                     {`"inheritedEventCount":1,`, ``},
	} {
		bad := strings.Replace(line, edit[0], edit[1], 1)
		if bad == line {
			t.Fatalf("%s: nothing was changed", what)
		}
		raw := genesis
		raw.Body = []byte(bad + "\n" + strings.Join(bodyLines(genesis)[1:], "\n") + "\n")
		r := sessiontest.Replay(append(s.Records[:len(s.Records)-1:len(s.Records)-1], raw))
		if r.Chains[fork] != nil || !errors.Is(r.Failed[fork], session.ErrCorrupt) {
			t.Errorf("%s: %v, want the session refused", what, r.Failed[fork])
		}
		if r.Chains[root].Halted() != nil {
			t.Errorf("%s: the source is stopped: %v", what, r.Chains[root].Halted())
		}
	}
	if r := sessiontest.Replay(s.Records); r.Failed[fork] != nil {
		t.Errorf("the fork as it was written: %v", r.Failed[fork])
	}
}

// Turns, steps and calls are counted and nested. A record that breaks it is void, and
// the log goes on as if it were not there.
func TestSES12_TurnsAndStepsAreHeldInOrder(t *testing.T) {
	t.Parallel()
	s, root := driven(t) // turn 1, step 1, calls 1.1.0 and 1.1.1
	at := s.State(root)
	for what, payloads := range map[string][]session.Payload{
		"a turn in a turn":              {&session.TurnStart{Turn: 2}},
		"a step in a step":              {&session.StepStart{Turn: 1, Step: 2}},
		"the end of another turn":       {turnEnd(2)},
		"a turn's end in a step":        {turnEnd(1)},
		"a step's end over open calls":  {&session.StepEnd{Turn: 1, Step: 1}},
		"the end of another step":       {&session.StepEnd{Turn: 1, Step: 2}},
		"a result of no call":           {&session.ToolResult{Turn: 1, Step: 1, CallID: "1.1.7"}},
		"a result of another step":      {&session.ToolResult{Turn: 1, Step: 2, CallID: "1.2.0"}},
		"a result of an undecided call": {&session.ToolResult{Turn: 1, Step: 1, CallID: "1.1.0"}},
		"a second answer":               {&session.AssistantMessage{Turn: 1, Step: 1, Content: "again"}},
		"a call behind no answer":       {&session.ToolCall{Turn: 1, Step: 1, Index: 2, CallID: "1.1.2", Name: "bash"}},
		"a request of another turn":     {&session.RequestHeader{Turn: 2, Step: 1, Provider: "p", Model: "m"}},
	} {
		_, j, err := judge(t, s, s.Raw(s.Compose(root, session.ClassTurn, payloads...)))
		if err != nil || j.Ruling != session.Void || j.Alarm == nil {
			t.Errorf("%s: ruling %d, %v, want it void and alarmed", what, j.Ruling, err)
		}
	}
	s.Write(root, session.ClassTurn, sessiontest.Allow(at, "1.1.0"))
	fresh := sessiontest.NewStream(t)
	idle := fresh.Root()
	fresh.Write(idle, session.ClassTurn, claim(1, session.CauseStart))
	for what, p := range map[string]session.Payload{
		"a turn that skips one":    &session.TurnStart{Turn: 2},
		"turn 0":                   &session.TurnStart{},
		"a step outside a turn":    &session.StepStart{Turn: 1, Step: 1},
		"a request outside a turn": &session.RequestHeader{Turn: 1, Step: 1, Provider: "p", Model: "m"},
		"an end of no turn":        turnEnd(1),
	} {
		r, err := compose(fresh, idle, p)
		if err != nil {
			continue // refused before it is written
		}
		if _, j, err := judge(t, fresh, fresh.Raw(r)); err != nil || j.Ruling != session.Void {
			t.Errorf("%s: ruling %d, %v, want it void", what, j.Ruling, err)
		}
	}
}

// compose composes a turn record that may be refused already then.
func compose(s *sessiontest.Stream, id session.ID, p session.Payload) (session.Record, error) {
	at := s.State(id)
	own, err := session.Compose(id, session.ClassTurn, at.Next, at.Link, session.Draft{Payload: p})
	return session.Record{Address: session.Address{Session: id, Class: session.ClassTurn}, Format: at.Format, Epoch: at.Epoch, Own: &own}, err
}

// A record that does not begin at the log's next seq, or has a gap in itself, is
// taken whole or not at all, and what is stored stays.
func TestPER02_ABatchWithAGapIsRefusedWhole(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	before := s.State(root)
	good := s.Raw(s.Compose(root, session.ClassTurn, sessiontest.Allow(before, "1.1.0"), sessiontest.Allow(before, "1.1.1")))
	lines := bodyLines(good)
	move := func(line string, by session.Seq) string {
		var at session.Seq
		_, number, _ := strings.Cut(line, `"seq":`)
		if _, err := fmt.Sscanf(number, "%d", &at); err != nil {
			t.Fatal(err)
		}
		return strings.Replace(line, fmt.Sprintf(`"seq":%d`, at), fmt.Sprintf(`"seq":%d`, at+by), 1)
	}
	for what, bad := range map[string][]string{
		"a gap before it": {move(lines[0], 1), move(lines[1], 1)},
		"a gap in it":     {lines[0], move(lines[1], 1)},
		"the same seq":    {lines[0], move(lines[1], ^session.Seq(0))},
	} {
		raw := body(good, bad...)
		c, j, err := judge(t, s, raw)
		if err != nil || j.Ruling != session.Void || len(j.Events) > 0 {
			t.Errorf("%s: ruling %d with %d events, %v; want it void as a whole", what, j.Ruling, len(j.Events), err)
		}
		if diff := cmp.Diff(before, c.State()); diff != "" {
			t.Errorf("%s changed the log:\n%s", what, diff)
		}
		policy := raw
		policy.Address.Class = session.ClassPolicy
		if c, _, err := judge(t, s, policy); !errors.Is(err, session.ErrCorrupt) || c.State().Next != before.Next {
			t.Errorf("%s in class policy: %v, next %d; want a stop at %d", what, err, c.State().Next, before.Next)
		}
	}
}

// A descriptor with an unknown member, another version or a wrong type is no
// descriptor: the child that would be identified by it does not run, its parent does.
func TestDSC02_ADescriptorIsOfOneForm(t *testing.T) {
	t.Parallel()
	for what, edit := range map[string][2]string{
		"an unknown member":      {`"label":"child"`, `"label":"child","depth":1`},
		"a depth":                {`"version":2`, `"version":2,"delegationDepth":1`},
		"another version":        {`"version":2`, `"version":3`},
		"a version as a text":    {`"version":2`, `"version":"2"`},
		"no version":             {`"version":2,`, ``},
		"another mode":           {`"mode":"one-shot"`, `"mode":"forever"`},
		"another provider":       {`"provider":"spawn"`, `"provider":"acp"`},
		"a label that is a list": {`"label":"child"`, `"label":["child"]`},
		"an empty filter":        {`"label":"child"`, `"label":"child","toolFilter":{}`},
	} {
		s := sessiontest.NewStream(t)
		root := s.Root()
		openCalls(s, root, 1, session.ToolDelegate)
		r, _ := s.Genesis(root, sessiontest.Delegation{Call: "1.1.0", Kind: session.Spawn, First: firstBatch(s.State(root), session.Spawn)})
		raw := s.Raw(r)
		bad := raw
		bad.Body = []byte(strings.Replace(string(raw.Body), edit[0], edit[1], 1))
		if string(bad.Body) == string(raw.Body) {
			t.Fatalf("%s: nothing was changed", what)
		}
		replica := sessiontest.Replay(append(s.Records, bad))
		if id := raw.Address.Session; replica.Chains[id] != nil || !errors.Is(replica.Failed[id], session.ErrCorrupt) {
			t.Errorf("%s: %v, want the child refused", what, replica.Failed[id])
		}
		if c := replica.Chains[root]; c.Halted() != nil {
			t.Errorf("%s: the parent is stopped: %v", what, c.Halted())
		}
	}
	for _, data := range []string{`null`, `[]`, `"x"`, `{}`} {
		if e, err := session.DecodeEvent([]byte(`{"type":"subagent/descriptor","seq":0,"time":1,"data":` + data + `}`)); err == nil {
			t.Errorf("%s is the descriptor %+v", data, e.Payload)
		}
	}
}

// firstBatch is the ordinary one with a descriptor of one kind.
func firstBatch(from session.State, kind session.Kind) []session.Payload {
	return sessiontest.FirstBatch(from, kind, false)
}

// A child is identified by its own descriptor. The one in its prefix is an
// ancestor's, and in a person's fork nobody's.
func TestDSC03_AnInheritedDescriptorIdentifiesNobody(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root()
	openCalls(s, root, 1, session.ToolDelegate)
	named := func(from session.State, kind session.Kind, seeded bool, label string) []session.Payload {
		first := sessiontest.FirstBatch(from, kind, seeded)
		for _, p := range first {
			if d, ok := p.(*session.Descriptor); ok {
				d.Label = label
			}
		}
		return first
	}
	child := s.Delegate(root, sessiontest.Delegation{Call: "1.1.0", Kind: session.Spawn, First: named(s.State(root), session.Spawn, false, "child")})
	s.Write(child, session.ClassTurn, claim(1, session.CauseStart), &session.TurnStart{Turn: 1}, turnEnd(1))
	openCalls(s, child, 2, session.ToolDelegate)
	grandchild := s.Delegate(child, sessiontest.Delegation{Call: "2.1.0", Kind: session.Fork, First: named(s.State(child), session.Fork, true, "grandchild")})
	s.Write(child, session.ClassTurn, &session.ToolResult{Turn: 2, Step: 1, CallID: "2.1.0", Extent: extent()}, &session.StepEnd{Turn: 2, Step: 1, Extent: extent()}, turnEnd(2))
	persons := s.Fork(child)

	r := sessiontest.Replay(s.Records)
	inPrefix := 0
	for _, e := range r.Events[child] {
		if e.Type == session.TypeDescriptor && e.Seq < r.Chains[grandchild].State().Header.InheritedEventCount {
			inPrefix++
		}
	}
	if inPrefix != 1 {
		t.Fatalf("the prefix holds %d descriptors, the case needs one", inPrefix)
	}
	if d := r.Chains[grandchild].State().Descriptor; d == nil || d.Label != "grandchild" || d.Provider != session.Fork {
		t.Errorf("the fork child is identified by %+v", d)
	}
	if d := r.Chains[persons].State().Descriptor; d != nil {
		t.Errorf("a person's fork is identified by %+v", d)
	}
}

// A child's header says that it is one, of whom, where it works and how deep it is.
func TestDSC09_AHeaderHasANumericDepth(t *testing.T) {
	t.Parallel()
	s, root := driven(t)
	child := s.Delegate(root, sessiontest.Delegation{Call: "1.1.1", Kind: session.Spawn})
	line := bodyLines(s.Records[len(s.Records)-1])[1]
	for _, want := range []string{`"origin":"subagent"`, `"parentSession":"` + string(root) + `"`, `"cwd":"/work"`, `"delegationDepth":1`} {
		if !strings.Contains(line, want) {
			t.Errorf("the header of %s lacks %s: %s", child, want, line)
		}
	}
	if first := bodyLines(s.Records[0])[0]; !strings.Contains(first, `"delegationDepth":0`) {
		t.Errorf("a root's header lacks its depth: %s", first)
	}
	for _, depth := range []string{``, `"delegationDepth":"1",`, `"delegationDepth":1.5,`, `"delegationDepth":1.0,`, `"delegationDepth":-0,`, `"delegationDepth":-1,`, `"delegationDepth":0,`, `"delegationDepth":null,`, `"delegationDepth":1e0,`} {
		bad := strings.Replace(line, `"delegationDepth":1,`, depth, 1)
		if h, err := session.DecodeHeader([]byte(bad)); err == nil {
			t.Errorf("a child's header with %q was read: %+v", depth, h)
		}
	}
}

// The last switch wins; without one there is no override, whatever the default is.
func TestSBX03_TheLastSwitchWins(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root()
	if k := sessiontest.Replay(s.Records).Chains[root].State().Knobs.Sandbox; k.Set() {
		t.Errorf("without a switch the override is %+v", k)
	}
	for i, m := range []session.SandboxMode{session.DangerFullAccess, session.ReadOnly, session.WorkspaceWrite, session.ReadOnly} {
		s.Write(root, session.ClassPolicy, &session.SandboxSwitch{Mode: m, By: person()})
		if k := sessiontest.Replay(s.Records).Chains[root].State().Knobs.Sandbox; k.Value != m || k.Seq != session.Seq(i+1) || k.Source != "" {
			t.Errorf("after a switch to %s the override is %+v", m, k)
		}
	}
}

// A fork that is made while its parent is inside a turn knows nothing of it: what is
// open stays the parent's, and lives on there.
func TestCLO04_WhatIsOpenDoesNotCrossTheCut(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	root := s.Root(sessiontest.Model(), prompt("m1"))
	s.Write(root, session.ClassTurn, claim(1, session.CauseStart), &session.TurnStart{Turn: 1}, &session.Consumed{Turn: 1, Seqs: []session.Seq{1}}, turnEnd(1))
	cut := s.State(root).Next
	s.Write(root, session.ClassInbox, prompt("m2"))
	openCalls(s, root, 2, session.ToolDelegate, "bash")
	child := s.Delegate(root, sessiontest.Delegation{Call: "2.1.0", Kind: session.Fork})
	r := sessiontest.Replay(s.Records)
	at := r.Chains[child].State()
	if at.Open != nil || at.Header.InheritedEventCount != cut || at.Turn != 1 || at.Epoch != 0 || len(at.Pending) != 1 {
		t.Errorf("the fork inherits %d events, open turn %+v, turn %d, epoch %d, %d messages; want %d, none, 1, 0 and its prompt",
			at.Header.InheritedEventCount, at.Open, at.Turn, at.Epoch, len(at.Pending), cut)
	}
	if first := r.Events[child][0]; first.Type != session.TypeEndSeed || first.Seq != cut {
		t.Errorf("the fork begins with %s at %d", first.Type, first.Seq)
	}
	if open := r.Chains[root].State().Open; open == nil || len(open.Calls) != 2 {
		t.Errorf("the parent's open turn is %+v", open)
	}
}
