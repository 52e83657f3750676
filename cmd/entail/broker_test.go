package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/entail-fleet/entail/broker"
)

// The greetings of servers that cannot carry a deployment. The first is what
// Debian's nats-server, 2.9.10, says where it knows keys.
const (
	oldGreeting = `{"server_id":"NDUFUE35","server_name":"NDUFUE35","version":"2.9.10","proto":1,"go":"go1.19.8","host":"127.0.0.1","port":4222,` +
		`"headers":true,"auth_required":true,"max_payload":1048576,"jetstream":true,"client_id":10,"client_ip":"127.0.0.1","nonce":"d557IrkmlHusgIM"}`
	noKeysGreeting  = `{"server_id":"S","version":"2.12.1","max_payload":1048576,"headers":true}`
	noJetStreamText = "has JetStream off: start nats-server with jetstream enabled"
	tooOldText      = "nats-server 2.9.10 is too old: install 2.12.0 or newer"
)

// fakeServer greets as a nats-server that describes itself so, and agrees with
// whatever a client says.
func fakeServer(t *testing.T, greeting string) string {
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
			go greet(conn, greeting)
		}
	}()
	return "nats://" + l.Addr().String()
}

func greet(conn net.Conn, greeting string) {
	defer conn.Close()
	fmt.Fprintf(conn, "INFO %s\r\n", greeting)
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if lines.Text() == "PING" {
			fmt.Fprint(conn, "PONG\r\n")
		}
	}
}

// freePort is a port that nobody listens on now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("address %v is not of TCP", l.Addr())
	}
	return addr.Port
}

// withoutJetStream runs a server of today that knows a client's key and keeps
// nothing.
func withoutJetStream(t *testing.T, id broker.Identity) string {
	t.Helper()
	key, err := id.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true, Nkeys: []*natsserver.NkeyUser{{Nkey: key}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL()
}

// A server that cannot carry a deployment is refused by name, at once, whether a
// command wants to ask or to run.
func TestUnfitServersAreRefused(t *testing.T) {
	t.Parallel()
	id, err := broker.NewIdentity(broker.Client, "client")
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := broker.WriteTokenFile(token, broker.TokenFile{
		Client: broker.Credentials{URL: "nats://127.0.0.1:1", Role: id.Role, Name: id.Name, Seed: id.Seed}, Token: broker.NewSecret("t"),
	}); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, url, want string
	}{
		{"not there", fmt.Sprintf("nats://127.0.0.1:%d", freePort(t)), "is it running?"},
		{"too old", fakeServer(t, oldGreeting), tooOldText},
		{"without JetStream", withoutJetStream(t, id), noJetStreamText},
		{"without keys", fakeServer(t, noKeysGreeting), "takes no keys"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			refusesServer(t, tt.url, token, tt.want)
		})
	}
}

// refusesServer wants commands to refuse a server, and to leave nothing behind.
func refusesServer(t *testing.T, url, token, want string) {
	t.Helper()
	dir := t.TempDir()
	story := filepath.Join(dir, "story.yaml")
	if err := os.WriteFile(story, []byte("sessions:\n  root:\n    - text: fine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"session", "ls"}, {"run", "--cwd", dir, "--model", "scripted:" + story, "go"}} {
		r := command{args: append(args, "--server", url, "--token-file", token, "--dir", filepath.Join(dir, "data"))}.run()
		if r.exit != exitUnavailable || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("entail %v: exit %d, want %d and %q: %s%s", args, r.exit, exitUnavailable, want, r.err, r.out)
		}
		if creds, err := broker.ReadTokenFile(token); err != nil || strings.Contains(r.err, creds.Client.Seed.Reveal()) {
			t.Errorf("entail %v shows the key (%v)", args, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v (%v)", left, err)
	}
}

// Debian's nats-server itself, with the keys of a fleet and without, where it is
// installed: .ci/run installs it, and names what was not run where it cannot.
// What it says first is what TestUnfitServersAreRefused runs everywhere.
func TestDebiansServerIsRefused(t *testing.T) {
	t.Parallel()
	binary, err := exec.LookPath("nats-server")
	if err != nil {
		t.Logf("not run: %v; apt-get install nats-server has it", err)
		return
	}
	version, err := exec.CommandContext(t.Context(), binary, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, number, _ := strings.Cut(strings.TrimSpace(string(version)), ": v")
	if broker.RequireVersion(number, broker.MinVersion) == nil {
		t.Fatalf("%s is version %s, which is not too old: put Debian's first in PATH", binary, number)
	}
	keys := filepath.Join(t.TempDir(), "keys")
	f := fleet{brokers: []string{"127.0.0.1"}, coordinators: []string{"c1"}, workers: []string{"w1"}, partitions: 1}
	if err := f.init(keys, "ann"); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ config, want string }{
		"as it is installed":       {"", "needs nats-server " + broker.MinVersion + " or newer"},
		"with the keys of a fleet": {`include "broker/accounts.conf"`, "nats-server " + number + " is too old: install " + broker.MinVersion + " or newer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			conf := filepath.Join(keys, fmt.Sprintf("%d.conf", port))
			text := fmt.Sprintf("listen: \"127.0.0.1:%d\"\njetstream { store_dir: %q }\n%s\n", port, t.TempDir(), tt.config)
			if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			serve(t, exec.CommandContext(t.Context(), binary, "-c", conf), port)
			refusesServer(t, fmt.Sprintf("nats://127.0.0.1:%d", port), filepath.Join(keys, "token"), tt.want)
		})
	}
}

// serve runs a server's process until the test ends and waits until it listens.
func serve(t *testing.T, cmd *exec.Cmd, port int) {
	t.Helper()
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(awaitLimit)
	for {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-tick.C:
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v", cmd.Path, err)
		case <-deadline:
			t.Fatalf("%s does not listen on port %d", cmd.Path, port)
		}
	}
}
