package policy_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/session"
)

// stored is the JSON of the default settings, to take from and to change.
func stored(t *testing.T) (all, confinement map[string]any) {
	t.Helper()
	b, err := policy.DefaultSettings().Encode()
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	confinement, ok := all["confinement"].(map[string]any)
	if !ok {
		t.Fatalf("%s has no confinement section", b)
	}
	return all, confinement
}

func parsed(t *testing.T, all map[string]any) (policy.Settings, error) {
	t.Helper()
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return policy.ParseSettings(b)
}

// TestSettingsOfOlderDeployments: what an older deployment has stored says nothing
// of confinement, or not all of it, and never comes to a zero.
func TestSettingsOfOlderDeployments(t *testing.T) {
	t.Parallel()
	all, _ := stored(t)
	delete(all, "confinement")
	got, err := parsed(t, all)
	if err != nil {
		t.Fatalf("settings without the section: %v", err)
	}
	same(t, "settings without the section", got, policy.DefaultSettings())
	all["confinement"] = map[string]any{}
	if got, err = parsed(t, all); err != nil {
		t.Fatalf("settings with an empty section: %v", err)
	}
	same(t, "settings with an empty section", got, policy.DefaultSettings())

	_, section := stored(t)
	members := 0
	for name, v := range section {
		all, without := stored(t)
		delete(without, name)
		if got, err = parsed(t, all); err != nil {
			t.Fatalf("settings without %s: %v", name, err)
		}
		same(t, "settings without "+name, got, policy.DefaultSettings())
		members++
		below, ok := v.(map[string]any)
		if !ok {
			continue
		}
		for deep := range below {
			all, without := stored(t)
			less := maps.Clone(below)
			delete(less, deep)
			without[name] = less
			if got, err = parsed(t, all); err != nil {
				t.Fatalf("settings without %s.%s: %v", name, deep, err)
			}
			same(t, "settings without "+name+"."+deep, got, policy.DefaultSettings())
			members++
		}
	}
	if members != 15 {
		t.Errorf("%d members were left out, want 15", members)
	}
	// What is stored is what holds, beside a default.
	all["confinement"] = map[string]any{"require": "uid", "network": map[string]any{"workspace-write": "loopback"}}
	if got, err = parsed(t, all); err != nil {
		t.Fatalf("settings with two members: %v", err)
	}
	want := policy.DefaultSettings()
	want.Confinement.Require, want.Confinement.Network.WorkspaceWrite = session.TierUID, session.NetworkLoopback
	same(t, "settings with two members", got, want)
}

// refusedSections are values that members of the section do not take.
func refusedSections() map[string][]any {
	return map[string][]any{
		"require":                 {"none", "", "Landlock", "vm", nil, 1, []any{}},
		"network.read-only":       {"", "all", "Deny", nil, true},
		"network.workspace-write": {"", "127.0.0.1", nil},
		"network.danger":          {"allow"},
		"network":                 {nil, "deny", []any{}},
		"uids": {
			nil, 1_900_000_000, users(65534, 1), users(1000, 64535), users(60000, 10000), users(4_294_967_295, 1), users(4_294_967_294, 2),
		},
		"uids.first":       {0, 1, 999, 65534, 4_294_967_295, 4_200_000_000, -1, 1.5, 4_294_967_296, "1900000000", nil},
		"uids.count":       {0, -1, 2_394_967_296, 4_294_967_295, 4_294_967_296, nil},
		"uids.last":        {2_000_000_000},
		"fullAccessAs":     {"", "root", "Tree", nil, 0},
		"limits.time":      {"0s", "-1s", "", "soon", 120, nil},
		"limits.cpu":       {"-1s", "999ms", "1ns", 60, nil},
		"limits.fileSize":  {-1, 1, 1<<20 - 1, 1.5, "1GiB", nil},
		"limits.openFiles": {-1, 1, 63, nil},
		"limits.output":    {-1, 1, 64<<10 - 1, nil},
		"limits.processes": {-1, 1, 15, nil},
		"limits.memory":    {1 << 30},
		"limits":           {nil, 0},
		"colour":           {"red"},
	}
}

func users(first, count uint32) map[string]any { return map[string]any{"first": first, "count": count} }

func setMember(section map[string]any, path string, v any) {
	name, deep, below := strings.Cut(path, ".")
	if !below {
		section[name] = v
		return
	}
	setMember(section[name].(map[string]any), deep, v) //nolint:forcetypeassert // the tables' own paths
}

func TestConfinementRefuses(t *testing.T) {
	t.Parallel()
	for path, values := range refusedSections() {
		for _, v := range values {
			all, section := stored(t)
			setMember(section, path, v)
			if _, err := parsed(t, all); err == nil {
				t.Errorf("confinement.%s = %v is taken", path, v)
			}
		}
	}
	all, _ := stored(t)
	for _, v := range []any{nil, "none", []any{}, 1} {
		all["confinement"] = v
		if _, err := parsed(t, all); err == nil {
			t.Errorf("confinement = %v is taken", v)
		}
	}
}

