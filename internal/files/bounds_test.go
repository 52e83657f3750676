//go:build linux && (amd64 || arm64)

package files_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/entail-fleet/entail/internal/files"
	"github.com/entail-fleet/entail/internal/wire"
)

const (
	denied     = "FS_SANDBOX_DENIED"
	notRegular = "FS_NOT_REGULAR_FILE"
	notFound   = "FS_NOT_FOUND"
	invalid    = "FS_INVALID_ARGUMENT"
	failed     = "FS_FAILED"
)

// TestLinks follows links to where they end, and names that place in a refusal.
func TestLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, w.bounds())
	mkdir(t, w.root+"/sub")
	write(t, w.root+"/sub/f", "hi\n")
	symlink(t, "sub", w.root+"/good")
	symlink(t, w.root+"/sub", w.root+"/goodabs")
	symlink(t, "../outside", w.root+"/outbox")
	symlink(t, "outbox", w.root+"/hop")
	symlink(t, w.outside+"/old.txt", w.root+"/file")
	symlink(t, "../outside/none", w.root+"/dangling")
	symlink(t, "sub/none", w.root+"/danglingin")
	for _, path := range []string{"good/f", "goodabs/f"} {
		if got := do(s, reading(path)); got.Output != "hi\n" {
			t.Errorf("read %s: got %+v", path, got)
		}
	}
	wantCode(t, "read a link to nothing inside", do(s, reading("danglingin")), notFound)
	wantCode(t, "write to it", do(s, writing("danglingin", "made")), "")
	if got := read(t, w.root+"/sub/none"); got != "made" {
		t.Errorf("its target holds %q", got)
	}
	for _, path := range []string{"outbox/old.txt", "hop/old.txt", "file", "dangling", "outbox/new/file"} {
		for _, op := range []wire.Op{reading(path), writing(path, "x"), editing(path, "outside", "x"), {Grep: &wire.Grep{Path: path, Pattern: "."}}} {
			got := do(s, op)
			wantCode(t, path, got, denied)
			if !strings.Contains(got.Output, w.outside) {
				t.Errorf("%s: %q does not name where it leads", path, got.Output)
			}
		}
	}
	if got := read(t, w.outside+"/old.txt") + names(t, w.outside); got != "outside content\nold.txt" {
		t.Errorf("outside holds %q", got)
	}
	// Where there are no bounds the same links lead somewhere.
	if got := do(open(t, w.unconfined()), reading("hop/old.txt")); got.Output != "outside content\n" {
		t.Errorf("unconfined: got %+v", got)
	}
}

// TestHardLinks writes to a file that has names elsewhere: they keep its content,
// and the result says how many there are.
func TestHardLinks(t *testing.T) {
	t.Parallel()
	for _, unconfined := range []bool{false, true} {
		w := newWorld(t)
		s := open(t, w.bounds())
		if unconfined {
			s = open(t, w.unconfined())
		}
		link(t, w.outside+"/old.txt", w.root+"/hard")
		link(t, w.outside+"/old.txt", w.root+"/other")
		link(t, w.outside+"/old.txt", w.root+"/third")
		got := do(s, writing("hard", "new"))
		wantCode(t, "write", got, "")
		if !strings.Contains(got.Output, "3 other hard link(s) of the old file keep the old content") {
			t.Errorf("write: %q does not speak of the other names", got.Output)
		}
		got = do(s, editing("other", "outside", "edited"))
		wantCode(t, "edit", got, "")
		if !strings.Contains(got.Output, "2 other hard link(s)") {
			t.Errorf("edit: %q does not speak of the other names", got.Output)
		}
		for path, want := range map[string]string{
			w.root + "/hard": "new", w.root + "/other": "edited content\n",
			w.root + "/third": "outside content\n", w.outside + "/old.txt": "outside content\n",
		} {
			if have := read(t, path); have != want {
				t.Errorf("%s holds %q, want %q", path, have, want)
			}
		}
		if got := do(s, writing("hard", "again")); strings.Contains(got.Output, "hard link") {
			t.Errorf("the new file has one name, but: %q", got.Output)
		}
	}
}

