package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
	"github.com/entail-fleet/entail/client"
	"github.com/entail-fleet/entail/internal/node"
)

// deployment is a connection to a running deployment.
type deployment struct {
	*client.Client
	nc   *nats.Conn
	head client.Head
}

// tokenPath is the token file of a deployment in dir.
func (a *app) tokenPath(dir string) string {
	if a.tokenFile != "" {
		return a.tokenFile
	}
	return filepath.Join(dir, "token")
}

// connect reaches the deployment that --server, --token-file or --dir name.
func (a *app) connect() (*deployment, error) {
	if a.dir == "" && a.tokenFile == "" {
		return nil, usagef("--dir is empty: name the data directory of the deployment")
	}
	if err := checkServer(a.server); err != nil {
		return nil, err
	}
	path := a.tokenPath(a.dir)
	t, err := broker.ReadTokenFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, unavailable(fmt.Errorf("no deployment: %s does not exist; start one with `entail up`, or name one with --dir or --token-file", path))
	case err != nil:
		return nil, unavailable(fmt.Errorf("%w; name a deployment's with --dir or --token-file", err))
	}
	if a.server != "" {
		t.Client.URL = a.server
	}
	nc, err := node.ConnectChecked(t.Client, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, unavailable(fmt.Errorf("%w; `entail up` starts one, --server and --dir name another", err))
	}
	if on, _ := nc.ConnectedServerJetStream(); !on {
		nc.Close()
		return nil, unavailable(fmt.Errorf("the server at %s has JetStream off: start nats-server with jetstream enabled, or let `entail up` run one", t.Client.URL))
	}
	return &deployment{
		Client: client.New(nc, client.Config{Token: t.Token.Reveal()}), nc: nc,
		head: client.Head{Version: client.APIVersion},
	}, nil
}

// checkServer holds --server to its form. Who asks is in the token file: a name or
// a password in an address would be shown by every error.
func checkServer(list string) error {
	if list == "" {
		return nil
	}
	for address := range strings.SplitSeq(list, ",") {
		if !strings.Contains(address, "://") {
			address = "nats://" + address
		}
		u, err := url.Parse(address)
		switch {
		case err == nil && u.User != nil:
			return usagef("--server %s holds a user: give the address alone, such as nats://127.0.0.1:4222; keys come from the token file", u.Redacted())
		case err != nil || u.Host == "" || (u.Scheme != "nats" && u.Scheme != "tls"):
			return usagef("--server %s is no broker's address: give one such as nats://127.0.0.1:4222", shown(address))
		}
	}
	return nil
}

func (d *deployment) close() { d.nc.Close() }

// with runs one command against the deployment.
func (a *app) with(fn func(*deployment) error) error {
	d, err := a.connect()
	if err != nil {
		return err
	}
	defer d.close()
	return fn(d)
}

// info asks what the deployment is.
func (d *deployment) info(ctx context.Context) (client.InfoReply, error) {
	var out client.InfoReply
	err := d.Call(ctx, client.MethodInfo, d.head, &out)
	return out, err
}
