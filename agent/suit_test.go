package agent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/agent"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/sandbox"
	"github.com/entail-fleet/entail/session"
)

// waiting waits until a session is shown as waiting for something, with a reason, and
// wants it untouched.
func (w *world) waiting(id session.ID, kind session.WaitKind, what, why string) {
	w.t.Helper()
	var s client.Summary
	eventually(w.t, "it waits for "+string(kind)+" "+what, func() bool {
		w.must(w.api.Call(w.t.Context(), client.MethodShow, client.SessionRequest{Head: head, ID: id}, &s))
		return s.Status == client.StatusWaiting && slices.Contains(s.WaitsFor, session.Wait{Kind: kind, ID: what})
	})
	if !strings.Contains(s.Why, why) {
		w.t.Errorf("it waits, and says %q, want %q", s.Why, why)
	}
	if s.Turn != 0 || s.Worker != "" {
		w.t.Errorf("it was taken: %+v", s)
	}
}

// offers is a worker that offers workspaces.
func offers(t testing.TB, texts ...string) func(*agent.Config) {
	t.Helper()
	var all []agent.Offer
	for _, text := range texts {
		o, err := agent.ParseOffer(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return func(c *agent.Config) { c.Offers = all }
}

// weak is a worker that has Landlock alone.
func weak(t testing.TB) func(*agent.Config) {
	t.Helper()
	r, err := sandbox.New(sandbox.Config{Best: session.TierLandlock})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *agent.Config) { c.Runner = r }
}

// drivers lists who claimed a session.
func (w *world) drivers(id session.ID) []string {
	w.t.Helper()
	var names []string
	for _, c := range payloads[*session.Claim](w.open(id).Events()) {
		names = append(names, c.Worker)
	}
	return slices.Compact(names)
}

// A session is driven by a worker that has its labels and holds calls by its tier, so
// is all that it delegates, and until there is one it waits and says for what. One
// that needs nothing is of format 1, as it ever was; one that does is of format 2,
// which an earlier build refuses.
func TestSPEC5_4_NeedsAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.work("w1", 4, weak(t), func(c *agent.Config) { c.Labels = []string{"gpu"} })
	const script = `
sessions:
  root:
    - calls: [{id: c1, tool: delegate, args: {kind: spawn, label: kid, prompt: "go on"}}]
    - text: done
  kid:
    - calls: [{id: c1, tool: bash, args: {command: "echo ran"}}]
    - text: done
`
	plain := w.root(script)
	tiered := w.root(script, func(in *client.CreateRequest) { in.RequireTier = session.TierNamespaces })
	labelled := w.root(script, func(in *client.CreateRequest) { in.WorkerLabels = []string{"zone=b", "gpu", "zone=b"} })
	w.idle(plain)
	w.waiting(tiered, client.WaitTier, "namespaces", "w1: this worker lacks what the session needs: tier namespaces (it has landlock)")
	w.waiting(labelled, client.WaitLabel, "zone=b", "label zone=b")
	for id, format := range map[session.ID]int{plain: 1, tiered: 2, labelled: 2} {
		raw, err := w.log.Genesis(t.Context(), id, id)
		w.must(err)
		if s, _ := w.open(id).State(); s.Format != format || raw.Headers[session.HeaderFormat] != string(rune('0'+format)) || (format == 1) == strings.Contains(string(raw.Body), `"needs"`) {
			t.Errorf("session %s has format %d and the record %s: %s", id, s.Format, raw.Headers[session.HeaderFormat], raw.Body)
		}
	}
	w.work("w2", 4, func(c *agent.Config) { c.Labels = []string{"zone=b", "gpu"} })
	for _, id := range []session.ID{tiered, labelled} {
		root := w.idle(id)
		kid := children(w.open(id).Events())[0]
		s := w.until(kid, "ended", func(s session.State) bool { return s.Ended != nil })
		if !s.Header.Needs.Equal(root.Header.Needs) || s.Header.Needs == nil || s.Format != session.FormatNeeds || s.Ended.Outcome != session.OutcomeCompleted {
			t.Errorf("the child of %s needs %+v in format %d and ended %s", id, s.Header.Needs, s.Format, s.Ended.Outcome)
		}
		if by := slices.Concat(w.drivers(id), w.drivers(kid)); !slices.Equal(slices.Compact(by), []string{"w2"}) {
			t.Errorf("session %s and its child were driven by %v", id, by)
		}
	}
}

// A worker takes sessions of the workspaces that it offers, and of no others: it does
// not as much as mark their directories, not through a link either.
func TestSPEC7_9_OnlyWhatIsOffered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, other := filepath.Join(w.dir, "ours"), filepath.Join(w.dir, "other")
	for _, dir := range []string{filepath.Join(ours, "p"), other} {
		w.must(os.MkdirAll(dir, 0o755))
	}
	link := filepath.Join(ours, "link")
	w.must(os.Symlink(other, link))
	w.work("w1", 4, offers(t, "files="+ours, "host:box="+other))
	place := func(kind session.WorkspaceKind, label, dir string) session.ID {
		return w.root("sessions:\n  root:\n    - text: done\n", func(in *client.CreateRequest) { in.Workspace, in.WorkspaceKind, in.Cwd = label, kind, dir })
	}
	for what, tt := range map[string]struct {
		kind  session.WorkspaceKind
		label string
		dir   string
		waits string // for this, or not at all
	}{
		"below the offer":      {"", "files", filepath.Join(ours, "p"), ""},
		"another directory":    {"", "files", other, "files:" + other},
		"out of it by a link":  {"", "files", link, "files:" + link},
		"no label":             {"", "", ours, "default:" + ours},
		"another label":        {"", "box", other, "box:" + other},
		"a host's":             {session.WorkspaceHost, "box", other, ""},
		"a host's, by another": {session.WorkspaceHost, "crate", other, "host:crate:" + other},
	} {
		id := place(tt.kind, tt.label, tt.dir)
		if tt.waits == "" {
			if s := w.idle(id); s.Format != session.FormatFirst || markOf(tt.dir) != s.Header.Workspace.ID {
				t.Errorf("%s: format %d, mark %q of %q", what, s.Format, markOf(tt.dir), s.Header.Workspace.ID)
			}
			w.must(os.RemoveAll(tt.dir)) // the next ones find no mark
			w.must(os.MkdirAll(tt.dir, 0o755))
			continue
		}
		w.waiting(id, client.WaitWorkspace, tt.waits, "does not offer "+tt.dir)
		if m := markOf(tt.dir); m != "" {
			t.Errorf("%s: it is marked %q", what, m)
		}
	}
}
