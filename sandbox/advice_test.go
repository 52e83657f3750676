package sandbox

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
)

// What is advised follows from what stands in the way.
func TestAdvise(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tier  session.Tier
		facts facts
		want  []string
	}{
		{session.TierNamespaces, facts{root: true}, []string{"cap-sys-admin"}},
		{session.TierNamespaces, facts{}, []string{"seccomp-userns", "run-as-root"}},
		{session.TierNamespaces, facts{noUserNamespaces: true}, []string{"max-user-namespaces", "run-as-root"}},
		{session.TierNamespaces, facts{onlyRootMakes: true, appArmor: true}, []string{"unprivileged-userns-clone", "apparmor-userns", "run-as-root"}},
		{session.TierUID, facts{}, []string{"run-as-root"}},
		{session.TierUID, facts{root: true}, []string{"cap-setuid", "uids-mapped"}},
		{session.TierLandlock, facts{abi: 2}, []string{"landlock-kernel", "landlock-profile"}},
	} {
		var got []string
		for _, a := range advise(tt.tier, tt.facts) {
			got = append(got, a.Code)
			if a.Text == "" || strings.Contains(a.Text, "%") {
				t.Errorf("%s says %q", a.Code, a.Text)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("advise(%s, %+v) = %v, want %v", tt.tier, tt.facts, got, tt.want)
		}
	}
}

// Each advice has its source in the documentation.
func TestAdviceHasSources(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	all := []Advice{
		adviceSysAdmin, adviceRoot, adviceSwitch, adviceMapped, adviceMaxUserNamespaces, adviceCloneSetting, adviceAppArmor,
		adviceUserNamespaces, adviceKernel, adviceProfile, adviceScopes, adviceLoopback,
	}
	for _, a := range all {
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "| `"+a.Code+"` |") && strings.Contains(line, "](https://")
		}) {
			t.Errorf("docs/deploy.md has no source for %s", a.Code)
		}
	}
}
