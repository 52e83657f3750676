package broker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
)

func TestNobodyConnectsWithoutAKnownKey(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	stranger := newCredentials(t, broker.Coordinator, "coordinator")
	for name, opts := range map[string][]nats.Option{
		"no key":           nil,
		"user and secret":  {nats.UserInfo("coordinator", "x")},
		"token":            {nats.Token("x")},
		"fresh key":        stranger.Options(),
		"the name of $SYS": {nats.UserInfo("$SYS", "")},
	} {
		nc, err := nats.Connect(s.URL(), opts...)
		if err == nil {
			nc.Close()
		}
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: got %v, want %v", name, err, nats.ErrAuthorization)
		}
	}
}

func TestOneProcessPerDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := startHolder(t, dir)
	_, err := broker.Start(t.Context(), broker.Config{Dir: dir}, natstest.Identities(t))
	for _, want := range []string{dir, fmt.Sprintf("in use by process %d:", holder.Pid), "--dir"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("got %v, want an error with %q", err, want)
		}
	}
	if err := holder.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Wait(); err != nil {
		t.Fatal(err)
	}
	s := natstest.StartConfig(t, broker.Config{Dir: dir})
	if _, err := broker.Start(t.Context(), broker.Config{Dir: dir}, natstest.Identities(t)); err == nil {
		t.Fatal("one process started two brokers in one directory")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	natstest.StartConfig(t, broker.Config{Dir: dir})
}

func TestStartKeepsWhatIsStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, sync := range []string{"always", "1s"} {
		s := natstest.StartConfig(t, broker.Config{Dir: dir, SyncInterval: sync})
		provision(t, s.Conn(t, broker.Provisioner, "provisioner"))
		nc := s.Conn(t, broker.Coordinator, "coordinator")
		if sync == "always" {
			request(t, nc, "entail.log.0.r.s.inbox", "hello")
		}
		wantSubjects(t, nc, "ENTAIL_LOG_0", map[string]int{"entail.log.0.r.s.inbox": 1})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDataDirectoryIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "data")
	natstest.StartConfig(t, broker.Config{Dir: dir})
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "nats"): 0o700, filepath.Join(dir, "lock"): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %#o, want %#o", path, got, want)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	broken := t.TempDir()
	if err := os.MkdirAll(filepath.Join(broken, "nats"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(broken, "nats", "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ids := natstest.Identities(t)
	for _, c := range []struct {
		name string
		cfg  broker.Config
		ids  []broker.Identity
		want string
	}{
		{"no directory", broker.Config{}, ids, "no data directory"},
		{"every address", broker.Config{Host: "0.0.0.0"}, ids, "loopback only"},
		{"another machine's address", broker.Config{Host: "192.0.2.1"}, ids, "loopback only"},
		{"a name", broker.Config{Host: "example.org"}, ids, "loopback only"},
		{"no port", broker.Config{Port: 65536}, ids, "65536"},
		{"port taken", broker.Config{Port: taken.Addr().(*net.TCPAddr).Port}, ids, "address already in use"},
		{"sync never", broker.Config{SyncInterval: "never"}, ids, "or always"},
		{"sync zero", broker.Config{SyncInterval: "0s"}, ids, "or always"},
		{"negative partitions", broker.Config{Partitions: -1}, ids, "negative"},
		{"file for a directory", broker.Config{Dir: file}, ids, "not a directory"},
		{"file for the store", broker.Config{Dir: broken}, ids, "storage directory"},
		{"no coordinator", broker.Config{}, ids[:1], "no coordinator"},
		{"one identity twice", broker.Config{}, append(slices.Clip(ids), ids[0]), "twice"},
		{"identity without a key", broker.Config{}, []broker.Identity{{Role: broker.Reader, Name: "r"}}, "nkey seed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.cfg.Dir == "" && c.name != "no directory" {
				c.cfg.Dir = t.TempDir()
			}
			s, err := broker.Start(t.Context(), c.cfg, c.ids)
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	dir := t.TempDir()
	if s, err := broker.Start(ctx, broker.Config{Dir: dir}, natstest.Identities(t)); !errors.Is(err, stop) {
		if err == nil {
			_ = s.Close()
		}
		t.Errorf("got %v, want %v", err, stop)
	}
	natstest.StartConfig(t, broker.Config{Dir: dir})
}

func TestCredentialsOfUnknownIdentity(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	if _, ok := s.Credentials(broker.Worker, "w3"); ok {
		t.Error("credentials for a worker nobody listed")
	}
}

func TestPublishIsNotBufferedAcrossAReconnect(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	lost := make(chan struct{})
	nc := s.Conn(t, broker.Coordinator, "coordinator",
		nats.DisconnectErrHandler(func(*nats.Conn, error) { close(lost) }))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	<-lost
	if err := nc.Publish("entail.log.0.r.s.inbox", nil); !errors.Is(err, nats.ErrReconnectBufExceeded) {
		t.Errorf("got %v, want %v", err, nats.ErrReconnectBufExceeded)
	}
}
