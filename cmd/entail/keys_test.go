package main

import (
	"bytes"
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
)

func TestKeysInit(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	var out bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, err: &out, lookup: func(string) (string, bool) { return "", false }}
	args := []string{"keys", "init", dir, "--partitions", "2", "--workers", "2", "--coordinators", "1"}
	if exit := a.execute(args); exit != exitDone {
		t.Fatalf("exit %d: %s", exit, out.String())
	}
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		files = append(files, rel)
		if info, err := d.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", rel, info.Mode(), err)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"broker/accounts.conf", "broker/cluster.conf", "coordinator-c1.json", "provisioner.json", "reader.json",
		"token", "tokens.json", "worker-w1.json", "worker-w2.json",
	}
	slices.Sort(files)
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	creds, err := node.ReadCredentials(filepath.Join(dir, "worker-w2.json"))
	if err != nil || creds.Role != broker.Worker || creds.Name != "w2" {
		t.Errorf("worker-w2.json holds %s %s: %v", creds.Role, creds.Name, err)
	}
	if !strings.HasPrefix(creds.URL, "nats://nats1:4222,nats://nats2:4222,") {
		t.Errorf("its brokers are %s", creds.URL)
	}
	person, err := broker.ReadTokenFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := node.ReadTokens(filepath.Join(dir, "tokens.json"))
	if err != nil || len(tokens) != 1 || tokens[0].Digest != coordinator.DigestToken(person.Token.Reveal()) {
		t.Errorf("tokens %v do not hold the digest of the token: %v", tokens, err)
	}
	for _, name := range []string{"broker/accounts.conf", "broker/cluster.conf"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), creds.Seed.Reveal()) {
			t.Errorf("%s holds a private key", name)
		}
		if err := (&natsserver.Options{}).ProcessConfigString(string(text)); err != nil {
			t.Errorf("%s is not what nats-server reads: %v", name, err)
		}
	}

	out.Reset()
	if exit := a.execute(args); exit != exitUsage || !strings.Contains(out.String(), "exists") {
		t.Errorf("a second time: exit %d, %s", exit, out.String())
	}
}