// TestConfinementTakes is the other side of TestConfinementRefuses: the edges.
func TestConfinementTakes(t *testing.T) {
	t.Parallel()
	for path, values := range map[string][]any{
		"require":                 {"namespaces", "uid", "landlock"},
		"network.read-only":       {"deny", "loopback", "allow"},
		"network.workspace-write": {"deny", "loopback", "allow"},
		"uids":                    {users(1000, 1), users(1000, 64534), users(65535, 1), users(65535, 4_294_901_760), users(4_294_967_294, 1)},
		"fullAccessAs":            {"tree", "worker"},
		"limits.time":             {"1ns", "24h"},
		"limits.cpu":              {"0s", "1s"},
		"limits.fileSize":         {0, 1 << 20, 1 << 40},
		"limits.openFiles":        {0, 64},
		"limits.output":           {0, 64 << 10},
		"limits.processes":        {0, 16},
	} {
		for _, v := range values {
			all, section := stored(t)
			setMember(section, path, v)
			if _, err := parsed(t, all); err != nil {
				t.Errorf("confinement.%s = %v: %v", path, v, err)
			}
		}
	}
}

// TestUIDsOfTrees computes the rule by hand: first plus the number that the first
// 16 hex digits of the id's SHA-256 are, modulo count.
func TestUIDsOfTrees(t *testing.T) {
	t.Parallel()
	for _, r := range []policy.UIDRange{{First: 1_900_000_000, Count: 200_000_000}, {First: 1000, Count: 1}, {First: 65535, Count: 4_294_901_760}, {First: 5000, Count: 7}} {
		seen := map[uint32]bool{}
		for i := range 200 {
			root := session.ID(fmt.Sprintf("00%026d", i))
			sum := sha256.Sum256([]byte(root))
			n, ok := new(big.Int).SetString(hex.EncodeToString(sum[:])[:16], 16)
			if !ok {
				t.Fatal("unreachable: no hex digits")
			}
			n.Mod(n, big.NewInt(int64(r.Count))).Add(n, big.NewInt(int64(r.First)))
			child := session.ChildID(root, "1.1.0")
			grandchild := session.ChildID(child, "2.3.1")
			for _, id := range []session.ID{root, child, grandchild} {
				if got := r.Of(id); big.NewInt(int64(got)).Cmp(n) != 0 {
					t.Errorf("user of %s in %+v is %d, want %v", id, r, got, n)
				}
			}
			seen[r.Of(root)] = true
		}
		if least := min(int(r.Count), 190); len(seen) < least {
			t.Errorf("200 trees have %d users of %+v, want at least %d", len(seen), r, least)
		}
	}
	// sha256sum says fc2a25c51be29f51 of this id, which is 86309201 modulo 200000000.
	const root, want = session.ID("0001m8pgrjs8m9g9qeynnyk2zje7"), 1_986_309_201
	if got := policy.DefaultConfinement().UIDs.Of(root); got != want {
		t.Errorf("user of %s is %d, want %d", root, got, want)
	}
}

// TestDecisionsNameTheNetwork: the deployment's for the mode that the call has, on
// the decision and on the permit, and the terms beside it.
func TestDecisionsNameTheNetwork(t *testing.T) {
	t.Parallel()
	mode := map[session.SandboxMode]session.Network{"read-only": "loopback", "workspace-write": "deny", "danger-full-access": "allow"}
	d := deploy(t, func(s *policy.Settings) {
		s.Confinement.Network = policy.Networks{ReadOnly: "loopback", WorkspaceWrite: "deny"}
		s.Confinement.Limits.Processes = 99
	})
	for m, want := range mode {
		s := newRoot(t, sandbox(m)).State
		dec, err := policy.Decide(s, d, policy.Call{ID: "1.1.0", Tool: "bash", Effect: true}, tools)
		if err != nil {
			t.Fatal(err)
		}
		p, ok := dec.(policy.Permit)
		if !ok || p.Network() != want || p.Record().Network != want || p.Terms() != d.Confinement {
			t.Errorf("under %s: %+v, want network %s and the deployment's terms", m, dec, want)
		}
	}
	if got := d.Confinement.Network.Of("yolo"); got != session.NetworkDeny {
		t.Errorf("what is no mode reaches %s", got)
	}
	// No effect of a delegation reaches a network.
	dec, err := policy.Decide(newRoot(t).State, d, policy.Call{ID: "1.1.0", Tool: "delegate", Effect: true, Wish: &policy.Wish{}}, tools)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := dec.(policy.Permit); !ok || p.Record().Network != "" {
		t.Errorf("a delegation is decided %+v", dec)
	}
}
