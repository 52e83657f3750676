package coordinator_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
)

// knobs lists a log's policy events from a seq on, as type and data.
func knobs(lines []line, from session.Seq) []string {
	var out []string
	for _, l := range lines {
		knob := l.Type == session.TypeSandboxMode || l.Type == session.TypeApprovalPolicy || l.Type == session.TypePreset
		if knob && l.Seq >= from {
			out = append(out, string(l.Type)+" "+string(l.Data))
		}
	}
	return out
}

const (
	pinEvent      = `approval/policy {"policy":"never","source":"delegation"}`
	readOnlyEvent = `sandbox/mode {"mode":"read-only","source":"delegation"}`
	fullEvent     = `sandbox/mode {"mode":"danger-full-access","source":"delegation"}`
)

func reviewed(s *policy.Settings) { s.Reviewer = policy.DelegateOnly }

func TestINH02_ApprovalsArePinnedWhateverTheParentHas(t *testing.T) {
	t.Parallel()
	for _, own := range []session.ApprovalPolicy{"", session.Ask, session.Never} {
		t.Run("parent "+string(own), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, 1)
			root := d.root(func(in *client.CreateRequest) { in.Approvals = own })
			d.claim(root)
			if diff := cmp.Diff([]string{pinEvent}, knobs(d.lines(d.spawn(root)), 0)); diff != "" {
				t.Errorf("the child's policy events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestINH03_OnlyTheTwoIdentitiesAreHandedDown(t *testing.T) {
	t.Parallel()
	for preset, want := range map[session.Preset][]string{
		session.PresetAuto:           {fullEvent, pinEvent, `permission/preset {"preset":"auto"}`},
		session.PresetFullAccess:     {fullEvent, pinEvent, `permission/preset {"preset":"danger-full-access"}`},
		session.PresetReadOnly:       {pinEvent}, // current already: selecting it wrote nothing
		session.PresetWorkspaceWrite: {`sandbox/mode {"mode":"workspace-write","source":"delegation"}`, pinEvent},
	} {
		t.Run(string(preset), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, 1, reviewed)
			root := d.root(func(in *client.CreateRequest) { in.Preset = preset })
			d.claim(root)
			if diff := cmp.Diff(want, knobs(d.lines(d.spawn(root)), 0)); diff != "" {
				t.Errorf("the child's policy events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestINH05_ACapabilityLeftOutSkipsItsOwnItemOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		without func(*policy.Settings)
		want    []string
	}{
		"approvals": {func(s *policy.Settings) { s.Composition.Approvals = false }, []string{readOnlyEvent}},
		"presets":   {func(s *policy.Settings) { s.Composition.Presets = false }, []string{readOnlyEvent, pinEvent}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, 1, c.without)
			root := d.root()
			d.policySet(root, readOnly)
			d.claim(root)
			if diff := cmp.Diff(c.want, knobs(d.lines(d.spawn(root)), 0)); diff != "" {
				t.Errorf("the child's policy events (-want +got):\n%s", diff)
			}
		})
	}
}

// A fork's prefix ends with one of two identities that share a bundle; the
// captured one comes later and is current.
func TestINH12_CapturedSiblingIdentityIsCurrent(t *testing.T) {
	t.Parallel()
	for stale, now := range map[session.Preset]session.Preset{
		session.PresetAuto: session.PresetFullAccess, session.PresetFullAccess: session.PresetAuto,
	} {
		t.Run(string(stale)+" in the prefix", func(t *testing.T) {
			t.Parallel()
			d := deploy(t, 1, reviewed)
			root := d.root(func(in *client.CreateRequest) { in.Preset = stale })
			d.claim(root)
			cut := d.endTurn(root).Cut.Count
			d.policySet(root, func(in *client.PolicySetRequest) { in.Preset = now })
			d.claim(root)
			child := d.spawn(root, func(s *client.DelegateSpec) { s.Kind = session.Fork })
			lines := d.lines(child)
			want := []string{fullEvent, pinEvent, `permission/preset {"preset":"` + string(now) + `"}`}
			if diff := cmp.Diff(want, knobs(lines, cut)); diff != "" {
				t.Errorf("own policy events (-want +got):\n%s", diff)
			}
			var p client.PolicyReply
			d.must(d.api.Call(t.Context(), client.MethodPolicyGet, client.SessionRequest{Head: head, ID: child}, &p))
			if p.Preset != now {
				t.Errorf("current is %q, want %q", p.Preset, now)
			}
		})
	}
}

func TestINH13_ASwitchInTheChildWinsAndIsNoDelegation(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.policySet(root, readOnly)
	d.claim(root)
	child := d.spawn(root)
	p := d.policySet(child, func(in *client.PolicySetRequest) { in.Sandbox = session.WorkspaceWrite })
	if p.Sandbox != session.WorkspaceWrite {
		t.Errorf("the child has %s", p.Sandbox)
	}
	want := []string{readOnlyEvent, pinEvent, `sandbox/mode {"mode":"workspace-write","by":{"kind":"person","id":"ada"}}`}
	if diff := cmp.Diff(want, knobs(d.lines(child), 0)); diff != "" {
		t.Errorf("policy events (-want +got):\n%s", diff)
	}
}

func TestINH14_GrandchildFoldsItsParentAlone(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.policySet(root, readOnly)
	d.claim(root)
	child := d.spawn(root)
	d.policySet(root, fullAccess) // the root's future is nothing to the grandchild
	d.claim(child)
	grandchild := d.spawn(child)
	if diff := cmp.Diff([]string{readOnlyEvent, pinEvent}, knobs(d.lines(grandchild), 0)); diff != "" {
		t.Errorf("the grandchild's policy events (-want +got):\n%s", diff)
	}
}

func TestINH15_TheParentGainsNoPolicyEvent(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, reviewed)
	root := d.root(func(in *client.CreateRequest) { in.Preset = session.PresetAuto })
	d.claim(root)
	before := knobs(d.lines(root), 0)
	child := d.spawn(root)
	if diff := cmp.Diff(before, knobs(d.lines(root), 0)); diff != "" {
		t.Errorf("the parent's policy events (-before +after):\n%s", diff)
	}
	if n := len(knobs(d.lines(child), 0)); n > 3 {
		t.Errorf("the child has %d policy events, at most 3 are a delegation's", n)
	}
}

func TestINH16_ASnapshotDoesNotFollowItsParent(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.claim(root)
	d.policySet(root, readOnly)
	first := d.spawn(root)
	d.policySet(root, func(in *client.PolicySetRequest) { in.Sandbox = session.WorkspaceWrite })
	var p client.PolicyReply
	d.must(d.api.Call(t.Context(), client.MethodPolicyGet, client.SessionRequest{Head: head, ID: first}, &p))
	if p.Sandbox != session.ReadOnly {
		t.Errorf("the child follows its parent to %s", p.Sandbox)
	}
	second := d.spawn(root)
	if got := knobs(d.lines(second), 0)[0]; got != `sandbox/mode {"mode":"workspace-write","source":"delegation"}` {
		t.Errorf("delegating again took %s", got)
	}
}

// When a continuable start answers, its events are in the log and in force, and
// no turn has opened.
func TestINH17_InForceWhenTheStartAnswers(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.policySet(root, readOnly)
	d.claim(root)
	d.step(root, 1)
	var out client.DelegateReply
	spec := client.DelegateSpec{Kind: session.Spawn, Mode: session.Continuable, Label: "child", Prompt: "work"}
	d.must(d.worker.Call(t.Context(), client.MethodDelegate, d.delegations(root, spec), &out))
	raw, err := d.log.Genesis(t.Context(), out.Outcomes[0].Child, "")
	d.must(err)
	r, err := session.DecodeRecord(raw)
	d.must(err)
	s, err := session.Begin(*r.Birth, session.Prefix{})
	d.must(err)
	if s.Knobs.Sandbox.Value != session.ReadOnly || s.Knobs.Approval.Value != session.Never || s.Turn != 0 || s.Open != nil {
		t.Errorf("the genesis folds to %+v, turn %d", s.Knobs, s.Turn)
	}
}

// The delegation's events are in the child's one genesis record; a mirror made
// from nothing folds the same; the header holds no policy.
func TestINH19_TheFirstRecordHoldsThePolicy(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.policySet(root, readOnly)
	d.claim(root)
	child := d.spawn(root)
	raw, err := d.log.Genesis(t.Context(), child, "")
	d.must(err)
	r, err := session.DecodeRecord(raw)
	d.must(err)
	var got []string
	for _, e := range r.Birth.First.Events {
		got = append(got, string(e.Type))
	}
	want := []string{"sandbox/mode", "approval/policy", "subagent/descriptor", "model/selected", "user/message"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the genesis (-want +got):\n%s", diff)
	}
	var header map[string]any
	d.must(json.Unmarshal(r.Birth.Line, &header))
	for _, field := range []string{"sandboxMode", "approvalPolicy", "preset", "permission"} {
		if v, ok := header[field]; ok {
			t.Errorf("the header holds %s: %v", field, v)
		}
	}
	info, err := d.log.Info(t.Context(), 0)
	d.must(err)
	fresh, err := sessionstore.Open(sessionstore.Config{Dir: filepath.Join(t.TempDir(), "fresh")})
	d.must(err)
	t.Cleanup(func() { d.must(fresh.Close()) })
	var all []session.Raw
	for seq := uint64(1); seq <= info.LastSeq; seq++ {
		raw, err := d.log.At(t.Context(), 0, seq)
		d.must(err)
		all = append(all, raw)
	}
	d.must(fresh.Apply(0, info.Incarnation, all))
	a, err := fresh.Session(child)
	d.must(err)
	b, err := d.store.Session(child)
	d.must(err)
	if diff := cmp.Diff(b.State, a.State); diff != "" {
		t.Errorf("a mirror from nothing (-running +fresh):\n%s", diff)
	}
}

func TestSES05_FirstLiveSeqIsTheSeedsLength(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	root := d.root()
	d.claim(root)
	cut := d.endTurn(root).Cut.Count
	d.claim(root)
	for kind, want := range map[session.Kind]session.Seq{session.Spawn: 0, session.Fork: cut} {
		v, err := d.store.Session(d.spawn(root, func(s *client.DelegateSpec) { s.Kind = kind; s.Label = string(kind) }))
		d.must(err)
		if h := v.State.Header; h.FirstLiveSeq != want || h.InheritedEventCount != want {
			t.Errorf("%s: firstLiveSeq %d, inheritedEventCount %d, want %d", kind, h.FirstLiveSeq, h.InheritedEventCount, want)
		}
	}
}
