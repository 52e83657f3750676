//go:build failpoints

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/session"
)

// story is a tree that passes every point: a call, a child with a call of its own that is
// waited for, another call. Each call says on the disk that it ran, which is the ledger:
// no log can hide a call that ran twice.
const story = `sessions:
  root:
    - calls: [{id: a, tool: bash, args: {command: "echo root-1 >> ledger; sleep 0.2"}}]
    - calls: [{id: b, tool: delegate, args: {kind: spawn, label: child, prompt: p}}]
    - calls: [{id: c, tool: bash, args: {command: "echo root-2 >> ledger"}}]
    - text: done
  child:
    - calls: [{id: d, tool: bash, args: {command: "echo child-1 >> ledger; sleep 0.1"}}]
    - text: the child is done
`

// points are where a worker is stopped. At random is wherever it is after some time, which
// is often in the middle of an effect.
var points = []string{
	"before-claim", "after-claim", "before-decision", "after-decision", "after-effect", "after-result",
	"before-park", "after-park", "before-end", "after-end", "before-notice", "after-notice", "before-ack", "random",
}

// TestKills stops a worker at each point, by SIGKILL and by SIGSTOP, and lets another one
// go on. One that was stopped is woken once the other is done. Whatever fell where: no
// call ran twice, none is without its result, the child's end is told once, the tree comes
// to its end, and who was woken has written nothing. KILLS says how often in all, each
// point at least once each way.
func TestKills(t *testing.T) {
	kills := 2 * len(points)
	if text := os.Getenv("KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < kills {
			t.Fatalf("KILLS %q: use a number from %d on", text, kills)
		}
		kills = n
	}
	var mu sync.Mutex
	fell := map[string]int{}
	var took []time.Duration
	t.Run("all", func(t *testing.T) {
		for i := range kills {
			point, sig := points[i/2%len(points)], []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP}[i%2]
			t.Run(fmt.Sprintf("%d %s %v", i, point, sig), func(t *testing.T) {
				t.Parallel()
				k := newKill(t)
				hit, after := k.strike(point, sig)
				k.judge()
				mu.Lock()
				defer mu.Unlock()
				if hit {
					fell[fmt.Sprintf("%s %v", point, sig)]++
				}
				if sig == syscall.SIGKILL && after > 0 {
					took = append(took, after)
				}
			})
		}
	})
	for _, name := range slices.Sorted(maps.Keys(fell)) {
		t.Logf("%5d %s", fell[name], name)
	}
	least := kills / (2 * len(points)) // of each kind
	for _, point := range points {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			if name := fmt.Sprintf("%s %v", point, sig); fell[name] < least && point != "random" {
				t.Errorf("%d fell %s, want at least %d", fell[name], name, least)
			}
		}
	}
	if len(took) == 0 {
		t.Fatal("no takeover was timed")
	}
	slices.Sort(took)
	t.Logf("from SIGKILL to the next worker's first record, lease %v: median %v, longest %v, of %d", killLease, took[len(took)/2], took[len(took)-1], len(took))
}

const killLease = time.Second

// Without the rule that a call which may have had an effect is not run again, the same
// kills show it.
func TestKillsCanFail(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-ldflags=-w", "-count=1", "-tags", "failpoints,mutate_rerun", "-run", "^TestKills$", ".")
	cmd.Env = append(os.Environ(), "KILLS=")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), " ran 2 times") {
		t.Errorf("the kills do not show a call that runs twice: %v\n%s", err, out)
	}
}

// kill is one fleet in which a worker is stopped.
type kill struct {
	*fleet
	api    *client.Client
	ws     string
	root   session.ID
	zombie *exec.Cmd // that was stopped and not killed
	at     time.Time
}

func newKill(t *testing.T) *kill {
	f := newFleet(t)
	f.lease = killLease
	return &kill{fleet: f, api: f.coordinate(), ws: t.TempDir()}
}

// strike stops the first worker at a point and starts another. It reports whether the
// point was reached, and how long after a kill the other one claimed a session.
func (k *kill) strike(point string, sig syscall.Signal) (hit bool, took time.Duration) {
	k.t.Helper()
	dir := k.t.TempDir()
	first := k.startedWith([]string{"ENTAIL_FAILPOINT=" + point, "ENTAIL_FAILPOINT_DIR=" + dir}, "w1")
	k.create()
	if hit = point == "random"; hit {
		k.startedAs("w2") // which may have taken a part
		<-time.After(time.Duration(rand.IntN(900)) * time.Millisecond)
	} else {
		k.until("the point is reached, or all is over", func() bool {
			_, err := os.Stat(filepath.Join(dir, "reached"))
			hit = err == nil
			return hit || k.over()
		})
		k.startedAs("w2") // the first one's claims are alive
	}
	k.must(first.Process.Signal(sig))
	at := time.Now()
	if sig == syscall.SIGKILL {
		_ = first.Wait()
	}
	k.until("the tree is done", k.over)
	if sig == syscall.SIGSTOP {
		k.must(os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
		k.must(first.Process.Signal(syscall.SIGCONT))
		k.must(first.Process.Signal(syscall.SIGTERM)) // it ends once it has nothing in hand
		_ = first.Wait()
	}
	for _, id := range []session.ID{k.root, k.child()} {
		for _, e := range k.events(id) {
			after := time.UnixMilli(e.Time).Sub(at)
			if e.Type == session.TypeClaim && e.Data.Worker == "w2" && after > 0 && (took == 0 || after < took) {
				took = after
			}
		}
	}
	return hit, took
}

func (k *kill) create() {
	k.t.Helper()
	var err error
	k.root, err = session.RootID(ulid.Make().String(), 1)
	k.must(err)
	k.must(k.api.Call(k.t.Context(), client.MethodCreate, client.CreateRequest{
		Head: head, ID: k.root, Cwd: k.ws, Prompt: "go", Sandbox: session.WorkspaceWrite,
		Model: client.Model{Provider: "scripted", Model: "script", Script: story},
	}, nil))
}

func (k *kill) until(what string, ok func() bool) {
	k.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(90 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			k.t.Fatalf("never: %s; the log: %s", what, strings.Join(types(k.t, k.api, k.root), "\n"))
		}
	}
}

