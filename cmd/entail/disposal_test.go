package main

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

// holdings are what a deployment holds beside its logs.
type holdings struct {
	Processes   map[string]int // by what they run: the deployment's own and what these started
	Descriptors map[string]int // of each worker, and what the coordinator has open that is no file
	Keys        map[string]int // by bucket
	Consumers   int
	Temps       []string // in the workers' temp directory
	Cgroups     []string // of calls of any worker that there was
}

// household is a deployment of processes that tells what it holds.
type household struct {
	*world
	api  *client.Client
	js   jetstream.JetStream
	temp string

	mu   sync.Mutex
	pids map[string][]int // that each process had so far, the newest last; guarded by mu
}

func newHousehold(t *testing.T) *household {
	t.Helper()
	h := &household{temp: filepath.Join(t.TempDir(), "t"), pids: map[string][]int{}}
	h.world = &world{t: t, dir: filepath.Join(t.TempDir(), "data"), work: t.TempDir()}
	h.must(os.Mkdir(h.temp, 0o755))
	a := &app{out: t.Output(), err: t.Output(), environ: append(os.Environ(), "TMPDIR="+h.temp), lookup: os.LookupEnv, dir: h.dir, force: make(chan struct{})}
	a.printer = newPrinter(a, false)
	var err error
	h.srv, err = a.startServer(t.Context(), serverOptions{
		workers: 2, syncInterval: "1s", logLevel: slog.LevelError, wishes: node.Wishes{Lease: time.Second}, started: h.born,
	})
	h.must(err)
	t.Cleanup(func() {
		if err := h.srv.close(); err != nil {
			t.Error(err)
		}
	})
	dial := func(role broker.Role) *client.Client {
		nc, err := node.Connect(h.srv.broker.Credentials(role, string(role)), slog.New(slog.DiscardHandler))
		h.must(err)
		t.Cleanup(nc.Close)
		if role == broker.Provisioner {
			h.js, err = jetstream.New(nc)
			h.must(err)
		}
		token, err := broker.ReadTokenFile(filepath.Join(h.dir, "token"))
		h.must(err)
		return client.New(nc, client.Config{Token: token.Token.Reveal()})
	}
	h.api = dial(broker.Client)
	dial(broker.Provisioner)
	return h
}

func (h *household) born(name string, pid int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pids[name] = append(h.pids[name], pid)
}

// pid is the process that runs now under a name.
func (h *household) pid(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.pids[name]
	return all[len(all)-1]
}

// kill kills a process and waits until another takes its place.
func (h *household) kill(name string) {
	h.t.Helper()
	old := h.pid(name)
	h.must(syscall.Kill(old, syscall.SIGKILL))
	h.eventually(func() bool { return h.pid(name) != old })
}

// below lists the processes that a process started, and those that these started.
func below(pid int) []int {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil
	}
	var all []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil && alive(child) {
				all = append(append(all, child), below(child)...)
			}
		}
	}
	return all
}

// runs is what a process runs.
func runs(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "gone"
	}
	name, _, _ := strings.Cut(string(line), "\x00")
	return filepath.Base(name)
}

// open counts what a process has open, files or not.
func open(pid int, files bool) int {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return 0
	}
	n := 0
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && (files || !strings.HasPrefix(target, "/")) {
			n++
		}
	}
	return n
}

// holds looks at all that the deployment holds now.
func (h *household) holds() holdings {
	out := holdings{Processes: map[string]int{}, Descriptors: map[string]int{}, Keys: map[string]int{}}
	for _, name := range []string{"coordinator", "w1", "w2"} {
		pid := h.pid(name)
		out.Processes["entail "+name]++
		for _, child := range below(pid) {
			out.Processes[runs(child)]++
		}
		out.Descriptors[name] = open(pid, name != "coordinator")
	}
	for _, name := range []string{stream.StreamName(0), "KV_ENTAIL_SETTINGS", "KV_ENTAIL_LIVE"} {
		s, err := h.js.Stream(h.t.Context(), name)
		h.must(err)
		info := s.CachedInfo()
		out.Consumers += info.State.Consumers
		if bucket, ok := strings.CutPrefix(name, "KV_"); ok {
			out.Keys[bucket] = int(info.State.NumSubjects)
		}
	}
	var err error
	out.Temps, err = filepath.Glob(filepath.Join(h.temp, "*"))
	h.must(err)
	out.Cgroups = h.cgroups()
	return out
}

