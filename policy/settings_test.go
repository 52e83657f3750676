package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/policy"
	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/session"
)

// TestDefaultSettings holds what a deployment starts with to SPEC 2, 2.2 and 4.6.
func TestDefaultSettings(t *testing.T) {
	t.Parallel()
	same(t, "settings", policy.DefaultSettings(), policy.Settings{
		Version:  1,
		Defaults: session.Defaults{Sandbox: "read-only", Approval: "ask"},
		Presets: []policy.Bundle{
			{Name: "read-only", Sandbox: "read-only", Approval: "ask"},
			{Name: "workspace-write", Sandbox: "workspace-write", Approval: "ask"},
			{Name: "auto", Sandbox: "danger-full-access", Approval: "never"},
			{Name: "danger-full-access", Sandbox: "danger-full-access", Approval: "never"},
		},
		Composition: policy.Composition{Sandbox: true, Approvals: true, Presets: true},
		Caps:        policy.Caps{Depth: 3, Live: 8, Tree: 256, Inbox: 256},
		Reviewer:    "none",
		Confinement: policy.Confinement{
			Require: "landlock", Network: policy.Networks{ReadOnly: "deny", WorkspaceWrite: "allow"},
			UIDs: policy.UIDRange{First: 1_900_000_000, Count: 200_000_000}, FullAccessAs: "tree",
			Limits: policy.Limits{
				Time: policy.Duration(2 * time.Minute), CPU: policy.Duration(10 * time.Minute),
				FileSize: 1 << 30, OpenFiles: 1024, Output: 256 << 20, Processes: 512,
			},
		},
		Approvals: policy.Approvals{ExpireAfter: policy.Duration(24 * time.Hour)},
		Lease:     policy.Duration(30 * time.Second),
	})
}

// Settings that were stored before questions had a time give them a day.
func TestOlderSettingsGiveADayToAnswer(t *testing.T) {
	t.Parallel()
	b, err := policy.DefaultSettings().Encode()
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(b), `"approvals":{"expireAfter":"24h0m0s"},`, "", 1)
	if old == string(b) {
		t.Fatal("the settings have no such section: the test is void")
	}
	s, err := policy.ParseSettings([]byte(old))
	if err != nil || time.Duration(s.Approvals.ExpireAfter) != 24*time.Hour {
		t.Errorf("got %+v, %v; want a day", s.Approvals, err)
	}
	for _, short := range []string{"0s", "-1h", "10ms"} {
		bad := strings.Replace(string(b), `"24h0m0s"`, `"`+short+`"`, 1)
		if _, err := policy.ParseSettings([]byte(bad)); err == nil || !strings.Contains(err.Error(), "expireAfter") {
			t.Errorf("%s to answer: %v", short, err)
		}
	}
}

func TestSettingsRoundTrip(t *testing.T) {
	t.Parallel()
	want := policy.DefaultSettings()
	policytest.Row("mine", session.WorkspaceWrite, session.Never, 1)(&want)
	want.Reviewer, want.Composition.Presets = policy.DelegateOnly, false
	b, err := want.Encode()
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	got, err := policy.ParseSettings(b)
	if err != nil {
		t.Fatalf("ParseSettings: %v", err)
	}
	same(t, "settings", got, want)

	one, err := policy.NewDeployment(b, 7)
	if err != nil {
		t.Fatalf("NewDeployment: %v", err)
	}
	two := deploy(t)
	if one.Revision != 7 || one.Hash == "" || one.Hash == two.Hash {
		t.Errorf("deployment has revision %d and hash %q beside %q", one.Revision, one.Hash, two.Hash)
	}
}

