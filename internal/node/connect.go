package node

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/broker"
)

// Connect opens a connection to the broker. What goes wrong on it later is
// logged: a publish that the broker refuses would look like an outage otherwise.
func Connect(c broker.Credentials, log *slog.Logger) (*nats.Conn, error) {
	opts := append(c.Options(),
		nats.Timeout(5*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Error("broker", slog.Any("error", err))
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("broker connection lost", slog.Any("error", err))
			}
		}),
	)
	nc, err := nats.Connect(c.URL, opts...)
	switch {
	case errors.Is(err, nats.ErrNkeysNotSupported):
		return nil, fmt.Errorf("connect to %s: the server takes no keys: it is no broker of a deployment, which needs nats-server %s or newer with the accounts that Entail writes",
			c.URL, broker.MinVersion)
	case err != nil:
		return nil, fmt.Errorf("connect to the broker at %s: %w; is it running?", c.URL, err)
	}
	return nc, nil
}

// ConnectChecked is Connect to a server that the logs can be kept on.
func ConnectChecked(c broker.Credentials, log *slog.Logger) (*nats.Conn, error) {
	nc, err := Connect(c, log)
	if err != nil {
		return nil, err
	}
	if err := broker.RequireVersion(nc.ConnectedServerVersion(), broker.MinVersion); err != nil {
		nc.Close()
		return nil, fmt.Errorf("check %s: %w", c.URL, err)
	}
	return nc, nil
}
