package archtest_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// root is the top of the repository as seen from this package's directory.
const root = "../.."

// A file is one parsed Go file of the tree.
type file struct {
	name string // slash path relative to the root
	dir  string // its directory, "." for the root
	test bool   // a _test.go file
	fset *token.FileSet
	ast  *ast.File
}

// at says where in the tree a node stands, as file:line.
func (f file) at(n ast.Node) string {
	pos := f.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", f.name, pos.Line)
}

// imports gives the import paths of f.
func (f file) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, "\"`"))
	}
	return paths
}

// parseTree parses every Go file of the repository. Directories that the go
// tool does not look into are left out, and bin.
func parseTree(t *testing.T) []file {
	t.Helper()
	fset := token.NewFileSet()
	var files []file
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") ||
				d.Name() == "testdata" || d.Name() == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		files = append(files, file{
			name: rel, dir: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), fset: fset, ast: parsed,
		})
		return nil
	})
	if err != nil {
		t.Fatalf("read the tree: %v", err)
	}
	if len(files) == 0 {
		t.Fatalf("no Go files under %s", root)
	}
	return files
}

// selectors calls visit for every x.Sel in f whose x is a plain name.
func (f file) selectors(visit func(node ast.Node, x, sel string)) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				visit(s, x.Name, s.Sel.Name)
			}
		}
		return true
	})
}

// under reports whether name is prefix or stands below it in a path.
func under(name, prefix string) bool {
	return name == prefix || strings.HasPrefix(name, prefix+"/")
}
