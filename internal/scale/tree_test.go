package scale_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/delegation"
	"github.com/entail-fleet/entail/session"
)

// deep is how long the chains of a tree are.
const deep = 70

// TestOneLargeTree writes one tree, as wide as it is deep: of five sessions two are
// children of the root and three stand in chains below one of those. It is listed,
// shown, explained at its depth and cancelled, and a worker ends it. One session is
// one record of a cancel, however deep it stands.
func TestOneLargeTree(t *testing.T) {
	t.Parallel()
	n := setting(t, "SCALE_TREE", 300)
	w := newWorld(t, 1)
	root, leaf := w.tree(n)
	full := w.broker.figures()
	t.Logf("%d sessions, %d records; broker: RSS %s, heap %s", n, w.fixture.records, mib(full.RSS), mib(full.Heap))
	c := w.coordinate()
	t.Logf("%-46s %v, CPU %v", "coordinator: start with an empty mirror", c.ready.Took, c.ready.CPU)
	t.Logf("coordinator: RSS %s, heap %s", mib(c.ready.RSS), mib(c.ready.Heap))

	depth := 0
	timed(t, "list the tree", func() {
		got := w.listAll(root, func(s client.Summary) { depth = max(depth, s.Header.DelegationDepth) })
		if got != n || depth != deep+1 {
			t.Errorf("%d sessions down to depth %d are listed, want %d down to %d", got, depth, n, deep+1)
		}
	})
	timed(t, "show the root", func() {
		if s := w.show(root); len(s.Children) != w.width(n) {
			t.Errorf("the root has %d children, want %d", len(s.Children), w.width(n))
		}
	})
	timed(t, "explain at depth", func() {
		var out client.ExplainReply
		w.call(client.MethodPolicyExplain, client.SessionRequest{Head: head, ID: leaf}, &out)
		if o := out.Values[0].Origins; len(o) != deep+2 || o[deep+1].Session != root || out.Values[0].Value != string(session.WorkspaceWrite) {
			t.Errorf("sandbox %s comes over %d sessions, want %s over %d from the root", out.Values[0].Value, len(o), session.WorkspaceWrite, deep+2)
		}
	})
	w.cancelled(c, root, n)
}

// TestAListIsAsLongAsItIs has sessions with much to say of themselves, so many that no
// answer holds them: they are listed page by page, each once and in order, and a tree
// of them is refused with the way to read it.
func TestAListIsAsLongAsItIs(t *testing.T) {
	t.Parallel()
	const n, pad = 450, 3000
	w := newWorld(t, 1)
	top := w.fixture.root(0, func(r *delegation.Root) { r.Cwd += "/" + strings.Repeat("x", pad) })
	top.open(session.ToolDelegate, n)
	want := []session.ID{top.id()}
	for i := range n {
		want = append(want, top.delegate(i).id())
	}
	w.fixture.done()
	w.coordinate()
	for _, limit := range []int{0, 100} {
		var got []session.ID
		in, pages := client.ListRequest{Limit: limit}, 0
		for more := true; more; pages++ {
			out := w.list(in)
			for _, s := range out.Sessions {
				got = append(got, s.Header.ID)
				in.AfterID = s.Header.ID
			}
			more = out.More
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) || pages < 2 {
			t.Errorf("limit %d: %d sessions on %d pages, want %d, each once", limit, len(got), pages, len(want))
		}
	}
	err := w.api.Call(t.Context(), client.MethodTree, client.SessionRequest{Head: head, ID: top.id()}, nil)
	if client.CodeOf(err) != client.CodeTooLarge || !strings.Contains(err.Error(), client.MethodList) {
		t.Errorf("the tree: %v, want %s with the way to read it", err, client.CodeTooLarge)
	}
}

// cancelled cancels a tree and has a worker end it.
func (w *world) cancelled(c *part, root session.ID, n int) {
	t := w.t
	before, published := w.stored(), c.figures().Published
	timed(t, "cancel the tree", func() {
		w.call(client.MethodCancel, client.StopRequest{Head: head, ID: root, RequestID: "c1", Reason: "enough"}, nil)
	})
	records := w.stored() - before
	if records != uint64(n) {
		t.Errorf("a cancel of %d sessions is %d records, want one each", n, records)
	}
	if sent := c.figures().Published - published; sent > 3*records {
		t.Errorf("%d records were sent to append %d", sent, records)
	}
	w.call(client.MethodCancel, client.StopRequest{Head: head, ID: root, RequestID: "c1", Reason: "enough"}, nil)
	if again := w.stored() - before; again != records {
		t.Errorf("the same cancel again is %d records more", again-records)
	}
	k := w.work(4)
	var all []session.ID
	w.listAll(root, func(s client.Summary) { all = append(all, s.Header.ID) })
	timed(t, "end the tree", func() { w.ended(all) })
	f := k.figures()
	t.Logf("worker: RSS %s, heap %s, CPU %v, %d goroutines", mib(f.RSS), mib(f.Heap), f.CPU, f.Goroutines)
	f = c.figures()
	t.Logf("coordinator: RSS %s, heap %s, CPU %v", mib(f.RSS), mib(f.Heap), f.CPU)
	if got := w.consumers(); got != 2 {
		t.Errorf("%d consumers, want 2", got)
	}
}

// width is how many children the root of a tree of n has: what no chain takes up.
func (w *world) width(n int) int { return n - 1 - 3*n/5/deep*deep }

// tree writes a tree of n sessions and returns its root and its deepest session.
func (w *world) tree(n int) (root, leaf session.ID) {
	f := w.fixture
	top := f.settledRoot(0, 11)
	var children []*log
	for len(children) < w.width(n) {
		calls := min(100, w.width(n)-len(children))
		top.open(session.ToolDelegate, calls)
		for i := range calls {
			children = append(children, top.delegate(i))
		}
		top.finish()
	}
	for chain := range 3 * n / 5 / deep {
		l := children[chain]
		for range deep {
			l.open(session.ToolDelegate, 1)
			below := l.delegate(0)
			l.finish()
			l = below
		}
		leaf = l.id()
	}
	f.done()
	return top.id(), leaf
}
