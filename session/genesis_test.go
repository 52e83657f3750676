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

// genesis composes the genesis of call 1.1.1 of driven, changed before it is
// composed.
func genesis(t *testing.T, d sessiontest.Delegation) (*sessiontest.Stream, session.ID, session.Record) {
	t.Helper()
	s, root := driven(t)
	d.Call = "1.1.1"
	if d.Kind == "" {
		d.Kind = session.Spawn
	}
	r, _ := s.Genesis(root, d)
	return s, root, r
}

// outcome replays a stream with one genesis more and returns what became of the
// parent and of the child.
func outcome(s *sessiontest.Stream, raw session.Raw, root session.ID) (r *sessiontest.Replica, parent, child error) {
	s.Put(raw)
	r = sessiontest.Replay(s.Records)
	return r, r.Chains[root].Halted(), r.Failed[raw.Address.Session]
}

// A bad child's section stops the child, by name; the parent's decision stands
// and the parent goes on (SPEC 3.1).
func TestBadChildSectionStopsTheChildOnly(t *testing.T) {
	t.Parallel()
	first := func(change func([]session.Payload) []session.Payload) sessiontest.Delegation {
		s, root := driven(t)
		return sessiontest.Delegation{First: change(sessiontest.FirstBatch(s.State(root), session.Spawn, false))}
	}
	header := func(change func(*session.Header)) sessiontest.Delegation {
		return sessiontest.Delegation{Header: change}
	}
	for name, d := range map[string]sessiontest.Delegation{
		"parent of another name": header(func(h *session.Header) { h.ParentSession = childID }),
		"origin user":            header(func(h *session.Header) { h.Origin = session.OriginUser }),
		"format of its own":      header(func(h *session.Header) { h.FormatVersion = 2 }),
		"another child": header(func(h *session.Header) {
			h.ID = session.ChildID(h.ParentSession, "1.1.0")
		}),
		"a prefix it has not": header(func(h *session.Header) {
			h.InheritedEventCount, h.FirstLiveSeq = 5, 5
		}),
		"no pin's value": first(func(p []session.Payload) []session.Payload {
			p[1] = &session.ApprovalSwitch{Policy: session.Ask, Source: session.SourceDelegation}
			return p
		}),
		"policy without a source": first(func(p []session.Payload) []session.Payload {
			p[0] = &session.SandboxSwitch{Mode: session.ReadOnly, By: person()}
			return p
		}),
		"policy in disorder": first(func(p []session.Payload) []session.Payload {
			p[0], p[1] = p[1], p[0]
			return p
		}),
		"policy behind the descriptor": first(func(p []session.Payload) []session.Payload {
			p[1], p[2] = p[2], p[1]
			return p
		}),
		"two switches": first(func(p []session.Payload) []session.Payload {
			return slices.Insert(p, 0, p[0])
		}),
		"no descriptor": first(func(p []session.Payload) []session.Payload { return slices.Delete(p, 2, 3) }),
		"no model":      first(func(p []session.Payload) []session.Payload { return slices.Delete(p, 3, 4) }),
		"no prompt":     first(func(p []session.Payload) []session.Payload { return p[:4] }),
		"prompt of nobody": first(func(p []session.Payload) []session.Payload {
			p[4].(*session.UserMessage).By = nil
			return p
		}),
		"two prompts": first(func(p []session.Payload) []session.Payload { return append(p, prompt("m9")) }),
		"end of a seed it has not": first(func(p []session.Payload) []session.Payload {
			return slices.Insert(p, 0, session.Payload(&session.EndSeed{Inherited: true}))
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root, r := genesis(t, d)
			replica, parent, child := outcome(s, s.Raw(r), root)
			if parent != nil || !errors.Is(child, session.ErrCorrupt) {
				t.Fatalf("parent %v, child %v", parent, child)
			}
			var corrupt *session.CorruptError
			if !errors.As(child, &corrupt) || corrupt.Session != r.Address.Session || corrupt.StreamSeq != 3 {
				t.Errorf("the stop is %v", child)
			}
			if c, ok := replica.Chains[root].State().Call("1.1.1"); !ok || c.State != session.CallAllowed {
				t.Errorf("the parent's call is %+v", c)
			}
		})
	}
}