// TestHidden looks for a token by its path and by another name of its file.
func TestHidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	inside := w.root + "/.entail"
	mkdir(t, inside)
	write(t, inside+"/key", "hunter2\n")
	link(t, w.hidden+"/token", w.root+"/hard")
	link(t, w.root+"/in.txt", w.root+"/in2.txt")
	symlink(t, inside+"/key", w.root+"/soft")
	b := w.bounds()
	b.Hidden = append(b.Hidden, inside, filepath.Join(w.outside, "not", "there"))
	s := open(t, b)
	for _, op := range []wire.Op{
		reading(w.hidden + "/token"), reading(".entail/key"), reading("soft"), reading("hard"),
		editing("hard", "hunter2", "x"), editing("soft", "hunter2", "x"),
		writing(".entail/key", "x"), writing(".entail/new", "x"),
		{List: &wire.List{Path: ".entail"}},
		{Grep: &wire.Grep{Path: ".entail", Pattern: "."}},
		{Glob: &wire.Glob{Pattern: ".entail/*"}},
	} {
		got := do(s, op)
		wantCode(t, "hidden", got, denied)
		if strings.Contains(got.Output, "hunter2") {
			t.Errorf("found: %q", got.Output)
		}
	}
	for _, op := range []wire.Op{{Grep: &wire.Grep{Pattern: "hunter2|inside"}}, {Glob: &wire.Glob{Pattern: "**/*"}}} {
		got := do(s, op)
		wantCode(t, "search", got, "")
		if strings.Contains(got.Output, "hunter2") || strings.Contains(got.Output, "key") {
			t.Errorf("found: %q", got.Output)
		}
		// A file with several names is found as long as none of them is hidden.
		if !strings.Contains(got.Output, "in.txt") || !strings.Contains(got.Output, "in2.txt") {
			t.Errorf("not found: %q", got.Output)
		}
	}
	if got := read(t, inside+"/key") + read(t, w.hidden+"/token"); got != "hunter2\nhunter2\n" {
		t.Errorf("the secrets are %q", got)
	}
	// The same names lead there where nothing is hidden.
	for _, path := range []string{"hard", "soft", w.hidden + "/token"} {
		if got := do(open(t, w.unconfined()), reading(path)); got.Output != "hunter2\n" {
			t.Errorf("unconfined: got %+v", got)
		}
	}
}

