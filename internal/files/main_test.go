//go:build linux && (amd64 || arm64)

package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/internal/files"
	"github.com/entail-fleet/entail/internal/wire"
)

// TestMain lets the test binary be the process that fills a disk.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == fillArg {
		os.Exit(fill(os.Args[2]))
	}
	os.Exit(m.Run())
}

// world is a workspace, and beside it a temp directory, an outside directory and
// a hidden one with a token.
type world struct{ root, temp, outside, hidden string }

func newWorld(t testing.TB) world {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := world{
		root: filepath.Join(base, "ws"), temp: filepath.Join(base, "tmp"),
		outside: filepath.Join(base, "outside"), hidden: filepath.Join(base, "data"),
	}
	for _, dir := range []string{w.root, w.temp, w.outside, w.hidden} {
		mkdir(t, dir)
	}
	write(t, w.root+"/in.txt", "inside content\n")
	write(t, w.outside+"/old.txt", "outside content\n")
	write(t, w.hidden+"/token", "hunter2\n")
	return w
}

// bounds are those of workspace-write.
func (w world) bounds() wire.Bounds {
	return wire.Bounds{MayWrite: true, Root: w.root, Temp: w.temp, Hidden: []string{w.hidden}}
}

func (w world) readOnly() wire.Bounds {
	b := w.bounds()
	b.MayWrite = false
	return b
}

func (w world) unconfined() wire.Bounds {
	return wire.Bounds{MayWrite: true, Unconfined: true, Root: w.root, Temp: w.temp}
}

// open opens a site and closes it after the test.
func open(t testing.TB, b wire.Bounds) *files.Site {
	t.Helper()
	s, err := files.Open(post(t, b), func() ([]wire.FileID, error) { return files.Linked(b.Hidden) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// post makes the directories of b those that are there now.
func post(t testing.TB, b wire.Bounds) wire.Post {
	t.Helper()
	return wire.Post{Bounds: b, RootID: identify(t, b.Root), TempID: identify(t, b.Temp)}
}

func identify(t testing.TB, path string) wire.FileID {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	id, err := files.Identify(f)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

const limit = 60 << 10

// goOn is for operations that nobody ends.
func goOn() error { return nil }

func do(s *files.Site, op wire.Op) wire.Performance { return s.Perform(op, limit, goOn) }

func reading(path string) wire.Op { return wire.Op{Read: &wire.Read{Path: path}} }

func writing(path, content string) wire.Op {
	return wire.Op{Write: &wire.Write{Path: path, Content: content}}
}

func editing(path, old, text string) wire.Op {
	return wire.Op{Edit: &wire.Edit{Path: path, Old: old, New: text}}
}

// wantCode checks how an operation ended; no code is success.
func wantCode(t testing.TB, what string, got wire.Performance, code string) {
	t.Helper()
	if got.Code != code || got.Denied != (code == "FS_SANDBOX_DENIED") {
		t.Errorf("%s: got %+v, want code %q", what, got, code)
	}
}

func mkdir(t testing.TB, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func symlink(t testing.TB, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func link(t testing.TB, old, path string) {
	t.Helper()
	if err := os.Link(old, path); err != nil {
		t.Fatal(err)
	}
}

// names lists what a directory holds.
func names(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}