// Whatever is wrong with the bytes of the child's section alone does not reach
// the parent either.
func TestTornChildSectionStopsTheChildOnly(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*session.Raw){
		"torn line": func(r *session.Raw) {
			r.Body = []byte(strings.Replace(string(r.Body), `"model/selected"`, `"model/sel`, 1))
		},
		"no count":  func(r *session.Raw) { delete(r.Headers, "Entail-Child-Count") },
		"no link":   func(r *session.Raw) { delete(r.Headers, "Entail-Child-Link") },
		"wrong seq": func(r *session.Raw) { r.Headers["Entail-Child-Seq"] = "1" },
		"other header": func(r *session.Raw) {
			r.Body = []byte(strings.Replace(string(r.Body), `"tenant":"default"`, `"tenant":"other"`, 1))
		},
		"header twice": func(r *session.Raw) {
			r.Body = []byte(strings.Replace(string(r.Body), `"type":"session"`, `"type":"session","type":"session"`, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root, r := genesis(t, sessiontest.Delegation{})
			raw := s.Raw(r)
			raw.Headers = maps.Clone(raw.Headers)
			change(&raw)
			if _, parent, child := outcome(s, raw, root); parent != nil || !errors.Is(child, session.ErrCorrupt) {
				t.Errorf("parent %v, child %v", parent, child)
			}
		})
	}
}

// A first batch that holds but is not the one the parent committed to is the
// child's trouble.
func TestChildSectionIsTheOneTheParentNamed(t *testing.T) {
	t.Parallel()
	s, root, r := genesis(t, sessiontest.Delegation{Decision: func(d *session.ToolDecision) { d.ChildLink = &session.Link{7} }})
	if _, parent, child := outcome(s, s.Raw(r), root); parent != nil || !errors.Is(child, session.ErrCorrupt) {
		t.Errorf("parent %v, child %v", parent, child)
	}
}

// A bad parent's section stops the parent; the child is judged by its own.
func TestBadParentSectionStopsTheParentOnly(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*session.Record){
		"stale epoch": func(r *session.Record) { r.Epoch = 0 },
		"wrong link": func(r *session.Record) {
			own, err := session.Compose(r.Own.Session, session.ClassTurn, r.Own.Seq, session.Link{9},
				session.Draft{Payload: r.Own.Events[0].Payload})
			if err == nil {
				r.Own = &own
			}
		},
		"gap": func(r *session.Record) {
			own, err := session.Compose(r.Own.Session, session.ClassTurn, r.Own.Seq+5, r.Own.Before,
				session.Draft{Payload: r.Own.Events[0].Payload})
			if err == nil {
				r.Own = &own
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root, r := genesis(t, sessiontest.Delegation{})
			change(&r)
			replica, parent, child := outcome(s, s.Raw(r), root)
			if !errors.Is(parent, session.ErrCorrupt) || child != nil {
				t.Errorf("parent %v, child %v", parent, child)
			}
			if c := replica.Chains[r.Address.Session]; c == nil || c.Halted() != nil || c.Tail() != 0 {
				t.Errorf("the child does not run: %v", c)
			}
		})
	}
}

// A child whose id derives from nothing is nobody's, even where decision, subject
// and header agree on it (SPEC 4.5).
func TestChildIDDerivesFromItsCall(t *testing.T) {
	t.Parallel()
	s, root, r := genesis(t, sessiontest.Delegation{
		Header:   func(h *session.Header) { h.ID = childID },
		Decision: func(d *session.ToolDecision) { d.Child = childID },
	})
	r.Address.Session = childID
	if _, parent, child := outcome(s, s.Raw(r), root); !errors.Is(parent, session.ErrCorrupt) || !errors.Is(child, session.ErrCorrupt) {
		t.Errorf("parent %v, child %v", parent, child)
	}
}

