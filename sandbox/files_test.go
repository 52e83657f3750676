//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

func TestRead(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "five"), "1\n2\n3\n4\n5")
	write(t, filepath.Join(root, "empty"), "")
	write(t, filepath.Join(root, "binary"), "a\x00b")
	write(t, filepath.Join(root, "wide"), strings.Repeat("x", 200)+"\nnext\n")
	ws := openWorkspace(t, sandbox.Config{OutputCap: 100}, root)
	tests := []struct {
		name string
		op   sandbox.Read
		want sandbox.Result
	}{
		{"all", sandbox.Read{Path: "five"}, sandbox.Result{Output: "1\n2\n3\n4\n5"}},
		{"some", sandbox.Read{Path: "five", Offset: 2, Limit: 2}, sandbox.Result{
			Output: "2\n3\n[there is more: read again with offset 4]", Truncated: true,
		}},
		{"the rest", sandbox.Read{Path: "five", Offset: 4, Limit: 2}, sandbox.Result{Output: "4\n5"}},
		{"past the end", sandbox.Read{Path: "five", Offset: 9}, sandbox.Result{}},
		{"empty", sandbox.Read{Path: "empty"}, sandbox.Result{}},
		{"a line that never fits", sandbox.Read{Path: "wide"}, sandbox.Result{
			Output: strings.Repeat("x", 100) + "\n[there is more: read again with offset 2]", Truncated: true,
		}},
		{"after it", sandbox.Read{Path: "wide", Offset: 2}, sandbox.Result{Output: "next\n"}},
		{"binary", sandbox.Read{Path: "binary"}, sandbox.Result{
			Output: "binary is not a text file", Code: "FS_INVALID_ARGUMENT", Failed: true,
		}},
		{"no path", sandbox.Read{}, sandbox.Result{
			Output: "the path is empty", Code: "FS_INVALID_ARGUMENT", Failed: true,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, perform(t, ws, session.ReadOnly, sandbox.Op{Read: &tt.op})); diff != "" {
				t.Errorf("read %+v (-want +got):\n%s", tt.op, diff)
			}
		})
	}
}