// TestHiddenCannotBeTold refuses what may be another name of a hidden file when
// nobody can say.
func TestHiddenCannotBeTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	link(t, w.root+"/in.txt", w.root+"/in2.txt")
	write(t, w.root+"/single", "inside\n")
	s, err := files.Open(post(t, w.bounds()), func() ([]wire.FileID, error) {
		return nil, errors.New("no look there")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	wantCode(t, "read of a file with two names", do(s, reading("in.txt")), failed)
	wantCode(t, "read of a file with one", do(s, reading("single")), "")
	wantCode(t, "search", do(s, wire.Op{Grep: &wire.Grep{Pattern: "inside"}}), failed)
}

// TestOddFiles covers what opens but is no file. A FIFO that nobody writes to
// would hold up a reader for ever.
func TestOddFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := unix.Mkfifo(w.root+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", w.root+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }()
	mkdir(t, w.root+"/dir")
	symlink(t, "/proc/self/environ", w.root+"/env")
	tests := []struct {
		bounds wire.Bounds
		path   string
		want   string
	}{
		{w.readOnly(), "fifo", notRegular},
		{w.readOnly(), "socket", notRegular},
		{w.readOnly(), "dir", notRegular},
		{w.readOnly(), "/proc/self/environ", denied},
		{w.readOnly(), "env", denied},
		{w.bounds(), "/dev/zero", denied},
		{w.unconfined(), "fifo", notRegular},
		{w.unconfined(), "/proc/self/environ", notRegular},
		{w.unconfined(), "env", notRegular},
		{w.unconfined(), "/sys/kernel/notes", notRegular},
		{w.unconfined(), "/dev/zero", notRegular},
		{w.unconfined(), "missing", notFound},
		{w.unconfined(), "", invalid},
		{w.unconfined(), "a\x00b", invalid},
		{w.unconfined(), "a\xffb", invalid},
	}
	for _, tt := range tests {
		wantCode(t, "read "+tt.path, do(open(t, tt.bounds), reading(tt.path)), tt.want)
	}
	for _, path := range []string{"fifo", "socket", "dir"} {
		wantCode(t, "write "+path, do(open(t, w.bounds()), writing(path, "x")), notRegular)
		wantCode(t, "edit "+path, do(open(t, w.bounds()), editing(path, "x", "y")), notRegular)
	}
	wantCode(t, "write below a file", do(open(t, w.bounds()), writing("in.txt/x", "x")), failed)
}

// TestNamesThatAreNotUTF8 lists them in a form that can be shown, and says that
// this form names nothing.
func TestNamesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	write(t, w.root+"/bad\xffname", "needle\n")
	s := open(t, w.bounds())
	const note = "is not UTF-8: file tools cannot name it, a shell command can"
	for _, op := range []wire.Op{
		{List: &wire.List{}}, {Glob: &wire.Glob{Pattern: "bad*"}}, {Grep: &wire.Grep{Pattern: "needle"}},
	} {
		got := do(s, op)
		if wantCode(t, "search", got, ""); !strings.Contains(got.Output, "bad\uFFFDname") || !strings.Contains(got.Output, note) {
			t.Errorf("got %q", got.Output)
		}
	}
	got := do(s, reading("bad\uFFFDname"))
	if wantCode(t, "read by what is shown", got, notFound); !strings.Contains(got.Output, note) {
		t.Errorf("got %q", got.Output)
	}
	if got := do(s, wire.Op{Glob: &wire.Glob{Pattern: "in*"}}); got.Output != "in.txt\n" {
		t.Errorf("where there is no such name: got %q", got.Output)
	}
}

// TestRootReplaced works on in neither directory when another one has taken the
// place of the workspace.
func TestRootReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, w.bounds())
	wantCode(t, "write before", do(s, writing("f", "x")), "")
	if err := os.Rename(w.root, w.root+".old"); err != nil {
		t.Fatal(err)
	}
	mkdir(t, w.root)
	wantCode(t, "write after", do(s, writing("f", "y")), "SANDBOX_UNAVAILABLE")
	if got := names(t, w.root) + read(t, w.root+".old/f"); got != "x" {
		t.Errorf("got %q", got)
	}
	p := post(t, w.bounds())
	p.RootID = identify(t, w.root+".old")
	if _, err := files.Open(p, nil); err == nil {
		t.Error("a directory was opened that is not the one meant")
	}
}

// TestEndedOperationHasNoEffect ends operations at each moment at which they ask.
func TestEndedOperationHasNoEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := open(t, w.bounds())
	ended := errors.New("ended")
	asked := 0
	for _, op := range []wire.Op{writing("new/dir/f", "x"), writing("in.txt", "x"), editing("in.txt", "inside", "x")} {
		for n := 1; ; n++ {
			calls := 0
			got := s.Perform(op, limit, func() error {
				if calls++; calls == n {
					return ended
				}
				return nil
			})
			if calls < n {
				break // it was not asked that often, and so was done
			}
			asked++
			wantCode(t, "ended", got, failed)
			if have := names(t, w.root); have != "in.txt" && have != "in.txt new" {
				t.Fatalf("left behind: %s", have)
			}
		}
		if op.Edit == nil {
			_ = os.RemoveAll(w.root + "/new")
			write(t, w.root+"/in.txt", "inside content\n")
		}
	}
	if asked < 6 {
		t.Errorf("operations were ended %d times: too few to mean anything", asked)
	}
	if got := read(t, w.root+"/in.txt"); got != "x content\n" {
		t.Errorf("in.txt holds %q", got)
	}
}
