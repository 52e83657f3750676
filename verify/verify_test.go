package verify_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

func runOn(t *testing.T, d *deployment, opt verify.Options) verify.Report {
	t.Helper()
	if opt.Mirror == nil {
		opt.Mirror, opt.AtRest = d.mirror(), true
	}
	r, err := verify.Run(t.Context(), d, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func deploy(t *testing.T, build func(*deployment)) *deployment {
	t.Helper()
	d := newDeployment(t)
	build(d)
	return d
}

func wantClean(t *testing.T, r verify.Report) {
	t.Helper()
	for _, f := range r.Findings {
		t.Errorf("finding: %v", f)
	}
}

// cleanTrees are trees that SPEC allows.
var cleanTrees = map[string]func(*deployment){
	"a root that runs a call":           treeOfOne,
	"an unswitched parent":              treeUnswitched,
	"a read-only parent's grandchild":   treeGrandchild,
	"a fork with a stale prefix":        treeFork,
	"a narrowing":                       treeNarrowed,
	"an identity derived from defaults": treeFullAccess,
	"auto":                              treeAuto,
	"filters meet":                      treeFiltered,
	"a person's fork":                   treePersonsFork,
	"a person's switch in a child":      treeSwitchedChild,
	"forks of forks":                    treeForkOfForks,
	"a grant":                           treeGrant,
	"void records":                      treeVoid,
}

func treeOfOne(d *deployment) {
	r := d.root()
	r.open(want{"write", "{}"}, want{"bash", "{}"})
	r.run(0)
	r.turn(r.decision(1, session.Deny), &session.ToolResult{Turn: 1, Step: 1, CallID: "1.1.1", IsError: true, Denied: true})
	r.close()
}

func treeUnswitched(d *deployment) {
	r := d.root()
	r.open(spawn(""))
	c := r.delegate(0, birth{policy: []session.Payload{pin()}})
	r.turn(r.result(0))
	r.close()
	c.open(want{"write", "{}"})
	c.run(0)
	c.close()
}

func treeGrandchild(d *deployment) {
	r := d.root(toMode(session.ReadOnly))
	r.open(spawn(""))
	c := r.delegate(0, birth{policy: []session.Payload{mode(session.ReadOnly), pin()}})
	r.write(session.ClassPolicy, toMode(session.DangerFullAccess)) // after N: belongs to the parent's future
	c.open(spawn(""))
	g := c.delegate(0, birth{policy: []session.Payload{mode(session.ReadOnly), pin()}})
	g.open(want{"write", "{}"})
	g.run(0)
	g.close()
}

// treeFork forks a parent whose prefix says workspace-write and which was
// switched to read-only after its turn.
func treeFork(d *deployment) {
	r := d.root(toMode(session.WorkspaceWrite))
	r.open()
	r.close()
	cut := r.next
	r.write(session.ClassPolicy, toMode(session.ReadOnly))
	r.open(fork(""))
	c := r.delegate(0, birth{policy: []session.Payload{mode(session.ReadOnly), pin()}, cut: cut})
	c.open(want{"read", "{}"})
	c.run(0)
	c.close()
}

func treeNarrowed(d *deployment) {
	r := d.root(toPreset(session.PresetFullAccess), toMode(session.DangerFullAccess), toApproval(session.Never))
	r.open(spawn(`,"sandbox":"read-only"`), spawn(`,"sandbox":"danger-full-access"`))
	r.delegate(0, birth{policy: []session.Payload{mode(session.ReadOnly), pin()}})
	r.delegate(1, birth{policy: []session.Payload{mode(session.DangerFullAccess), pin(), identity(session.PresetFullAccess)}})
}

func treeFullAccess(d *deployment) {
	d.defaults = session.Defaults{Sandbox: session.DangerFullAccess, Approval: session.Never}
	r := d.root()
	r.open(spawn(""))
	r.delegate(0, birth{policy: []session.Payload{pin(), identity(session.PresetFullAccess)}})
}

func treeAuto(d *deployment) {
	r := d.root(toPreset(session.PresetAuto), toMode(session.DangerFullAccess), toApproval(session.Never))
	r.open(spawn(""), want{"bash", "{}"})
	c := r.delegate(0, birth{policy: []session.Payload{mode(session.DangerFullAccess), pin(), identity(session.PresetAuto)}})
	reviewed := r.decision(1, session.Allow)
	reviewed.By = session.StageReviewer
	r.turn(reviewed)
	c.open(want{"read", "{}"}, want{"bash", "{}"})
	c.run(0)
	c.turn(c.decision(1, session.Deny))
}

func tools(names ...string) *[]string { return &names }

func treeFiltered(d *deployment) {
	r := d.root()
	r.open(spawn(`,"tools":{"allow":["read","write","delegate"]}`))
	c := r.delegate(0, birth{policy: []session.Payload{pin()}, filter: &session.ToolFilter{Allow: tools("read", "write", "delegate")}})
	c.open(spawn(`,"tools":{"deny":["write"]}`))
	g := c.delegate(0, birth{policy: []session.Payload{pin()}, filter: &session.ToolFilter{Allow: tools("delegate", "read", "write"), Deny: []string{"write"}}})
	g.open(want{"read", "{}"})
	g.run(0)
}

// personsFork forks the log at cut, with policy that it must not have.
func (l *log) personsFork(cut session.Seq, policy ...session.Payload) *log {
	id, err := session.ForkID(l.header.ID, "01arz3ndektsv4rrffq69g5fbw")
	l.d.check(err)
	h := header(id, l.header.ID, session.OriginUser)
	h.InheritedEventCount, h.FirstLiveSeq, h.DelegationDepth = cut, cut, l.header.DelegationDepth
	events := append([]session.Payload{&session.EndSeed{Inherited: true}}, policy...)
	if l.filter != nil {
		events = append(events, &session.Descriptor{Version: session.DescriptorVersion, Mode: session.OneShot, Provider: session.Fork, Label: "f", ToolFilter: l.filter})
	}
	return l.d.born(h, l.links[cut-1], l, append(events, model())...)
}

// treePersonsFork forks a child, pin included, and unpins the fork: it is
// nobody's child.
func treePersonsFork(d *deployment) {
	r := d.root()
	r.open(spawn(`,"tools":{"deny":["bash"]}`))
	c := r.delegate(0, birth{policy: []session.Payload{pin()}, filter: &session.ToolFilter{Deny: []string{"bash"}}})
	c.open()
	c.close()
	c.write(session.ClassPolicy, toMode(session.ReadOnly))
	f := c.personsFork(c.next)
	f.write(session.ClassPolicy, toApproval(session.Ask))
	f.open(spawn(`,"sandbox":"read-only"`))
	f.delegate(0, birth{policy: []session.Payload{mode(session.ReadOnly), pin()}, filter: &session.ToolFilter{Deny: []string{"bash"}}})
}

// treeForkOfForks delegates forks in a person's fork before it ended a turn of
// its own: the last ended turn is in its prefix.
func treeForkOfForks(d *deployment) {
	r := d.root()
	r.open()
	r.close()
	cut := r.next
	r.write(session.ClassPolicy, toMode(session.ReadOnly))
	p := r.personsFork(r.next)
	p.open(fork(""))
	c := p.delegate(0, birth{policy: []session.Payload{mode(session.ReadOnly), pin()}, cut: cut})
	c.open(fork(""))
	c.delegate(0, birth{policy: []session.Payload{mode(session.ReadOnly), pin()}, cut: cut})
}

func treeSwitchedChild(d *deployment) {
	r := d.root(toMode(session.ReadOnly))
	r.open(spawn(""))
	c := r.delegate(0, birth{policy: []session.Payload{mode(session.ReadOnly), pin()}})
	c.write(session.ClassPolicy, toMode(session.DangerFullAccess))
	c.open(spawn(""))
	c.delegate(0, birth{policy: []session.Payload{mode(session.DangerFullAccess), pin(), identity(session.PresetFullAccess)}})
}

func treeGrant(d *deployment) {
	r := d.root(toMode(session.ReadOnly))
	r.open(want{"bash", "{}"})
	r.ask(0)
	r.write(session.ClassInbox, &session.ApprovalDecided{ID: "a1", Outcome: session.AllowedOnce, By: ada()})
	g := r.decision(0, session.Allow)
	g.Mode, g.Grant, g.By = session.WorkspaceWrite, "a1", session.StageApproval
	r.turn(g)
	r.turn(r.result(0))
	r.close()
}

// treeVoid holds what a worker with valid credentials can write and what changes
// nothing: zero bytes, a policy event, a stale epoch, a result that nothing
// allows, a repeated record, and a record planted before the genesis.
func treeVoid(d *deployment) {
	r := d.root(toMode(session.ReadOnly))
	child := session.ChildID(r.header.ID, "1.1.0")
	d.seq++
	d.raws = append(d.raws, session.Raw{StreamSeq: d.seq, Address: session.Address{Session: child, Class: session.ClassTurn}})
	r.open(spawn(""), want{"write", "{}"})
	r.orphan(session.ClassTurn, r.result(1)) // never decided
	c := r.delegate(0, birth{policy: []session.Payload{mode(session.ReadOnly), pin()}})
	c.open()
	c.close()
	r.smuggle(toMode(session.DangerFullAccess))
	r.epoch--
	r.orphan(session.ClassTurn, r.decision(1, session.Allow))
	r.epoch++
	r.orphan(session.ClassTurn, r.result(1)).Body = nil
	twice := *r.turn(r.decision(1, session.Allow))
	d.seq++
	twice.StreamSeq = d.seq
	d.raws = append(d.raws, twice)
	r.turn(r.result(1))
	r.close()
}

func TestCleanTrees(t *testing.T) {
	t.Parallel()
	for name, build := range cleanTrees {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantClean(t, runOn(t, deploy(t, build), verify.Options{}))
		})
	}
}