// A decision that cannot be read, or that is none of this child, leaves neither:
// the child's id derives from the call that stands in it.
func TestGenesisWithoutItsDecisionStopsBoth(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]func(*session.ToolDecision){
		"denied":        func(d *session.ToolDecision) { d.Verdict = session.Deny },
		"no child":      func(d *session.ToolDecision) { d.Child, d.ChildLink = "", nil },
		"another child": func(d *session.ToolDecision) { d.CallID = "1.1.0" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root, r := genesis(t, sessiontest.Delegation{Decision: d})
			if _, parent, child := outcome(s, s.Raw(r), root); !errors.Is(parent, session.ErrCorrupt) || !errors.Is(child, session.ErrCorrupt) {
				t.Errorf("parent %v, child %v", parent, child)
			}
		})
	}
}

// Subject, header, parentSession and child id agree (SPEC 3.1).
func TestGenesisSubjectAgreesWithItsHeader(t *testing.T) {
	t.Parallel()
	s, root, r := genesis(t, sessiontest.Delegation{})
	other := s.Root()
	good := s.Raw(r)
	for name, at := range map[string]session.Address{
		"under another child": {Session: session.ChildID(root, "1.1.0"), Creator: root},
		"in another's space":  {Session: r.Address.Session, Creator: other},
		"in its own space":    {Session: r.Address.Session, Creator: r.Address.Session},
	} {
		raw := good
		raw.Address = at
		raw.Address.Class = session.ClassGenesis
		if _, _, err := session.Open(raw, session.Prefix{}, nil); !errors.Is(err, session.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	inOwn := s.Records[0]
	inOwn.Address.Creator = other
	if _, _, err := session.Open(inOwn, session.Prefix{}, nil); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("a root in another's space: %v", err)
	}
	notOne := s.Raw(s.Compose(root, session.ClassInbox, prompt("m")))
	if _, _, err := session.Open(notOne, session.Prefix{}, nil); !errors.Is(err, session.ErrCorrupt) {
		t.Errorf("no genesis: %v", err)
	}
}

// A root's first batch: preset, then knobs, each with a party and no source,
// model, prompt (SPEC 1.10).
func TestFirstBatchOfARoot(t *testing.T) {
	t.Parallel()
	preset := &session.PresetSwitch{Preset: session.PresetReadOnly, By: person()}
	sandbox := &session.SandboxSwitch{Mode: session.ReadOnly, By: person()}
	approval := &session.ApprovalSwitch{Policy: session.Ask, By: person()}
	model := sessiontest.Model()
	descriptor := &session.Descriptor{Version: 2, Mode: session.OneShot, Provider: session.Spawn, Label: "x"}
	for _, tt := range []struct {
		name  string
		ok    bool
		first []session.Payload
	}{
		{"model alone", true, []session.Payload{model}},
		{"everything", true, []session.Payload{preset, sandbox, approval, model, prompt("m")}},
		{"nothing", false, nil},
		{"no model", false, []session.Payload{sandbox, prompt("m")}},
		{"model last", false, []session.Payload{prompt("m"), model}},
		{"knobs before the preset", false, []session.Payload{sandbox, preset, model}},
		{"knob without a party", false, []session.Payload{&session.SandboxSwitch{Mode: session.ReadOnly}, model}},
		{"preset without a party", false, []session.Payload{&session.PresetSwitch{Preset: session.PresetReadOnly}, model}},
		{"prompt without a party", false, []session.Payload{model, &session.UserMessage{ID: "m", Role: "user", Source: session.MessageSource{Kind: session.FromUser}}}},
		{"a delegation's knob", false, []session.Payload{&session.SandboxSwitch{Mode: session.ReadOnly, Source: session.SourceDelegation}, model}},
		{"a child's descriptor", false, []session.Payload{descriptor, model}},
		{"the end of a seed", false, []session.Payload{&session.EndSeed{}, model}},
		{"the same knob twice", false, []session.Payload{sandbox, sandbox, model}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := beginRoot(t, nil, session.Prefix{}, tt.first...)
			if (err == nil) != tt.ok {
				t.Errorf("error %v, want ok: %t", err, tt.ok)
			}
		})
	}
}

