package archtest_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageHasOneComment(t *testing.T) {
	t.Parallel()
	comments := map[string][]string{}
	for _, f := range parseTree(t) {
		if f.test {
			continue
		}
		if comments[f.dir] == nil {
			comments[f.dir] = []string{}
		}
		if f.ast.Doc != nil {
			comments[f.dir] = append(comments[f.dir], f.name)
		}
	}
	for dir, in := range comments {
		if len(in) != 1 {
			t.Errorf("package %s has %d package comments %q, want one", dir, len(in), in)
		}
	}
}

func TestPackageNamesSayWhatIsInside(t *testing.T) {
	t.Parallel()
	for _, f := range parseTree(t) {
		name := strings.TrimSuffix(f.ast.Name.Name, "_test")
		if slices.Contains(badNames, name) || slices.Contains(badNames, filepath.Base(f.dir)) {
			t.Errorf("%s: package %s: name the idea, not the shelf", f.name, name)
		}
	}
}

func TestNothingSleeps(t *testing.T) {
	t.Parallel()
	for _, f := range parseTree(t) {
		f.selectors(func(n ast.Node, x, sel string) {
			if x == "time" && sel == "Sleep" {
				t.Errorf("%s: time.Sleep: wait for a condition instead", f.at(n))
			}
		})
	}
}

func TestNothingIsSkipped(t *testing.T) {
	t.Parallel()
	for _, f := range parseTree(t) {
		if !f.test {
			continue
		}
		f.selectors(func(n ast.Node, x, sel string) {
			onTest := slices.Contains([]string{"t", "b", "f", "tb"}, x)
			if onTest && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel) {
				t.Errorf("%s: %s.%s: a missing dependency is a failure", f.at(n), x, sel)
			}
		})
	}
}

func TestContextsAreHandedDown(t *testing.T) {
	t.Parallel()
	for _, f := range parseTree(t) {
		if f.test || under(f.dir, "cmd") {
			continue
		}
		f.selectors(func(n ast.Node, x, sel string) {
			if x == "context" && (sel == "Background" || sel == "TODO") {
				t.Errorf("%s: context.%s: take the caller's context", f.at(n), sel)
			}
		})
	}
}

func TestEnvironmentIsReadInCommands(t *testing.T) {
	t.Parallel()
	reads := []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}
	for _, f := range parseTree(t) {
		if f.test || under(f.dir, "cmd") {
			continue
		}
		f.selectors(func(n ast.Node, x, sel string) {
			if x == "os" && slices.Contains(reads, sel) {
				t.Errorf("%s: os.%s: environment is read in cmd and handed down as configuration", f.at(n), sel)
			}
		})
	}
}

func TestModuleReplacesNothing(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(raw), "\n")
	if want := "module " + module; lines[0] != want {
		t.Errorf("go.mod starts with %q, want %q", lines[0], want)
	}
	for i, line := range lines {
		if first, _, _ := strings.Cut(strings.TrimSpace(line), " "); first == "replace" {
			t.Errorf("go.mod:%d: %q: others cannot build a module with a replace", i+1, line)
		}
	}
}
