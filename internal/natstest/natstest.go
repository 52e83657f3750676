// Package natstest runs brokers for tests of other packages: the embedded one, and
// the three servers of a fleet.
//
//	Start           package broker's server, as `entail up` runs it
//	StartCluster    three servers in this process, with a fleet's configuration
//	StartProcesses  the same as three processes, which can be killed
//	StartProxy      a relay in front of a server that holds back or loses bytes
//
// All know the same identities and hand out connections as Conn(t, role, name).
//
// A proxy makes what a network does: acknowledgements that come late (Hold), never
// (Drop) or after the connection is gone (Cut), one way or both.
//
//	p := natstest.StartProxy(t, c.URL(c.Leader(t, "ENTAIL_LOG_0")))
//	nc := c.ConnURL(t, p.URL(), broker.Coordinator, "coordinator", nats.IgnoreDiscoveredServers())
//	p.Hold(natstest.ToClient) // what is published is stored, nobody hears of it
//	p.Open()                  // the answers arrive
//
// A server of a cluster that is started again has the port and the store it had.
package natstest

import (
	"bytes"
	"fmt"
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
	return identities(t, 0)
}

// identities is Identities with so many workers, w1 and w2 at least.
func identities(t testing.TB, workers int) []broker.Identity {
	t.Helper()
	var names []string
	for i := range max(workers, 2) {
		names = append(names, fmt.Sprintf("w%d", i+1))
	}
	ids, err := broker.NewIdentities(names...)
	if err != nil {
		t.Fatalf("make identities: %v", err)
	}
	return ids
}

// Conn connects as an identity until the test ends. Options come after the
// identity's own.
func (s Server) Conn(t testing.TB, role broker.Role, name string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	creds, ok := s.Credentials(role, name)
	if !ok {
		t.Fatalf("the broker knows no %s %q", role, name)
	}
	return connect(t, creds.URL, creds, opts)
}

func connect(t testing.TB, url string, creds broker.Credentials, opts []nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(creds.Options(), opts...)...)
	if err != nil {
		t.Fatalf("connect as %s %q: %v", creds.Role, creds.Name, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func credentials(url string, id broker.Identity) broker.Credentials {
	return broker.Credentials{URL: url, Role: id.Role, Name: id.Name, Seed: id.Seed}
}

// Keys writes the credentials of every identity to a directory, as NAME.json, in
// the form that a process of a fleet reads them.
func (s Server) Keys(t testing.TB) string {
	t.Helper()
	return writeKeys(t, s.Credentials)
}

func writeKeys(t testing.TB, of func(broker.Role, string) (broker.Credentials, bool)) string {
	t.Helper()
	dir := t.TempDir()
	for _, role := range broker.Roles() {
		names := []string{string(role)}
		if role == broker.Worker {
			names = []string{"w1", "w2"}
		}
		for _, name := range names {
			creds, ok := of(role, name)
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
