package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/stream"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"worker": func() { os.Exit(exit()) }})
}

const token = "token-of-a-test"

// fleet is a broker with its keys on the disk.
type fleet struct {
	t      *testing.T
	broker natstest.Server
	keys   string
	work   string // where the worker runs
	lease  time.Duration
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	b := natstest.Start(t)
	f := &fleet{t: t, broker: b, keys: b.Keys(t), work: t.TempDir(), lease: time.Second}
	f.must(os.WriteFile(f.key("half.json"), []byte(`{"a`), 0o600))
	f.must(os.WriteFile(f.key("open.json"), []byte("{}"), 0o644))
	return f
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) key(name string) string { return filepath.Join(f.keys, name) }

// command is a worker with what it needs; flags given later count.
func (f *fleet) command(flags ...string) *exec.Cmd {
	f.t.Helper()
	binary, err := exec.LookPath("worker")
	f.must(err)
	cmd := exec.CommandContext(f.t.Context(), binary, append([]string{"-credentials", f.key("w1.json")}, flags...)...)
	cmd.Dir, cmd.Env = f.work, []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + f.t.TempDir()}
	return cmd
}

// TestBadFlags gives a worker each flag wrongly. It says in one line what is wrong
// and what is right, and leaves nothing behind.
func TestBadFlags(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const init = "`entail keys init`"
	tests := map[string][]struct {
		value string
		says  []string
	}{
		"credentials": {
			{"", []string{"-credentials is needed", "-help"}},
			{"missing", []string{"missing", init}},
			{f.keys, []string{f.keys, init}},
			{f.key("half.json"), []string{"half.json", init}},
			{f.key("open.json"), []string{"open.json has mode 0644", "chmod 600"}},
			{f.key("coordinator.json"), []string{`coordinator "coordinator"`, "those of a worker"}},
		},
		"partitions":  {{"many", []string{`"many"`, "-help"}}, {"0", []string{"-partitions 0", "1 to 256"}}, {"257", []string{"-partitions 257", "1 to 256"}}},
		"concurrency": {{"many", []string{`"many"`, "-help"}}, {"0", []string{"-concurrency 0", "at least 1"}}, {"-1", []string{"-concurrency -1", "at least 1"}}},
		"drain":       {{"soon", []string{`"soon"`, "-help"}}, {"-1s", []string{"-drain -1s", "0s to 24h"}}, {"25h", []string{"-drain 25h", "0s to 24h"}}},
		"grace":       {{"soon", []string{`"soon"`, "-help"}}, {"0s", []string{"-grace 0s", "more than 0s"}}, {"25h", []string{"-grace 25h", "at most 24h"}}},
		"labels":      {{"GPU", []string{"-labels", `"GPU"`, "lower-case"}}, {"a,b c", []string{`"b c"`, "lower-case"}}, {strings.Repeat("a", 65), []string{"64"}}, {strings.Repeat("a,", 16) + "b", []string{"17 labels", "at most 16"}}},
		"workspaces":  {{"files", []string{"-workspaces", `"files"`, "LABEL=DIR"}}, {"files=srv", []string{`"files=srv"`, "a whole path"}}, {"nfs:files=/srv", []string{`"nfs:files=/srv"`, "host:LABEL=DIR"}}, {"files=/srv/", []string{`"files=/srv/"`, "a whole path"}}, {"=/srv", []string{`"=/srv"`, "LABEL=DIR"}}},
		"hidden":      {{"secrets", []string{`"secrets"`, "give whole paths"}}, {"/a,b", []string{`"b"`, "give whole paths"}}},
		"http":        {{"8080", []string{`"8080"`, "127.0.0.1:8080"}}, {"127.0.0.1:many", []string{"many", "127.0.0.1:8080"}}, {":70000", []string{"70000", "127.0.0.1:8080"}}},
		"log-level":   {{"LOUD", []string{`"LOUD"`, "-help"}}},
	}
	(&options{}).flags().VisitAll(func(fl *flag.Flag) {
		if _, ok := tests[fl.Name]; !ok {
			t.Errorf("the table says nothing of -%s", fl.Name)
		}
	})
	refused := func(what string, cmd *exec.Cmd, says ...string) {
		t.Helper()
		out, err := cmd.CombinedOutput()
		text := string(out)
		if cmd.ProcessState.ExitCode() != 1 || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "worker: ") {
			t.Errorf("%s: %v, it says %q", what, err, text)
		}
		for _, word := range says {
			if !strings.Contains(text, word) {
				t.Errorf("%s: it does not say %q: %s", what, word, text)
			}
		}
		if left, err := os.ReadDir(f.work); err != nil || len(left) > 0 {
			t.Errorf("%s: it left %v (%v)", what, left, err)
		}
	}
	for name, values := range tests {
		for _, v := range values {
			refused("-"+name+" "+v.value, f.command("-"+name, v.value), v.says...)
			if name == "credentials" {
				continue // it is one that the command gives
			}
			fromEnv := f.command()
			fromEnv.Env = append(fromEnv.Env, "ENTAIL_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+v.value)
			refused(name+" "+v.value+" in the environment", fromEnv, v.says[0])
		}
	}
	refused("an unknown flag", f.command("-unheard"), "-unheard", "-help")
	refused("an argument", f.command("more"), `"more"`, "takes no arguments", "-help")
	noKey := f.command()
	noKey.Env = append(noKey.Env, "OPENAI_API_KEY_FILE=missing")
	refused("a key that is not there", noKey, "OPENAI_API_KEY_FILE", "missing", "name a file")
	refused("a broker without streams", f.command(), "settings", "a coordinator with the provisioner's credentials makes them")
}

