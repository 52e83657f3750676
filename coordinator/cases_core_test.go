package coordinator_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// The conformance cases of children, forks and switches, each held by what stands in
// the stream afterwards.

// birth reads a session's genesis back from the stream.
func (d *deployment) birth(id session.ID) session.Record {
	d.t.Helper()
	raw, err := d.log.Genesis(d.t.Context(), id, "")
	d.must(err)
	r, err := session.DecodeRecord(raw)
	d.must(err)
	if r.Birth == nil {
		d.t.Fatalf("the genesis of %s cannot be read: %v", id, r.BirthErr)
	}
	return r
}

// last is the stream's last sequence.
func (d *deployment) last() uint64 {
	d.t.Helper()
	info, err := d.log.Info(d.t.Context(), 0)
	d.must(err)
	return info.LastSeq
}

// refused wants a request to fail with a code, and nothing to be written.
func (d *deployment) refused(code client.Code, method string, in any) *client.Error {
	d.t.Helper()
	before := d.last()
	err := d.api.Call(d.t.Context(), method, in, nil)
	if client.CodeOf(err) != code {
		d.t.Errorf("%s of %+v: %v, want %s", method, in, err, code)
	}
	if after := d.last(); after != before {
		d.t.Errorf("%s of %+v was refused and wrote %d records", method, in, after-before)
	}
	e, _ := err.(*client.Error) //nolint:errorlint // what Call documents
	return e
}

// notDelegated wants a delegation to be refused, and nothing to be written.
func (d *deployment) notDelegated(in client.DelegateRequest) client.Code {
	d.t.Helper()
	before := d.last()
	var out client.DelegateReply
	err := d.worker.Call(d.t.Context(), client.MethodDelegate, in, &out)
	if err == nil && (len(out.Outcomes) != 1 || out.Outcomes[0].Error == nil) {
		d.t.Fatalf("the delegation came to %+v, want it refused", out)
	}
	if after := d.last(); after != before {
		d.t.Errorf("a refused delegation wrote %d records", after-before)
	}
	if err != nil {
		return client.CodeOf(err)
	}
	return out.Outcomes[0].Error.Code
}

// closeStep ends the open step and turn.
func (d *deployment) closeStep(id session.ID) {
	d.t.Helper()
	d.turn(id, func(s session.State) []session.Payload {
		return []session.Payload{&session.StepEnd{Turn: s.Turn, Step: s.Open.Step}}
	})
	d.endTurn(id)
}

func TestDSC01_ADescriptorSaysWhatAChildIs(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.claim(root)
	for want, change := range map[string]func(*client.DelegateSpec){
		`{"version":2,"mode":"one-shot","provider":"spawn","label":"child"}`: func(*client.DelegateSpec) {},
		`{"version":2,"mode":"continuable","provider":"fork","label":"helper","persona":"terse","toolFilter":{"deny":["bash"]}}`: func(s *client.DelegateSpec) {
			s.Kind, s.Mode, s.Label, s.Persona, s.Tools = session.Fork, session.Continuable, "helper", "terse", &session.ToolFilter{Deny: []string{"bash"}}
		},
	} {
		var got []string
		for _, e := range d.birth(d.spawn(root, change)).Birth.First.Events {
			if e.Type == session.TypeDescriptor {
				_, data, _ := strings.Cut(string(e.Line), `"data":`)
				got = append(got, strings.TrimSuffix(data, "}"))
			}
		}
		if diff := cmp.Diff([]string{want}, got); diff != "" {
			t.Errorf("descriptors of the child (-want +got):\n%s", diff)
		}
	}
	d.step(root, 1)
	in := d.delegations(root, client.DelegateSpec{Kind: session.Spawn, Mode: session.Continuable, Prompt: "work"})
	if code := d.notDelegated(in); code != client.CodeInvalid {
		t.Errorf("a child without a label: %s", code)
	}
}

