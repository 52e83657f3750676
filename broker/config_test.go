package broker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/internal/natstest"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// fixedIdentity has a key made of one repeated byte.
func fixedIdentity(t *testing.T, role broker.Role, name string, key byte) broker.Identity {
	t.Helper()
	pair, err := nkeys.FromRawSeed(nkeys.PrefixByteUser, bytes.Repeat([]byte{key}, 32))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return broker.Identity{Role: role, Name: name, Seed: broker.NewSecret(string(seed))}
}

func TestServerConfigGolden(t *testing.T) {
	t.Parallel()
	ids := []broker.Identity{
		fixedIdentity(t, broker.Coordinator, "c1", 1),
		fixedIdentity(t, broker.Client, "cli", 2),
		fixedIdentity(t, broker.Worker, "w1", 3),
		fixedIdentity(t, broker.Worker, "w2", 4),
	}
	got, err := broker.ServerConfig(ids, 1)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile("testdata/accounts.conf", got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/accounts.conf")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	for _, id := range ids {
		if strings.Contains(string(got), id.Seed.Reveal()) {
			t.Errorf("the configuration holds the key of %s %s", id.Role, id.Name)
		}
	}
}

// subjects is one side of the configuration's borders: account, then subject.
type subjects map[string]map[string]bool

func (s subjects) add(account, subject string) {
	if s[account] == nil {
		s[account] = map[string]bool{}
	}
	s[account][subject] = true
}

func TestServerConfigOpensWhatPermissionsAllowAndNoMore(t *testing.T) {
	t.Parallel()
	ids := natstest.Identities(t)
	text, err := broker.ServerConfig(ids, 3)
	if err != nil {
		t.Fatal(err)
	}
	var conf struct {
		Accounts map[string]struct {
			JetStream bool
			Exports   []struct {
				Service, Stream string
				Accounts        []string
			}
			Imports []struct {
				Service, Stream *struct{ Account, Subject string }
			}
		}
	}
	if err := json.Unmarshal(text, &conf); err != nil {
		t.Fatal(err)
	}
	exported, imported, allowed := subjects{}, subjects{}, subjects{}
	for name, account := range conf.Accounts {
		if account.JetStream != (name == "ENTAIL") {
			t.Errorf("account %s: JetStream is %v", name, account.JetStream)
		}
		for _, e := range account.Exports {
			for _, to := range e.Accounts {
				exported.add(to, e.Service+e.Stream)
			}
		}
		for _, i := range account.Imports {
			for _, source := range []*struct{ Account, Subject string }{i.Service, i.Stream} {
				if source != nil {
					imported.add(name, source.Subject)
				}
			}
		}
	}
	for _, id := range ids {
		if id.Role == broker.Coordinator {
			continue
		}
		p := broker.Permissions(id.Role, id.Name, 3)
		for _, subject := range append(p.Publish.Allow, p.Subscribe.Allow...) {
			if !strings.HasPrefix(subject, "_INBOX_") {
				allowed.add(string(id.Role)+"_"+id.Name, subject)
			}
		}
	}
	if diff := cmp.Diff(allowed, imported); diff != "" {
		t.Errorf("imports (-permissions +imports):\n%s", diff)
	}
	if diff := cmp.Diff(allowed, exported); diff != "" {
		t.Errorf("exports (-permissions +exports):\n%s", diff)
	}
}

// A fleet's server includes the rendered file in its own configuration.
func TestServerRunsOnTheRenderedFile(t *testing.T) {
	t.Parallel()
	ids := natstest.Identities(t)
	text, err := broker.ServerConfig(ids, 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	main := filepath.Join(dir, "nats-server.conf")
	for path, text := range map[string]string{
		filepath.Join(dir, "accounts.conf"): string(text),
		main: "listen: 127.0.0.1:-1\njetstream { store_dir: \"" + filepath.Join(dir, "store") + "\" }\n" +
			"include accounts.conf\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opts, err := server.ProcessConfigFile(main)
	if err != nil {
		t.Fatal(err)
	}
	url := runServer(t, opts)
	if nc, err := nats.Connect(url); !errors.Is(err, nats.ErrAuthorization) {
		nc.Close()
		t.Fatalf("anonymous connection: got %v, want %v", err, nats.ErrAuthorization)
	}
	connect := func(p party) *nats.Conn { return connectAs(t, url, ids, p) }
	provision(t, connect(provisioner))
	c, w := connect(coordinator), connect(worker)
	request(t, w, "entail.log.0.r.s.turn", "turn")
	for _, class := range []string{"policy", "inbox", "seed", "genesis.c"} {
		nc := connect(worker)
		if err := nc.Publish("entail.log.0.r.s."+class, nil); err != nil {
			t.Fatal(err)
		}
		if err := settled(t, nc); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: got %v, want a permission violation", class, err)
		}
		if err := w.PublishRequest("$JS.API.DIRECT.GET.ENTAIL_LOG_0", "entail.log.0.r.s."+class, []byte(`{"seq":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	request(t, w, "$JS.API.DIRECT.GET.ENTAIL_LOG_0", `{"seq":1}`)
	request(t, c, "entail.log.0.r.s.turn", "last")
	wantSubjects(t, c, "ENTAIL_LOG_0", map[string]int{"entail.log.0.r.s.turn": 2})
}

// connectAs connects to url as the identity among ids that p names.
func connectAs(t *testing.T, url string, ids []broker.Identity, p party) *nats.Conn {
	t.Helper()
	for _, id := range ids {
		if id.Role != p.role || id.Name != p.name {
			continue
		}
		creds := broker.Credentials{URL: url, Role: id.Role, Name: id.Name, Seed: id.Seed}
		nc, err := nats.Connect(url, append(creds.Options(), quiet)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	t.Fatalf("no identity %v", p)
	return nil
}
