package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/session"
)

// fleet is what keys are made for.
type fleet struct {
	partitions, coordinators, workers int
	brokers                           []string // host names
}

func newKeys(a *app) *cobra.Command {
	var f fleet
	init := &cobra.Command{
		Use:   "init DIR",
		Short: "Make the keys of a fleet",
		Long: `Make the keys of a fleet in a new directory that only its owner can read. Each
process gets its own file and no other:

  broker/                 accounts.conf and cluster.conf for every nats-server;
                          they hold public keys and the cluster's own password
  provisioner.json        for the coordinator that makes the streams
  coordinator-c1.json     for each coordinator, with tokens.json
  worker-w1.json          for each worker
  token                   for the people of the fleet, the --token-file`,
		Example: "  entail keys init ./keys --partitions 8 --workers 3",
		Args:    arguments(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			if f.partitions < 1 || f.partitions > 256 || f.coordinators < 1 || f.workers < 1 || len(f.brokers) == 0 {
				return usagef("a fleet has 1 to 256 partitions, and at least one broker, coordinator and worker")
			}
			if err := a.makeKeys(args[0], f); err != nil {
				return err
			}
			return a.printer.value(map[string]string{"dir": args[0]}, func() { a.printer.line("%s", args[0]) })
		},
	}
	flags := init.Flags()
	flags.IntVar(&f.partitions, "partitions", 8, "the fleet's partition count; the same for ever")
	flags.IntVar(&f.coordinators, "coordinators", 2, "how many coordinators: c1, c2, ...")
	flags.IntVar(&f.workers, "workers", 3, "how many workers: w1, w2, ...")
	flags.StringSliceVar(&f.brokers, "brokers", []string{"nats1", "nats2", "nats3"}, "host names of the nats-servers")
	cmd := &cobra.Command{
		Use: "keys", Short: "Make the keys of a fleet",
		Long:    "Make the keys that the processes of a fleet know each other by. The all-in-one server makes its own at each start.",
		Example: "  entail keys init ./keys",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(init)
	return cmd
}

// makeKeys writes everything to a directory that appears when it is complete.
func (a *app) makeKeys(dir string, f fleet) (err error) {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return usagef("%s exists: name a directory that does not", dir)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".keys-*")
	if err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	ids, err := f.identities()
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(tmp, "broker"), 0o700); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	accounts, err := broker.ServerConfig(ids, f.partitions)
	if err != nil {
		return err
	}
	files := map[string][]byte{"broker/accounts.conf": accounts, "broker/cluster.conf": f.cluster(rand.Text())}
	for _, id := range ids {
		var text bytes.Buffer
		if err := broker.WriteCredentials(&text, f.credentials(id)); err != nil {
			return err
		}
		files[fileOf(id)] = text.Bytes()
	}
	token := rand.Text()
	if files["tokens.json"], err = json.Marshal([]coordinator.Token{{
		Digest: coordinator.DigestToken(token), Role: coordinator.Admin, Party: session.Party{Kind: session.Person, ID: a.user()},
	}}); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), text, 0o600); err != nil {
			return fmt.Errorf("make keys: %w", err)
		}
	}
	// The client's credentials are in the token file, and nowhere else.
	person := broker.TokenFile{Client: f.credentials(ids[0]), Token: broker.NewSecret(token)}
	if err := broker.WriteTokenFile(filepath.Join(tmp, "token"), person); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(tmp, fileOf(ids[0]))); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	return nil
}

// identities makes a fresh key for each party, the client's first.
func (f fleet) identities() ([]broker.Identity, error) {
	type party struct {
		role broker.Role
		name string
	}
	parties := []party{{broker.Client, "client"}, {broker.Provisioner, "provisioner"}, {broker.Reader, "reader"}}
	for i := range f.coordinators {
		parties = append(parties, party{broker.Coordinator, fmt.Sprintf("c%d", i+1)})
	}
	for i := range f.workers {
		parties = append(parties, party{broker.Worker, fmt.Sprintf("w%d", i+1)})
	}
	var out []broker.Identity
	for _, p := range parties {
		id, err := broker.NewIdentity(p.role, p.name)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

// fileOf names the file of an identity's credentials.
func fileOf(id broker.Identity) string {
	if string(id.Role) == id.Name {
		return id.Name + ".json"
	}
	return string(id.Role) + "-" + id.Name + ".json"
}

// credentials connect an identity to any of the brokers.
func (f fleet) credentials(id broker.Identity) broker.Credentials {
	urls := make([]string, len(f.brokers))
	for i, host := range f.brokers {
		urls[i] = "nats://" + host + ":4222"
	}
	return broker.Credentials{URL: strings.Join(urls, ","), Role: id.Role, Name: id.Name, Seed: id.Seed}
}

// cluster configures how the nats-servers find each other. Its password is known
// to them alone.
func (f fleet) cluster(password string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster {\n  name: entail\n  listen: 0.0.0.0:6222\n  authorization { user: entail, password: %q }\n  routes: [\n", password)
	for _, host := range f.brokers {
		fmt.Fprintf(&b, "    %q\n", "nats-route://entail:"+password+"@"+host+":6222")
	}
	b.WriteString("  ]\n}\n")
	return []byte(b.String())
}
