package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/natstest"
	"github.com/entail-fleet/entail/session"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"coordinator": func() { os.Exit(exit()) }})
}

const token = "token-of-a-test"

// fleet is a broker with its keys on the disk.
type fleet struct {
	t      *testing.T
	broker natstest.Server
	keys   string
	work   string // where the processes run
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	b := natstest.Start(t)
	f := &fleet{t: t, broker: b, keys: b.Keys(t), work: t.TempDir()}
	tokens, err := json.Marshal([]coordinator.Token{{
		Digest: coordinator.DigestToken(token), Role: coordinator.Admin, Party: session.Party{Kind: session.Person, ID: "ann"},
	}})
	f.must(err)
	f.write("tokens.json", tokens, 0o600)
	f.write("nobody.json", []byte("[]"), 0o600)
	f.write("half.json", tokens[:9], 0o600)
	f.write("open.json", []byte("{}"), 0o644)
	f.write("file", nil, 0o600)
	return f
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) write(name string, text []byte, mode os.FileMode) {
	f.t.Helper()
	f.must(os.WriteFile(f.key(name), text, mode))
}

func (f *fleet) key(name string) string { return filepath.Join(f.keys, name) }

// moved writes the coordinator's credentials for another address.
func (f *fleet) moved(name, url string) string {
	f.t.Helper()
	creds, ok := f.broker.Credentials(broker.Coordinator, string(broker.Coordinator))
	if !ok {
		f.t.Fatal("the broker knows no coordinator")
	}
	creds.URL = url
	var text bytes.Buffer
	f.must(broker.WriteCredentials(&text, creds))
	f.write(name, text.Bytes(), 0o600)
	return f.key(name)
}

// command is a coordinator with what it needs; flags given later count.
func (f *fleet) command(flags ...string) *exec.Cmd {
	f.t.Helper()
	binary, err := exec.LookPath("coordinator")
	f.must(err)
	args := append([]string{
		"-credentials", f.key("coordinator.json"), "-tokens", f.key("tokens.json"), "-store", filepath.Join(f.work, "store"), "-lease", "1s",
	}, flags...)
	cmd := exec.CommandContext(f.t.Context(), binary, args...)
	cmd.Dir, cmd.Env = f.work, []string{"PATH=" + os.Getenv("PATH")}
	return cmd
}

func listening(t *testing.T, greeting string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "INFO %s\r\n", greeting)
			lines := bufio.NewScanner(conn)
			for lines.Scan() {
				if lines.Text() == "PING" {
					fmt.Fprint(conn, "PONG\r\n")
				}
			}
			conn.Close()
		}
	}()
	return "nats://" + l.Addr().String()
}