func (k *kill) show(id session.ID) client.Summary {
	k.t.Helper()
	var out client.Summary
	k.must(k.api.Call(k.t.Context(), client.MethodShow, client.SessionRequest{Head: head, ID: id}, &out))
	return out
}

// over reports whether the root has ended its turn and its child is gone.
func (k *kill) over() bool {
	s := k.show(k.root)
	return !s.Open && s.LastEnd != nil && len(s.Children) == 0
}

// entry is what the tests read of an event.
type entry struct {
	Type session.Type
	Time int64
	Data struct {
		CallID  session.CallID
		Verdict session.Verdict
		Child   session.ID
		Code    string
		Worker  string
		Epoch   uint64
		Source  json.RawMessage
	}
}

func (k *kill) events(id session.ID) []entry {
	k.t.Helper()
	if id == "" {
		return nil
	}
	var out []entry
	for _, line := range types(k.t, k.api, id) {
		_, text, _ := strings.Cut(line, " ")
		var e entry
		k.must(json.Unmarshal([]byte(text), &e))
		out = append(out, e)
	}
	return out
}

// child is the root's only child.
func (k *kill) child() session.ID {
	k.t.Helper()
	var found []session.ID
	for _, e := range k.events(k.root) {
		if e.Type == session.TypeToolDecision && e.Data.Child != "" {
			found = append(found, e.Data.Child)
		}
	}
	if len(found) != 1 {
		k.t.Errorf("%d children were started, want one", len(found))
		return ""
	}
	return found[0]
}

// judge holds what is left to what may be.
func (k *kill) judge() {
	k.t.Helper()
	if end := k.show(k.root).LastEnd.Reason; end.Kind != session.EndCompleted {
		k.t.Errorf("the root's turn ended %+v", end)
	}
	ledger, err := os.ReadFile(filepath.Join(k.ws, "ledger"))
	k.must(err)
	ran := map[string]int{}
	for name := range strings.FieldsSeq(string(ledger)) {
		if ran[name]++; ran[name] > 1 {
			k.t.Errorf("%s ran %d times", name, ran[name])
		}
	}
	notices, unknown, calls := 0, 0, 0
	for _, id := range []session.ID{k.root, k.child()} {
		allowed, results := map[session.CallID]int{}, map[session.CallID]int{}
		var claims []entry
		for _, e := range k.events(id) {
			switch e.Type {
			case session.TypeToolCall:
				calls++
			case session.TypeToolDecision:
				if e.Data.Verdict == session.Allow {
					allowed[e.Data.CallID]++
				}
			case session.TypeToolResult:
				results[e.Data.CallID]++
				if e.Data.Code == session.CodeToolOutcomeUnknown {
					unknown++
				}
			case session.TypeUserMessage:
				if strings.Contains(string(e.Data.Source), `"`+string(session.FromSettled)+`"`) {
					notices++
				}
			case session.TypeClaim:
				claims = append(claims, e)
			}
		}
		for call, n := range results {
			if n != 1 || allowed[call] != 1 {
				k.t.Errorf("call %s of %s was allowed %d times and has %d results", call, id, allowed[call], n)
			}
		}
		if len(results) != len(allowed) {
			k.t.Errorf("%d calls of %s were allowed, %d have a result", len(allowed), id, len(results))
		}
		// Once the other worker has claimed a session, the first one claims no more, and
		// a record of its earlier claim would be void.
		for i, c := range claims {
			if i > 0 && claims[i-1].Data.Worker == "w2" && c.Data.Worker == "w1" {
				k.t.Errorf("w1 claimed %s after w2", id)
			}
		}
		if s := k.show(id); s.Voids != 0 || s.Stopped != "" {
			k.t.Errorf("session %s has %d void records, stopped %q", id, s.Voids, s.Stopped)
		}
	}
	if notices != 1 {
		k.t.Errorf("the end of the child was told %d times", notices)
	}
	if calls != 4 || unknown > 1 || len(ran)+unknown < 3 {
		k.t.Errorf("%d calls were made, %d of unknown outcome, on the disk are %v; want 4, one at most, and each that is known", calls, unknown, ran)
	}
}