// TestEdit checks what an edit asks of the old text, and that a refused edit
// leaves no trace.
func TestEdit(t *testing.T) {
	t.Parallel()
	const before = "one two two\n"
	tests := []struct {
		name  string
		op    sandbox.Edit
		after string
		code  string
	}{
		{"once", sandbox.Edit{Old: "one", New: "1"}, "1 two two\n", ""},
		{"to nothing", sandbox.Edit{Old: "one "}, "two two\n", ""},
		{"all", sandbox.Edit{Old: "two", New: "2", All: true}, "one 2 2\n", ""},
		{"ambiguous", sandbox.Edit{Old: "two", New: "2"}, before, "FS_AMBIGUOUS_MATCH"},
		{"absent", sandbox.Edit{Old: "three", New: "3"}, before, "FS_NO_MATCH"},
		{"absent, all", sandbox.Edit{Old: "three", New: "3", All: true}, before, "FS_NO_MATCH"},
		{"no old text", sandbox.Edit{New: "x"}, before, "FS_INVALID_ARGUMENT"},
		{"no change", sandbox.Edit{Old: "one", New: "one"}, before, "FS_INVALID_ARGUMENT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			file := filepath.Join(root, "f")
			if err := os.WriteFile(file, []byte(before), 0o751); err != nil {
				t.Fatal(err)
			}
			tt.op.Path = "f"
			ws := openWorkspace(t, sandbox.Config{}, root)
			res := perform(t, ws, session.WorkspaceWrite, sandbox.Op{Edit: &tt.op})
			if res.Code != tt.code || res.Failed != (tt.code != "") || res.Denied {
				t.Errorf("got %+v, want code %q", res, tt.code)
			}
			if got := read(t, file); got != tt.after {
				t.Errorf("the file holds %q, want %q", got, tt.after)
			}
			info, err := os.Stat(file)
			if err != nil || info.Mode() != 0o751 {
				t.Errorf("mode %v, %v, want 0751", info.Mode(), err)
			}
			if got := snapshotNames(t, root); len(got) != 1 {
				t.Errorf("left behind: %v", got)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	ws := openWorkspace(t, sandbox.Config{}, root)
	write := func(path, content string) sandbox.Result {
		return perform(t, ws, session.WorkspaceWrite, sandbox.Op{Write: &sandbox.Write{Path: path, Content: content}})
	}
	wantDone(t, write("a/b/c", "first"))
	wantDone(t, write("a/b/c", "second"))
	if got := read(t, filepath.Join(root, "a/b/c")); got != "second" {
		t.Errorf("a/b/c holds %q", got)
	}
	info, err := os.Stat(filepath.Join(root, "a/b/c"))
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v, want 0644", info.Mode(), err)
	}
	if got := snapshotNames(t, filepath.Join(root, "a/b")); len(got) != 1 {
		t.Errorf("left behind: %v", got)
	}
	if res := write("a/b", "x"); res.Code != "FS_NOT_REGULAR_FILE" || res.Denied {
		t.Errorf("write over a directory: got %+v", res)
	}
	if res := write("a/b/c/d", "x"); !res.Failed || res.Denied {
		t.Errorf("write below a file: got %+v", res)
	}
	big := strings.Repeat("0123456789", 200_000)
	wantDone(t, write("big", big))
	if got := read(t, filepath.Join(root, "big")); got != big {
		t.Errorf("big holds %d bytes, want %d", len(got), len(big))
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for path, content := range map[string]string{
		"main.go":          "package main\nfunc main() {}\n",
		"pkg/a.go":         "package pkg\n",
		"pkg/deep/er/b.go": "package er\nfunc b() {}\n",
		"pkg/data.bin":     "func \x00\n",
		".git/c.go":        "func hidden() {}\n",
	} {
		mkdir(t, filepath.Dir(filepath.Join(root, path)))
		write(t, filepath.Join(root, path), content)
	}
	ws := openWorkspace(t, sandbox.Config{}, root)
	tests := []struct {
		name string
		op   sandbox.Op
		want string
		code string
	}{
		{"list", sandbox.Op{List: &sandbox.List{}}, ".git/\nmain.go\npkg/\n", ""},
		{"list below", sandbox.Op{List: &sandbox.List{Path: "pkg"}}, "a.go\ndata.bin\ndeep/\n", ""},
		{"list nothing", sandbox.Op{List: &sandbox.List{Path: "nope"}}, "", "FS_NOT_FOUND"},
		{"glob one level", sandbox.Op{Glob: &sandbox.Glob{Pattern: "*.go"}}, "main.go\n", ""},
		{"glob every level", sandbox.Op{Glob: &sandbox.Glob{Pattern: "**/*.go"}}, "main.go\npkg/a.go\npkg/deep/er/b.go\n", ""},
		{"glob below", sandbox.Op{Glob: &sandbox.Glob{Pattern: "pkg/**/b.go"}}, "pkg/deep/er/b.go\n", ""},
		{"glob one file", sandbox.Op{Glob: &sandbox.Glob{Pattern: "pkg/a.go"}}, "pkg/a.go\n", ""},
		{"glob absolute", sandbox.Op{Glob: &sandbox.Glob{Pattern: root + "/pkg/*"}}, "pkg/a.go\npkg/data.bin\n", ""},
		{"glob malformed", sandbox.Op{Glob: &sandbox.Glob{Pattern: "["}}, "", "FS_INVALID_ARGUMENT"},
		{
			"grep",
			sandbox.Op{Grep: &sandbox.Grep{Pattern: `^func \w+`}},
			"main.go:2:func main() {}\npkg/deep/er/b.go:2:func b() {}\n", "",
		},
		{"grep one file", sandbox.Op{Grep: &sandbox.Grep{Pattern: "package", Path: "pkg/a.go"}}, "pkg/a.go:1:package pkg\n", ""},
		{"grep where asked to", sandbox.Op{Grep: &sandbox.Grep{Pattern: "hid", Path: ".git"}}, ".git/c.go:1:func hidden() {}\n", ""},
		{"grep without a match", sandbox.Op{Grep: &sandbox.Grep{Pattern: "zebra"}}, "no line matches", ""},
		{"grep malformed", sandbox.Op{Grep: &sandbox.Grep{Pattern: "("}}, "", "FS_INVALID_ARGUMENT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res := perform(t, ws, session.ReadOnly, tt.op)
			if tt.code != "" {
				if res.Code != tt.code || !res.Failed {
					t.Errorf("got %+v, want code %s", res, tt.code)
				}
				return
			}
			wantDone(t, res)
			if diff := cmp.Diff(tt.want, res.Output); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOneFieldIsSet(t *testing.T) {
	t.Parallel()
	ws := openWorkspace(t, sandbox.Config{}, t.TempDir())
	for _, op := range []sandbox.Op{{}, {List: &sandbox.List{}, Read: &sandbox.Read{Path: "f"}}} {
		if res, err := ws.Perform(t.Context(), session.ReadOnly, op, nil); err == nil {
			t.Errorf("%+v: got %+v", op, res)
		}
	}
}
