package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// MinVersion is the oldest nats-server whose checks the logs can rely on.
const MinVersion = "2.12.0"

// infoWait is how long CheckServer waits for JetStream. A cluster that elects a
// leader takes up to nine seconds.
const infoWait = 10 * time.Second

// CheckServer refuses a server that the logs cannot be kept on: one that is
// older than [MinVersion], or without JetStream. A client's connection may not
// ask about JetStream; use [RequireVersion] for it.
func CheckServer(nc *nats.Conn) error {
	if err := RequireVersion(nc.ConnectedServerVersion(), MinVersion); err != nil {
		return fmt.Errorf("check %s: %w", nc.ConnectedUrlRedacted(), err)
	}
	if err := checkJetStream(nc); err != nil {
		return fmt.Errorf("check %s: %w", nc.ConnectedUrlRedacted(), err)
	}
	return nil
}

// RequireVersion reports a server version that is older than oldest, or that is
// none.
func RequireVersion(version, oldest string) error {
	got, err := parseVersion(version)
	if err != nil {
		return err
	}
	want, err := parseVersion(oldest)
	if err != nil {
		return err
	}
	for i := range want {
		if got[i] > want[i] {
			return nil
		}
		if got[i] < want[i] {
			return fmt.Errorf("nats-server %s is too old: install %s or newer, or let Entail run its own",
				version, oldest)
		}
	}
	return nil
}

// parseVersion reads major.minor.patch. What follows a hyphen is left out: a
// release candidate counts as its release.
func parseVersion(version string) ([3]int, error) {
	var out [3]int
	core, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	parts := strings.Split(core, ".")
	if len(parts) != len(out) {
		return out, fmt.Errorf("nats-server version %q is not of the form 2.12.0", version)
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return out, fmt.Errorf("nats-server version %q is not of the form 2.12.0", version)
		}
		out[i] = n
	}
	return out, nil
}

func checkJetStream(nc *nats.Conn) error {
	const wayOut = "start nats-server with jetstream enabled, and with the accounts that entail keys init writes"
	reply, err := nc.Request("$JS.API.INFO", nil, infoWait)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return errors.New("JetStream is off: " + wayOut)
	case err != nil:
		return fmt.Errorf("ask for JetStream: %w", err)
	}
	var info struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &info); err != nil {
		return fmt.Errorf("decode JetStream's answer: %w", err)
	}
	if info.Error != nil {
		return fmt.Errorf("JetStream is not usable (%s): %s", info.Error.Description, wayOut)
	}
	return nil
}
