package archtest_test

import (
	"slices"
	"strings"
	"testing"
)

func TestImportsPointInwards(t *testing.T) {
	t.Parallel()
	for _, f := range parseTree(t) {
		name, ok := ruleName(f.dir)
		if !ok {
			t.Errorf("%s: package %s is not in the table of rules_test.go", f.name, f.dir)
			continue
		}
		if f.test {
			continue
		}
		for _, imp := range f.imports() {
			if why := refuse(name, f.dir, imp); why != "" {
				t.Errorf("%s imports %s: %s", f.name, imp, why)
			}
		}
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, rule, dir, imp string
		want                 bool // refused
	}{
		{"standard library", "session", "session", "encoding/json", false},
		{"internal is open to all", "session", "session", module + "/internal/invariant", false},
		{"session imports no project package", "session", "session", module + "/policy", true},
		{"session imports no library", "session", "session", ulid, true},
		{"policy imports session", "policy", "policy", module + "/session", false},
		{"a longer name is another package", "policy", "policy", module + "/sessionstore", true},
		{"stream speaks JetStream", "stream", "stream", natsGo + "/jetstream", false},
		{"coordinator does not", "coordinator", "coordinator", natsGo + "/jetstream", true},
		{"coordinator speaks micro", "coordinator", "coordinator", natsGo + "/micro", false},
		{"a command speaks NATS", "cmd", "cmd/worker", natsGo, false},
		{"a command does not speak JetStream", "cmd", "cmd/worker", natsGo + "/jetstream", true},
		{"a command does not open Pebble", "cmd", "cmd/entail", "github.com/cockroachdb/pebble/v2", true},
		{"a command has libraries of its own", "cmd", "cmd/entail", "github.com/spf13/cobra", false},
		{"telemetry speaks the OTel SDK", "telemetry", "telemetry", otelAPI + "/sdk/trace", false},
		{"a command does not import the SDK", "cmd", "cmd/entail", otelAPI + "/sdk/trace", true},
		{"a suite imports its package", "session", "session/sessiontest", module + "/session", false},
		{"internal imports no project package", "internal", "internal/invariant", module + "/session", true},
		{"a command imports the wiring", "cmd", "cmd/entail", module + "/internal/node", false},
		{"which nothing else does", "coordinator", "coordinator", module + "/internal/node", true},
		{"but a broker for tests does", "internal/natstest", "internal/natstest", module + "/broker", false},
		{"which no other code imports", "stream", "stream", module + "/internal/natstest", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if why := refuse(tt.rule, tt.dir, tt.imp); (why != "") != tt.want {
				t.Errorf("refuse(%s, %s, %s) = %q, want a refusal: %t", tt.rule, tt.dir, tt.imp, why, tt.want)
			}
		})
	}
}

func TestRuleName(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"session":               "session",
		"session/sessiontest":   "session",
		"agent/model":           "agent/model",
		"agent/model/modeltest": "agent/model",
		"cmd/entail":            "cmd",
		"internal/archtest":     "internal",
		"internal/natstest":     "internal/natstest",
		"session/agenttest":     "",
		"workflow":              "",
		".":                     "",
	}
	for dir, want := range tests {
		if got, ok := ruleName(dir); got != want || ok != (want != "") {
			t.Errorf("ruleName(%q) = %q, %t, want %q", dir, got, ok, want)
		}
	}
}

// refuse says why a non-test file of the package in dir, which the rule of the
// given name holds for, may not import imp. It is empty when it may.
func refuse(name, dir, imp string) string {
	r := rules[name]
	allowed, owned := ownersOf(imp)
	if owned && !slices.Contains(allowed, name) {
		return "only " + strings.Join(allowed, ", ") + " may"
	}
	if pkg, ok := strings.CutPrefix(imp, module+"/"); ok {
		suite := dir != name && pkg == name
		if strings.HasSuffix(pkg, "test") && !strings.HasSuffix(dir, "test") {
			return "support for tests is imported by tests"
		}
		if r.all || suite || under(pkg, "internal") || slices.Contains(r.project, pkg) {
			return ""
		}
		return "imports point inwards; see rules[\"" + name + "\"]"
	}
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return "" // standard library
	}
	suite := dir != name && under(imp, "github.com/google/go-cmp")
	if r.all || suite || slices.ContainsFunc(r.thirdParty, func(p string) bool { return under(imp, p) }) {
		return ""
	}
	return "not among the libraries of " + name
}

// ownersOf gives the packages that may import imp, by the longest entry of the
// owners table that covers it.
func ownersOf(imp string) (allowed []string, owned bool) {
	longest := ""
	for prefix := range owners {
		if under(imp, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	return owners[longest], longest != ""
}
