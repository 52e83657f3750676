//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// A path is judged when it is used: where it leads to now, not where it led to when
// it was used before.
func TestFSF04_APathIsJudgedWhenItIsUsed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	link := filepath.Join(p.root, "link")
	point := func(to string) {
		t.Helper()
		if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	put := func(content string) sandbox.Result {
		return perform(t, p.ws, session.WorkspaceWrite, sandbox.Op{Write: &sandbox.Write{Path: "link/old.txt", Content: content}})
	}
	for _, dir := range []string{"a", "b"} {
		mkdir(t, filepath.Join(p.root, dir))
	}
	point("a")
	wantDone(t, put("first"))
	point("b")
	wantDone(t, put("second"))
	before := snapshot(t, p.outside)
	point(p.outside)
	wantDenied(t, put("third"), session.WorkspaceWrite)
	wantDenied(t, perform(t, p.ws, session.WorkspaceWrite, shell("echo third >link/old.txt")), session.WorkspaceWrite)
	if diff := cmp.Diff(before, snapshot(t, p.outside)); diff != "" {
		t.Errorf("outside changed (-before +after):\n%s", diff)
	}
	point("b")
	wantDone(t, put("fourth"))
	for name, want := range map[string]string{"a/old.txt": "first", "b/old.txt": "fourth"} {
		if got := read(t, filepath.Join(p.root, name)); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
}
