package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/entail-fleet/entail/broker"
)

// fakeServer greets as a nats-server that describes itself so, and agrees with
// whatever a client says.
func fakeServer(t *testing.T, info string) string {
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
			go greet(conn, info)
		}
	}()
	return "nats://" + l.Addr().String()
}

func greet(conn net.Conn, info string) {
	defer conn.Close()
	fmt.Fprintf(conn, "INFO %s\r\n", info)
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if lines.Text() == "PING" {
			fmt.Fprint(conn, "PONG\r\n")
		}
	}
}

// A server that cannot carry a deployment is refused by name, at once.
func TestUnfitServersAreRefused(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	const form = `{"server_id":"S","version":%q,"max_payload":1048576,"headers":true,"nonce":"abc","jetstream":%t}`
	tests := []struct {
		name, url, want string
	}{
		{"not there", "nats://" + free.Addr().String(), "is it running?"},
		{"too old", fakeServer(t, fmt.Sprintf(form, "2.9.10", true)), "nats-server 2.9.10 is too old: install 2.12.0 or newer"},
		{"without JetStream", fakeServer(t, fmt.Sprintf(form, "2.12.1", false)), "has JetStream off: start nats-server with jetstream enabled"},
		{"without keys", fakeServer(t, `{"server_id":"S","version":"2.12.1","max_payload":1048576,"headers":true}`), "takes no keys"},
	}
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
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			a := &app{in: strings.NewReader(""), out: &out, err: &out, lookup: func(string) (string, bool) { return "", false }}
			exit := a.execute([]string{"session", "ls", "--server", tt.url, "--token-file", token})
			if exit != exitUnavailable || !strings.Contains(out.String(), tt.want) {
				t.Errorf("exit %d, output %s, want %q", exit, out.String(), tt.want)
			}
			if strings.Contains(out.String(), id.Seed.Reveal()) {
				t.Error("the output shows the key")
			}
		})
	}
}
