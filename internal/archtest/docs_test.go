package archtest_test

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestSpecIsWhole(t *testing.T) {
	t.Parallel()
	spec := readDoc(t, "docs/spec.md")
	for n := 1; n <= 10; n++ {
		if !strings.Contains(spec, fmt.Sprintf("\n## %d. ", n)) {
			t.Errorf("docs/spec.md has no section %d", n)
		}
	}
	if strings.Contains(spec, "../") {
		t.Error("docs/spec.md points out of docs; the repository stands alone")
	}
}

func TestDecisionRecordsHaveTheirParts(t *testing.T) {
	t.Parallel()
	records, err := filepath.Glob(filepath.Join(root, "docs/adr/[0-9]*.md"))
	if err != nil || len(records) == 0 {
		t.Fatalf("no decision records: %v", err)
	}
	for i, name := range records {
		rel, text := filepath.Base(name), readDoc(t, "docs/adr/"+filepath.Base(name))
		if want := fmt.Sprintf("%04d-", i+1); !strings.HasPrefix(rel, want) {
			t.Errorf("docs/adr/%s: want the number %s: numbers have no gaps", rel, want)
		}
		for _, part := range []string{"Status", "Context", "Decision", "Consequences"} {
			if !strings.Contains(text, "\n## "+part+"\n") {
				t.Errorf("docs/adr/%s has no section %s", rel, part)
			}
		}
	}
}

// A named test is a word in backticks, a subtest's path left out.
var namedTest = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Z][A-Za-z0-9_]*)[^`]*`")

func TestDocsNameExistingTests(t *testing.T) {
	t.Parallel()
	exists := testFuncs(t)
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".md") {
			return err
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(raw), "\n") {
			for _, match := range namedTest.FindAllStringSubmatch(line, -1) {
				if !exists[match[1]] {
					t.Errorf("%s:%d names %s, which is not in the tree", name, i+1, match[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestGuaranteesAreTiedToTests(t *testing.T) {
	t.Parallel()
	text := readDoc(t, "docs/guarantees.md")
	row := regexp.MustCompile(`(?m)^\| G(\d+) \|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$`)
	rows := row.FindAllStringSubmatch(text, -1)
	if len(rows) < 12 {
		t.Fatalf("docs/guarantees.md has %d rows | Gn | promise | clauses | state | tests |, want at least 12", len(rows))
	}
	clause := regexp.MustCompile(`\b(\d+\.\d+|I\d+)\b`)
	for i, cells := range rows {
		id, clauses, state, tests := "G"+cells[1], cells[3], strings.TrimSpace(cells[4]), cells[5]
		if want := fmt.Sprintf("G%d", i+1); id != want {
			t.Errorf("%s stands where %s belongs: numbers have no gaps and are never reused", id, want)
		}
		if !clause.MatchString(clauses) {
			t.Errorf("%s names no clause of the specification", id)
		}
		if !slices.Contains([]string{"planned", "partial", "tested"}, state) {
			t.Errorf("%s has state %q, want planned, partial or tested", id, state)
		}
		if state != "planned" && !namedTest.MatchString(tests) {
			t.Errorf("%s is %s and names no test", id, state)
		}
	}
	if !strings.Contains(text, "\n## What is not promised\n") {
		t.Error("docs/guarantees.md does not say what is not promised")
	}
}

// testFuncs gives the names of all test functions in the tree.
func testFuncs(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, f := range parseTree(t) {
		if !f.test {
			continue
		}
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

// readDoc reads a file of the repository.
func readDoc(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
