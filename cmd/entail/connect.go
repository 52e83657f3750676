package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

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
	path := a.tokenPath(a.dir)
	t, err := broker.ReadTokenFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, unavailable(fmt.Errorf("no deployment: %s does not exist; start one with `entail up`, or name one with --dir or --token-file", path))
	case err != nil:
		return nil, unavailable(err)
	}
	if a.server != "" {
		t.Client.URL = a.server
	}
	nc, err := node.ConnectChecked(t.Client, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, unavailable(err)
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