// beginRoot folds a birth whose header is a root's but for change.
func beginRoot(t *testing.T, change func(*session.Header), p session.Prefix, first ...session.Payload) (session.State, error) {
	t.Helper()
	h := sessiontest.HeaderOf(rootID)
	if change != nil {
		change(&h)
	}
	var drafts []session.Draft
	for _, f := range first {
		drafts = append(drafts, session.Draft{Payload: f})
	}
	b, err := session.ComposeBirth(h, p.Link, drafts...)
	if err != nil {
		return session.State{}, err
	}
	return session.Begin(b, p)
}

// SES-05, 1.2: a seeded session starts with session/end-seed at firstLiveSeq and
// an unseeded one carries none and starts at 0. A fork says inherited, an import
// does not.
func TestEndSeedStandsAtFirstLiveSeq_SES_05(t *testing.T) {
	t.Parallel()
	fork := func(h *session.Header) {
		h.ID, h.ParentSession, h.InheritedEventCount, h.FirstLiveSeq = childID, rootID, 6, 6
	}
	imported := func(h *session.Header) { h.Origin, h.FirstLiveSeq = session.OriginImport, 6 }
	prefix := session.Prefix{Count: 6, Link: session.Link{1}}
	model := sessiontest.Model()
	for _, tt := range []struct {
		name   string
		ok     bool
		header func(*session.Header)
		prefix session.Prefix
		first  []session.Payload
		next   session.Seq
	}{
		{"fork", true, fork, prefix, []session.Payload{&session.EndSeed{Inherited: true}, model}, 8},
		{"fork, marker of an import", false, fork, prefix, []session.Payload{&session.EndSeed{}, model}, 0},
		{"fork without a marker", false, fork, prefix, []session.Payload{model}, 0},
		{"fork, marker too late", false, fork, prefix, []session.Payload{model, &session.EndSeed{Inherited: true}}, 0},
		{"fork, two markers", false, fork, prefix, []session.Payload{&session.EndSeed{Inherited: true}, &session.EndSeed{Inherited: true}, model}, 0},
		{"fork of another length", false, fork, session.Prefix{Count: 5, Link: session.Link{1}}, []session.Payload{&session.EndSeed{Inherited: true}, model}, 0},
		{"import", true, imported, session.Prefix{Link: session.Link{2}}, []session.Payload{&session.EndSeed{}, model}, 8},
		{"import, marker of a fork", false, imported, session.Prefix{Link: session.Link{2}}, []session.Payload{&session.EndSeed{Inherited: true}, model}, 0},
		{"no seed", true, nil, session.Prefix{}, []session.Payload{model}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, err := beginRoot(t, tt.header, tt.prefix, tt.first...)
			if (err == nil) != tt.ok || tt.ok && s.Next != tt.next {
				t.Errorf("next seq %d, error %v, want %d, ok %t", s.Next, err, tt.next, tt.ok)
			}
		})
	}
}

// The base of a fork's links is its ancestor's link at the cut.
func TestForkIsChainedToItsPrefix(t *testing.T) {
	t.Parallel()
	s := sessiontest.NewStream(t)
	source := s.Root()
	fork := s.Fork(source)
	raw := s.Records[len(s.Records)-1]
	p := s.State(source).InheritAll()
	if _, _, err := session.Open(raw, p, nil); err != nil {
		t.Fatal(err)
	}
	p.Link[0] ^= 1
	if _, _, err := session.Open(raw, p, nil); !errors.Is(err, session.ErrCorrupt) || !strings.Contains(err.Error(), string(fork)) {
		t.Errorf("a fork of another history: %v", err)
	}
}

