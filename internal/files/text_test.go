//go:build linux && (amd64 || arm64)

package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/internal/wire"
)

func TestRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := w.root
	write(t, filepath.Join(root, "five"), "1\n2\n3\n4\n5")
	write(t, filepath.Join(root, "empty"), "")
	write(t, filepath.Join(root, "binary"), "a\x00b")
	write(t, filepath.Join(root, "wide"), strings.Repeat("x", 200)+"\nnext\n")
	s := open(t, w.readOnly())
	tests := []struct {
		name string
		op   wire.Read
		want wire.Performance
	}{
		{"all", wire.Read{Path: "five"}, wire.Performance{Output: "1\n2\n3\n4\n5"}},
		{"some", wire.Read{Path: "five", Offset: 2, Limit: 2}, wire.Performance{
			Output: "2\n3\n[there is more: read again with offset 4]", Truncated: true,
		}},
		{"the rest", wire.Read{Path: "five", Offset: 4, Limit: 2}, wire.Performance{Output: "4\n5"}},
		{"past the end", wire.Read{Path: "five", Offset: 9}, wire.Performance{}},
		{"empty", wire.Read{Path: "empty"}, wire.Performance{}},
		{"a line that never fits", wire.Read{Path: "wide"}, wire.Performance{
			Output: strings.Repeat("x", 100) + "\n[there is more: read again with offset 2]", Truncated: true,
		}},
		{"after it", wire.Read{Path: "wide", Offset: 2}, wire.Performance{Output: "next\n"}},
		{"binary", wire.Read{Path: "binary"}, wire.Performance{
			Output: "binary is not a text file", Code: "FS_INVALID_ARGUMENT",
		}},
		{"no path", wire.Read{}, wire.Performance{
			Output: "the path is empty", Code: "FS_INVALID_ARGUMENT",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, s.Perform(wire.Op{Read: &tt.op}, 100, goOn)); diff != "" {
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
		op    wire.Edit
		after string
		code  string
	}{
		{"once", wire.Edit{Old: "one", New: "1"}, "1 two two\n", ""},
		{"to nothing", wire.Edit{Old: "one "}, "two two\n", ""},
		{"all", wire.Edit{Old: "two", New: "2", All: true}, "one 2 2\n", ""},
		{"ambiguous", wire.Edit{Old: "two", New: "2"}, before, "FS_AMBIGUOUS_MATCH"},
		{"absent", wire.Edit{Old: "three", New: "3"}, before, "FS_NO_MATCH"},
		{"absent, all", wire.Edit{Old: "three", New: "3", All: true}, before, "FS_NO_MATCH"},
		{"no old text", wire.Edit{New: "x"}, before, "FS_INVALID_ARGUMENT"},
		{"no change", wire.Edit{Old: "one", New: "one"}, before, "FS_INVALID_ARGUMENT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			file := filepath.Join(w.root, "f")
			if err := os.WriteFile(file, []byte(before), 0o751); err != nil {
				t.Fatal(err)
			}
			tt.op.Path = "f"
			wantCode(t, tt.name, do(open(t, w.bounds()), wire.Op{Edit: &tt.op}), tt.code)
			if got := read(t, file); got != tt.after {
				t.Errorf("the file holds %q, want %q", got, tt.after)
			}
			info, err := os.Stat(file)
			if err != nil || info.Mode() != 0o751 {
				t.Errorf("mode %v, %v, want 0751", info.Mode(), err)
			}
			if got := names(t, w.root); got != "f in.txt" {
				t.Errorf("left behind: %s", got)
			}
		})
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, w.bounds())
	wantCode(t, "create", do(s, writing("a/b/c", "first")), "")
	info, err := os.Stat(w.root + "/a/b/c")
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v, want 0644", info.Mode(), err)
	}
	if err := os.Chmod(w.root+"/a/b/c", 0o750); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "replace", do(s, writing("a/b/c", "second")), "")
	if info, err = os.Stat(w.root + "/a/b/c"); err != nil || info.Mode() != 0o750 {
		t.Errorf("mode %v, %v, want 0750 as before", info.Mode(), err)
	}
	if got := read(t, w.root+"/a/b/c") + names(t, w.root+"/a/b"); got != "secondc" {
		t.Errorf("got %q", got)
	}
	wantCode(t, "write below a file", do(s, writing("a/b/c/d", "x")), failed)
	big := strings.Repeat("0123456789", 200_000)
	wantCode(t, "write much", do(s, writing("big", big)), "")
	if got := read(t, w.root+"/big"); got != big {
		t.Errorf("big holds %d bytes, want %d", len(got), len(big))
	}
	wantCode(t, "write to the temp directory", do(s, writing(w.temp+"/t", "x")), "")
	ro := open(t, w.readOnly())
	for _, op := range []wire.Op{writing("in.txt", "x"), writing("new/f", "x"), editing("in.txt", "inside", "x"), writing(w.temp+"/u", "x")} {
		wantCode(t, "read-only", do(ro, op), denied)
	}
	if got := read(t, w.root+"/in.txt") + names(t, w.root) + names(t, w.temp); got != "inside content\na big in.txtt" {
		t.Errorf("got %q", got)
	}
}