func TestHelp(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	out, err := f.command("-help").CombinedOutput()
	if err != nil {
		t.Errorf("-help: %v", err)
	}
	(&options{}).flags().VisitAll(func(fl *flag.Flag) {
		if !strings.Contains(string(out), "\n  -"+fl.Name+" ") || fl.Usage == "" {
			t.Errorf("-help does not show -%s: %s", fl.Name, out)
		}
	})
}

// coordinate makes what a fleet needs and runs a coordinator of it.
func (f *fleet) coordinate() *client.Client {
	f.t.Helper()
	log := slog.New(slog.DiscardHandler)
	creds := func(role broker.Role) broker.Credentials {
		c, ok := f.broker.Credentials(role, string(role))
		if !ok {
			f.t.Fatalf("the broker knows no %s", role)
		}
		return c
	}
	f.must(node.Provision(f.t.Context(), creds(broker.Provisioner), stream.Config{}, f.lease, log))
	ctx, cancel := context.WithCancel(f.t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	cfg := node.CoordinatorConfig{Name: "c1", Store: filepath.Join(f.t.TempDir(), "store"), Wishes: node.Wishes{Lease: f.lease}, Tokens: []coordinator.Token{{
		Digest: coordinator.DigestToken(token), Role: coordinator.Admin, Party: session.Party{Kind: session.Person, ID: "ann"},
	}}}
	go func() { ended <- node.Coordinator(ctx, creds(broker.Coordinator), cfg, log, func() { close(ready) }) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("the coordinator: %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		f.t.Fatalf("the coordinator: %v", err)
	}
	return client.New(f.broker.Conn(f.t, broker.Client, "client"), client.Config{Token: token})
}

// started runs worker w1 until it is ready.
func (f *fleet) started(flags ...string) *exec.Cmd {
	f.t.Helper()
	return f.startedAs("w1", flags...)
}

// startedAs runs a worker until it is ready.
func (f *fleet) startedAs(name string, flags ...string) *exec.Cmd {
	f.t.Helper()
	return f.startedWith(nil, name, flags...)
}

// startedWith is startedAs with more in the environment.
func (f *fleet) startedWith(env []string, name string, flags ...string) *exec.Cmd {
	f.t.Helper()
	name += ".json"
	cmd := f.command(append([]string{"-credentials", name, "-log-level", "INFO"}, flags...)...)
	cmd.Env = append(cmd.Env, env...)
	text, err := os.ReadFile(f.key(name))
	f.must(err)
	f.must(os.WriteFile(filepath.Join(f.work, name), text, 0o600)) // named from where the worker runs
	stderr, err := cmd.StderrPipe()
	f.must(err)
	f.must(cmd.Start())
	f.t.Cleanup(func() { _ = cmd.Process.Kill() }) // the test has ended it
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "msg=ready") {
			go func() { _, _ = io.Copy(io.Discard, stderr) }() // or it would wait for a reader
			return cmd
		}
	}
	f.t.Fatalf("the worker ended before it was ready: %v", cmd.Wait())
	return nil
}