func TestHeaderIsHeldToItsFacts(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*session.Header){
		"id":                    func(h *session.Header) { h.ID = "x" },
		"root of another tree":  func(h *session.Header) { h.Root = "01" + h.Root[2:] },
		"origin":                func(h *session.Header) { h.Origin = "alien" },
		"no origin":             func(h *session.Header) { h.Origin = "" },
		"root with a parent":    func(h *session.Header) { h.ParentSession = h.ID },
		"root with a depth":     func(h *session.Header) { h.DelegationDepth = 1 },
		"orphan":                func(h *session.Header) { h.ID = childID },
		"subagent, no depth":    func(h *session.Header) { h.ID, h.ParentSession, h.Origin = childID, rootID, session.OriginSubagent },
		"subagent, no parent":   func(h *session.Header) { h.ID, h.DelegationDepth, h.Origin = childID, 1, session.OriginSubagent },
		"import with a parent":  func(h *session.Header) { h.ID, h.ParentSession, h.Origin = childID, rootID, session.OriginImport },
		"parent elsewhere":      func(h *session.Header) { h.ID, h.ParentSession = childID, "01"+rootID[2:] },
		"live before inherited": func(h *session.Header) { h.ID, h.ParentSession, h.InheritedEventCount = childID, rootID, 4 },
		"prefix of nobody":      func(h *session.Header) { h.InheritedEventCount, h.FirstLiveSeq = 4, 4 },
		"seed of a user":        func(h *session.Header) { h.FirstLiveSeq = 4 },
		"cwd relative":          func(h *session.Header) { h.Cwd = "work" },
		"cwd the root":          func(h *session.Header) { h.Cwd = "/" },
		"cwd not canonical":     func(h *session.Header) { h.Cwd = "/work/../etc" },
		"cwd with an escape":    func(h *session.Header) { h.Cwd = "/work\x1b[2J" },
		"cwd no text":           func(h *session.Header) { h.Cwd = "/work\xff" },
		"workspace kind":        func(h *session.Header) { h.Workspace.Kind = "cloud" },
		"workspace path":        func(h *session.Header) { h.Workspace.Path = "" },
		"workspace id":          func(h *session.Header) { h.Workspace.ID = "" },
		"surface":               func(h *session.Header) { h.Surface = "some" },
		"format":                func(h *session.Header) { h.FormatVersion = 0 },
		"digest":                func(h *session.Header) { h.Request = "abc" },
		"digest upper case":     func(h *session.Header) { h.Request = strings.ToUpper(h.Request[:63]) + "A" },
		"no tenant":             func(h *session.Header) { h.Tenant = "" },
		"tenant of two tokens":  func(h *session.Header) { h.Tenant = "a.b" },
		"tenant wildcard":       func(h *session.Header) { h.Tenant = ">" },
		"tenant with a space":   func(h *session.Header) { h.Tenant = "a b" },
		"label":                 func(h *session.Header) { h.Label = strings.Repeat("x", 300) },
		"party":                 func(h *session.Header) { h.CreatedBy.Kind = "worker" },
		"party without a name":  func(h *session.Header) { h.CreatedBy.ID = "" },
		"needs in format 1":     func(h *session.Header) { h.Needs = &session.Needs{Labels: []string{"gpu"}} },
		"needs of nothing":      needing(session.Needs{}),
		"needs out of order":    needing(session.Needs{Labels: []string{"b", "a"}}),
		"needs twice":           needing(session.Needs{Labels: []string{"a", "a"}}),
		"needs no word":         needing(session.Needs{Labels: []string{"a b"}}),
		"needs an empty word":   needing(session.Needs{Labels: []string{""}}),
		"needs in capitals":     needing(session.Needs{Labels: []string{"GPU"}}),
		"needs no fence":        needing(session.Needs{Tier: session.TierNone}),
		"needs another tier":    needing(session.Needs{Tier: "vm"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sessiontest.HeaderOf(rootID)
			change(&h)
			if line, err := session.EncodeHeader(h); err == nil {
				t.Errorf("%s was written", line)
			}
		})
	}
}

