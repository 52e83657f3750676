package coordinator

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/entail-fleet/entail/session"
	"github.com/entail-fleet/entail/sessionstore"
	"github.com/entail-fleet/entail/stream"
)

// Config is what a coordinator works with. Its caller owns the connection and
// the store, and closes them after Run has returned.
type Config struct {
	Name  string
	Conn  *nats.Conn
	Log   *stream.Log
	Store *sessionstore.Store
	// Partitions is the deployment's partition count. Default 1.
	Partitions int
	Tokens     []Token
	// Tools are the names that a tool filter may speak of.
	Tools []string
	// Models are the models that the deployment's workers offer, as provider:name.
	// Empty offers all.
	Models []string
	// Version and Durability are shown by info.
	Version    string
	Durability string
	// Now is the time of new events. Default time.Now. It informs, it decides
	// nothing.
	Now    func() time.Time
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Partitions == 0 {
		c.Partitions = 1
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Name == "":
		return errors.New("coordinator: it has no name")
	case c.Conn == nil || c.Log == nil || c.Store == nil:
		return errors.New("coordinator: it needs a connection, a log and a store")
	case len(c.Tools) == 0:
		return errors.New("coordinator: it needs the names of the tools")
	}
	return nil
}

// Role is what a token lets its bearer do; each includes the ones before it.
type Role int

// The roles.
const (
	Viewer Role = iota + 1
	Operator
	Admin
)

// Token is a bearer token, kept as its digest only.
type Token struct {
	Digest string // SHA-256, hex
	Party  session.Party
	Role   Role
}

// DigestToken returns what is kept of a token.
func DigestToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// bearer finds whose token it is. Every token is compared, in constant time.
func (c Config) bearer(token string) (Token, bool) {
	digest := []byte(DigestToken(token))
	var found Token
	ok := false
	for _, t := range c.Tokens {
		if subtle.ConstantTimeCompare(digest, []byte(t.Digest)) == 1 {
			found, ok = t, true
		}
	}
	return found, ok
}