// A child is one deeper than its parent's header says, and no deeper than the cap:
// also when a worker decides otherwise. Senseless caps are no settings.
func TestDSC06_DSC07_DepthIsTheHeadersAndCapped(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, func(s *policy.Settings) { s.Caps.Depth = 2 })
	at := d.root()
	for depth := 1; depth <= 2; depth++ {
		d.claim(at)
		child := d.spawn(at)
		if h := d.birth(child).Birth.Header; h.DelegationDepth != depth || h.ParentSession != at {
			t.Errorf("the child of %s has depth %d and parent %s, want %d", at, h.DelegationDepth, h.ParentSession, depth)
		}
		at = child
	}
	d.claim(at)
	d.step(at, 1)
	in := d.delegations(at, client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"})
	if dec := in.Calls[0].Decision; dec.Verdict != session.Deny || dec.By != session.StageDepth {
		t.Errorf("the third level was decided %s by %s", dec.Verdict, dec.By)
	}
	in.Calls[0].Decision.Verdict, in.Calls[0].Decision.By, in.Calls[0].Decision.Reason, in.Calls[0].Decision.Final = session.Allow, session.StagePolicy, "", false
	if code := d.notDelegated(in); code != client.CodeDenied {
		t.Errorf("a worker that allows the third level itself: %s", code)
	}
	_, before, err := d.log.Settings().Load(t.Context())
	d.must(err)
	for _, value := range []string{"-1", "1.5", `"3"`, "null", "1e99", "[]", "NaN"} {
		err := d.api.Call(t.Context(), client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "caps.depth", Value: []byte(value)}, nil)
		if err == nil {
			t.Errorf("a depth cap of %s was taken", value)
		}
	}
	if _, after, err := d.log.Settings().Load(t.Context()); err != nil || after != before {
		t.Errorf("refused caps changed the settings to revision %d, %v", after, err)
	}
}