// cgroups lists the cgroups of calls that workers of this deployment have made.
func (h *household) cgroups() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	mine := map[string]bool{}
	for _, pids := range h.pids {
		for _, pid := range pids {
			mine[strconv.Itoa(pid)] = true
		}
	}
	name := regexp.MustCompile(`^entail-call-(\d+)-`)
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, _ error) error { // what cannot be read has none of ours
		if d == nil || !d.IsDir() {
			return nil
		}
		if m := name.FindStringSubmatch(d.Name()); m != nil && mine[m[1]] {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// within reports whether the deployment holds no more than it did. Fewer launchers
// wait in a worker that has just been started.
func (now holdings) within(before holdings) bool {
	for what, n := range now.Processes {
		if n > before.Processes[what] {
			return false
		}
	}
	for name, n := range now.Descriptors {
		if n > before.Descriptors[name] {
			return false
		}
	}
	return len(now.Temps) == 0 && len(now.Cgroups) == 0 && cmp.Equal(now.Keys, before.Keys) && now.Consumers == before.Consumers
}

// start starts a root on a script.
func (h *household) start(story string, change ...func(*client.CreateRequest)) session.ID {
	h.t.Helper()
	id, err := session.RootID(ulid.Make().String(), 1)
	h.must(err)
	in := client.CreateRequest{
		Head: client.Head{Version: client.APIVersion}, ID: id, Cwd: h.work, Label: "root", Prompt: "go", Sandbox: session.WorkspaceWrite,
		Model: client.Model{Provider: "scripted", Model: "test", Script: story},
	}
	for _, fn := range change {
		fn(&in)
	}
	h.must(h.api.Call(h.t.Context(), client.MethodCreate, in, nil))
	return id
}

// begun waits until so many endless calls run, and forgets them.
func (h *household) begun(calls int) {
	h.t.Helper()
	path := filepath.Join(h.work, "begun")
	h.eventually(func() bool {
		text, _ := os.ReadFile(path) // it is made by the first
		return strings.Count(string(text), "x") == calls
	})
	h.must(os.Remove(path))
}

func (h *household) show(id session.ID) client.Summary {
	h.t.Helper()
	var out client.Summary
	h.must(h.api.Call(h.t.Context(), client.MethodShow, client.SessionRequest{Head: client.Head{Version: client.APIVersion}, ID: id}, &out))
	return out
}

func (h *household) stop(method string, id session.ID) {
	h.t.Helper()
	h.must(h.api.Call(h.t.Context(), method, client.StopRequest{Head: client.Head{Version: client.APIVersion}, ID: id, RequestID: ulid.Make().String()}, nil))
}

const (
	storyDone = `
sessions:
  root:
    - calls: [{id: w, tool: write, args: {path: made, content: x}}, {id: d, tool: delegate, args: {kind: spawn, label: child, prompt: go}}]
    - text: done
  child:
    - calls: [{id: b, tool: bash, args: {command: "echo x >$TMPDIR/kept"}}]
    - text: done
`
	storyShort   = "sessions:\n  root:\n    - calls: [{id: w, tool: write, args: {path: made, content: x}}]\n    - text: done\n"
	storyEndless = "sessions:\n  root:\n    - calls: [{id: b, tool: bash, args: {command: \"echo x >$TMPDIR/kept; echo x >>begun; sleep 1000\"}}]\n    - text: went on\n"
)

// fates count how sessions ended.
type fates struct{ Sessions, Done, Children, Killed, Interrupted, Cancelled int }

// slots is how many sessions the two workers drive at once.
const slots = 8

// batch takes 40 sessions to their ends, eight of them out of the middle of a call:
// those of a worker that is killed, and the others by a person.
func (h *household) batch(f *fates) {
	t := h.t
	t.Helper()
	var ids []session.ID
	for i := range 40 - slots {
		story := storyShort
		if i%4 == 0 {
			story = storyDone
			f.Children++
		}
		ids = append(ids, h.start(story))
	}
	for _, id := range ids {
		h.eventually(func() bool { return h.show(id).Status == client.StatusIdle })
	}
	f.Done += len(ids)
	var endless []session.ID
	for range slots {
		endless = append(endless, h.start(storyEndless))
	}
	h.begun(slots)
	of := map[session.ID]string{}
	for _, id := range endless {
		of[id] = h.show(id).Worker
	}
	h.kill("w2")
	for i, id := range endless {
		switch {
		case of[id] == "w2":
			h.eventually(func() bool { return h.show(id).Status == client.StatusIdle })
			f.Killed++
		case i%2 == 0:
			h.stop(client.MethodInterrupt, id)
			h.eventually(func() bool { return h.show(id).Status == client.StatusIdle })
			f.Interrupted++
		default:
			h.stop(client.MethodCancel, id)
			h.eventually(func() bool { return h.show(id).Status == client.StatusEnded })
			f.Cancelled++
		}
	}
	f.Sessions += 40
}

// After 200 sessions that were started and came to every kind of end, some of them by
// the death of their worker, the deployment holds what it held before: processes,
// descriptors, keys, consumers, temp directories and cgroups. One of the workers has
// lived through it all.
func TestSPEC7_7_NothingIsLeftOf200Sessions(t *testing.T) {
	t.Parallel()
	h := newHousehold(t)
	h.batch(&fates{}) // launchers that wait for calls, streams' consumers: what comes with the first
	var before holdings
	h.eventually(func() bool { before = h.holds(); return len(before.Temps) == 0 && len(before.Cgroups) == 0 })
	first := h.pid("w1")
	var f fates
	for range 5 {
		h.batch(&f)
	}
	var after holdings
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	ok := false
	for end := time.Now().Add(awaitLimit); !ok && time.Now().Before(end); <-tick.C {
		after = h.holds()
		ok = after.within(before)
	}
	t.Logf("%+v; held before %+v, after %+v", f, before, after)
	if !ok {
		t.Errorf("held before and after (-before +after):\n%s", cmp.Diff(before, after))
	}
	if f.Sessions != 200 || f.Done < 100 || f.Children < 40 || f.Killed < 5 || f.Interrupted < 3 || f.Cancelled < 3 {
		t.Errorf("the sessions ended %+v: too few of a kind", f)
	}
	if h.pid("w1") != first || after.Processes["entail w1"] != 1 {
		t.Error("the worker that was to live through it was replaced")
	}
}