// TestLargeFiles holds each operation to the size that it takes in.
func TestLargeFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, w.bounds())
	f, err := os.Create(w.root + "/sparse")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(strings.Repeat("text\n", 1000)); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got := do(s, wire.Op{Read: &wire.Read{Path: "sparse", Limit: 1}})
	if wantCode(t, "read its head", got, ""); !strings.HasPrefix(got.Output, "text\n[there is more") {
		t.Errorf("got %q", got.Output)
	}
	wantCode(t, "read far into it", do(s, wire.Op{Read: &wire.Read{Path: "sparse", Offset: 2000}}), invalid)
	wantCode(t, "edit", do(s, editing("sparse", "text", "x")), invalid)
	if got := do(s, wire.Op{Grep: &wire.Grep{Pattern: "text"}}); got.Output != "no line matches" {
		t.Errorf("search: got %+v", got)
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := w.root
	if err := os.Remove(root + "/in.txt"); err != nil {
		t.Fatal(err)
	}
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
	s := open(t, w.readOnly())
	tests := []struct {
		name string
		op   wire.Op
		want string
		code string
	}{
		{"list", wire.Op{List: &wire.List{}}, ".git/\nmain.go\npkg/\n", ""},
		{"list below", wire.Op{List: &wire.List{Path: "pkg"}}, "a.go\ndata.bin\ndeep/\n", ""},
		{"list nothing", wire.Op{List: &wire.List{Path: "nope"}}, "", "FS_NOT_FOUND"},
		{"glob one level", wire.Op{Glob: &wire.Glob{Pattern: "*.go"}}, "main.go\n", ""},
		{"glob every level", wire.Op{Glob: &wire.Glob{Pattern: "**/*.go"}}, "main.go\npkg/a.go\npkg/deep/er/b.go\n", ""},
		{"glob below", wire.Op{Glob: &wire.Glob{Pattern: "pkg/**/b.go"}}, "pkg/deep/er/b.go\n", ""},
		{"glob one file", wire.Op{Glob: &wire.Glob{Pattern: "pkg/a.go"}}, "pkg/a.go\n", ""},
		{"glob absolute", wire.Op{Glob: &wire.Glob{Pattern: root + "/pkg/*"}}, "pkg/a.go\npkg/data.bin\n", ""},
		{"glob malformed", wire.Op{Glob: &wire.Glob{Pattern: "["}}, "", "FS_INVALID_ARGUMENT"},
		{
			"grep",
			wire.Op{Grep: &wire.Grep{Pattern: `^func \w+`}},
			"main.go:2:func main() {}\npkg/deep/er/b.go:2:func b() {}\n", "",
		},
		{"grep one file", wire.Op{Grep: &wire.Grep{Pattern: "package", Path: "pkg/a.go"}}, "pkg/a.go:1:package pkg\n", ""},
		{"grep where asked to", wire.Op{Grep: &wire.Grep{Pattern: "hid", Path: ".git"}}, ".git/c.go:1:func hidden() {}\n", ""},
		{"grep without a match", wire.Op{Grep: &wire.Grep{Pattern: "zebra"}}, "no line matches", ""},
		{"grep malformed", wire.Op{Grep: &wire.Grep{Pattern: "("}}, "", "FS_INVALID_ARGUMENT"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res := do(s, tt.op)
			wantCode(t, tt.name, res, tt.code)
			if tt.code != "" {
				return
			}
			if diff := cmp.Diff(tt.want, res.Output); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
