//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// What the report says of a workspace is what calls there say of themselves, tier by
// tier, for one that belongs to its tree and for one that does not.
func TestReportSaysWhatCallsGet(t *testing.T) {
	t.Parallel()
	for _, best := range here(t).tiers() {
		r := runner(t, best)
		rep := r.Report()
		if rep.Unfit != "" || rep.Own.Tier.Weaker(rep.Other.Tier) {
			t.Errorf("%s: the report says %+v", best, rep)
		}
		g := newGrove(t)
		own, other := g.dir("own"), g.dir("other")
		write(t, filepath.Join(other, "mine"), "")
		for root, fence := range map[string]sandbox.Fence{own: rep.Own, other: rep.Other} {
			before := owner(t, root)
			site, err := r.Survey(root, oak, policy.DefaultConfinement())
			if err != nil || site.Refused != "" || owner(t, root) != before {
				t.Fatalf("%s: survey: %+v, %v", best, site, err)
			}
			if diff := gocmp.Diff(fence, site.Fence); diff != "" {
				t.Errorf("%s: report and survey differ (-report +survey):\n%s", best, diff)
			}
			ws := g.open(r, root, oak)
			if belongs := owner(t, root) == userOf(oak); belongs != site.Belongs || belongs != site.Given {
				t.Errorf("%s: the survey says %+v, it belongs to %d", best, site, owner(t, root))
			}
			var got []session.Confinement
			for _, m := range []session.SandboxMode{session.ReadOnly, session.WorkspaceWrite} {
				got = append(got, perform(t, ws, m, shell("true")).Sandbox)
			}
			if diff := gocmp.Diff(fence.Modes, got); diff != "" {
				t.Errorf("%s: a call says otherwise (-report +call):\n%s", best, diff)
			}
		}
	}
}

// Every tier that the host has is reported as had, and every other one with a reason
// and advice, or as not tried.
func TestReportOfTiers(t *testing.T) {
	t.Parallel()
	tiers := here(t).tiers()
	for _, rep := range runner(t, session.TierNamespaces).Report().Tiers {
		had := slices.Contains(tiers, rep.Tier)
		if rep.Had != had || had != (len(rep.Modes) == 2) || had != (rep.Why == "") || had != (len(rep.Advice) == 0) {
			t.Errorf("the host has %v; got %+v", tiers, rep)
		}
	}
	rep := runner(t, session.TierLandlock).Report()
	for _, tier := range rep.Tiers[:2] {
		if tier.Had || !strings.Contains(tier.Why, "not tried") || len(tier.Advice) > 0 {
			t.Errorf("not tried: got %+v", tier)
		}
	}
}

// A host without Landlock confines nothing, and the report says what it takes.
func TestReportWithoutLandlock(t *testing.T) {
	t.Parallel()
	r, _ := sandbox.New(sandbox.Config{}.WithMaxABI(-1))
	rep := r.Report()
	if rep.Unfit == "" || rep.Own.Tier != "" || rep.Other.Tier != "" || rep.Landlock != 0 {
		t.Errorf("got %+v", rep)
	}
	for _, tier := range rep.Tiers {
		if tier.Had || tier.Why == "" {
			t.Errorf("got %+v", tier)
		}
	}
	if a := rep.Tiers[2].Advice; len(a) == 0 || !strings.Contains(a[0].Text, "Linux 6.2 or newer") || !strings.Contains(a[0].Text, "lsm=") {
		t.Errorf("the advice is %+v", a)
	}
	site, err := r.Survey(t.TempDir(), oak, policy.DefaultConfinement())
	if err != nil || site.Refused == "" || site.Tier != "" {
		t.Errorf("survey: %+v, %v", site, err)
	}
}

// What danger-full-access reaches is found by trying: as the worker it is everything,
// which shows that the same attempts as a tree's user fail for that user's sake.
func TestReportTriesFullAccess(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	file, dir := filepath.Join(base, "it's a key"), filepath.Join(base, "data")
	write(t, file, "the key")
	mkdir(t, dir)
	r, err := sandbox.New(sandbox.Config{Hidden: []string{file, filepath.Join(base, "none"), dir}})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{file, dir}
	want := []sandbox.FullAccess{{As: policy.AsWorker, User: os.Geteuid(), Environ: true, Signal: true, Hidden: all}}
	if os.Geteuid() == 0 {
		want = append([]sandbox.FullAccess{{As: policy.AsTree}}, want...)
	}
	got := r.Report().FullAccess
	if len(got) == 2 {
		if uids := policy.DefaultConfinement().UIDs; got[0].User < int(uids.First) {
			t.Errorf("the tree's user is %d, want one of %+v", got[0].User, uids)
		}
		got[0].User = 0
		if !here(t).namespaces {
			// A child of another test that becomes another user makes this process one
			// that cannot be traced without CAP_SYS_PTRACE.
			got[1].Environ = true
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Both sources of the launcher are told apart.
func TestReportNamesTheSourceOfTheLauncher(t *testing.T) {
	t.Parallel()
	if got := runner(t, session.TierLandlock).Report().Launcher; got != sandbox.SealedMemory {
		t.Errorf("got %q", got)
	}
	cfg, f, err := sandbox.Config{}.WithNamelessLauncher()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := sandbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Report().Launcher; got != sandbox.NamelessFile {
		t.Errorf("got %q", got)
	}
}

// A survey says why a directory is out of reach of its tree, or of any call.
func TestSurvey(t *testing.T) {
	t.Parallel()
	if !ofRoot(t) {
		return
	}
	g := newGrove(t)
	r := runner(t, session.TierUID)
	closed := g.dir("closed")
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	foreign := g.dir("foreign")
	if err := os.Chown(foreign, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	theirs := g.dir("theirs")
	g.open(r, theirs, pine)
	terms := policy.DefaultConfinement()
	terms.Require = session.TierUID
	for _, tt := range []struct {
		dir, refused    string
		reachable, mine bool
	}{
		{g.dir("closed/in"), "confinement.require", false, false},
		{foreign, "confinement.require", true, false},
		{theirs, "confinement.require", true, false},
		{g.dir("fresh"), "", true, true},
	} {
		site, err := r.Survey(tt.dir, oak, terms)
		if err != nil || site.Reachable != tt.reachable || site.Belongs != tt.mine || !strings.Contains(site.Refused, tt.refused) || (site.Refused == "") != (tt.refused == "") {
			t.Errorf("%s: got %+v, %v", tt.dir, site, err)
		}
	}
	data := g.dir("data")
	hiding, err := sandbox.New(sandbox.Config{Hidden: []string{data}})
	if err != nil {
		t.Fatal(err)
	}
	if site, err := hiding.Survey(g.dir("data/in"), oak, terms); err != nil || !strings.Contains(site.Refused, "hidden") {
		t.Errorf("inside what is hidden: got %+v, %v", site, err)
	}
}
