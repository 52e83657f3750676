package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// listed is a session as `session ls -o json` shows it.
func (d *drains) listed(id session.ID) client.Summary {
	d.t.Helper()
	var out client.ListReply
	d.must(d.api.Call(d.t.Context(), client.MethodList, client.ListRequest{Head: head, Root: id}, &out))
	if len(out.Sessions) != 1 {
		d.t.Fatalf("%d sessions are listed", len(out.Sessions))
	}
	return out.Sessions[0]
}

// The worker that has the files dies in the middle of a turn. The other one, whose
// directory of that name is another one or which offers another one, does not touch
// its own: the turn waits, and the list says for which workspace. It goes on when the
// root is there, with what the first worker left (SPEC 7.9).
func TestSPEC7_9_TheFilesAreElsewhere(t *testing.T) {
	t.Parallel()
	for what, second := range map[string]string{
		"the other has an empty directory there": "one",
		"the other offers another root":          "two",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.lease = 2 * time.Second
			d := &drains{fleet: f, api: f.coordinate(), ws: filepath.Join(t.TempDir(), "one")}
			two := filepath.Join(filepath.Dir(d.ws), "two")
			d.must(os.MkdirAll(d.ws, 0o755))
			d.must(os.MkdirAll(two, 0o755))
			w1 := d.started("-workspaces", "files="+d.ws)
			id := d.rootIn("files", "echo first > ledger; "+d.gate("first"), "echo second >> ledger")
			d.runs("first")
			d.startedAs("w2", "-workspaces", "files="+filepath.Join(filepath.Dir(d.ws), second))
			d.must(w1.Process.Kill())
			d.ended(w1)
			away := d.ws + ".away"
			d.must(os.Rename(d.ws, away)) // with the worker its volume is gone
			if second == "one" {
				d.must(os.Mkdir(d.ws, 0o755))
			}
			place := session.Wait{Kind: client.WaitWorkspace, ID: "files:" + d.ws}
			d.eventually("it waits for its workspace", func() bool {
				s := d.listed(id)
				return s.Status == client.StatusWaiting && slices.Equal(s.WaitsFor, []session.Wait{place}) && strings.HasPrefix(s.Why, "w2: ")
			})
			if s := d.listed(id); !strings.Contains(s.Why, map[string]string{"one": "has no mark", "two": "does not offer " + d.ws}[second]) {
				t.Errorf("it waits, and says %q", s.Why)
			}
			if w := d.worker("w2"); len(w.Sessions) != 0 || len(w.Waits) != 1 || !slices.Equal(w.Waits[0].For, []session.Wait{place}) {
				t.Errorf("w2 is listed as %+v", w)
			}
			if text := d.log(id); strings.Count(text, "turn/claim ") != 1 {
				t.Errorf("it was claimed without its files:\n%s", text)
			}
			for _, dir := range []string{d.ws, two} {
				if left, err := os.ReadDir(dir); len(left) > 0 || err != nil && !os.IsNotExist(err) {
					t.Errorf("%s holds %v (%v)", dir, left, err)
				}
			}

			d.must(os.RemoveAll(d.ws))
			d.must(os.Rename(away, d.ws)) // the root appears
			if second == "two" {          // at a worker that offers it
				d.started("-workspaces", "files="+d.ws)
			}
			d.becomes(id, client.StatusIdle)
			text := d.log(id)
			if strings.Count(text, "TOOL_OUTCOME_UNKNOWN") != 1 || strings.Count(text, "turn/start ") != 1 || !strings.Contains(text, `"cause":"takeover"`) {
				t.Errorf("the turn did not go on:\n%s", text)
			}
			if got, err := os.ReadFile(filepath.Join(d.ws, "ledger")); err != nil || string(got) != "first\nsecond\n" {
				t.Errorf("the ledger is %q (%v)", got, err)
			}
			if s := d.listed(id); s.Why != "" || len(s.WaitsFor) != 0 || s.Outcome != session.OutcomeCompleted {
				t.Errorf("at its end it is %+v", s)
			}
		})
	}
}
