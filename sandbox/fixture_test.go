//go:build linux && (amd64 || arm64)

package sandbox_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/entail-fleet/entail/policy/policytest"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// place is a workspace, an outside directory, and a hidden one, in which tests
// attack and look.
type place struct {
	ws      *sandbox.Workspace
	root    string
	outside string
	hidden  string
}

// newPlace makes a workspace on a runner of its own. The hidden directory lies
// outside of the workspace.
func newPlace(t *testing.T) *place {
	t.Helper()
	base := t.TempDir()
	p := &place{
		root:    filepath.Join(base, "ws"),
		outside: filepath.Join(base, "outside"),
		hidden:  filepath.Join(base, "data", "entail"),
	}
	for _, dir := range []string{p.root, p.outside, p.hidden} {
		mkdir(t, dir)
	}
	write(t, filepath.Join(p.outside, "old.txt"), "outside content\n")
	write(t, filepath.Join(p.root, "in.txt"), "inside content\n")
	write(t, filepath.Join(p.hidden, "token"), "the token\n")
	p.ws = openWorkspace(t, sandbox.Config{Hidden: []string{p.hidden}}, p.root)
	return p
}

// openWorkspace opens root on a new runner and closes it after the test.
func openWorkspace(t *testing.T, cfg sandbox.Config, root string) *sandbox.Workspace {
	t.Helper()
	r, err := sandbox.New(cfg)
	if err != nil && !errors.Is(err, sandbox.ErrUnavailable) {
		t.Fatalf("New: %v", err)
	}
	ws, err := r.Workspace(root, "")
	if err != nil {
		t.Fatalf("Workspace(%s): %v", root, err)
	}
	t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return ws
}

// perform runs an operation that must come to a result.
func perform(t *testing.T, ws *sandbox.Workspace, mode session.SandboxMode, op sandbox.Op) sandbox.Result {
	t.Helper()
	res, err := ws.Run(t.Context(), policytest.Permit(t, mode), op, nil)
	if err != nil {
		t.Fatalf("perform %s: %v", mode, err)
	}
	return res
}

// diffResults compares what a call came to. What held it is another test's; nothing
// was refused unless want says so.
func diffResults(want, got sandbox.Result) string {
	want.Denial = cmp.Or(want.Denial, session.DenialNone)
	want.Sandbox = got.Sandbox
	return gocmp.Diff(want, got)
}

func shell(line string) sandbox.Op { return sandbox.Op{Shell: &sandbox.Shell{Command: line}} }

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// snapshot lists every file below dir with its mode, times and content.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b.WriteString(path + " " + info.Mode().String() + " " + info.ModTime().String())
		if info.Mode().IsRegular() {
			b.WriteString(" " + read(t, path))
		}
		b.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// wantDenied checks for a refusal with all that SPEC 5.5 asks of it.
func wantDenied(t *testing.T, res sandbox.Result, mode session.SandboxMode) {
	t.Helper()
	marker := "[sandbox: file access denied under " + string(mode) + " mode]"
	if !res.Denied() || !res.Failed || res.Code != "FS_SANDBOX_DENIED" || !strings.Contains(res.Output, marker) {
		t.Errorf("got %+v, want a denial with %q", res, marker)
	}
	if _, after, _ := strings.Cut(res.Output, marker); !strings.Contains(after, "Do not try to reach the same effect") {
		t.Errorf("no sentence after the marker forbids working around it: %q", res.Output)
	}
}

// wantDone checks for success.
func wantDone(t *testing.T, res sandbox.Result) {
	t.Helper()
	if res.Failed || res.Denied() || res.Code != "" || res.ExitCode != 0 {
		t.Errorf("got %+v, want success", res)
	}
}

// wantUnavailable checks that a call was refused because it could not be confined,
// with a reason that holds why.
func wantUnavailable(t *testing.T, res sandbox.Result, why string) {
	t.Helper()
	if res.Code != "SANDBOX_UNAVAILABLE" || !res.Failed || res.Denied() || !strings.Contains(res.Output, why) {
		t.Errorf("got %+v, want a refusal with %q", res, why)
	}
}
