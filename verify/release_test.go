package verify_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/verify"
)

// stopped returns a root that two records of a person's stop: a second history
// and what was written after it.
func stopped(d *deployment) (*log, []uint64) {
	r := d.root(toMode(session.WorkspaceWrite))
	r.orphan(session.ClassPolicy, toMode(session.ReadOnly))
	first := r.link
	r.write(session.ClassPolicy, toMode(session.DangerFullAccess)) // stops it: its place is taken
	r.next, r.link = r.next-1, first
	r.links, r.knobs = r.links[:len(r.links)-1], r.knobs[:len(r.knobs)-1]
	// The log is what was written first.
	own, err := session.Compose(r.header.ID, session.ClassPolicy, r.next, r.link, drafts([]session.Payload{toMode(session.ReadOnly)})...)
	d.check(err)
	r.take(own)
	return r, []uint64{d.seq}
}

func TestReleasedSessionGoesOnReadOnly(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	r, skip := stopped(d)
	r.write(session.ClassPolicy, &session.Release{Skip: skip, Seq: r.next, Link: r.link, Reason: "two switches", By: ada()})
	at := r.next - 1
	r.basis.Sandbox = session.Ground{Value: string(session.ReadOnly), Seq: &at} // SPEC 1.7
	r.open(want{"write", "{}"}, spawn(""))
	r.run(0)
	r.delegate(1, birth{policy: []session.Payload{mode(session.ReadOnly), pin()}})
	got := runOn(t, d, verify.Options{})
	wantClean(t, got)
	if len(got.Notes) != 1 || got.Notes[0].Invariant != "released" || !strings.Contains(got.Notes[0].Text, "two switches") {
		t.Errorf("got notes %v, want the release and its reason", got.Notes)
	}
}

func TestReleaseOfSomethingElseReleasesNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*session.Release){
		"another record": func(p *session.Release) { p.Skip[0]++ },
		"another link":   func(p *session.Release) { p.Link[0]++ },
		"another seq":    func(p *session.Release) { p.Seq++ },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeployment(t)
			r, skip := stopped(d)
			p := &session.Release{Skip: skip, Seq: r.next, Link: r.link, Reason: "x", By: ada()}
			change(p)
			where := where{"1.4", r, r.next}
			r.write(session.ClassPolicy, p)
			wantFinding(t, runOn(t, d, verify.Options{Mirror: rows{}}), verify.Log, where)
		})
	}
}

func TestOthersGoOnWhenOneIsStopped(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	r := d.root()
	r.open(spawn(""))
	c := r.delegate(0, birth{policy: []session.Payload{pin()}})
	at := c.next
	c.write(session.ClassPolicy, toMode(session.ReadOnly)).Body = []byte("{}\n")
	r.turn(r.result(0))
	got, err := verify.Run(t.Context(), d, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Findings) != 1 || got.Findings[0].Session != c.header.ID || got.Findings[0].Seq != at {
		t.Errorf("got %v, want one finding at seq %d of the child", got.Findings, at)
	}
}

func TestImportedHistoryIsSaidNotToBeRead(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	id, err := session.RootID(ulid, 1)
	d.check(err)
	h := header(id, "", session.OriginImport)
	h.FirstLiveSeq = 1
	seed, err := session.Compose(id, session.ClassSeed, 0, session.Link{7}, drafts([]session.Payload{toMode(session.ReadOnly)})...)
	d.check(err)
	d.put(session.Record{Address: session.Address{Session: id, Class: session.ClassSeed}, Format: 1, Own: &seed})
	d.born(h, seed.After, nil, &session.EndSeed{}, model())
	got, err := verify.Run(t.Context(), d, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantClean(t, got)
	want := []string{"I9: no mirror was given", "I11: the imported history of " + string(id) + " is not read"}
	if diff := cmp.Diff(want, got.NotChecked); diff != "" {
		t.Errorf("not checked: %s", diff)
	}
}