func TestDecodeHeaderAcceptsOneForm(t *testing.T) {
	t.Parallel()
	want := sessiontest.HeaderOf(rootID)
	line, err := session.EncodeHeader(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := session.DecodeHeader(line)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name, r := range map[string][2]string{
		"other type":        {`"type":"session"`, `"type":"event"`},
		"policy in it":      {`"tenant"`, `"sandboxMode":"read-only","tenant"`},
		"key twice":         {`"cwd":"/work"`, `"cwd":"/work","cwd":"/work"`},
		"another case":      {`"cwd"`, `"Cwd"`},
		"space":             {`"cwd":`, `"cwd": `},
		"number as float":   {`"delegationDepth":0`, `"delegationDepth":0.0`},
		"null":              {`"delegationDepth":0`, `"delegationDepth":null`},
		"empty label":       {`"formatVersion"`, `"label":"","formatVersion"`},
		"missing key":       {`"firstLiveSeq":0,`, ``},
		"newline behind":    {`"formatVersion":1}`, "\"formatVersion\":1}\n"},
		"something behind":  {`"formatVersion":1}`, `"formatVersion":1}{}`},
		"policy, old style": {`"tenant"`, `"approvalPolicy":"never","tenant"`},
	} {
		bad := strings.Replace(string(line), r[0], r[1], 1)
		if bad == string(line) {
			t.Fatalf("%s changes nothing", name)
		}
		if _, err := session.DecodeHeader([]byte(bad)); err == nil {
			t.Errorf("%s: %s was read", name, bad)
		}
	}
}

// needing makes a header of format 2 with needs.
func needing(n session.Needs) func(*session.Header) {
	return func(h *session.Header) { h.FormatVersion, h.Needs = session.FormatNeeds, &n }
}

// Needs stand last in the line of a header of format 2, in their one form; a header
// without them has the line that it always had.
func TestNeedsStandInTheHeader(t *testing.T) {
	t.Parallel()
	plain, err := session.EncodeHeader(sessiontest.HeaderOf(rootID))
	if err != nil || strings.Contains(string(plain), "needs") || !strings.Contains(string(plain), `"formatVersion":1`) {
		t.Errorf("without needs: %s, %v", plain, err)
	}
	for text, n := range map[string]session.Needs{
		`"needs":{"labels":["gpu","zone=b"],"tier":"uid"}}`: {Labels: []string{"gpu", "zone=b"}, Tier: session.TierUID},
		`"needs":{"labels":["a"]}}`:                         {Labels: []string{"a"}},
		`"needs":{"tier":"landlock"}}`:                      {Tier: session.TierLandlock},
	} {
		h := sessiontest.HeaderOf(rootID)
		needing(n)(&h)
		line, err := session.EncodeHeader(h)
		if err != nil || !strings.HasSuffix(string(line), text) || !strings.Contains(string(line), `"formatVersion":2`) {
			t.Errorf("written as %s, %v, want it to end in %s", line, err, text)
			continue
		}
		again, err := session.DecodeHeader(line)
		if err != nil || !again.Needs.Equal(&n) {
			t.Errorf("%s is read as %+v, %v", line, again.Needs, err)
		}
		old := strings.Replace(string(line), `"formatVersion":2`, `"formatVersion":1`, 1)
		if _, err := session.DecodeHeader([]byte(old)); err == nil {
			t.Errorf("%s is read", old)
		}
	}
}