// Whoever is to stop starts no child.
func TestDSC11_NothingIsStartedUnderAnInterrupt(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.claim(root)
	d.step(root, 1)
	d.must(d.api.Call(t.Context(), client.MethodInterrupt, client.StopRequest{Head: head, ID: root, RequestID: "stop"}, nil))
	in := d.delegations(root, client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"})
	if code := d.notDelegated(in); code != client.CodePrecondition {
		t.Errorf("a delegation under an interrupt: %s", code)
	}
	if lines := d.lines(root); lines[len(lines)-1].Type != session.TypeInterrupt {
		t.Errorf("the log ends with %s", lines[len(lines)-1].Type)
	}
}

// A child's filter is what its parent's leaves of its own: values in its descriptor,
// for it and everything below.
func TestDSC12_FiltersOfAncestorsMeet(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.claim(root)
	child := d.spawn(root, func(s *client.DelegateSpec) {
		s.Tools = &session.ToolFilter{Allow: &[]string{"read", "write", "delegate"}}
	})
	d.claim(child)
	grandchild := d.spawn(child, func(s *client.DelegateSpec) { s.Tools = &session.ToolFilter{Deny: []string{"write"}} })
	d.claim(grandchild)
	plain := d.spawn(grandchild)
	for _, id := range []session.ID{grandchild, plain} {
		var filter *session.ToolFilter
		for _, e := range d.birth(id).Birth.First.Events {
			if p, ok := e.Payload.(*session.Descriptor); ok {
				filter = p.ToolFilter
			}
		}
		for tool, out := range map[string]bool{"read": false, "delegate": false, "write": true, "bash": true, "edit": true} {
			if policy.Filtered(filter, tool) != out {
				t.Errorf("the descriptor of %s filters %s: %t, want %t", id, tool, !out, out)
			}
		}
	}
}

// A delegated fork inherits everything up to its parent's last ended turn, whatever
// that ended with, and nothing of the open one; a parent that ended none gives none.
// What is inherited is stored once: the fork's own records hold none of it.
func TestDSC13_PER11_AForkIsCutAfterTheLastEndedTurn(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root(func(in *client.CreateRequest) { in.Prompt = "a prompt that stands once" })
	d.claim(root)
	unseeded := d.spawn(root, func(s *client.DelegateSpec) { s.Kind = session.Fork })
	if h := d.birth(unseeded).Birth.Header; h.InheritedEventCount != 0 || h.FirstLiveSeq != 0 {
		t.Errorf("a fork of a parent without an ended turn inherits %d events", h.InheritedEventCount)
	}
	d.turn(root, func(s session.State) []session.Payload {
		return []session.Payload{&session.TurnEnd{Turn: 1, Reason: session.EndReason{Kind: session.EndAborted}}}
	})
	lines := d.lines(root)
	cut := lines[len(lines)-1].Seq + 1
	d.claim(root)
	child := d.spawn(root, func(s *client.DelegateSpec) { s.Kind = session.Fork })
	r := d.birth(child)
	if h := r.Birth.Header; h.InheritedEventCount != cut || h.FirstLiveSeq != cut || r.Birth.First.Events[0].Type != session.TypeEndSeed {
		t.Errorf("the fork inherits %d events, lives from %d and begins with %s; want %d and the end of its seed",
			h.InheritedEventCount, h.FirstLiveSeq, r.Birth.First.Events[0].Type, cut)
	}
	if diff := cmp.Diff(lines, d.lines(child)[:cut]); diff != "" {
		t.Errorf("the fork's prefix (-parent's log +fork's):\n%s", diff)
	}
	d.claim(child)
	d.endTurn(child)
	d.catchUp()
	times := 0
	for seq := uint64(1); seq <= d.last(); seq++ {
		raw, err := d.log.At(t.Context(), 0, seq)
		d.must(err)
		times += strings.Count(string(raw.Body), "a prompt that stands once")
	}
	if times != 1 {
		t.Errorf("what is inherited stands %d times in the stream, want once", times)
	}
	for i, l := range d.lines(child) {
		if l.Seq != session.Seq(i) {
			t.Errorf("event %d of the fork has seq %d", i, l.Seq)
		}
	}
}

// What a child is reported to have said, it said itself.
func TestDSC14_InheritedWordsAreNoOutput(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.claim(root)
	d.step(root, 0) // which says "delegating"
	d.closeStep(root)
	d.claim(root)
	child := d.spawn(root, func(s *client.DelegateSpec) { s.Kind, s.Mode = session.Fork, session.Continuable })
	inherited := false
	for _, l := range d.lines(child) {
		inherited = inherited || l.Type == session.TypeAssistantMessage
	}
	if !inherited {
		t.Fatal("the fork inherits no words, the case needs some")
	}
	d.claim(child)
	d.endTurn(child)
	d.must(d.worker.Call(t.Context(), client.MethodSettled, client.SettledRequest{Head: head, Session: child}, nil))
	d.catchUp()
	var notices []string
	for _, l := range d.lines(root) {
		if l.Type == session.TypeUserMessage && strings.Contains(string(l.Data), string(session.FromSettled)) {
			notices = append(notices, string(l.Data))
		}
	}
	if len(notices) != 1 || strings.Contains(notices[0], "delegating") {
		t.Errorf("a child that said nothing is reported by %q", notices)
	}
}

// A person forks at the last event, outside an open turn only, whatever the last turn
// ended with; a switch after it comes along.
func TestSES10_APersonForksAtTheLastEvent(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	source := d.root(func(in *client.CreateRequest) { in.Cwd = "/tmp/work" })
	fork := func(change ...func(*client.ForkRequest)) client.ForkRequest {
		id, err := session.ForkID(source, ulid.Make().String())
		d.must(err)
		in := client.ForkRequest{Head: head, ID: id, Source: source, Label: "mine"}
		for _, fn := range change {
			fn(&in)
		}
		return in
	}
	d.claim(source)
	d.catchUp()
	d.refused(client.CodeOpenTurn, client.MethodFork, fork())
	d.turn(source, func(session.State) []session.Payload {
		return []session.Payload{&session.TurnEnd{Turn: 1, Reason: session.EndReason{Kind: session.EndError}}}
	})
	d.policySet(source, readOnly)
	lines := d.lines(source)
	in := fork()
	d.must(d.api.Call(t.Context(), client.MethodFork, in, nil))
	h := d.birth(in.ID).Birth.Header
	if want := session.Seq(len(lines)); h.InheritedEventCount != want || h.ParentSession != source || h.Cwd != "/tmp/work" || h.Origin != session.OriginUser {
		t.Errorf("the fork's header is %+v, want %d events of %s", h, want, source)
	}
	if last := d.lines(in.ID)[len(lines)-1]; last.Type != session.TypeSandboxMode {
		t.Errorf("the prefix ends with %s, want the switch", last.Type)
	}
	d.refused(client.CodeExists, client.MethodFork, fork(func(r *client.ForkRequest) { r.ID, r.Label = in.ID, "another" }))
	other := newRoot(t)
	d.refused(client.CodeNotFound, client.MethodFork, fork(func(r *client.ForkRequest) {
		r.Source = other
		r.ID, _ = session.ForkID(other, ulid.Make().String())
	}))
	// The same request is the same session, also when it would be refused by now.
	d.claim(source)
	d.catchUp()
	d.refused(client.CodeOpenTurn, client.MethodFork, fork())
	before := d.last()
	var again client.CreatedReply
	d.must(d.api.Call(t.Context(), client.MethodFork, in, &again))
	if d.last() != before || again.ID != in.ID || !again.Existing {
		t.Errorf("the same fork again: %+v, with %d records; want it confirmed", again, d.last()-before)
	}
}

// A request that made a session is confirmed, also when it would be refused by now.
func TestSPEC1_10_ARetryIsAnsweredAsTheFirst(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	var in client.CreateRequest
	d.root(func(r *client.CreateRequest) { r.Preset = session.PresetReadOnly; in = *r })
	d.must(d.api.Call(t.Context(), client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "composition.presets", Value: []byte("false")}, nil))
	other := in
	other.ID = newRoot(t)
	d.refused("NOT_COMPOSED", client.MethodCreate, other)
	before := d.last()
	var again client.CreatedReply
	d.must(d.api.Call(t.Context(), client.MethodCreate, in, &again))
	if d.last() != before || again.ID != in.ID || !again.Existing {
		t.Errorf("the first request again: %+v, with %d records; want it confirmed", again, d.last()-before)
	}
}