// TestBadFlags gives a coordinator each flag wrongly. It says in one line what is
// wrong and what is right, and leaves nothing behind.
func TestBadFlags(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const init = "`entail keys init`"
	gone := f.moved("gone.json", "nats://127.0.0.1:1")
	old := f.moved("old.json", listening(t, `{"server_id":"S","version":"2.9.10","max_payload":1048576,"headers":true,"jetstream":true,"nonce":"abc"}`))
	tests := map[string][]struct {
		value string
		says  []string
	}{
		"credentials": {
			{"", []string{"-credentials and -tokens are needed", "-help"}},
			{"missing", []string{"missing", init}},
			{f.keys, []string{f.keys, init}},
			{f.key("half.json"), []string{"half.json", init}},
			{f.key("open.json"), []string{"open.json has mode 0644", "chmod 600"}},
			{f.key("w1.json"), []string{`worker "w1"`, "those of a coordinator"}},
			{gone, []string{"nats://127.0.0.1:1", "is it running?"}},
			{old, []string{"nats-server 2.9.10 is too old: install 2.12.0 or newer"}},
		},
		"provisioner-credentials": {{"missing", []string{"missing", init}}, {f.key("w1.json"), []string{`worker "w1"`, "those of a provisioner"}}},
		"tokens": {
			{"", []string{"-credentials and -tokens are needed", "-help"}},
			{"missing", []string{"missing", init}},
			{f.key("half.json"), []string{"half.json", init}},
			{f.key("nobody.json"), []string{"names nobody", init}},
		},
		"store":           nil, // below: it is opened when there are streams
		"max-bytes":       {{"plenty", []string{`"plenty"`, "-help"}}, {"0", []string{"-max-bytes 0", "how many bytes"}}},
		"partitions":      {{"many", []string{`"many"`, "-help"}}, {"0", []string{"-partitions 0", "1 to 256"}}, {"257", []string{"-partitions 257", "1 to 256"}}},
		"replicas":        {{"many", []string{`"many"`, "-help"}}, {"0", []string{"-replicas 0", "1, or 3 and more"}}, {"2", []string{"-replicas 2", "1, or 3 and more"}}},
		"models":          {{"gpt", []string{`"gpt"`, "provider:name"}}, {"openai:", []string{`"openai:"`, "provider:name"}}},
		"default-sandbox": {{"wide", []string{`"wide"`, "read-only workspace-write"}}},
		"reviewer":        {{"me", []string{`"me"`, "delegate-only"}}},
		"lease":           {{"soon", []string{`"soon"`, "-help"}}, {"1ms", []string{"lease 1ms", "between 500ms and 10m"}}},
		"otlp-endpoint":   {{"collector", []string{"-otlp-endpoint", "such as http://"}}, {"ftp://me:hunter2@host", []string{"such as http://"}}},
		"http":            {{"8080", []string{`"8080"`, "127.0.0.1:8080"}}, {"127.0.0.1:many", []string{"many", "127.0.0.1:8080"}}, {":70000", []string{"70000", "127.0.0.1:8080"}}},
		"log-level":       {{"LOUD", []string{`"LOUD"`, "-help"}}},
		"name":            {{"", []string{`-name ""`, "give one word"}}, {"c 1", []string{`-name "c 1"`, "give one word"}}},
		"durability":      nil, // what it says is the operator's
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
		if cmd.ProcessState.ExitCode() != 1 || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "coordinator: ") || strings.Contains(text, "hunter2") {
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
			fromEnv := f.command()
			fromEnv.Args = slices.DeleteFunc(fromEnv.Args, func(s string) bool { return s == "-"+name })
			if len(fromEnv.Args) < len(f.command().Args) || v.value == "" {
				continue // it is one that the command gives
			}
			fromEnv.Env = append(fromEnv.Env, "ENTAIL_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+v.value)
			refused(name+" "+v.value+" in the environment", fromEnv, v.says[0])
		}
	}
	refused("a broker without streams", f.command(), "stream ENTAIL_LOG_0 does not exist", "provision the deployment")
	refused("an unknown flag", f.command("-unheard"), "-unheard", "-help")
	refused("an argument", f.command("more"), `"more"`, "takes no arguments", "-help")
	for _, store := range []string{f.key("file"), filepath.Join(f.key("file"), "below")} {
		refused("-store "+store, f.command("-store", store, "-provisioner-credentials", f.key("provisioner.json")), f.key("file"), "directory")
	}
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

// started runs a coordinator until it is ready.
func (f *fleet) started(flags ...string) *exec.Cmd {
	f.t.Helper()
	cmd := f.command(flags...)
	stderr, err := cmd.StderrPipe()
	f.must(err)
	f.must(cmd.Start())
	f.t.Cleanup(func() { _ = cmd.Process.Kill() }) // most tests have ended it
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "msg=ready") {
			go func() {
				for lines.Scan() { // or it would wait for a reader
				}
			}()
			return cmd
		}
	}
	f.t.Fatalf("the coordinator ended before it was ready: %v", cmd.Wait())
	return nil
}

// ended waits for a process's end, at most as long as its supervisor would.
func (f *fleet) ended(cmd *exec.Cmd) error {
	f.t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		f.t.Fatal("the coordinator does not stop")
	}
	return nil
}

// A coordinator makes what a fleet needs, answers, and stops when it is asked to:
// then its store is another one's to open. While it runs, the store is its own.
func TestCoordinatorServesAndStops(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	api := client.New(f.broker.Conn(t, broker.Client, "client"), client.Config{Token: token})
	for round, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd := f.started("-provisioner-credentials", f.key("provisioner.json"))
		var info client.InfoReply
		f.must(api.Call(t.Context(), client.MethodInfo, client.Head{Version: client.APIVersion}, &info))
		if info.Partitions != 1 || info.Revision == 0 {
			t.Errorf("round %d: %+v", round, info)
		}
		second := f.command("-name", "c2")
		out, err := second.CombinedOutput()
		if _, exited := errors.AsType[*exec.ExitError](err); !exited || !strings.Contains(string(out), "in use") {
			t.Errorf("a second one on the same store: %v, %s", err, out)
		}
		f.must(cmd.Process.Signal(sig))
		if err := f.ended(cmd); err != nil {
			t.Errorf("%v ends it with %v", sig, err)
		}
	}
}