// TestParseSettingsRefuses changes one thing in good settings.
func TestParseSettingsRefuses(t *testing.T) {
	t.Parallel()
	b, err := policy.DefaultSettings().Encode()
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	good := string(b)
	const auto = `{"name":"auto","sandbox":"danger-full-access","approval":"never"}`
	for name, tt := range map[string]struct{ old, new, says string }{
		"an unknown field":            {`{"version":1`, `{"version":1,"colour":"red"`, "colour"},
		"an unknown field deep down":  {`"depth":3`, `"depth":3,"width":3`, "width"},
		"another version":             {`"version":1`, `"version":2`, "version 2"},
		"no version":                  {`"version":1,`, ``, "version 0"},
		"a foreign default":           {`"defaults":{"sandbox":"read-only"`, `"defaults":{"sandbox":"rw"`, "rw"},
		"no default":                  {`"defaults":{"sandbox":"read-only"`, `"defaults":{"sandbox":""`, "default sandbox"},
		"a foreign default approval":  {`"approval":"ask"},"presets"`, `"approval":"yes"},"presets"`, "yes"},
		"a foreign reviewer":          {`"reviewer":"none"`, `"reviewer":"me"`, "me"},
		"no reviewer":                 {`"reviewer":"none",`, ``, "reviewer"},
		"a lease that is no duration": {`"30s"`, `"soon"`, "soon"},
		"a lease that is a number":    {`"30s"`, `30`, "lease"},
		"a lease too short":           {`"30s"`, `"499ms"`, "lease"},
		"a lease too long":            {`"30s"`, `"10m1s"`, "lease"},
		"a cap below zero":            {`"depth":3`, `"depth":-1`, "caps"},
		"a tree of none":              {`"tree":256`, `"tree":0`, "caps"},
		"an inbox of none":            {`"inbox":256`, `"inbox":0`, "caps"},
		"auto removed":                {auto + `,`, ``, "auto"},
		"auto narrowed":               {auto, `{"name":"auto","sandbox":"read-only","approval":"never"}`, "auto"},
		"auto asking":                 {auto, `{"name":"auto","sandbox":"danger-full-access","approval":"ask"}`, "auto"},
		"Full access redefined":       {`{"name":"danger-full-access","sandbox":"danger-full-access"`, `{"name":"danger-full-access","sandbox":"read-only"`, "danger-full-access"},
		"a name twice":                {auto, auto + `,` + auto, "twice"},
		"custom in the table":         {`"name":"workspace-write"`, `"name":"custom"`, "custom"},
		"a row without a name":        {`"name":"workspace-write"`, `"name":""`, "reserved"},
		"a row of a foreign mode":     {`"name":"workspace-write","sandbox":"workspace-write"`, `"name":"workspace-write","sandbox":"w"`, "w"},
		"a wrong type":                {`"version":1`, `"version":"1"`, "version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := strings.Replace(good, tt.old, tt.new, 1)
			if bad == good {
				t.Fatalf("%q is not in %s", tt.old, good)
			}
			if _, err := policy.ParseSettings([]byte(bad)); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("ParseSettings = %v, want an error that says %q", err, tt.says)
			}
		})
	}
	for name, bad := range map[string]string{
		"nothing": "", "null": "null", "a second value": good + good, "half a value": good[:len(good)-1],
		"a stray brace": good + "}", "a stray bracket": good + "]", "a stray word": good + " x", "a list": "[" + good + "]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := policy.ParseSettings([]byte(bad)); err == nil {
				t.Error("ParseSettings accepted it")
			}
		})
	}
	if _, err := policy.ParseSettings([]byte(good + "\n")); err != nil {
		t.Errorf("a final newline is refused: %v", err)
	}
}

// TestPresetTableMayGrow: rows other than the two that share a bundle may be
// added, changed and removed (SPEC 1.5).
func TestPresetTableMayGrow(t *testing.T) {
	t.Parallel()
	s := policy.DefaultSettings()
	s.Presets = append(s.Presets[2:], policy.Bundle{Name: "read-only", Sandbox: session.ReadOnly, Approval: session.Never})
	if err := s.Validate(); err != nil {
		t.Errorf("Validate: %v", err)
	}
	same(t, "names", s.PresetNames(), []session.Preset{"auto", "danger-full-access", "read-only"})
}