// types lists the events of a log.
func types(t *testing.T, api *client.Client, id session.ID) []string {
	t.Helper()
	var reply client.EventsReply
	if err := api.Call(t.Context(), client.MethodEvents, client.EventsRequest{Head: client.Head{Version: client.APIVersion}, ID: id}, &reply); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, line := range reply.Lines {
		var e struct{ Type string }
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Type+" "+string(line))
	}
	return out
}

// A worker takes work, and one that is asked to stop lets the call that runs end
// and its result reach the log.
func TestWorkerServesAndStops(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	api := f.coordinate()
	cmd := f.started()
	id, err := session.RootID(ulid.Make().String(), 1)
	f.must(err)
	ws := t.TempDir()
	f.must(api.Call(t.Context(), client.MethodCreate, client.CreateRequest{
		Head: client.Head{Version: client.APIVersion}, ID: id, Cwd: ws, Prompt: "go", Sandbox: session.ReadOnly,
		Model: client.Model{Provider: "scripted", Model: "script", Script: `sessions:
  root:
    - calls: [{id: c1, tool: bash, args: {command: "sleep 1; cat ` + filepath.Join(f.work, "w1.json") + `; echo slept"}}]
    - text: fine
`},
	}, nil))
	has := func(typ string) bool { return strings.Contains(strings.Join(types(t, api, id), "\n"), typ+" ") }
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !has("tool/decision") {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the worker takes no work: %v", types(t, api, id))
		}
	}
	f.must(cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("SIGTERM ends it with %v", err)
	}
	for _, e := range types(t, api, id) {
		if !strings.HasPrefix(e, "tool/result ") {
			continue
		}
		if !strings.Contains(e, "slept") || strings.Contains(e, "UNKNOWN") || strings.Contains(e, "seed") {
			t.Errorf("the call that ran when it was asked to stop: %s", e)
		}
		return
	}
	t.Errorf("no result of the call that ran: %v", types(t, api, id))
}

// A worker says on /readyz what it holds calls by, and gives nothing away there.
func TestWorkerSaysHowItIs(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.coordinate()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	addr := l.Addr().String()
	f.must(l.Close())
	cmd := f.started("-http", addr)
	get := func() (int, []byte) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/readyz", nil)
		f.must(err)
		res, err := http.DefaultClient.Do(req)
		f.must(err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		f.must(err)
		return res.StatusCode, body
	}
	status, body := get()
	for deadline := time.After(30 * time.Second); status != http.StatusOK; status, body = get() {
		select {
		case <-deadline:
			t.Fatalf("it is not ready: %d %s", status, body)
		case <-time.After(20 * time.Millisecond):
		}
	}
	var h node.Health
	f.must(json.Unmarshal(body, &h))
	if !h.Ready || h.Kind != "worker" || h.Name != "w1" || h.Incarnation == "" || !h.Broker || h.Revision == 0 || h.Sandbox == nil || len(h.Sandbox.Tiers) != 3 || h.Sandbox.Own.Tier == "" {
		t.Errorf("it says %s", body)
	}
	text, err := os.ReadFile(f.key("w1.json"))
	f.must(err)
	var creds struct{ Seed string }
	f.must(json.Unmarshal(bytes.Trim(bytes.TrimSpace(text), "[]"), &creds))
	if len(creds.Seed) < 40 || strings.Contains(string(body), creds.Seed) {
		t.Errorf("the seed has %d bytes and must not be in %s", len(creds.Seed), body)
	}
	f.must(cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("SIGTERM ends it with %v", err)
	}
}