// An id names one session: the same request is the same one, any other is refused;
// what is no id names nothing, and nothing is written.
func TestPER10_F8_AnIDNamesOneSession(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	var in client.CreateRequest
	id := d.root(func(r *client.CreateRequest) { in = *r })
	before := d.last()
	d.must(d.api.Call(t.Context(), client.MethodCreate, in, nil))
	if d.last() != before {
		t.Error("the same session was written twice")
	}
	for _, change := range []func(*client.CreateRequest){
		func(r *client.CreateRequest) { r.Cwd = "/tmp/other" }, func(r *client.CreateRequest) { r.Prompt = "other" },
		func(r *client.CreateRequest) { r.Sandbox = session.DangerFullAccess },
	} {
		other := in
		change(&other)
		d.refused(client.CodeExists, client.MethodCreate, other)
	}
	for _, bad := range []string{
		"", ".", "*", ">", "a.b", "a b", "a\r\nb", "../" + string(id), "/" + string(id), string(id) + "/x", string(id) + ".>", string(id) + "-*",
		strings.ToUpper(string(id)), strings.Repeat("0", 300), string(id) + "\x00",
	} {
		other := in
		other.ID = session.ID(bad)
		d.refused(client.CodeInvalid, client.MethodCreate, other)
		for method, request := range map[string]any{
			client.MethodShow:      client.SessionRequest{Head: head, ID: other.ID},
			client.MethodSend:      client.SendRequest{Head: head, ID: other.ID, MessageID: "m", Content: "c"},
			client.MethodPolicySet: client.PolicySetRequest{Head: head, ID: other.ID, Sandbox: session.ReadOnly},
			client.MethodRecords:   client.RecordsRequest{Head: head, ID: other.ID},
		} {
			d.refused(client.CodeInvalid, method, request)
		}
	}
}

// Sessions cost no consumers: their number is the deployment's, however many there are.
func TestF8_ConsumersDoNotFollowSessions(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	js, err := jetstream.New(d.broker.Conn(t, broker.Provisioner, "provisioner"))
	d.must(err)
	count := func() int {
		s, err := js.Stream(t.Context(), stream.StreamName(0))
		d.must(err)
		return s.CachedInfo().State.Consumers
	}
	d.root()
	before := count()
	const sessions = 30
	for range sessions {
		d.root()
	}
	d.catchUp()
	var out client.ListReply
	d.must(d.api.Call(t.Context(), client.MethodList, client.ListRequest{Head: head}, &out))
	if after := count(); len(out.Sessions) != sessions+1 || after != before || before == 0 {
		t.Errorf("%d sessions and %d consumers, before them %d", len(out.Sessions), after, before)
	}
}

