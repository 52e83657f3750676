package session_test

import (
	"strings"
	"testing"

	"github.com/entail-fleet/entail/session"
)

func TestNetworksAreOrdered(t *testing.T) {
	t.Parallel()
	networks := []session.Network{"deny", "loopback", "allow"}
	for i, a := range networks {
		for k, b := range networks {
			if got := a.Wider(b); got != (i > k) {
				t.Errorf("%s wider than %s: %t", a, b, got)
			}
		}
		for _, foreign := range []session.Network{"", "all", "Deny"} {
			if foreign.Valid() || foreign.Wider(a) || a.Wider(foreign) {
				t.Errorf("%q is compared with %s", foreign, a)
			}
		}
	}
}

func TestTiersAreOrdered(t *testing.T) {
	t.Parallel()
	tiers := []session.Tier{"none", "landlock", "uid", "namespaces"}
	for i, a := range tiers {
		for k, b := range tiers {
			if got := a.Weaker(b); got != (i < k) {
				t.Errorf("%s weaker than %s: %t", a, b, got)
			}
		}
		for _, foreign := range []session.Tier{"", "vm", "UID"} {
			if foreign.Valid() || !foreign.Weaker(a) || a.Weaker(foreign) {
				t.Errorf("%q is compared with %s", foreign, a)
			}
		}
	}
}

// What a call was held by and how it ended are closed vocabularies, but for the
// names of gaps and signals (SPEC 1.5).
func TestEffectsAreChecked(t *testing.T) {
	t.Parallel()
	const good = `{"type":"tool/result","seq":3,"time":9,"data":{"turn":1,"step":1,"callId":"1.1.0","content":"","effect":{"exitCode":137,` +
		`"signal":"SIGKILL","limit":"time","denial":"none","sandbox":{"mode":"read-only","network":"deny","tier":"uid","enforcement":"full","gaps":["a-gap"]}},` +
		`"startSeq":3,"startTime":1,"worker":"w","incarnation":"i","attempt":1}}`
	if _, err := session.DecodeEvent([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ old, new, says string }{
		"a foreign mode":         {`"mode":"read-only"`, `"mode":"yolo"`, "sandbox mode"},
		"no mode":                {`"mode":"read-only"`, `"mode":""`, "sandbox mode"},
		"a foreign network":      {`"deny"`, `"some"`, "sandbox network"},
		"no network":             {`"deny"`, `""`, "sandbox network"},
		"a foreign tier":         {`"uid"`, `"vm"`, "sandbox tier"},
		"no tier":                {`"uid"`, `""`, "sandbox tier"},
		"a foreign enforcement":  {`"full"`, `"complete"`, "sandbox enforcement"},
		"no enforcement":         {`"full"`, `""`, "sandbox enforcement"},
		"a foreign denial":       {`"denial":"none"`, `"denial":"maybe"`, "denial"},
		"no denial":              {`"denial":"none"`, `"denial":""`, "denial"},
		"a foreign limit":        {`"limit":"time"`, `"limit":"memory"`, "limit"},
		"a limit written empty":  {`"limit":"time"`, `"limit":""`, ""},
		"a gap without a name":   {`"a-gap"`, `""`, "gap"},
		"a gap that is no name":  {`"a-gap"`, `"a` + "\u0085" + `gap"`, "gap"},
		"a long gap":             {`"a-gap"`, `"` + strings.Repeat("x", 257) + `"`, "gap"},
		"gaps written empty":     {`"gaps":["a-gap"]`, `"gaps":[]`, ""},
		"a signal on two lines":  {`"SIGKILL"`, `"SIG\nKILL"`, "signal"},
		"an effect written null": {`"effect":{`, `"effect":null,"x":{`, ""},
		"a fact nobody knows of": {`"exitCode":137`, `"exitCode":137,"memory":1`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := strings.Replace(good, tt.old, tt.new, 1)
			if line == good {
				t.Fatal("the case changes nothing")
			}
			if _, err := session.DecodeEvent([]byte(line)); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v, want an error that says %q", line, err, tt.says)
			}
		})
	}
}

// A network stands in the decision of a call that is let at one: allowed, and no
// delegation.
func TestNetworksOfDecisionsAreChecked(t *testing.T) {
	t.Parallel()
	link := session.Link{3}
	basis := session.Basis{Sandbox: session.Ground{Value: "read-only"}, Approval: session.Ground{Value: "ask"}}
	decision := func(v session.Verdict, n session.Network) *session.ToolDecision {
		return &session.ToolDecision{CallID: "1.1.0", Verdict: v, Mode: session.ReadOnly, Network: n, Basis: basis, By: session.StagePolicy}
	}
	child := decision(session.Allow, session.NetworkDeny)
	child.Child, child.ChildLink = childID, &link
	for name, tt := range map[string]struct {
		decision *session.ToolDecision
		ok       bool
	}{
		"none, as before there was one": {decision(session.Allow, ""), true},
		"deny":                          {decision(session.Allow, "deny"), true},
		"loopback":                      {decision(session.Allow, "loopback"), true},
		"allow":                         {decision(session.Allow, "allow"), true},
		"a foreign one":                 {decision(session.Allow, "some"), false},
		"of a denied call":              {decision(session.Deny, "deny"), false},
		"of a question":                 {decision(session.AskPerson, "allow"), false},
		"of a delegation":               {child, false},
	} {
		if _, err := session.Encode(3, 9, tt.decision); (err == nil) != tt.ok {
			t.Errorf("%s: %v, want ok %t", name, err, tt.ok)
		}
	}
}
