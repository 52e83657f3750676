package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/internal/node"
	"github.com/entail-fleet/entail/session"
)

func newFleetKeys(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	f := fleet{brokers: []string{"n1", "n2", "n3"}, coordinators: []string{"c1", "c2"}, workers: []string{"w1"}, partitions: 2}
	if err := f.init(dir, "ann"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestKeysInitGivesEachMemberItsOwnFile(t *testing.T) {
	t.Parallel()
	dir := newFleetKeys(t)
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s has mode %#o, others can use it", path, mode)
		}
		if !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, dir+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	want := []string{
		"broker/accounts.conf", "broker/cluster.conf", "coordinator-c1.json", "coordinator-c2.json", "provisioner.json",
		"reader.json", "token", "tokens.json", "worker-w1.json",
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	creds, err := node.ReadCredentials(filepath.Join(dir, "worker-w1.json"))
	if err != nil {
		t.Fatal(err)
	}
	if creds.Role != broker.Worker || creds.Name != "w1" || creds.URL != "nats://n1:4222,nats://n2:4222,nats://n3:4222" {
		t.Errorf("worker-w1.json is of %s %q at %s", creds.Role, creds.Name, creds.URL)
	}
}

func TestKeysInitNamesTheHolderOfTheToken(t *testing.T) {
	t.Parallel()
	dir := newFleetKeys(t)
	token, err := broker.ReadTokenFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := node.ReadTokens(filepath.Join(dir, "tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := []coordinator.Token{{
		Digest: coordinator.DigestToken(token.Token.Reveal()), Role: coordinator.Admin,
		Party: session.Party{Kind: session.Person, ID: "ann"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tokens.json (-want +got):\n%s", diff)
	}
}

func TestKeysInitIsWhatNatsServerReads(t *testing.T) {
	t.Parallel()
	dir := newFleetKeys(t)
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, []byte("include \"broker/accounts.conf\"\ninclude \"broker/cluster.conf\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := natsserver.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	// Four identities with accounts of their own, and the one of the logs.
	if len(opts.Accounts) != 5 || len(opts.Nkeys) != 6 || len(opts.Routes) != 3 || opts.Cluster.Password == "" || opts.NoAuthUser != "" {
		t.Errorf("%d accounts, %d keys, %d routes, password %t, anonymous user %q; want 5, 6, 3, true, none",
			len(opts.Accounts), len(opts.Nkeys), len(opts.Routes), opts.Cluster.Password != "", opts.NoAuthUser)
	}
	access, err := os.ReadFile(filepath.Join(dir, "broker", "accounts.conf"))
	if err != nil {
		t.Fatal(err)
	}
	var parsed map[string]json.RawMessage
	if err := json.Unmarshal(access, &parsed); err != nil || len(parsed) != 1 {
		t.Errorf("accounts.conf holds %d parts, want the accounts alone: %v", len(parsed), err)
	}
}

func TestKeysInitWritesOverNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := fleet{brokers: []string{"n1"}, coordinators: []string{"c1"}, workers: []string{"w1"}, partitions: 1}
	if err := f.init(dir, "ann"); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("init of an existing directory: %v, want a refusal", err)
	}
	f.workers = []string{"W 1"}
	parent := t.TempDir()
	if err := f.init(filepath.Join(parent, "keys"), "ann"); err == nil {
		t.Error("init with a worker that cannot be a name succeeded")
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("a refused init left %v, %v", left, err)
	}
}