// A delegation is one message: with it stand the parent's decision and the child's
// whole first batch, and no prefix of the stream holds a part of a child.
func TestF2_ADelegationIsOneRecord(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root(func(in *client.CreateRequest) { in.Sandbox = session.WorkspaceWrite })
	d.claim(root)
	const children = 5
	for range children {
		before := d.step(root, 1)
		var out client.DelegateReply
		d.must(d.worker.Call(t.Context(), client.MethodDelegate, d.delegations(root,
			client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"}), &out))
		child := d.child(out)
		r := d.birth(child)
		if r.Own == nil || len(r.Own.Events) != 1 || r.Own.Seq != before.Next {
			t.Fatalf("the genesis of %s holds %+v of its parent, want its one decision", child, r.Own)
		}
		dec, ok := r.Own.Events[0].Payload.(*session.ToolDecision)
		if !ok || dec.Child != child || *dec.ChildLink != r.Birth.First.After {
			t.Errorf("the decision %+v is not of the batch it stands with", dec)
		}
		got := make([]session.Type, len(r.Birth.First.Events))
		for i, e := range r.Birth.First.Events {
			got[i] = e.Type
		}
		want := []session.Type{session.TypeSandboxMode, session.TypeApprovalPolicy, session.TypeDescriptor, session.TypeModelSelected, session.TypeUserMessage}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the first batch in the record (-want +got):\n%s", diff)
		}
		d.turn(root, func(s session.State) []session.Payload {
			return []session.Payload{
				&session.ToolResult{Turn: 1, Step: s.Open.Step, CallID: dec.CallID, Content: "started"}, &session.StepEnd{Turn: 1, Step: s.Open.Step},
			}
		})
	}
}

// A switch is one event without a source, in the one session.
func TestSBX04_ASwitchIsOneEvent(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root, other := d.root(), d.root()
	before, beside := d.lines(root), d.lines(other)
	if r := d.policySet(root, func(in *client.PolicySetRequest) { in.Sandbox = session.WorkspaceWrite }); r.Events != 1 {
		t.Errorf("the answer names %d events", r.Events)
	}
	got := d.lines(root)[len(before):]
	want := `{"mode":"workspace-write","by":{"kind":"person","id":"ada"}}`
	if len(got) != 1 || got[0].Type != session.TypeSandboxMode || string(got[0].Data) != want {
		t.Errorf("the switch wrote %+v, want one sandbox/mode %s", got, want)
	}
	if diff := cmp.Diff(beside, d.lines(other)); diff != "" {
		t.Errorf("another session has changed:\n%s", diff)
	}
}

// A mode that nobody knows is refused by name wherever it comes in, and nothing is
// written.
func TestSBX05_UnknownModesAreRefused(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	_, before, err := d.log.Settings().Load(t.Context())
	d.must(err)
	for method, in := range map[string]any{
		client.MethodPolicySet: client.PolicySetRequest{Head: head, ID: root, Sandbox: "yolo"},
		client.MethodCreate: client.CreateRequest{
			Head: head, ID: newRoot(t), Cwd: "/tmp/work", Model: client.Model{Provider: "scripted", Model: "test", Script: "sessions: {}"}, Sandbox: "yolo",
		},
	} {
		if e := d.refused(client.Code(policy.CodeUnknownMode), method, in); e != nil && !strings.Contains(e.Message, "yolo") {
			t.Errorf("%s: %q does not name the mode", method, e.Message)
		}
	}
	err = d.api.Call(t.Context(), client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "defaults.sandbox", Value: []byte(`"yolo"`)}, nil)
	if err == nil || !strings.Contains(err.Error(), "yolo") {
		t.Errorf("a default of yolo: %v", err)
	}
	if _, after, err := d.log.Settings().Load(t.Context()); err != nil || after != before {
		t.Errorf("the settings are at revision %d, %v, want %d", after, err, before)
	}
}

// Selecting a preset writes its name first, then the knobs that change, and nothing
// when it is current.
func TestPRE05_PRE06_PRE07_ASelectionWritesWhatChanges(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, reviewed)
	root := d.root()
	sandbox := func(m session.SandboxMode) func(*client.PolicySetRequest) {
		return func(in *client.PolicySetRequest) { in.Sandbox = m }
	}
	preset := func(p session.Preset) func(*client.PolicySetRequest) {
		return func(in *client.PolicySetRequest) { in.Preset = p }
	}
	for _, tt := range []struct {
		what    string
		set     func(*client.PolicySetRequest)
		want    []string
		current session.Preset
	}{
		{"what is effective without an event", preset(session.PresetReadOnly), nil, session.PresetReadOnly},
		{"one knob changes", preset(session.PresetWorkspaceWrite), []string{"permission/preset workspace-write", "sandbox/mode workspace-write"}, session.PresetWorkspaceWrite},
		{"both change", preset(session.PresetFullAccess), []string{"permission/preset danger-full-access", "sandbox/mode danger-full-access", "approval/policy never"}, session.PresetFullAccess},
		{"the same again", preset(session.PresetFullAccess), nil, session.PresetFullAccess},
		{"the sibling", preset(session.PresetAuto), []string{"permission/preset auto"}, session.PresetAuto},
		{"and back", preset(session.PresetFullAccess), []string{"permission/preset danger-full-access"}, session.PresetFullAccess},
		{"one knob drifts", sandbox(session.ReadOnly), []string{"sandbox/mode read-only"}, session.PresetCustom},
		{"it is repaired", preset(session.PresetFullAccess), []string{"permission/preset danger-full-access", "sandbox/mode danger-full-access"}, session.PresetFullAccess},
	} {
		before := len(d.lines(root))
		reply := d.policySet(root, tt.set)
		var got []string
		for _, l := range d.lines(root)[before:] {
			_, value, _ := strings.Cut(string(l.Data), `":"`)
			value, _, _ = strings.Cut(value, `"`)
			got = append(got, string(l.Type)+" "+value)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +written):\n%s", tt.what, diff)
		}
		if reply.Preset != tt.current || reply.Events != len(tt.want) {
			t.Errorf("%s: the answer is %+v, want %s and %d events", tt.what, reply, tt.current, len(tt.want))
		}
	}
}