func TestVoidRecordsAreNotesAndCounted(t *testing.T) {
	t.Parallel()
	r := runOn(t, deploy(t, treeVoid), verify.Options{})
	wantClean(t, r)
	if r.Void != 5 || len(r.Notes) != 5 {
		t.Errorf("got %d void records and %d notes, want 5 and 5: %v", r.Void, len(r.Notes), r.Notes)
	}
}

func TestReportIsDeterministicAndStreamsProgress(t *testing.T) {
	t.Parallel()
	d := deploy(t, treeGrandchild)
	var steps []verify.Progress
	first := runOn(t, d, verify.Options{Progress: func(p verify.Progress) { steps = append(steps, p) }})
	if diff := cmp.Diff(first, runOn(t, d, verify.Options{})); diff != "" {
		t.Errorf("two runs differ: %s", diff)
	}
	if len(steps) != 3 || steps[2].Sessions != 3 || steps[2].Records != len(d.raws) {
		t.Errorf("got progress %+v, want three steps that end with %d records", steps, len(d.raws))
	}
	if first.Sessions != 3 || first.Records != len(d.raws) {
		t.Errorf("got %d sessions and %d records, want 3 and %d", first.Sessions, first.Records, len(d.raws))
	}
}

func TestWithoutAMirrorI9IsNotChecked(t *testing.T) {
	t.Parallel()
	r, err := verify.Run(t.Context(), deploy(t, treeOfOne), verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"I9: no mirror was given"}, r.NotChecked); diff != "" {
		t.Errorf("not checked: %s", diff)
	}
	if diff := cmp.Diff([]string{"I1", "I2", "I3", "I4", "I5", "I6", "I7", "I11", "I12"}, r.Checked); diff != "" {
		t.Errorf("checked: %s", diff)
	}
	b, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(b), `"findings":[],"notes":[]`) {
		t.Errorf("report as JSON: %s, %v", b, err)
	}
}
