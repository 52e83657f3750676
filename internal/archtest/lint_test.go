package archtest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// A depguardRule is one rule of depguard in .golangci.yml.
type depguardRule struct {
	Files []string
	Allow []string
	Deny  []struct{ Pkg string }
}

// TestLintHoldsTheSameTable compares depguard's rules with the tables here:
// the linter says it in the editor, these tests on a machine with Go alone.
func TestLintHoldsTheSameTable(t *testing.T) {
	t.Parallel()
	packages, libraries := map[string][]string{}, map[string][]string{}
	for name, r := range depguardRules(t) {
		if len(r.Deny) == 0 {
			packages[name] = sorted(r.Allow)
			continue
		}
		for _, d := range r.Deny {
			libraries[strings.TrimSuffix(d.Pkg, "$")] = sorted(exempt(r.Files))
		}
	}

	wantPackages := map[string][]string{}
	for name, r := range rules {
		if r.all {
			continue
		}
		allow := append([]string{"$gostd", module + "/internal/"}, r.thirdParty...)
		for _, pkg := range r.project {
			allow = append(allow, module+"/"+pkg+"$")
		}
		wantPackages[name] = sorted(allow)
	}
	wantLibraries := map[string][]string{}
	for prefix, names := range owners {
		wantLibraries[prefix] = sorted(names)
	}
	if diff := cmp.Diff(wantPackages, packages); diff != "" {
		t.Errorf("allow lists of .golangci.yml differ from rules (-rules +depguard):\n%s", diff)
	}
	if diff := cmp.Diff(wantLibraries, libraries); diff != "" {
		t.Errorf("deny rules of .golangci.yml differ from owners (-owners +depguard):\n%s", diff)
	}
}

// depguardRules reads the rules of depguard by name.
func depguardRules(t *testing.T) map[string]depguardRule {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]depguardRule }
			}
		}
	}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		t.Fatalf("read .golangci.yml: %v", err)
	}
	return config.Linters.Settings.Depguard.Rules
}

// exempt gives the packages whose files a deny rule leaves out.
func exempt(files []string) []string {
	var names []string
	for _, glob := range files {
		if name, ok := strings.CutPrefix(glob, "!**/"); ok {
			names = append(names, strings.TrimSuffix(strings.TrimSuffix(name, "/*.go"), "/**"))
		}
	}
	return names
}

func sorted(s []string) []string {
	return slices.Sorted(slices.Values(s))
}