// Without a reviewer auto cannot be selected, also not where it is current; a log that
// says auto stays as it is, and nothing runs under it. What is no preset is refused by
// name, with those there are.
func TestPRE08_PRE11_PRE13_AutoNeedsAReviewer(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, reviewed)
	root := d.root(func(in *client.CreateRequest) { in.Preset = session.PresetAuto })
	d.must(d.api.Call(t.Context(), client.MethodConfigSet, client.ConfigSetRequest{Head: head, Path: "reviewer", Value: []byte(`"none"`)}, nil))
	plain := d.root()
	before := d.lines(root)
	for _, id := range []session.ID{root, plain} {
		d.refused(client.Code(policy.CodeNoReviewer), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: id, Preset: session.PresetAuto})
	}
	for _, name := range []session.Preset{"yolo", session.PresetCustom} {
		e := d.refused(client.Code(policy.CodeUnknownPreset), client.MethodPolicySet, client.PolicySetRequest{Head: head, ID: plain, Preset: name})
		for _, want := range []session.Preset{name, session.PresetReadOnly, session.PresetWorkspaceWrite, session.PresetAuto, session.PresetFullAccess} {
			if e == nil || !strings.Contains(e.Message, string(want)) {
				t.Errorf("the refusal %v does not name %s", e, want)
			}
		}
	}
	var now client.PolicyReply
	d.must(d.api.Call(t.Context(), client.MethodPolicyGet, client.SessionRequest{Head: head, ID: root}, &now))
	if now.Preset != session.PresetAuto {
		t.Errorf("the log says auto, current is %s", now.Preset)
	}
	if diff := cmp.Diff(before, d.lines(root)); diff != "" {
		t.Errorf("the log has changed:\n%s", diff)
	}
	d.claim(root)
	d.step(root, 1)
	in := d.delegations(root, client.DelegateSpec{Kind: session.Spawn, Mode: session.OneShot, Label: "child", Prompt: "work"})
	if dec := in.Calls[0].Decision; dec.Verdict != session.Deny || dec.By != session.StageReviewer {
		t.Errorf("a delegation under auto was decided %s by %s", dec.Verdict, dec.By)
	}
	in.Calls[0].Decision.Verdict, in.Calls[0].Decision.By, in.Calls[0].Decision.Reason, in.Calls[0].Decision.Final = session.Allow, session.StagePolicy, "", false
	if code := d.notDelegated(in); code != client.CodeDenied {
		t.Errorf("a worker that allows it itself: %s", code)
	}
}
