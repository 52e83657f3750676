package broker_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
)

func TestRequireVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version string
		want    string // part of the error, empty for none
	}{
		{"2.12.0", ""},
		{"2.12.0-RC.1", ""},
		{"2.15.2", ""},
		{"v2.13.0", ""},
		{"3.0.0", ""},
		{"2.11.99", "2.11.99 is too old: install 2.12.0 or newer"},
		{"2.9.10", "too old"}, // Debian's
		{"1.99.99", "too old"},
		{"", "not of the form"},
		{"2.12", "not of the form"},
		{"2.x.0", "not of the form"},
		{"2.-12.0", "not of the form"},
	} {
		err := broker.RequireVersion(c.version, broker.MinVersion)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.version, err, c.want)
		}
	}
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	for _, p := range []party{provisioner, coordinator, worker, reader} {
		if err := broker.CheckServer(s.Conn(t, p.role, p.name)); err != nil {
			t.Errorf("%s: %v", p.role, err)
		}
	}
}

func TestCheckServerNamesMissingJetStream(t *testing.T) {
	t.Parallel()
	nc := plainServer(t, &server.Options{})
	err := broker.CheckServer(nc)
	if err == nil || !strings.Contains(err.Error(), "JetStream is off: start nats-server with jetstream") {
		t.Errorf("got %v, want JetStream named", err)
	}
}

func TestCheckServerNamesAnAccountWithoutJetStream(t *testing.T) {
	t.Parallel()
	account := server.NewAccount("A")
	nc := plainServer(t, &server.Options{
		JetStream: true, StoreDir: t.TempDir(), Accounts: []*server.Account{account},
		Users: []*server.User{{Username: "u", Password: "p", Account: account}},
	}, nats.UserInfo("u", "p"))
	err := broker.CheckServer(nc)
	if err == nil || !strings.Contains(err.Error(), "JetStream is not usable") {
		t.Errorf("got %v, want JetStream named", err)
	}
}

// plainServer runs a server that is not ours and connects to it.
func plainServer(t *testing.T, o *server.Options, opts ...nats.Option) *nats.Conn {
	t.Helper()
	o.Host, o.Port = "127.0.0.1", server.RANDOM_PORT
	nc, err := nats.Connect(runServer(t, o), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// runServer runs a server until the test ends and returns its address.
func runServer(t *testing.T, o *server.Options) string {
	t.Helper()
	o.NoLog, o.NoSigs = true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(wait) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL()
}
