package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/coordinator"
	"github.com/entail-fleet/entail/session"
)

// fleet names the members of a deployment on many machines.
type fleet struct {
	brokers, coordinators, workers []string
	partitions                     int
}

func newKeys(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "keys",
		Short:   "Make the keys of a fleet",
		Long:    "Make the keys of a deployment whose broker, coordinators and workers run on many machines.",
		Example: "  entail keys init ./keys",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeysInit(a))
	return cmd
}

func newKeysInit(a *app) *cobra.Command {
	var f fleet
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Make a new fleet's keys and its broker's configuration",
		Long: `Make a key for each member of a new fleet, and write to a new directory what each
of them needs, readable by its owner alone:

  broker/accounts.conf   who may do what, for every nats-server; public keys only
  broker/cluster.conf    the routes between them
  provisioner.json       makes streams and buckets; one coordinator needs it
  coordinator-NAME.json  the credentials of a coordinator
  worker-NAME.json       the credentials of a worker
  reader.json            reads logs and nothing else
  tokens.json            who may ask a coordinator, as digests
  token                  the token file of an administrator, for this command

Give each member its own file and no other.`,
		Example: `  entail keys init ./keys
  entail keys init ./keys --brokers nats1,nats2,nats3 --workers w1,w2,w3,w4 --partitions 8`,
		Args: arguments(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := f.init(args[0], a.user()); err != nil {
				return err
			}
			return a.printer.value(map[string]string{"dir": args[0]}, func() { a.printer.line("%s", args[0]) })
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.brokers, "brokers", []string{"nats1", "nats2", "nats3"}, "host names of the nats-servers")
	flags.StringSliceVar(&f.coordinators, "coordinators", []string{"c1", "c2"}, "names of the coordinators")
	flags.StringSliceVar(&f.workers, "workers", []string{"w1", "w2", "w3"}, "names of the workers")
	flags.IntVar(&f.partitions, "partitions", 8, "partition count; the same for ever")
	asGiven(flags, "workers")
	return cmd
}

// init writes the keys of a new fleet to a directory that appears when it is
// whole.
func (f fleet) init(dir, user string) (err error) {
	if err := errors.Join(newDir(dir), f.validate()); err != nil {
		return err
	}
	files, token, err := f.files(user)
	if err != nil {
		return usagef("%w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".keys-*")
	if err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	if err := os.Mkdir(filepath.Join(tmp, "broker"), 0o700); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), text, 0o600); err != nil {
			return fmt.Errorf("make keys: %w", err)
		}
	}
	if err := broker.WriteTokenFile(filepath.Join(tmp, "token"), token); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	return nil
}

// validate names the first member that no fleet can have.
func (f fleet) validate() error {
	for flag, names := range map[string][]string{"brokers": f.brokers, "coordinators": f.coordinators, "workers": f.workers} {
		if len(names) == 0 {
			return usagef("--%s names nobody: give at least one", flag)
		}
		for i, name := range names {
			if slices.Contains(names[:i], name) {
				return usagef("--%s names %q twice: give each once", flag, name)
			}
		}
	}
	for _, host := range f.brokers {
		const parts = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-"
		if host == "" || strings.Trim(host, parts) != "" {
			return usagef("--brokers: %q is no host name: give one such as nats1 or 10.0.0.1", host)
		}
	}
	const most = 256 // an id has two hex digits for its partition
	if f.partitions < 1 || f.partitions > most {
		return usagef("--partitions %d: give 1 to %d", f.partitions, most)
	}
	return nil
}

// files makes the keys and renders every file but the token file.
func (f fleet) files(user string) (map[string][]byte, broker.TokenFile, error) {
	files := map[string][]byte{}
	var ids []broker.Identity
	var client broker.Credentials
	for _, m := range f.members() {
		id, err := broker.NewIdentity(m.role, m.name)
		if err != nil {
			return nil, broker.TokenFile{}, err
		}
		ids = append(ids, id)
		creds := broker.Credentials{URL: f.url("", "4222"), Role: id.Role, Name: id.Name, Seed: id.Seed}
		if m.role == broker.Client {
			client = creds // it stands in the token file
			continue
		}
		var text bytes.Buffer
		if err := broker.WriteCredentials(&text, creds); err != nil {
			return nil, broker.TokenFile{}, err
		}
		files[m.file] = text.Bytes()
	}
	access, err := broker.ServerConfig(ids, f.partitions)
	if err != nil {
		return nil, broker.TokenFile{}, err
	}
	token := rand.Text()
	tokens, err := json.MarshalIndent([]coordinator.Token{{
		Digest: coordinator.DigestToken(token), Role: coordinator.Admin, Party: session.Party{Kind: session.Person, ID: user},
	}}, "", "  ")
	if err != nil {
		return nil, broker.TokenFile{}, err
	}
	routes, err := f.routes()
	if err != nil {
		return nil, broker.TokenFile{}, err
	}
	files["tokens.json"] = tokens
	files["broker/accounts.conf"] = access
	files["broker/cluster.conf"] = routes
	return files, broker.TokenFile{Client: client, Token: broker.NewSecret(token)}, nil
}

// member is one identity of a fleet and the file of its credentials.
type member struct {
	role       broker.Role
	name, file string
}

func (f fleet) members() []member {
	out := []member{
		{broker.Provisioner, "provisioner", "provisioner.json"},
		{broker.Reader, "reader", "reader.json"},
		{broker.Client, "client", ""},
	}
	for _, name := range f.coordinators {
		out = append(out, member{broker.Coordinator, name, "coordinator-" + name + ".json"})
	}
	for _, name := range f.workers {
		out = append(out, member{broker.Worker, name, "worker-" + name + ".json"})
	}
	return out
}

// url lists the addresses of the brokers, as clients take them.
func (f fleet) url(user, port string) string {
	out := make([]string, len(f.brokers))
	for i, host := range f.brokers {
		out[i] = "nats://" + user + host + ":" + port
	}
	return strings.Join(out, ",")
}

// routes renders the cluster of the brokers. Whoever reaches the port of a route
// is a broker to the others, so it has a password of its own.
func (f fleet) routes() ([]byte, error) {
	password := rand.Text()
	return json.MarshalIndent(map[string]any{"cluster": map[string]any{
		"name": "entail", "listen": "0.0.0.0:6222",
		"authorization": map[string]string{"user": "broker", "password": password},
		"routes":        strings.Split(f.url("broker:"+password+"@", "6222"), ","),
	}}, "", "  ")
}
