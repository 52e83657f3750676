// Package natstest runs the embedded broker for tests of other packages.
package natstest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
)

// Server is an embedded broker that ends with its test.
type Server struct {
	*broker.Server
}

// Start runs a broker with one partition in a directory of its own. It knows one
// identity of each role, named after the role, and the workers w1 and w2.
func Start(t testing.TB) Server {
	t.Helper()
	return StartConfig(t, broker.Config{Dir: t.TempDir()})
}

// StartConfig is Start with a configuration.
func StartConfig(t testing.TB, cfg broker.Config) Server {
	t.Helper()
	s, err := broker.Start(t.Context(), cfg, Identities(t))
	if err != nil {
		t.Fatalf("start the broker: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the broker: %v", err)
		}
	})
	return Server{s}
}

// Identities returns fresh identities under the names that Start uses.
func Identities(t testing.TB) []broker.Identity {
	t.Helper()
	var out []broker.Identity
	add := func(role broker.Role, name string) {
		id, err := broker.NewIdentity(role, name)
		if err != nil {
			t.Fatalf("make an identity: %v", err)
		}
		out = append(out, id)
	}
	for _, role := range broker.Roles() {
		if role != broker.Worker {
			add(role, string(role))
		}
	}
	add(broker.Worker, "w1")
	add(broker.Worker, "w2")
	return out
}

// Conn connects as an identity until the test ends. Options come after the
// identity's own.
func (s Server) Conn(t testing.TB, role broker.Role, name string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	creds, ok := s.Credentials(role, name)
	if !ok {
		t.Fatalf("the broker knows no %s %q", role, name)
	}
	nc, err := nats.Connect(creds.URL, append(creds.Options(), opts...)...)
	if err != nil {
		t.Fatalf("connect as %s %q: %v", role, name, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Keys writes the credentials of every identity to a directory, as NAME.json, in
// the form that a process of a fleet reads them.
func (s Server) Keys(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, role := range broker.Roles() {
		names := []string{string(role)}
		if role == broker.Worker {
			names = []string{"w1", "w2"}
		}
		for _, name := range names {
			creds, ok := s.Credentials(role, name)
			if !ok {
				t.Fatalf("the broker knows no %s %q", role, name)
			}
			var text bytes.Buffer
			if err := broker.WriteCredentials(&text, creds); err != nil {
				t.Fatalf("write the credentials of %s %q: %v", role, name, err)
			}
			if err := os.WriteFile(filepath.Join(dir, name+".json"), text.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}
